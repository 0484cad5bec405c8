//! Functions of a program as tools of an agent, and gates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ailoop_client::{Client, EventContent, GateDecision, LocalTool, ToolEffect};
use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::wait::soon;
use anyhow::Context;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Arguments {
    city: String,
}

/// A tool that counts how often it is performed.
fn weather(effect: ToolEffect, performed: &Arc<AtomicUsize>) -> LocalTool {
    let performed = performed.clone();
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool = LocalTool::new("weather", parameters, move |Arguments { city }| {
        performed.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_ne!(city, "Atlantis", "no such city");
            if city == "Bonn" { Ok(format!("rain in {city}")) } else { Err(format!("no sensor in {city}")) }
        }
    });
    tool.description("The weather of a city.").effect(effect)
}

/// Calls the tool once with what the user says, and then repeats the result.
fn call_once(request: &RecordedRequest) -> ScriptedReply {
    if request.messages().last().is_some_and(|message| message["role"] == "user") {
        return ScriptedReply::calls(&[("weather", serde_json::from_str(request.last_user()).unwrap_or_default())]);
    }
    ScriptedReply::signal(&request.last_results().join("; "), "TERMINATE")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_error_and_panic_of_a_tool_are_read_by_the_model() -> anyhow::Result<()> {
    let model = ModelServer::start(call_once).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = Client::connect(fleet.url()).await?;
    let performed = Arc::new(AtomicUsize::new(0));
    let session = client.start().tool(weather(ToolEffect::AtMostOnce, &performed)).await?;
    for (arguments, read) in [
        (json!({"city": "Bonn"}), "rain in Bonn"),
        (json!({"city": "Rome"}), "no sensor in Rome"),
        (json!({"city": "Atlantis"}), "the tool panicked"),
        (json!({"town": "Bonn"}), "invalid arguments: missing field `city`"),
    ] {
        let result = soon("the turn", session.turn(arguments.to_string()).follow().result()).await??;
        assert!(result.text.contains(read), "{arguments}: {}", result.text);
    }
    assert_eq!(performed.load(Ordering::SeqCst), 3);
    fleet.end().await
}

/// A program dies with an open call. The next one performs it only if that is safe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_call_is_performed_by_a_restarted_program_unless_it_is_at_most_once() -> anyhow::Result<()> {
    let model = ModelServer::start(call_once).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = Client::connect(fleet.url()).await?;
    for (effect, times, read) in
        [(ToolEffect::Pure, 1, "rain in Bonn"), (ToolEffect::AtMostOnce, 0, "may have performed this call before")]
    {
        let performed = Arc::new(AtomicUsize::new(0));
        let tool = weather(effect, &performed);
        let session = client.start().prompt(json!({"city": "Bonn"}).to_string()).tool(tool.clone()).await?;
        let mut events = session.events(1);
        while !matches!(
            soon("a call", events.next()).await?.context("an event")??.content,
            EventContent::CallWaiting(_)
        ) {}
        let taken_up = client.session(session.id()).with_tool(tool);
        let result = soon("the turn", taken_up.current_turn().follow().result()).await??;
        assert!(result.text.contains(read), "{effect:?}: {}", result.text);
        assert_eq!(performed.load(Ordering::SeqCst), times, "{effect:?}");
        let late = session.answer_call("s-c1-1-1", Ok("late".to_owned())).await.unwrap_err();
        assert!(["not_now", "unknown_call", "bad_request"].contains(&late.code()), "{late}");
    }
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_is_answered_by_the_handler_and_by_hand() -> anyhow::Result<()> {
    let model = ModelServer::start(|request| match &request.last_results()[..] {
        [] => ScriptedReply::calls(&[("ask_user", json!({"question": "Which one?", "choices": ["a", "b"]}))]),
        results => ScriptedReply::signal(&results.join("; "), "TERMINATE"),
    })
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = Client::connect(fleet.url()).await?;
    let by_handler = client.start().prompt("go").on_gate(async |gate| {
        assert_eq!(gate.arguments["question"], "Which one?");
        gate.is_question().then(|| GateDecision::answer("the second"))
    });
    let result = soon("the turn", by_handler.run()).await??;
    assert!(result.text.contains("the second"), "{}", result.text);

    let session = client.start().await?;
    let mut turn = session.turn("go").follow();
    let by_hand = async {
        let mut events = session.events_without_chunks(1);
        while let Some(event) = events.next().await.transpose()? {
            if let EventContent::GateOpened(gate) = &event.content {
                session.answer(gate, GateDecision::answer("the first")).await?;
                let closed = session.approve(gate).await.unwrap_err();
                assert_eq!(closed.code(), "gate_closed");
                break;
            }
        }
        anyhow::Ok(())
    };
    let both = Box::pin(async { tokio::join!(turn.result(), by_hand) });
    let (result, answered) = soon("the turn", both).await?;
    answered?;
    let text = result?.text;
    assert!(text.contains("the first"), "{text}");
    assert!(client.gates().await?.is_empty() && session.gates().await?.is_empty());
    fleet.end().await
}

/// The agent of the test below: a person approves each call of `weather`.
const CAREFUL: &str = r#"
default_agent: e
approvals:
  - {tool: weather, ask: always}
agents:
  e:
    name: Eamonn the Executioner
    prompt_file: eamonn_executioner.md
    tools: {allow: ["*"]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
"#;

/// Two turns of one session are followed at the same time, and see the same call: it is approved and performed once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_two_turns_see_is_approved_and_performed_once() -> anyhow::Result<()> {
    let model = ModelServer::start(call_once).await?;
    let fleet = TestFleet::with_agents(&[("test", &model.base_url())], CAREFUL).await?;
    let client = Client::connect(fleet.url()).await?;
    let (performed, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    let session = client.start().tool(weather(ToolEffect::AtMostOnce, &performed)).await?.on_gate(move |gate| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { (gate.tool.as_deref() == Some("weather")).then(GateDecision::approve) }
    });
    let (one, other) = (json!({"city": "Bonn"}).to_string(), json!({"city": "Rome"}).to_string());
    let mut turns = (session.turn(one).follow(), session.turn(other).follow());
    let (one, other) = soon("both turns", async { tokio::join!(turns.0.result(), turns.1.result()) }).await?;
    let texts = [one?.text, other?.text];
    assert!(texts[0].contains("rain in Bonn") && texts[1].contains("no sensor in Rome"), "{texts:?}");
    assert_eq!((performed.load(Ordering::SeqCst), asked.load(Ordering::SeqCst)), (2, 2));
    fleet.end().await
}
