//! A user takes part: stops, pauses, resumes, and speaks while a turn is under way.

use ailoop_tests::client::Control;
use ailoop_tests::fleet::{Fleet, key, soon};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, Reply};
use ailoop_tests::workshop::{Answer, Plan, Witnessed};
use ailoop_tool::Effect;
use serde_json::{Value, json};

/// Roles and texts of what a model was asked, without the system prompt.
fn spoken(messages: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    messages.iter().skip(1).map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

fn said(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_cancels_what_is_in_flight() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(vec![Reply::text("I begin ").and_hang()]).await?;
    let fleet = Fleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("begin ").await?;
    assert!(client.control("s", Control::Stop).await?.done);
    soon("the model's connection is closed", model.is_idle()).await?;
    let seen = watching.to_end().await?;
    judge::seqs(&seen)?;
    assert_eq!(seen.last().unwrap().data["reason"], "stopped");
    assert_eq!(model.asked().len(), 1);
    assert_eq!(client.phase("s").await?, "ended");
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_gives_every_open_call_a_result() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(vec![Reply::calls(&[("wait", json!({})), ("wait", json!({}))])]).await?;
    let fleet = Fleet::start(&[("test", &model.base_url())]).await?;
    let workshop = Plan::at(&fleet.nats.url()).await?;
    let workshop = workshop.tool("wait", Effect::AtMostOnce, |_| Answer::Never).open().await?;
    fleet.knows(&["wait"]).await?;
    let mut ws = fleet.ws().await?;
    ws.ok("session.start", &json!({"session_id": "s", "prompt": "go"})).await?;
    ws.ok("session.watch", &json!({"session_id": "s"})).await?;
    soon("both calls run", workshop.called_times(2)).await?;
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
async fn in_a_pause_nothing_starts_and_what_runs_is_kept() -> anyhow::Result<()> {
    let (first, second) = (Gate::new(), Gate::new());
    let replies = vec![
        Reply::text("I call. ").and_gate(&first).and_calls(&[("wait", json!({}))]),
        Reply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = Fleet::start(&[("test", &model.base_url())]).await?;
    let answer = {
        let second = second.clone();
        move |_: &Witnessed| Answer::After(second.clone(), json!("there"))
    };
    let workshop = Plan::at(&fleet.nats.url()).await?.tool("wait", Effect::Pure, answer).open().await?;
    fleet.knows(&["wait"]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;

    // Within a model call: its reply is committed, and the tool that it asks for does not start.
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
    assert!(workshop.calls().is_empty());
    client.control("s", Control::Resume).await?;

    // Within a tool call: its result is committed, and no model call starts.
    soon("the tool is called", workshop.called_times(1)).await?;
    client.control("s", Control::Pause).await?;
    second.open();
    let result = watching.until("tool_call.result_processed", |_| true).await?;
    assert_eq!(result.data["outcome"], "ok");
    let head = fleet.bus.head(&key("s")?, bus::Read::Leader).await?.unwrap();
    assert_eq!(open(&head), Vec::<String>::new());
    assert_eq!(model.asked().len(), 1, "no model call started in the pause");

    client.control("s", Control::Resume).await?;
    let seen = watching.to_end().await?;
    judge::seqs(&seen)?;
    assert_eq!(seen.last().unwrap().data["reason"], "completed");
    assert_eq!((model.asked().len(), workshop.calls().len()), (2, 1));
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.asked())?;
    fleet.end().await
}

/// A session whose first reply is held, so that a message can be sent meanwhile; what the model was asked afterwards.
async fn sent_meanwhile(
    mode: &str,
    replies: Vec<Reply>,
    gate: &Gate,
    turns: u64,
) -> anyhow::Result<Vec<Vec<(String, String)>>> {
    let model = ModelServer::with_replies(replies).await?;
    let fleet = Fleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start_interactive("s", "first").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("half ").await?;
    assert!(client.send("s", "second", mode).await?.done);
    gate.open();
    watching.until("turn.completed", |data| data["turn"] == turns).await?;
    assert_eq!(client.phase("s").await?, "idle");
    client.control("s", Control::Stop).await?;
    judge::seqs(&watching.to_end().await?)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.asked())?;
    let asked = model.asked().iter().map(|asked| spoken(asked.messages())).collect();
    fleet.end().await?;
    Ok(asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steering_message_is_read_at_the_next_step() -> anyhow::Result<()> {
    let gate = Gate::new();
    let replies = vec![
        Reply::text("half ")
            .and_gate(&gate)
            .and_text("whole")
            .and_calls(&[("continuation", json!({"status": "TERMINATE"}))]),
        Reply::text("as you like"),
    ];
    let asked = sent_meanwhile("steer", replies, &gate, 1).await?;
    assert_eq!(asked.len(), 2, "the reply in flight did not end the turn");
    let first = [said("user", "first")];
    assert_eq!(asked[0], first);
    let second = &asked[1];
    assert_eq!((&second[0], &second[1]), (&first[0], &said("assistant", "half whole")));
    assert_eq!(second.last().unwrap(), &said("user", "second"), "{second:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_message_begins_the_next_turn() -> anyhow::Result<()> {
    let gate = Gate::new();
    let replies = vec![Reply::text("half ").and_gate(&gate).and_text("whole"), Reply::text("and the second")];
    let asked = sent_meanwhile("queue", replies, &gate, 2).await?;
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1], [said("user", "first"), said("assistant", "half whole"), said("user", "second")]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_cancels_the_call_and_keeps_its_text() -> anyhow::Result<()> {
    // The gate of the first reply is opened only after the interrupt: the call must have been dropped by then.
    let gate = Gate::new();
    let replies = vec![Reply::text("half ").and_gate(&gate).and_text("whole"), Reply::text("at once")];
    let asked = sent_meanwhile("interrupt", replies, &gate, 1).await?;
    assert_eq!(asked.len(), 2);
    let second = &asked[1];
    assert_eq!(second.first().unwrap(), &said("user", "first"));
    assert_eq!(second.last().unwrap(), &said("user", "second"));
    let (role, text) = &second[1];
    assert_eq!((role.as_str(), text.trim()), ("assistant", "half"), "{second:?}");
    Ok(())
}
