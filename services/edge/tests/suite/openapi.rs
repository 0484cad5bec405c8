//! The `OpenAPI` document: results are as it describes them.

use serde_json::{Value, json};

use crate::support::http::Http;
use crate::support::{Fixture, wait_until};

/// The document, in whose schemas no result may have a field that they do not name.
struct Document(Value);

impl Document {
    async fn read(http: &Http) -> Self {
        let (_, mut document) = http.get("/v1/openapi.json").await;
        for schema in document["components"]["schemas"].as_object_mut().unwrap().values_mut() {
            if schema.get("properties").is_some() {
                schema["additionalProperties"] = json!(false);
            }
        }
        Self(document)
    }

    /// Returns where a result differs from the schema that the document names for a route and a status.
    fn find_mistakes(&self, verb: &str, path: &str, status: u16, result: &Value) -> Vec<String> {
        let response = &self.0["paths"][path][verb]["responses"][status.to_string()];
        let mut schema = response["content"]["application/json"]["schema"].clone();
        assert!(schema.is_object(), "{verb} {path} has no result with the status {status}");
        schema["components"] = self.0["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        validator.iter_errors(result).map(|error| format!("{verb} {path} {}: {error}", error.instance_path())).collect()
    }
}

#[tokio::test]
async fn result_of_each_route_has_the_schema_of_the_document() {
    let fixture = Fixture::new().await;
    let http = Http::new(fixture.edge.addresses().ws, None);
    let document = Document::read(&http).await;
    let weather = json!([{"name": "weather", "parameters": {"type": "object"}}]);
    let start = |session: &str| json!({"session_id": session, "prompt": "Hello", "interactive": true});
    let mut mistakes = Vec::new();
    let mut compare = async |verb: &str, template: &str, session: &str, query: &str, body: Option<Value>| {
        let address = template.replace("{session_id}", session) + query;
        let (status, result) = http.send(&verb.to_uppercase(), &address, body.as_ref()).await;
        assert!((200..300).contains(&status), "{verb} {address}: {status} {result}");
        mistakes.extend(document.find_mistakes(verb, template, status, &result));
        result
    };
    fixture.fake_loop.reply_with("Hi").await;
    compare("post", "/v1/sessions", "", "", Some(start("answered"))).await;
    fixture.fake_loop.call_client_first();
    let mut with_tools = start("calling");
    with_tools["client_tools"] = weather;
    compare("post", "/v1/sessions", "", "", Some(with_tools)).await;
    fixture.fake_loop.ask_approval_first();
    compare("post", "/v1/sessions", "", "", Some(start("gated"))).await;

    for session in ["answered", "gated", "calling"] {
        for path in ["", "/history", "/transcript", "/describe", "/trace", "/replay", "/gates", "/calls"] {
            compare("get", &format!("/v1/sessions/{{session_id}}{path}"), session, "", None).await;
        }
    }
    // Lists of all sessions come from the index, which follows the logs.
    for (path, list) in [("/v1/gates", "gates"), ("/v1/calls", "calls")] {
        wait_until(list, async || http.get(path).await.1[list][0].is_object()).await;
    }
    let gates = compare("get", "/v1/gates", "", "", None).await;
    let calls = compare("get", "/v1/calls", "", "", None).await;
    assert!(gates["gates"][0].is_object() && calls["calls"][0].is_object(), "{gates} {calls}");
    let sessions = compare("get", "/v1/sessions", "", "?limit=2", None).await;
    assert!(sessions["next_cursor"].is_string(), "{sessions}");
    for path in ["agents", "models", "tools", "stats", "queues", "status", "dead-letters"] {
        compare("get", &format!("/v1/{path}"), "", "", None).await;
    }
    for (action, body) in [("messages", json!({"content": "More"})), ("pause", json!({})), ("stop", json!({}))] {
        compare("post", &format!("/v1/sessions/{{session_id}}/{action}"), "answered", "", Some(body)).await;
    }
    assert_eq!(mistakes, Vec::<String>::new());
}
