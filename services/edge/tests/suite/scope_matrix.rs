//! A key of one scope by every method over every protocol: what its scope does not grant is forbidden, and nothing else
//! is. What a scope grants is said once, in the row of the method.

use edge::Scope;
use serde_json::{Value, json};
use session_api::Method;

use crate::access::Guarded;
use crate::agent_matrix::{agents_api_rows, openai_rows, parameters, to_request};
use crate::bad_input::{call_rpc, list_methods, list_rpcs};
use crate::support::http::read;
use crate::support::mcp::Mcp;
use crate::support::read_code;

/// A key for each scope, in the order of [`Scope::ALL`].
async fn one_key_each() -> Guarded {
    let keys: Vec<(&str, String)> =
        Scope::ALL.iter().map(|scope| (scope.as_str(), format!("scopes: [{}]", scope.as_str()))).collect();
    let keys: Vec<(&str, &str)> = keys.iter().map(|(name, rest)| (*name, rest.as_str())).collect();
    Guarded::new(&keys).await
}

fn grants(name: &str, scope: Scope) -> bool {
    let method = Method::ALL.iter().find(|method| method.name() == name);
    method.unwrap_or_else(|| panic!("there is no method {name}")).scopes().contains(&scope)
}

#[tokio::test]
async fn json_rpc_method_needs_a_scope_of_its_row() {
    let guarded = one_key_each().await;
    for (n, scope) in Scope::ALL.iter().enumerate() {
        let mut ws = guarded.ws(n).await;
        for method in list_methods() {
            let answer = ws.call(method.name, method.needed.clone()).await;
            let is_forbidden = answer["error"]["data"]["code"] == "forbidden";
            assert_eq!(is_forbidden, !grants(method.name, *scope), "{} with {}: {answer}", method.name, scope.as_str());
        }
    }
}

#[tokio::test]
async fn http_route_needs_a_scope_of_its_row() {
    let guarded = one_key_each().await;
    let (_, document) = guarded.http(0).get("/v1/openapi.json").await;
    let mut compared = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (verb, operation) in operations.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().replacen('_', ".", 1);
            let name = name.trim_end_matches("_all");
            let fits = |params| to_request(verb, path, operation, params);
            let Some(probe) = parameters(name).iter().find_map(fits) else { panic!("{verb} {path} has no request") };
            for (n, scope) in Scope::ALL.iter().enumerate() {
                let body = Some(&probe.body).filter(|body| !body.is_null());
                let (status, answer) = guarded.http(n).send(probe.verb, &probe.path, body).await;
                let is_forbidden = status == 403;
                assert_eq!(is_forbidden, !grants(name, *scope), "{verb} {path} with {}: {answer}", scope.as_str());
                compared += 1;
            }
        }
    }
    assert!(compared >= 200, "{compared} requests were sent");
}

#[tokio::test]
async fn grpc_method_needs_a_scope_of_its_row() {
    let guarded = one_key_each().await;
    for (method, case) in list_rpcs() {
        for (n, scope) in Scope::ALL.iter().enumerate() {
            let answer = call_rpc(&guarded.fixture, method, case.needed.clone(), Some(guarded.key(n))).await;
            let is_forbidden = answer.err().is_some_and(|status| read_code(&status) == "forbidden");
            assert_eq!(is_forbidden, !grants(case.name, *scope), "{} with {}", method.rpc(), scope.as_str());
        }
    }
}

/// An operator of the fleet has no session and no agent, so the protocols of others have nothing for his key.
#[tokio::test]
async fn route_of_another_protocol_is_forbidden_without_a_scope_for_sessions() {
    let guarded = Guarded::new(&[("fleet", "scopes: [operate]")]).await;
    let http = guarded.http(0);
    for (route, probes) in openai_rows().into_iter().chain(agents_api_rows()) {
        for probe in probes {
            let body = Some(&probe.body).filter(|body| !body.is_null());
            let (status, answer) = http.send(probe.verb, &probe.path, body).await;
            // What no key can do is answered alike to everybody.
            let is_for_nobody = answer["error"]["code"] == "unknown_method";
            assert!(status == 403 || is_for_nobody, "{route}: {status} {answer}");
        }
    }
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]});
    for (method, params) in [
        ("SendMessage", json!({"message": message})),
        ("SendStreamingMessage", json!({"message": message})),
        ("GetTask", json!({"id": "s.0"})),
        ("ListTasks", json!({})),
        ("CancelTask", json!({"id": "s.0"})),
        ("SubscribeToTask", json!({"id": "s.0"})),
        ("GetExtendedAgentCard", json!({})),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let request =
            http.request("POST", "/a2a").header("a2a-version", "1.0").header("content-type", "application/json");
        let (_, answer) = read(request.body(body).send().await.unwrap()).await;
        assert!(answer["error"].to_string().contains("forbidden"), "{method}: {answer}");
    }
    let input = json!({
        "threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "m1", "role": "user", "content": "Hi"}],
    });
    for (verb, path, body) in [
        ("POST", "/ag-ui/a", input.clone()),
        ("GET", "/ag-ui/info", Value::Null),
        ("POST", "/ag-ui/agent/a/run", input.clone()),
        ("POST", "/ag-ui/agent/a/connect", input),
        ("POST", "/ag-ui/agent/a/stop/t", json!({})),
    ] {
        let (status, answer) = http.send(verb, path, Some(&body).filter(|body| !body.is_null())).await;
        assert_eq!(status, 403, "{verb} {path}: {answer}");
    }
    let mcp = Mcp::new(guarded.http(0));
    for (tool, arguments) in
        [("a", json!({"prompt": "x"})), ("list_sessions", json!({})), ("session_status", json!({"session_id": "s"}))]
    {
        let answer = mcp.call(tool, arguments).await;
        assert!(answer.to_string().contains("forbidden"), "{tool}: {answer}");
    }
}
