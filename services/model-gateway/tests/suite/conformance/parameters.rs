//! Parameters that a session may set: only those whose cost a budget counts.

use contract::model::FailureKind;
use model_gateway::adapter::ProviderProtocol;
use serde_json::{Value, json};

use super::dialect::{PROTOCOLS, Script};
use super::server::{Response, Server};
use super::{call_at, item};

/// Calls a provider with these parameters. Returns the number of requests, and how the call ended.
async fn call_with(
    protocol: ProviderProtocol,
    parameters: &Value,
) -> (usize, Result<(), model_gateway::failure::CallFailure>) {
    let server = Server::start(vec![Response::body(Script::full().stream(protocol))]).await.unwrap();
    let mut item = item(true);
    item.parameters = serde_json::from_value(parameters.clone()).unwrap();
    let (_, ended) = call_at(protocol, &server.url(), item).await;
    (server.requests().len(), ended)
}

#[tokio::test]
async fn parameter_that_evades_a_budget_is_refused_by_name() {
    for protocol in PROTOCOLS {
        for (name, value) in [
            ("stream_options", json!(null)),
            ("stream_options", json!({"include_usage": false})),
            ("service_tier", json!("priority")),
            ("previous_response_id", json!("resp_1")),
            ("n", json!(2)),
            ("best_of", json!(2)),
            ("candidateCount", json!(2)),
            ("generationConfig", json!({"candidateCount": 2})),
            ("cachedContent", json!("cachedContents/1")),
            ("model", json!("dearer")),
            ("messages", json!([])),
            ("tools", json!([{"type": "web_search"}])),
            ("store", json!(true)),
            ("include", json!([])),
            ("background", json!(true)),
            ("max_tokens", json!("100000")),
            ("max_tokens", json!(-1)),
            ("max_tokens", json!(0)),
            ("max_tokens", json!(1.5)),
            ("max_completion_tokens", json!("1e9")),
            ("temperature", json!("0.5")),
            ("temperature", json!(1e300)),
            ("stop", json!([1])),
            ("stop", json!(vec!["x"; 100])),
            ("tool_choice", json!(7)),
            ("no_such_parameter", json!(1)),
            ("", json!(1)),
        ] {
            let (request_count, ended) = call_with(protocol, &json!({name: value})).await;
            let failure = ended.map(|()| format!("{protocol:?} took {name}: {value}")).unwrap_err();
            assert_eq!((request_count, failure.kind), (0, FailureKind::BadRequest), "{protocol:?} {name}: {value}");
            assert!(failure.message.contains(&format!("parameter {name:?}")), "{}", failure.message);
        }
    }
}

#[tokio::test]
async fn refusal_of_a_parameter_lists_the_allowed_ones() {
    let (_, ended) = call_with(ProviderProtocol::OpenaiChat, &json!({"top_k": 3})).await;
    let message = ended.unwrap_err().message;
    for part in ["max_tokens", "temperature", "allow_parameters", "models.yaml"] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn usual_parameters_are_accepted() {
    for protocol in PROTOCOLS {
        let usual = json!({"temperature": 0.5, "top_p": 1, "max_tokens": 7, "tool_choice": "auto"});
        let (request_count, ended) = call_with(protocol, &usual).await;
        assert_eq!((request_count, ended), (1, Ok(())), "{protocol:?}");
    }
}
