//! Tools with which an agent reads other sessions.

use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use ailoop_tests::wait::eventually;
use contract::TenantId;
use contract::commit::Phase;
use serde_json::{Value, json};

const AGENTS: &str = "
agents:
  d: {name: Debbie, tools: {allow: [list_sessions, read_session, read_decisions]}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_finds_another_session_and_reads_its_transcript() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::text("I cannot find the port. What is it?"),
        ScriptedReply::calls(&[("list_sessions", json!({"title": "PORT", "phase": "ended"}))]),
        ScriptedReply::calls(&[("read_session", json!({"session": "odd"}))]),
        ScriptedReply::calls(&[("read_decisions", json!({"session": "odd"}))]),
        ScriptedReply::calls(&[("read_session", json!({"session": "nobody"}))]),
        ScriptedReply::text("It asked instead of looking."),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::with_agents(&[("test", &model.base_url())], AGENTS).await?;
    fleet.wait_for_tools(&["list_sessions", "read_session", "read_decisions"]).await?;
    let client = fleet.client().await?;
    client.begin("odd", "Which port is open?", &json!({"agent": "d"})).await?;
    client.watch("odd").await?.to_end().await?;
    eventually("the index knows that it has ended", async || {
        let known = fleet.bus.summaries(&TenantId::default()).await.unwrap_or_default();
        known.iter().any(|summary| summary.phase == Phase::Ended)
    })
    .await?;
    client.begin("debug", "Why did the last session end?", &json!({"agent": "d"})).await?;
    client.watch("debug").await?.to_end().await?;

    let requests = model.requests();
    let result = |number: usize| -> Value { serde_json::from_str(requests[number].last_results()[0]).unwrap() };
    let (listed, read, decided) = (result(2), result(3), result(4));
    let [line] = &listed["sessions"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&line["session"], &line["stop_reason"]), (&json!("odd"), &json!("completed")));
    let texts: Vec<&Value> = read["entries"].as_array().unwrap().iter().map(|entry| &entry["text"]).collect();
    assert_eq!(texts[..2], [&json!("Which port is open?"), &json!("I cannot find the port. What is it?")]);
    assert_eq!((&read["entries"][2]["ended"], &read["next"]), (&json!("completed"), &Value::Null));
    let made = &decided["entries"][0];
    assert_eq!((&made["continues"], &made["step"]), (&json!(false), &json!(1)));
    assert!(made["source"].is_string() && made["reason"].is_string(), "{decided}");
    let unknown = requests[5].last_results()[0];
    assert!(unknown.contains("there is no session") && unknown.contains("list_sessions"), "{unknown}");
    fleet.end().await
}
