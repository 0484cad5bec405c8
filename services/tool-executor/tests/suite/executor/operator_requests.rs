//! Requests of operators to an executor: the replicas of tools, and calls outside of a session.

use std::time::Duration;

use bus::SubscriptionEvent;
use bytes::Bytes;
use contract::limits::TRIAL_TIME_MAX;
use contract::subject;
use contract::tool::{ApprovalPolicy, EffectClass, Outcome, ToolSpec, header};
use contract::tool_request::{ToolRequest, ToolResponse, ToolTrial};
use contract::{ErrorCode, Json, TenantId, ToolName};
use futures::StreamExt;
use serde_json::json;
use tokio::task::JoinSet;

use super::world::World;

async fn put_tool(world: &World, effect: EffectClass, approval: ApprovalPolicy) {
    let spec = ToolSpec {
        name: ToolName::new("act").unwrap(),
        description: "Acts.".to_owned(),
        parameters: Json::parse(r#"{"type":"object","required":["n"]}"#).unwrap(),
        effect,
        approval,
        timeout_ms: None,
        max_output: Some(200),
        instructions: None,
        version: "1".to_owned(),
    };
    world.bus.put_tool(&world.key.tenant, &spec).await.unwrap();
}

fn trial(arguments: &str, is_approved: bool) -> ToolRequest {
    let (tenant, tool) = (TenantId::default(), ToolName::new("act").unwrap());
    let arguments = Json::parse(arguments).unwrap();
    ToolRequest::Try(Box::new(ToolTrial { tenant, tool, arguments, is_approved }))
}

/// Asks as soon as the executor serves requests.
async fn ask(world: &World, request: &ToolRequest) -> ToolResponse {
    world.wait_for(async || world.bus.ask_tools(request).await.ok()).await
}

fn refusal(response: ToolResponse) -> Option<ErrorCode> {
    match response {
        ToolResponse::Refused { code, .. } => Some(code),
        ToolResponse::Replicas(_) | ToolResponse::Tried(_) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn trial_of_a_pure_tool_returns_its_answer_and_a_failure_its_code() {
    let world = World::new().await;
    put_tool(&world, EffectClass::Pure, ApprovalPolicy::Never).await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    let long = "x".repeat(500);
    for (headers, body, outcome, code, part) in [
        (&[][..], "done", Outcome::Ok, None, "done"),
        (&[(header::ERROR, "no such city")], "", Outcome::Error, Some(ErrorCode::ToolError), "no such city"),
        (&[], &long, Outcome::Ok, None, "left out"),
    ] {
        let request = trial(r#"{"n":1}"#, false);
        let answering = async {
            let call = tool.next_call().await;
            assert_eq!(&*call.payload, br#"{"n":1}"#);
            assert_eq!(call.header(header::AGENT), Some("user"));
            assert!(call.header(header::SESSION).unwrap().starts_with("try-"), "{call:?}");
            tool.answer(&call, &[(header::PROGRESS, "1")], b"half").await;
            tool.answer(&call, headers, body.as_bytes()).await;
        };
        let (response, ()) = tokio::join!(ask(&world, &request), answering);
        let ToolResponse::Tried(result) = response else { panic!("{response:?}") };
        assert_eq!((result.outcome, result.code), (outcome, code));
        assert!(result.content.contains(part), "{}", result.content);
    }
}

#[tokio::test(start_paused = true)]
async fn trial_that_may_take_effect_or_asks_approval_runs_only_approved() {
    for (effect, approval) in
        [(EffectClass::AtMostOnce, ApprovalPolicy::Never), (EffectClass::Pure, ApprovalPolicy::Always)]
    {
        let world = World::new().await;
        put_tool(&world, effect, approval).await;
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        assert_eq!(refusal(ask(&world, &trial(r#"{"n":1}"#, false)).await), Some(ErrorCode::ApprovalNeeded));
        let approved = trial(r#"{"n":1}"#, true);
        let answering = async {
            let call = tool.next_call().await;
            tool.answer(&call, &[], b"done").await;
        };
        let (response, ()) = tokio::join!(ask(&world, &approved), answering);
        assert!(matches!(response, ToolResponse::Tried(_)), "{response:?}");
        assert!(tool.has_no_call().await, "the refused one was not called");
    }
}

#[tokio::test(start_paused = true)]
async fn trial_with_wrong_arguments_or_of_an_unknown_tool_calls_nothing() {
    for (has_tool, code) in [(false, ErrorCode::UnknownTool), (true, ErrorCode::InvalidArguments)] {
        let world = World::new().await;
        if has_tool {
            put_tool(&world, EffectClass::Pure, ApprovalPolicy::Never).await;
        }
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        assert_eq!(refusal(ask(&world, &trial("{}", true)).await), Some(code));
        assert!(tool.has_no_call().await);
    }
}

#[tokio::test(start_paused = true)]
async fn trial_without_an_answer_is_cancelled_and_its_outcome_unknown() {
    for (effect, outcome) in [(EffectClass::Pure, Outcome::Timeout), (EffectClass::Idempotent, Outcome::Unknown)] {
        let world = World::new().await;
        put_tool(&world, effect, ApprovalPolicy::Never).await;
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        let request = trial(r#"{"n":1}"#, true);
        let silent = async {
            let call = tool.next_call().await;
            let cancel = tool.next_cancel().await;
            assert_eq!(cancel.header(header::CALL), call.header(header::CALL));
        };
        let began = tokio::time::Instant::now();
        let (response, ()) = tokio::join!(ask(&world, &request), silent);
        let ToolResponse::Tried(result) = response else { panic!("{response:?}") };
        assert_eq!(result.outcome, outcome, "{result:?}");
        assert!(began.elapsed() < TRIAL_TIME_MAX + Duration::from_secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_are_those_of_the_tools_of_the_tenant() {
    let world = World::new().await;
    put_tool(&world, EffectClass::Pure, ApprovalPolicy::Never).await;
    let bus = world.server.bus();
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        let mut queries = bus.listen(&subject::services_stats(), None).await.unwrap();
        while let Some(SubscriptionEvent::Message(query)) = queries.next().await {
            let endpoint = |subject: &str| {
                json!({
                    "subject": subject, "num_requests": 4, "num_errors": 1, "last_error": "no such city",
                    "average_processing_time": 2_500_000,
                })
            };
            let endpoints = [endpoint("ai_tool.default.act"), endpoint("ai_tool.other.act"), endpoint("else")];
            let stats = json!({"name": "act", "id": "r1", "version": "2", "endpoints": endpoints});
            let reply = query.reply.as_deref().unwrap();
            bus.transport().reply(reply, Vec::new(), Bytes::from(stats.to_string())).await.unwrap();
        }
    });
    let _executor = world.executor("a");
    let response = ask(&world, &ToolRequest::Replicas { tenant: TenantId::default() }).await;
    let ToolResponse::Replicas(replicas) = response else { panic!("{response:?}") };
    assert_eq!(
        serde_json::to_value(&replicas).unwrap(),
        json!([{
            "tool": "act", "instance": "r1", "version": "2", "calls": 4, "errors": 1, "average_ms": 2.5,
            "last_error": "no such city",
        }])
    );
}
