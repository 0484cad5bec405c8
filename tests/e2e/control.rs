//! Control by the user: stop, pause, resume, and messages during a turn.

use ailoop_tests::client::Control;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::tool_server::{RecordedCall, ToolAnswer, ToolServerBuilder};
use ailoop_tests::wait::{eventually, soon};
use ailoop_tool::Effect;
use contract::event::Event;
use serde_json::{Value, json};

/// Roles and texts of the messages of a request, without the system prompt.
fn spoken(messages: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    messages.iter().skip(1).map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

fn message(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_during_a_model_call_cancels_it() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(vec![ScriptedReply::text("I begin ").and_hang()]).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("begin ").await?;
    assert!(client.control("s", Control::Stop).await?.done);
    soon("the model's connection is closed", model.wait_until_idle()).await?;
    let events = watching.to_end().await?;
    judge::seqs(&events)?;
    assert_eq!(events.last().unwrap().data["reason"], "stopped");
    assert_eq!(model.requests().len(), 1);
    assert_eq!(client.phase("s").await?, "ended");
    let key = key("s")?;
    eventually("the log has what had come", async || {
        let Ok(commits) = fleet.bus.history(&key, 0).await else { return false };
        let mut events = commits.iter().flat_map(|(_, commit)| &commit.events);
        events.any(|event| matches!(event, Event::AiCutReceived(cut) if cut.text == "I begin " && cut.turn == 1))
    })
    .await?;
    judge::log(&fleet.bus, &key, 10).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_during_tool_calls_gives_each_a_result() -> anyhow::Result<()> {
    let model =
        ModelServer::with_replies(vec![ScriptedReply::calls(&[("wait", json!({})), ("wait", json!({}))])]).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tool_server = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let tool_server = tool_server.tool("wait", Effect::AtMostOnce, |_| ToolAnswer::Never).open().await?;
    fleet.wait_for_tools(&["wait"]).await?;
    let mut ws = fleet.ws().await?;
    ws.ok("session.start", &json!({"session_id": "s", "prompt": "go"})).await?;
    ws.ok("session.watch", &json!({"session_id": "s"})).await?;
    soon("both calls run", tool_server.wait_for_calls(2)).await?;
    assert_eq!(ws.ok("session.stop", &json!({"session_id": "s", "reason": "enough"})).await?["done"], true);
    for _ in 0..2 {
        let result = ws.until("tool_call.result_processed").await?;
        assert_eq!(result["params"]["data"]["outcome"], "cancelled");
    }
    assert_eq!(ws.until("session_ended").await?["params"]["data"]["reason"], "stopped");
    let again = ws.call("session.send", &json!({"session_id": "s", "text": "hello?"})).await?;
    assert_eq!(again["error"]["data"]["code"], "session_ended");
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_during_calls_starts_nothing_and_keeps_results() -> anyhow::Result<()> {
    let (first, second) = (Gate::new(), Gate::new());
    let replies = vec![
        ScriptedReply::text("I call. ").and_gate(&first).and_calls(&[("wait", json!({}))]),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let answer = {
        let second = second.clone();
        move |_: &RecordedCall| ToolAnswer::After(second.clone(), json!("there"))
    };
    let tool_server = ToolServerBuilder::at(&fleet.nats.url()).await?.tool("wait", Effect::Pure, answer).open().await?;
    fleet.wait_for_tools(&["wait"]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;

    // Paused in a model call: its reply is committed, and the tool that it calls does not start.
    watching.until_streamed("call. ").await?;
    client.control("s", Control::Pause).await?;
    watching.until("status.paused", |_| true).await?;
    first.open();
    watching.until("message.ai_full_received", |_| true).await?;
    watching.until("continuation.progress", |_| true).await?;
    assert_eq!(client.phase("s").await?, "paused");
    let open = |head: &bus::Head| head.meta.open.clone();
    let head = fleet.bus.head(&key("s")?, bus::Read::Leader).await?.unwrap();
    assert_eq!(open(&head), Vec::<String>::new(), "no call is open in the pause");
    assert!(tool_server.calls().is_empty());
    client.control("s", Control::Resume).await?;

    // Paused in a tool call: its result is committed, and no model call starts.
    soon("the tool is called", tool_server.wait_for_calls(1)).await?;
    client.control("s", Control::Pause).await?;
    second.open();
    let result = watching.until("tool_call.result_processed", |_| true).await?;
    assert_eq!(result.data["outcome"], "ok");
    let head = fleet.bus.head(&key("s")?, bus::Read::Leader).await?.unwrap();
    assert_eq!(open(&head), Vec::<String>::new());
    assert_eq!(model.requests().len(), 1, "no model call started in the pause");

    client.control("s", Control::Resume).await?;
    let events = watching.to_end().await?;
    judge::seqs(&events)?;
    assert_eq!(events.last().unwrap().data["reason"], "completed");
    assert_eq!((model.requests().len(), tool_server.calls().len()), (2, 1));
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    fleet.end().await
}

/// Runs a session whose first reply is held, sends a message meanwhile, and returns the messages of each request.
/// `opened` is the gate to open once the message is in the log.
async fn sent_meanwhile(
    mode: &str,
    replies: Vec<ScriptedReply>,
    opened: Option<&Gate>,
    turns: u64,
) -> anyhow::Result<Vec<Vec<(String, String)>>> {
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start_interactive("s", "first").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("half ").await?;
    assert!(client.send("s", "second", mode).await?.done);
    if let Some(gate) = opened {
        gate.open();
    }
    watching.until("turn.completed", |data| data["turn"] == turns).await?;
    assert_eq!(client.phase("s").await?, "idle");
    client.control("s", Control::Stop).await?;
    judge::seqs(&watching.to_end().await?)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    let requests = model.requests().iter().map(|request| spoken(request.messages())).collect();
    fleet.end().await?;
    Ok(requests)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steering_message_is_read_at_the_next_step() -> anyhow::Result<()> {
    let gate = Gate::new();
    let replies = vec![
        ScriptedReply::text("half ")
            .and_gate(&gate)
            .and_text("whole")
            .and_calls(&[("continuation", json!({"status": "TERMINATE"}))]),
        ScriptedReply::text("as you like"),
    ];
    let requests = Box::pin(sent_meanwhile("steer", replies, Some(&gate), 1)).await?;
    assert_eq!(requests.len(), 2, "the reply in flight did not end the turn");
    let first = [message("user", "first")];
    assert_eq!(requests[0], first);
    let second = &requests[1];
    assert_eq!((&second[0], &second[1]), (&first[0], &message("assistant", "half whole")));
    assert_eq!(second.last().unwrap(), &message("user", "second"), "{second:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_message_begins_the_next_turn() -> anyhow::Result<()> {
    let gate = Gate::new();
    let replies =
        vec![ScriptedReply::text("half ").and_gate(&gate).and_text("whole"), ScriptedReply::text("and the second")];
    let requests = Box::pin(sent_meanwhile("queue", replies, Some(&gate), 2)).await?;
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1], [message("user", "first"), message("assistant", "half whole"), message("user", "second")]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupt_cancels_the_call_and_keeps_its_text() -> anyhow::Result<()> {
    // The gate of the first reply is never opened: the turn goes on only because the call was dropped.
    let gate = Gate::new();
    let replies = vec![ScriptedReply::text("half ").and_gate(&gate).and_text("whole"), ScriptedReply::text("at once")];
    let requests = Box::pin(sent_meanwhile("interrupt", replies, None, 1)).await?;
    assert_eq!(requests.len(), 2);
    let second = &requests[1];
    assert_eq!(second.first().unwrap(), &message("user", "first"));
    assert_eq!(second.last().unwrap(), &message("user", "second"));
    let (role, text) = &second[1];
    assert_eq!((role.as_str(), text.trim()), ("assistant", "half"), "{second:?}");
    Ok(())
}
