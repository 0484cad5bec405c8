//! A key of one agent by every route of every protocol, in both directions: from its own session to another agent, and to
//! a session of another agent. The routes are those that the edge itself lists, so a new one without a row fails here.

use std::collections::BTreeSet;

use contract::TenantId;
use serde_json::{Map, Value, json};

use crate::access::{Guarded, key_of};
use crate::bad_input::{call_rpc, list_methods, list_rpcs};
use crate::support::http::read;
use crate::support::mcp::Mcp;
use crate::support::{asking, events, read_code};

/// Said to agent `e` only.
const SECRET: &str = "the-secret-of-e";
/// A session of agent `a`, which the key may use; its id is also that of a conversation, as are those of the others.
const MINE: &str = "conv-11111111111111111111111111111111";
/// A session of agent `e`, which waits for an approval.
const OTHER: &str = "conv-22222222222222222222222222222222";
/// A session of agent `a` that has ended. Another one of agent `e` follows it.
const FOLLOWED: &str = "conv-33333333333333333333333333333333";
const FOLLOWER: &str = "conv-33333333333333333333333333333333-1";
/// A session of agent `a` that has ended.
const ENDED: &str = "conv-44444444444444444444444444444444";

/// The sessions, a key of agent `a` alone, and a key of all agents.
struct Matrix {
    guarded: Guarded,
    lengths: Vec<(&'static str, usize)>,
}

impl Matrix {
    async fn new() -> Self {
        let every = "scopes: [run, observe, approve, administer]";
        let guarded = Guarded::new(&[("one", &format!("{every}, agents: [a]")), ("all", every)]).await;
        let fake_loop = &guarded.fixture.fake_loop;
        for (session, agent, text) in [
            (MINE, "a", "Hi"),
            (OTHER, "e", SECRET),
            (FOLLOWED, "a", "Hi"),
            (FOLLOWER, "e", SECRET),
            (ENDED, "a", "Hi"),
        ] {
            let key = key_of("default", session);
            let begun =
                vec![events::session_started(agent), events::user_message("m1", text), events::turn_started(1, "m1")];
            fake_loop.commit(&key, begun).await;
            let rest = if session == OTHER { asking::reply_with_approval(1) } else { events::turn_with_reply(1, text) };
            fake_loop.commit(&key, rest).await;
            if [FOLLOWED, ENDED].contains(&session) {
                fake_loop.commit(&key, vec![events::session_ended()]).await;
            }
        }
        fake_loop.reply_with("x").await;
        let mut lengths = Vec::new();
        for session in [OTHER, FOLLOWER] {
            lengths.push((session, log_length(&guarded, session).await));
        }
        Self { guarded, lengths }
    }

    /// Checks that a request has read nothing of agent `e`, and has neither changed nor made a session of it.
    async fn check(&self, name: &str, answer: &str) {
        assert!(!answer.contains(SECRET), "{name} shows what agent e was told: {answer}");
        for (session, length) in &self.lengths {
            assert_eq!(log_length(&self.guarded, session).await, *length, "{name} changed {session}: {answer}");
        }
        let sessions = self.guarded.fixture.bus.summaries(&TenantId::default()).await.unwrap();
        let of_e: BTreeSet<&str> =
            sessions.iter().filter(|one| one.agent == "e").map(|one| one.session_id.as_str()).collect();
        assert_eq!(of_e, [OTHER, FOLLOWER].into(), "{name} made a session of agent e: {answer}");
    }

