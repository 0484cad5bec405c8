//! What a session may ask of a provider, and what it may not: a budget counts what it knows of.

use contract::model::FailureKind;
use model_gateway::adapter::Family;
use serde_json::{Value, json};

use super::dialect::{FAMILIES, Script};
use super::server::{Answer, Server};
use super::{call_at, item};

/// Asks with these parameters; whether the provider was asked, and what became of it.
async fn ask(family: Family, parameters: &Value) -> (usize, Result<(), model_gateway::failure::Failure>) {
    let server = Server::start(vec![Answer::body(Script::full().stream(family))]).await.unwrap();
    let mut item = item(true);
    item.parameters = serde_json::from_value(parameters.clone()).unwrap();
    let (_, ended) = call_at(family, &server.url(), item).await;
    (server.asked().len(), ended)
}

#[tokio::test]
async fn parameter_that_evades_a_budget_is_refused_by_name() {
    for family in FAMILIES {
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
            let (asked, ended) = ask(family, &json!({name: value})).await;
            let failure = ended.map(|()| format!("{family:?} took {name}: {value}")).unwrap_err();
            assert_eq!((asked, failure.kind), (0, FailureKind::BadRequest), "{family:?} {name}: {value}");
            assert!(failure.message.contains(&format!("parameter {name:?}")), "{}", failure.message);
        }
    }
}

#[tokio::test]
async fn refusal_of_a_parameter_tells_which_ones_there_are() {
    let (_, ended) = ask(Family::OpenaiChat, &json!({"top_k": 3})).await;
    let told = ended.unwrap_err().message;
    for part in ["max_tokens", "temperature", "allow_parameters", "models.yaml"] {
        assert!(told.contains(part), "{told}");
    }
}

#[tokio::test]
async fn usual_parameters_are_taken() {
    for family in FAMILIES {
        let usual = json!({"temperature": 0.5, "top_p": 1, "max_tokens": 7, "tool_choice": "auto"});
        let (asked, ended) = ask(family, &usual).await;
        assert_eq!((asked, ended), (1, Ok(())), "{family:?}");
    }
}
