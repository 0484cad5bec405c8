//! Events that viewers receive of a session: their order and numbers, without duplicates and gaps.

use std::collections::BTreeMap;

use ailoop_tests::cli::{CliOutput, WorkDir};
use ailoop_tests::client::{Control, ReceivedEvent};
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::tool_server::{RecordedCall, ToolAnswer, ToolServer, ToolServerBuilder};
use ailoop_tool::Effect;
use serde_json::{Value, json};

/// The lines of `--json`, as a viewer's events.
pub(crate) fn parse_events(outcome: &CliOutput) -> anyhow::Result<Vec<ReceivedEvent>> {
    let read = |mut line: Value| ReceivedEvent {
        topic: line["topic"].as_str().unwrap_or_default().to_owned(),
        seq: line["seq"].as_u64(),
        trace_id: line["trace_id"].as_str().unwrap_or_default().to_owned(),
        data: line["data"].take(),
    };
    Ok(outcome.events()?.into_iter().map(read).collect())
}

/// Replies that stream, call tools in parallel twice, continue once by a signal, and end.
fn lively() -> Vec<ScriptedReply> {
    vec![
        ScriptedReply::text("First I look at both. ")
            .and_calls(&[("echo", json!({"n": 1})), ("mark", json!({"n": 2}))]),
        ScriptedReply::text("Three more. ").and_calls(&[
            ("echo", json!({"n": 3})),
            ("mark", json!({"n": 4})),
            ("echo", json!({"n": 5})),
        ]),
        ScriptedReply::signal("Let me think about that, äöü €. ", "CONTINUE"),
        ScriptedReply::signal("All of it is done.", "TERMINATE"),
    ]
}

pub(crate) fn of<'a>(events: &'a [ReceivedEvent], topic: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event.topic == topic).map(|event| &event.data).collect()
}

