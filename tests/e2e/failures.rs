//! Models and tools that refuse, hang, break off or send garbage: each gives one error, and the session goes on or ends
//! with that reason.

use std::collections::BTreeMap;
use std::time::Duration;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::client::{Control, ReceivedEvent, TestClient};
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply, refusing_url};
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tests::wait::{eventually, soon};
use ailoop_tool::async_nats;
use ailoop_tool::{Effect, Tool};
use futures::StreamExt;
use serde_json::{Value, json};

fn of<'a>(events: &'a [ReceivedEvent], topic: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event.topic == topic).map(|event| &event.data).collect()
}

/// Models by name, with their reply to every request and the expected error code.
fn bad_models() -> Vec<(&'static str, ScriptedReply, &'static str)> {
    let error = |message: &str, code: &str| json!({"error": {"message": message, "code": code}}).to_string();
    vec![
        ("hangs", ScriptedReply::hang(), "model_hung"),
        ("stalls", ScriptedReply::text("so far ").and_hang(), "model_hung"),
        ("garbage", ScriptedReply::raw("<html>Bad gateway</html>\n\n"), "model_garbage"),
        ("noise", ScriptedReply::text("so far ").and_raw("data: {\"choices\": [[[\n\n"), "model_garbage"),
        ("breaks", ScriptedReply::text("so far ").and_break(), "model_truncated"),
        ("stops", ScriptedReply::text("so far ").and_stop(), "model_truncated"),
        ("empty", ScriptedReply::text(""), "model_empty_reply"),
        ("locked", ScriptedReply::status(401, &error("no such key", "invalid_api_key")), "model_auth"),
        ("poor", ScriptedReply::status(429, &error("nothing left", "insufficient_quota")), "model_quota"),
        ("down", ScriptedReply::status(503, "upstream"), "model_overloaded"),
        ("picky", ScriptedReply::status(400, &error("what is this", "invalid_request")), "model_bad_request"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_model_ends_the_session_with_its_error_code() -> anyhow::Result<()> {
    let mut servers = Vec::new();
    let mut urls = vec![("refuses", refusing_url().await?)];
    let mut expected = BTreeMap::from([("refuses", "model_unreachable")]);
    for (name, reply, code) in bad_models() {
        let server = ModelServer::start(move |_| reply.clone()).await?;
        urls.push((name, server.base_url()));
        expected.insert(name, code);
        servers.push(server);
    }
    let models: Vec<(&str, &str)> = urls.iter().map(|(name, url)| (*name, url.as_str())).collect();
    let fleet = TestFleet::start(&models).await?;
    let client = fleet.client().await?;
    let streaming = json!({"connect": 1, "first_byte": 1, "idle": 1});
    for (name, _) in &models {
        client.begin(name, "go", &json!({"model": name, "streaming": streaming})).await?;
    }
    let mut codes = BTreeMap::new();
    for (name, _) in &models {
        let events = client.watch(name).await?.to_end().await?;
        judge::seqs(&events)?;
        judge::log(&fleet.bus, &key(name)?, 10).await?;
        // Errors without `seq` are about attempts that are retried.
        let facts = events.iter().filter(|event| event.topic == "error" && event.seq.is_some());
        let errors: Vec<&Value> = facts.map(|event| &event.data).collect();
        assert_eq!(errors.len(), 1, "{name}: {errors:?}");
        assert_eq!(of(&events, "turn.completed")[0]["stop_reason"], "error", "{name}");
        assert_eq!(of(&events, "session_ended")[0]["reason"], "error", "{name}");
        codes.insert(*name, errors[0]["code"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(codes, expected.into_iter().map(|(name, code)| (name, code.to_owned())).collect());
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interactive_session_after_a_failed_turn_is_usable() -> anyhow::Result<()> {
    let refusal = json!({"error": {"message": "no such key", "code": "invalid_api_key"}}).to_string();
    let replies = vec![ScriptedReply::status(401, &refusal), ScriptedReply::text("now it works")];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start_interactive("s", "first").await?;
    let mut watching = client.watch("s").await?;
    assert_eq!(watching.until("error", |_| true).await?.data["code"], "model_auth");
    watching.until("turn.completed", |data| data["stop_reason"] == "error").await?;
    assert_eq!(client.phase("s").await?, "idle");
    client.send("s", "second", "steer").await?;
    let turn = watching.until("turn.completed", |data| data["turn"] == 2).await?;
    assert_eq!(turn.data["final_response"], "now it works");
    client.control("s", Control::Stop).await?;
    judge::seqs(&watching.to_end().await?)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_with_a_failing_model_exits_with_its_error() -> anyhow::Result<()> {
    let url = refusing_url().await?;
    let fleet = TestFleet::start(&[("refuses", &url)]).await?;
    let outcome = WorkDir::new()?.run(["run", "--url", &fleet.url(), "hello"]).await?;
    assert_eq!((outcome.error()?, outcome.code), ("model_unreachable", 1), "{}", outcome.stderr);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_tool_is_reported_to_the_model() -> anyhow::Result<()> {
    let calls = [
        ("garbage", json!({})),
        ("silent", json!({})),
        ("failing", json!({})),
        ("huge", json!({})),
        ("picky", json!({"count": "many"})),
        ("nothing", json!({})),
    ];
    let replies = vec![ScriptedReply::calls(&calls), ScriptedReply::signal("I see.", "TERMINATE")];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]});
    let garbage = "\u{0}{not json]\u{1b}[31m";
    let tool_server = ToolServerBuilder::at(&fleet.nats.url())
        .await?
        .tool("garbage", Effect::Pure, move |_| ToolAnswer::Text(garbage.to_owned()))
        .with(Tool::new("silent").timeout(Duration::from_secs(1)), |_| ToolAnswer::Never)
        .tool("failing", Effect::Pure, |_| ToolAnswer::Error("out of paper".to_owned()))
        .tool("huge", Effect::Pure, |_| ToolAnswer::Text("x".repeat(300 << 10)))
        .with(Tool::new("picky").parameters(schema), |_| ToolAnswer::Json(json!("never called")))
        .open()
        .await?;
    fleet.wait_for_tools(&["garbage", "silent", "failing", "huge", "picky"]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let events = client.watch("s").await?.to_end().await?;
    judge::seqs(&events)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    assert_eq!(of(&events, "session_ended")[0]["reason"], "completed");

    let results = of(&events, "tool_call.result_processed");
    let outcomes: BTreeMap<&str, (&str, &str)> = results
        .iter()
        .map(|data| {
            let text = |field: &str| data[field].as_str().unwrap_or_default();
            (text("tool"), (text("outcome"), text("code")))
        })
        .collect();
    let expected = [
        ("garbage", ("ok", "")),
        ("silent", ("unknown", "")),
        ("failing", ("error", "tool_error")),
        ("huge", ("ok", "")),
        ("picky", ("error", "invalid_arguments")),
        ("nothing", ("error", "unknown_tool")),
    ];
    assert_eq!(outcomes, expected.into());
    let requests = model.requests();
    let read = requests[1].last_results();
    assert_eq!((read.len(), read[0]), (6, garbage));
    assert!(read[2].contains("out of paper"), "{}", read[2]);
    assert!(read[3].len() <= 64 << 10, "{} bytes", read[3].len());
    assert!(read[4].contains("count"), "the result names the argument: {}", read[4]);
    assert!(tool_server.calls().iter().all(|call| call.tool != "picky"), "it must not be called with such arguments");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_control_message_does_not_stop_the_session() -> anyhow::Result<()> {
    let gate = Gate::new();
    let replies = vec![ScriptedReply::text("half ").and_gate(&gate).and_text("whole")];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("half ").await?;

    let stranger = async_nats::connect(fleet.nats.url()).await?;
    let mut dead = stranger.subscribe("ai_dead.>").await?;
    let bad: [(&str, &[u8]); 7] = [
        ("ai_loop.control.send_user_message.default.s.b1", b"{{{"),
        ("ai_loop.control.pause.default.s.b2", b""),
        ("ai_loop.control.fly.default.s.b3", b"{}"),
        ("ai_loop.control.stop.default.s.b@4", b"{}"),
        ("ai_loop.control.model_finished.default.s.b5", b"{\"meta\": 7}"),
        ("ai_loop.control.provide_tool_result.default.s.b6", b"\xff\xfe"),
        ("ai_loop.control.start.NOBODY.s s.b7", b"{}"),
    ];
    for (subject, body) in bad {
        // The last one is no valid subject: the server or the client refuses it.
        let _refused = stranger.publish(subject, body.into()).await;
    }
    for subject in ["ai_loop.control.stop", "ai_loop.control.stop.default.s"] {
        stranger.publish(subject, "{}".into()).await?;
    }
    stranger.flush().await?;
    let mut letters = BTreeMap::new();
    while letters.len() < 6 {
        let letter = soon("a dead letter", dead.next()).await?.unwrap();
        let body: Value = serde_json::from_slice(&letter.payload)?;
        letters.insert(body["subject"].as_str().unwrap_or_default().to_owned(), body["code"].clone());
    }
    for (subject, _) in &bad[..6] {
        assert_eq!(letters.get(*subject), Some(&"bad_request".into()), "{subject}: {letters:?}");
    }
    gate.open();
    let events = watching.to_end().await?;
    judge::seqs(&events)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    let errors = of(&events, "error");
    assert!(!errors.is_empty() && errors.iter().all(|error| error["code"] == "bad_request"), "{errors:?}");
    assert_eq!(of(&events, "session_ended")[0]["final_response"], "half whole");
    eventually("nothing waits any more", async || waits_for_nothing(&fleet, &client).await).await?;
    fleet.end().await
}

async fn waits_for_nothing(fleet: &TestFleet, client: &TestClient) -> bool {
    let Ok(key) = key("s") else { return false };
    let ended = client.phase("s").await.is_ok_and(|phase| phase == "ended");
    let inbox = fleet.bus.inbox(&key).await;
    ended && matches!(inbox, Ok(bus::Inbox::Messages(waiting)) if waiting.is_empty())
}