    /// Sends a request over HTTP with the key of agent `a`.
    async fn send(&self, verb: &str, path: &str, body: &Value) -> (u16, Value) {
        let http = self.guarded.http(0);
        let mut request = http.request(verb, path).header("a2a-version", "1.0");
        if !body.is_null() {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        read(request.send().await.unwrap()).await
    }

    async fn run(&self, route: &str, Probe { verb, path, body, is_refused }: Probe) {
        let (status, answer) = self.send(verb, &path, &body).await;
        let name = format!("{route}: {verb} {path} {body}");
        self.check(&name, &answer.to_string()).await;
        let has_error = answer.get("error").is_some() || answer.to_string().contains("RUN_ERROR");
        let found = [403, 404].contains(&status) || status == 200 && has_error;
        assert!(found || !is_refused, "{name} is not refused: {status} {answer}");
    }
}

async fn log_length(guarded: &Guarded, session: &str) -> usize {
    guarded.fixture.bus.history(&key_of("default", session), 0).await.unwrap().len()
}

/// A request with the key of agent `a`.
pub(crate) struct Probe {
    pub(crate) verb: &'static str,
    pub(crate) path: String,
    pub(crate) body: Value,
    is_refused: bool,
}

/// A request that must be refused.
fn refused(verb: &'static str, path: impl Into<String>, body: Value) -> Probe {
    Probe { verb, path: path.into(), body, is_refused: true }
}

/// A request that may be answered, without what is of agent `e`.
fn harmless(verb: &'static str, path: impl Into<String>, body: Value) -> Probe {
    Probe { verb, path: path.into(), body, is_refused: false }
}

/// The parameters of a method, once for each direction.
pub(crate) fn parameters(name: &str) -> Vec<Map<String, Value>> {
    let methods = list_methods();
    let Some(method) = methods.iter().find(|method| method.name == name) else {
        panic!("{name} has no row in `list_methods`")
    };
    let has = |field: &str| method.fields.iter().any(|(known, _)| *known == field);
    let needed = |session: &str| {
        let Value::Object(mut params) = method.needed.clone() else { panic!("{name}: not an object") };
        if has("session_id") && name != "session.start" {
            params.insert("session_id".to_owned(), json!(session));
        }
        params
    };
    let mut all = vec![needed(OTHER)];
    if !method.needed.get("session_id").is_some_and(Value::is_string) {
        let mut params = needed(OTHER);
        params.remove("session_id");
        all.push(params);
    }
    if has("agent") {
        let mut params = needed(MINE);
        params.insert("agent".to_owned(), json!("e"));
        all.push(params.clone());
        if has("resume_from") {
            for at in [json!({}), json!({"at": 0})] {
                let mut from = at.clone();
                from["session_id"] = json!(MINE);
                params.insert("resume_from".to_owned(), from.clone());
                all.push(params.clone());
                let mut of_other = needed(MINE);
                from["session_id"] = json!(OTHER);
                of_other.insert("resume_from".to_owned(), from);
                all.push(of_other.clone());
                of_other.insert("agent".to_owned(), json!("a"));
                all.push(of_other);
            }
        }
    }
    all
}

/// Whether parameters concern agent `e` or its session, and the method does not only list what the caller reaches.
fn must_be_refused(name: &str, params: &Map<String, Value>) -> bool {
    let concerns_e = params.values().any(|value| [&json!(OTHER), &json!("e")].contains(&value))
        || params.get("resume_from").is_some_and(|from| from["session_id"] == OTHER);
    concerns_e && name != "session.list"
}

#[tokio::test]
async fn json_rpc_method_keeps_to_the_agents_of_the_key() {
    let matrix = Matrix::new().await;
    let mut ws = matrix.guarded.ws(0).await;
    let unknown = ws.call("no.such_method", json!({})).await["error"]["message"].as_str().unwrap().to_owned();
    let names: Vec<&str> = unknown.split_once("there are ").unwrap().1.split(", ").collect();
    assert!(names.len() > 40, "{unknown}");
    for name in names {
        for params in parameters(name) {
            let answer = ws.call(name, Value::Object(params.clone())).await;
            let shown = format!("{name} {}", Value::Object(params.clone()));
            matrix.check(&shown, &answer.to_string()).await;
            let code = answer["error"]["data"]["code"].as_str().unwrap_or_default();
            let is_refused = ["forbidden", "unknown_session"].contains(&code);
            assert!(is_refused || !must_be_refused(name, &params), "{shown} is not refused: {answer}");
        }
    }
}

#[tokio::test]
async fn http_route_keeps_to_the_agents_of_the_key() {
    let matrix = Matrix::new().await;
    let (_, document) = matrix.guarded.http(0).get("/v1/openapi.json").await;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (verb, operation) in operations.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().replacen('_', ".", 1);
            // What waits in all sessions and in one is one method.
            let name = name.trim_end_matches("_all").to_owned();
            for params in parameters(&name) {
                let Some(probe) = to_request(verb, path, operation, &params) else { continue };
                let is_refused = must_be_refused(&name, &params);
                matrix.run(&name, Probe { is_refused, ..probe }).await;
            }
        }
    }
}