/// The events of a turn of session `s` for a viewer that watches before it begins: chunks are not stored.
async fn watch_from_the_beginning(fleet: &TestFleet, prompt: &str) -> anyhow::Result<Vec<ReceivedEvent>> {
    let client = fleet.client().await?;
    client.start_interactive("s", "").await?;
    let mut watching = client.watch("s").await?;
    watching.until("session_started", |_| true).await?;
    client.send("s", prompt, "queue").await?;
    watching.until("turn.completed", |_| true).await?;
    client.control("s", Control::Stop).await?;
    watching.to_end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_a_viewer_once_and_in_order() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(lively()).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tool_server = ToolServer::plain(&fleet.nats.url()).await?;
    fleet.wait_for_tools(&["echo", "mark"]).await?;

    let work_dir = WorkDir::new()?;
    let outcome = work_dir.run(["run", "--json", "--url", &fleet.url(), "do all of it"]).await?;
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let events = parse_events(&outcome)?;
    judge::seqs(&events)?;
    judge::requests(&model.requests())?;

    let committed: Vec<&str> =
        events.iter().filter(|event| event.seq.is_some()).map(|event| event.topic.as_str()).collect();
    let (full, decided) = ("message.ai_full_received", "continuation.progress");
    let (called, result) = ("tool_call.identified", "tool_call.result_processed");
    let mut expected = vec!["session_started", "message.user_processed", "turn.started"];
    expected.extend([full, called, called, decided, result, result]);
    expected.extend([full, called, called, called, decided, result, result, result]);
    expected.extend([full, decided, full, decided, "turn.completed", "session_ended"]);
    assert_eq!(committed, expected);

    let ids = |topic| of(&events, topic).iter().map(|data| data["call"].to_string()).collect::<Vec<_>>();
    let (mut calls, mut results) = (ids(called), ids(result));
    assert_eq!(calls.len(), 5);
    calls.sort();
    results.sort();
    assert_eq!(calls, results, "each call has exactly one result");
    assert!(of(&events, result).iter().all(|data| data["outcome"] == "ok"));
    let mut witnessed: Vec<u64> = tool_server.calls().iter().filter_map(|call| call.arguments["n"].as_u64()).collect();
    witnessed.sort_unstable();
    assert_eq!(witnessed, [1, 2, 3, 4, 5], "each call ran once");

    let sources: Vec<&Value> = of(&events, decided).iter().map(|data| &data["source"]).collect();
    assert_eq!(sources, ["tool_calls", "tool_calls", "explicit", "explicit"]);
    let last = of(&events, "session_ended")[0];
    assert_eq!((&last["reason"], &last["iterations"]), (&"completed".into(), &4.into()));
    let session = outcome.events()?[0]["session_id"].as_str().unwrap_or_default().to_owned();
    judge::log(&fleet.bus, &key(&session)?, 10).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_concatenated_are_the_text() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(lively()).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let _workshop = ToolServer::plain(&fleet.nats.url()).await?;
    fleet.wait_for_tools(&["echo", "mark"]).await?;
    let events = watch_from_the_beginning(&fleet, "do all of it").await?;

    let mut streamed: BTreeMap<u64, String> = BTreeMap::new();
    let mut whole = BTreeMap::new();
    for chunk in of(&events, "message.ai_chunk_received") {
        let step = chunk["step"].as_u64().unwrap();
        assert!(!whole.contains_key(&step), "a chunk after the final one");
        streamed.entry(step).or_default().push_str(chunk["delta"].as_str().unwrap());
        if chunk["final"] == true {
            whole.insert(step, chunk["finish_reason"].clone());
        }
    }
    let replies = of(&events, "message.ai_full_received");
    let ended = replies.iter().map(|full| (full["step"].as_u64().unwrap(), full["finish_reason"].clone()));
    assert_eq!(whole, ended.collect());
    let full: BTreeMap<u64, String> = of(&events, "message.ai_full_received")
        .iter()
        .map(|full| (full["step"].as_u64().unwrap(), full["text"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(streamed, full);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_in_an_envelope_viewers_get_the_response_only() -> anyhow::Result<()> {
    let response = "Half of it: \"ä\" \n and more.";
    let envelope = |status: &str| json!({"response": response, "continuation": {"status": status}}).to_string();
    let fenced = format!("Before. ```json\n{}\n```", json!({"continuation": {"status": "CONTINUE", "reason": "more"}}));
    let replies = vec![
        ScriptedReply::text(&envelope("CONTINUE")),
        ScriptedReply::text(&fenced),
        ScriptedReply::text(&envelope("TERMINATE")),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let events = watch_from_the_beginning(&fleet, "go").await?;
    let texts: Vec<&str> =
        of(&events, "message.ai_full_received").iter().map(|full| full["text"].as_str().unwrap().trim()).collect();
    assert_eq!(texts, [response, "Before.", response]);
    let streamed: String =
        of(&events, "message.ai_chunk_received").iter().map(|chunk| chunk["delta"].as_str().unwrap()).collect();
    assert_eq!(streamed.replace("Before. ", "Before."), format!("{response}Before.{response}"));
    let requests = model.requests();
    let kept = requests[1].messages().iter().find(|message| message["role"] == "assistant").unwrap();
    assert_eq!(kept["content"], envelope("CONTINUE"), "the transcript keeps what the model wrote");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_reply_run_in_parallel() -> anyhow::Result<()> {
    let calls: Vec<(&str, Value)> = (0..4).map(|n| ("wait", json!({"n": n}))).collect();
    let model =
        ModelServer::with_replies(vec![ScriptedReply::calls(&calls), ScriptedReply::signal("Done.", "TERMINATE")])
            .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let gate = Gate::new();
    let held = gate.clone();
    let answer = move |call: &RecordedCall| ToolAnswer::After(held.clone(), call.arguments.clone());
    let tool_server = ToolServerBuilder::at(&fleet.nats.url()).await?.tool("wait", Effect::Pure, answer).open().await?;
    fleet.wait_for_tools(&["wait"]).await?;
    let client = fleet.client().await?;
    client.start("s", "all four").await?;
    ailoop_tests::wait::soon("four calls at once", tool_server.wait_for_calls(4)).await?;
    gate.open();
    let events = client.watch("s").await?.to_end().await?;
    judge::seqs(&events)?;
    let results: Vec<&str> = of(&events, "tool_call.result_processed")
        .iter()
        .map(|data| data["content"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(results.len(), 4);
    let requests = model.requests();
    let read: Vec<Value> = requests[1].last_results().iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(read, [json!({"n": 0}), json!({"n": 1}), json!({"n": 2}), json!({"n": 3})], "in the order of the calls");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_event_has_the_documented_form() -> anyhow::Result<()> {
    let signal = json!({"status": "continue", "reason": "more to do", "progress": {
        "current_step": 2, "total_steps": 4, "completion_percentage": 50,
        "steps_completed": ["Listed plans", "Read plan"], "steps_remaining": ["Decompose plan", "Analyze dependencies"],
    }});
    let gate = Gate::new();
    let replies = vec![
        ScriptedReply::text("Half way.").and_calls(&[("continuation", signal)]).before(&gate),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut ws = fleet.ws().await?;
    ws.ok("session.start", &json!({"session_id": "s", "agent": "eamonn", "prompt": "go"})).await?;
    ws.ok("session.watch", &json!({"session_id": "s"})).await?;
    gate.open();
    let mut notification = ws.until("continuation.progress").await?;
    let timestamp = notification["params"]["timestamp"].take();
    let shape = regex::Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")?;
    assert!(timestamp.as_str().is_some_and(|text| shape.is_match(text)), "{timestamp}");
    assert_eq!(
        notification,
        json!({"jsonrpc": "2.0", "method": "continuation.progress", "params": {
            "sessionId": "s", "session_id": "s", "agent_id": "e", "iteration": 1, "max_iterations": 10,
            "progress": {"current_step": 2, "total_steps": 4, "completion_percentage": 50,
                "steps_completed": ["Listed plans", "Read plan"],
                "steps_remaining": ["Decompose plan", "Analyze dependencies"]},
            "current_tools": [], "timestamp": null, "seq": 5,
            "turn": 1, "continues": true, "source": "explicit", "reason": "more to do", "status": "continue",
            "nudge": "Go on. You said: more to do.",
        }})
    );
    let end = ws.until("session_ended").await?;
    assert_eq!(end["params"]["data"]["reason"], "completed");
    fleet.end().await
}