/// Makes the request of a method at a path of the document; `None` if the parameters do not fit the path.
pub(crate) fn to_request(verb: &str, path: &str, operation: &Value, params: &Map<String, Value>) -> Option<Probe> {
    let (mut address, mut fields) = (path.to_owned(), Map::new());
    for (field, value) in params {
        let variable = format!("{{{field}}}");
        if address.contains(&variable) {
            address = address.replace(&variable, value.as_str()?);
        } else {
            fields.insert(field.clone(), value.clone());
        }
    }
    if address.contains('{') {
        return None;
    }
    if verb == "post" {
        return Some(refused("POST", address, Value::Object(fields)));
    }
    let known: Vec<&Value> = operation["parameters"].as_array().into_iter().flatten().map(|one| &one["name"]).collect();
    if fields.keys().any(|field| !known.contains(&&json!(field))) {
        return None;
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let query: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
    let address = if query.is_empty() { address } else { format!("{address}?{}", query.join("&")) };
    Some(refused(if verb == "delete" { "DELETE" } else { "GET" }, address, Value::Null))
}

#[tokio::test]
async fn grpc_method_keeps_to_the_agents_of_the_key() {
    let matrix = Matrix::new().await;
    for (method, case) in list_rpcs() {
        for params in parameters(case.name) {
            let sent = Value::Object(params.clone());
            let shown = format!("{} {sent}", method.rpc());
            let answer = call_rpc(&matrix.guarded.fixture, method, sent, Some(matrix.guarded.key(0))).await;
            matrix.check(&shown, &format!("{answer:?}")).await;
            let code = answer.as_ref().err().map(read_code).unwrap_or_default();
            let is_refused = ["forbidden", "unknown_session"].contains(&code.as_str());
            assert!(is_refused || !must_be_refused(case.name, &params), "{shown} is not refused: {answer:?}");
        }
    }
}

/// Lists the routes of a module as `VERB path`, from the calls in its source.
fn routes_in(source: &str) -> BTreeSet<String> {
    let mut routes = BTreeSet::new();
    for call in source.split(".route(").skip(1) {
        let path = call.split('"').nth(1).unwrap_or_default();
        let path = match call.trim_start() {
            rest if rest.starts_with("SESSIONS") => "/openai/v1/agents/sessions".to_owned(),
            rest if rest.starts_with("&below(") => format!("/openai/v1/agents/sessions/{{session}}{path}"),
            _ => path.to_owned(),
        };
        let handlers = call.split_once(',').unwrap().1;
        for (verb, word) in [("GET", "get("), ("POST", "post("), ("DELETE", "delete("), ("ANY", "any(")] {
            if handlers.contains(word) {
                routes.insert(format!("{verb} {path}"));
            }
        }
    }
    // Whatever has no route is refused by these.
    routes.retain(|route| !route.starts_with("ANY") || !route.contains("unknown") && !route.ends_with("/{*path}"));
    routes
}

/// Runs a row of probes for each route of these sources.
async fn run_rows(sources: &[&str], rows: Vec<(&str, Vec<Probe>)>) {
    let routes: BTreeSet<String> = sources.iter().flat_map(|source| routes_in(source)).collect();
    let known: BTreeSet<String> = rows.iter().map(|(route, _)| (*route).to_owned()).collect();
    assert_eq!(routes, known, "each route needs a row");
    let matrix = Matrix::new().await;
    for (route, probes) in rows {
        for probe in probes {
            matrix.run(route, probe).await;
        }
    }
}

/// Begins every path of the API of OpenAI.
const V1: &str = "/openai/v1";

/// The rows of models, chat completions, responses and conversations.
pub(crate) fn openai_rows() -> Vec<(&'static str, Vec<Probe>)> {
    let chat = |model: &str, more: Value| {
        let mut body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        refused("POST", format!("{V1}/chat/completions"), body)
    };
    let tool_message = json!({"role": "tool", "tool_call_id": format!("call_{OTHER}_c1-1-1"), "content": "x"});
    let response = |body: Value| refused("POST", format!("{V1}/responses"), body);
    let previous = |session: &str| format!("resp_{session}_0");
    let conversation = |session: &str| session.replacen('-', "_", 1);
    let output = json!({"type": "function_call_output", "call_id": format!("call_{OTHER}_c1-1-1"), "output": "x"});
    let approval = json!({"type": "mcp_approval_response", "approval_request_id": format!("mcpr_{OTHER}_c1-1-1"), "approve": true});
    let of_response = |rest: &str| format!("{V1}/responses/{}{rest}", previous(OTHER));
    let of_conversation = |session: &str, rest: &str| format!("{V1}/conversations/{}{rest}", conversation(session));
    vec![
        ("GET /openai/v1/models", vec![harmless("GET", format!("{V1}/models"), Value::Null)]),
        ("GET /openai/v1/models/{model}", vec![refused("GET", format!("{V1}/models/e"), Value::Null)]),
        (
            "POST /openai/v1/chat/completions",
            vec![
                chat("e", json!({})),
                chat("e", json!({"user": OTHER})),
                chat("a", json!({"messages": [tool_message]})),
            ],
        ),
        (
            "POST /openai/v1/responses",
            vec![
                response(json!({"model": "e", "input": "Hi"})),
                response(json!({"model": "e", "input": "Hi", "previous_response_id": previous(MINE)})),
                response(json!({"model": "e", "input": "Hi", "previous_response_id": previous(ENDED)})),
                response(json!({"model": "a", "input": "Hi", "previous_response_id": previous(OTHER)})),
                response(json!({"input": "Hi", "previous_response_id": previous(OTHER)})),
                response(json!({"model": "e", "input": "Hi", "conversation": conversation(MINE)})),
                response(json!({"model": "e", "input": "Hi", "conversation": conversation(ENDED)})),
                response(json!({"model": "a", "input": "Hi", "conversation": conversation(OTHER)})),
                response(json!({"model": "a", "input": "Hi", "conversation": conversation(FOLLOWED)})),
                response(json!({"model": "a", "input": [output]})),
                response(json!({"model": "a", "input": [approval]})),
            ],
        ),
        (
            "GET /openai/v1/responses/{id}",
            vec![
                refused("GET", of_response(""), Value::Null),
                refused("GET", of_response("?stream=true"), Value::Null),
            ],
        ),
        ("DELETE /openai/v1/responses/{id}", vec![refused("DELETE", of_response(""), Value::Null)]),
        ("POST /openai/v1/responses/{id}/cancel", vec![refused("POST", of_response("/cancel"), json!({}))]),
        ("GET /openai/v1/responses/{id}/input_items", vec![refused("GET", of_response("/input_items"), Value::Null)]),
        // One that names no agent has the default one, which is `a` here.
        ("POST /openai/v1/conversations", vec![harmless("POST", format!("{V1}/conversations"), json!({}))]),
        (
            "GET /openai/v1/conversations/{id}",
            vec![
                refused("GET", of_conversation(OTHER, ""), Value::Null),
                harmless("GET", of_conversation(FOLLOWED, ""), Value::Null),
            ],
        ),
        ("POST /openai/v1/conversations/{id}", vec![refused("POST", of_conversation(OTHER, ""), json!({}))]),
        (
            "DELETE /openai/v1/conversations/{id}",
            vec![
                refused("DELETE", of_conversation(OTHER, ""), Value::Null),
                refused("DELETE", of_conversation(FOLLOWED, ""), Value::Null),
            ],
        ),
        (
            "GET /openai/v1/conversations/{id}/items",
            vec![
                refused("GET", of_conversation(OTHER, "/items"), Value::Null),
                harmless("GET", of_conversation(FOLLOWED, "/items"), Value::Null),
            ],
        ),
        (
            "POST /openai/v1/conversations/{id}/items",
            vec![refused("POST", of_conversation(OTHER, "/items"), json!({"items": []}))],
        ),
    ]
}

/// The rows of the Agents API.
pub(crate) fn agents_api_rows() -> Vec<(&'static str, Vec<Probe>)> {
    let session = |rest: &str| format!("{V1}/agents/sessions/{OTHER}{rest}");
    let event = |event: Value| refused("POST", session("/events"), json!({"events": [event]}));
    let input = json!([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]);
    let decision = json!({
        "type": "agent.session.input.mcp_approval_request_result", "request_id": format!("mcpr_{OTHER}_c1-1-1"),
        "response": {"type": "mcp_tool_call", "decision": "approve"},
    });
    let result = json!({
        "type": "agent.session.input.tool_result", "turn_id": format!("turn_{OTHER}_1"), "call_id": "c1-1-1",
        "success": true,
    });
    let create = json!({"agent_id": "e", "environment": {"type": "none"}, "input": "Hi"});
    vec![
        ("GET /openai/v1/agents", vec![harmless("GET", format!("{V1}/agents"), Value::Null)]),
        ("GET /openai/v1/agents/{agent}", vec![refused("GET", format!("{V1}/agents/e"), Value::Null)]),
        ("POST /openai/v1/agents/sessions", vec![refused("POST", format!("{V1}/agents/sessions"), create)]),
        (
            "GET /openai/v1/agents/sessions",
            vec![
                harmless("GET", format!("{V1}/agents/sessions"), Value::Null),
                harmless("GET", format!("{V1}/agents/sessions?order=asc"), Value::Null),
                refused("GET", format!("{V1}/agents/sessions?agent_id=e"), Value::Null),
                refused("GET", format!("{V1}/agents/sessions?after={OTHER}"), Value::Null),
            ],
        ),
        ("GET /openai/v1/agents/sessions/{session}", vec![refused("GET", session(""), Value::Null)]),
        ("DELETE /openai/v1/agents/sessions/{session}", vec![refused("DELETE", session(""), Value::Null)]),
        ("GET /openai/v1/agents/sessions/{session}/events", vec![refused("GET", session("/events"), Value::Null)]),
        (
            "POST /openai/v1/agents/sessions/{session}/events",
            vec![
                event(json!({"type": "agent.session.input.message", "input": input})),
                event(json!({"type": "agent.session.input.cancel"})),
                event(decision),
                event(result),
            ],
        ),
        ("GET /openai/v1/agents/sessions/{session}/items", vec![refused("GET", session("/items"), Value::Null)]),
        ("GET /openai/v1/agents/sessions/{session}/turns", vec![refused("GET", session("/turns"), Value::Null)]),
        (
            "GET /openai/v1/agents/sessions/{session}/turns/{turn}",
            vec![refused("GET", session(&format!("/turns/turn_{OTHER}_1")), Value::Null)],
        ),
        (
            "GET /openai/v1/agents/sessions/{session}/turns/{turn}/items",
            vec![refused("GET", session(&format!("/turns/turn_{OTHER}_1/items")), Value::Null)],
        ),
    ]
}

#[tokio::test]
async fn openai_route_keeps_to_the_agents_of_the_key() {
    let sources = [
        include_str!("../../../../crates/edge-openai/src/lib.rs"),
        include_str!("../../../../crates/edge-openai/src/agents/mod.rs"),
        include_str!("../../../../crates/edge-openai/src/responses/mod.rs"),
    ];
    run_rows(&sources, openai_rows().into_iter().chain(agents_api_rows()).collect()).await;
}

#[tokio::test]
async fn ag_ui_route_keeps_to_the_agents_of_the_key() {
    let input = |thread: &str, more: Value| {
        let mut body = json!({
            "threadId": thread, "runId": "r", "protocolVersion": "1.0", "state": {}, "tools": [], "context": [],
            "messages": [{"id": "m1", "role": "user", "content": "Hi"}], "forwardedProps": {},
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let resume = json!({"resume": [{
        "interruptId": format!("gate_{OTHER}_c1-1-1"), "status": "resolved", "payload": {"approved": true},
    }]});
    let run = |path: &str| {
        vec![
            refused(
                "POST",
                format!("/ag-ui/{path}e{}", if path.is_empty() { "" } else { "/run" }),
                input("new", json!({})),
            ),
            refused(
                "POST",
                format!("/ag-ui/{path}a{}", if path.is_empty() { "" } else { "/run" }),
                input(OTHER, json!({})),
            ),
            refused(
                "POST",
                format!("/ag-ui/{path}a{}", if path.is_empty() { "" } else { "/run" }),
                input(OTHER, resume.clone()),
            ),
        ]
    };
    let rows = vec![
        ("POST /ag-ui/{agent}", run("")),
        ("GET /ag-ui/info", vec![harmless("GET", "/ag-ui/info", Value::Null)]),
        ("POST /ag-ui/agent/{agent}/run", run("agent/")),
        // A thread out of reach has nothing to show and nothing to stop.
        (
            "POST /ag-ui/agent/{agent}/connect",
            vec![harmless("POST", "/ag-ui/agent/a/connect", input(OTHER, json!({})))],
        ),
        (
            "POST /ag-ui/agent/{agent}/stop/{thread}",
            vec![harmless("POST", format!("/ag-ui/agent/a/stop/{OTHER}"), json!({}))],
        ),
    ];
    run_rows(&[include_str!("../../../../crates/edge-ag-ui/src/lib.rs")], rows).await;
}

#[tokio::test]
async fn ag_ui_thread_whose_session_has_ended_goes_on_with_no_other_agent() {
    let matrix = Matrix::new().await;
    let input = |run: &str| {
        json!({
            "threadId": "t", "runId": run, "protocolVersion": "1.0", "state": {}, "tools": [], "context": [],
            "messages": [{"id": "m1", "role": "user", "content": "Hi"}], "forwardedProps": {},
        })
    };
    let (_, began) = matrix.send("POST", "/ag-ui/a", &input("r1")).await;
    let text = began.as_str().unwrap();
    let session = text.split("\"sessionId\":\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(matrix.send("POST", &format!("/v1/sessions/{session}/stop"), &json!({})).await.0, 200);
    matrix.run("POST /ag-ui/{agent}", refused("POST", "/ag-ui/e", input("r2"))).await;
}

/// The names between quotes in the part of a source that begins and ends with these texts.
fn quoted(source: &'static str, from: &str, to: &str) -> BTreeSet<&'static str> {
    let part = source.split_once(from).unwrap().1.split_once(to).unwrap().0;
    part.split('"').skip(1).step_by(2).collect()
}

#[tokio::test]
async fn a2a_method_keeps_to_the_agents_of_the_key() {
    let message = |id: &str, more: Value| {
        let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "approve"}]});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message
    };
    let task = format!("{OTHER}.0");
    let sends = |prefix: &str| {
        vec![
            json!({"tenant": "e", "message": message(&format!("{prefix}1"), json!({}))}),
            json!({"tenant": "e", "message": message(&format!("{prefix}2"), json!({"contextId": MINE}))}),
            json!({"tenant": "e", "message": message(&format!("{prefix}3"), json!({"contextId": "new"}))}),
            json!({"tenant": "a", "message": message(&format!("{prefix}4"), json!({"contextId": OTHER}))}),
            json!({"message": message(&format!("{prefix}5"), json!({"contextId": OTHER}))}),
            json!({"tenant": "a", "message": message(&format!("{prefix}6"), json!({"taskId": task}))}),
        ]
    };
    let rows = vec![
        ("SendMessage", sends("s"), true),
        ("SendStreamingMessage", sends("t"), true),
        ("GetTask", vec![json!({"id": task})], true),
        ("ListTasks", vec![json!({}), json!({"contextId": OTHER})], false),
        ("ListTasks", vec![json!({"tenant": "e"})], true),
        ("CancelTask", vec![json!({"id": task})], true),
        ("SubscribeToTask", vec![json!({"id": task})], true),
        ("GetExtendedAgentCard", vec![json!({"tenant": "e"})], true),
        ("CreateTaskPushNotificationConfig", vec![json!({"taskId": task})], true),
        ("GetTaskPushNotificationConfig", vec![json!({"id": "c", "taskId": task})], true),
        ("ListTaskPushNotificationConfigs", vec![json!({"taskId": task})], true),
        ("DeleteTaskPushNotificationConfig", vec![json!({"id": "c", "taskId": task})], true),
    ];
    let known = quoted(include_str!("../../../../crates/edge-a2a/src/operation.rs"), "Ok(match method {", "other => {");
    assert_eq!(rows.iter().map(|(method, ..)| *method).collect::<BTreeSet<_>>(), known, "each method needs a row");
    let matrix = Matrix::new().await;
    for (method, params, is_refused) in rows {
        for params in params {
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            matrix.run(method, Probe { verb: "POST", path: "/a2a".to_owned(), body, is_refused }).await;
        }
    }
    let send = |agent: &str, id: &str, more: Value| {
        let body = json!({"message": message(id, more)});
        vec![
            refused("POST", format!("/a2a/v1/{agent}/message:send"), body.clone()),
            refused("POST", format!("/a2a/v1/{agent}/message:stream"), body),
        ]
    };
    let mut probes = send("e", "h1", json!({}));
    probes.extend(send("e", "h2", json!({"contextId": MINE})));
    probes.extend(send("a", "h3", json!({"contextId": OTHER})));
    probes.extend([
        refused("GET", format!("/a2a/v1/tasks/{task}"), Value::Null),
        refused("GET", format!("/a2a/v1/e/tasks/{task}"), Value::Null),
        harmless("GET", "/a2a/v1/tasks", Value::Null),
        harmless("GET", format!("/a2a/v1/tasks?contextId={OTHER}"), Value::Null),
        refused("POST", format!("/a2a/v1/tasks/{task}:cancel"), json!({})),
        refused("GET", format!("/a2a/v1/tasks/{task}:subscribe"), Value::Null),
        refused("GET", "/a2a/v1/e/extendedAgentCard", Value::Null),
    ]);
    for probe in probes {
        matrix.run("/a2a/v1", probe).await;
    }
}

#[tokio::test]
async fn mcp_tool_keeps_to_the_agents_of_the_key() {
    let matrix = Matrix::new().await;
    let gate =
        json!({"session_id": OTHER, "gate": "c1-1-1", "arguments_sha256": "0".repeat(64), "decision": "approve"});
    let rows = vec![
        ("e", vec![json!({"prompt": "x"}), json!({"prompt": "x", "session_id": MINE})], true),
        ("start_session", vec![json!({"agent": "e", "prompt": "x"})], true),
        ("session_status", vec![json!({"session_id": OTHER})], true),
        ("send_message", vec![json!({"session_id": OTHER, "text": "x"})], true),
        ("answer_gate", vec![gate], true),
        ("stop_session", vec![json!({"session_id": OTHER})], true),
        ("list_sessions", vec![json!({}), json!({"agent": "e"})], false),
    ];
    let all = Mcp::new(matrix.guarded.http(1));
    let listed = read(all.request("tools/list", json!({})).await).await.1;
    let listed = listed["result"]["tools"].as_array().unwrap().clone();
    let tools: BTreeSet<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(rows.iter().map(|(tool, ..)| *tool).collect::<BTreeSet<_>>(), tools, "each tool needs a row");
    let client = Mcp::new(matrix.guarded.http(0));
    for (tool, calls, is_refused) in rows {
        for arguments in calls {
            let answer = client.call(tool, arguments.clone()).await;
            let name = format!("{tool} {arguments}");
            matrix.check(&name, &answer.to_string()).await;
            let found = answer.get("error").is_some() || answer["result"]["isError"] == true;
            assert!(found || !is_refused, "{name} is not refused: {answer}");
        }
    }
    let answer = client.call("a", json!({"prompt": "x", "session_id": OTHER})).await;
    matrix.check("a", &answer.to_string()).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "unknown_session", "{answer}");
}
