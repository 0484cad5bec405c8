//! The example of the original design: an agent that works in announced steps, without a signal and without a tool.

use anyhow::Context;

use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use serde_json::json;

use crate::e2e::events::of;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_without_signals_continues_by_patterns() -> anyhow::Result<()> {
    let example: Vec<(&str, &str)> = include_str!("../../examples/plans/worked-example.txt")
        .lines()
        .map(|line| line.split_once(' ').context("a decision and a reply"))
        .collect::<anyhow::Result<_>>()?;
    let steps: Vec<&str> = example.iter().map(|(_, reply)| *reply).collect();
    let model = ModelServer::with_replies(steps.iter().map(|reply| ScriptedReply::text(reply)).collect()).await?;
    let fleet = TestFleet::as_shipped(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.begin_as("s", "begin", "Execute the python-ast-json plan", &json!({"agent": "e"})).await?;
    let events = client.watch("s").await?.to_end().await?;

    judge::seqs(&events)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    let decisions = of(&events, "continuation.progress");
    let sources: Vec<&str> = decisions.iter().map(|decision| decision["source"].as_str().unwrap()).collect();
    assert_eq!(
        sources,
        [
            "intent:announces",
            "pattern:continuation:now I'll",
            "pattern:continuation:next, I",
            "intent:announces",
            "intent:done",
        ]
    );
    let decided: Vec<&str> =
        decisions.iter().map(|decision| if decision["continues"] == true { "CONTINUE" } else { "TERMINATE" }).collect();
    assert_eq!(decided, example.iter().map(|(decision, _)| *decision).collect::<Vec<_>>());
    let decision = |n: usize| &decisions[n];
    for n in 0..5 {
        assert_eq!((&decision(n)["iteration"], &decision(n)["max_iterations"]), (&json!(n + 1), &json!(10)));
        assert_eq!((&decision(n)["agent_id"], &decision(n)["status"]), (&json!("e"), &json!("UNKNOWN")));
        assert_eq!(decision(n)["progress"]["current_step"], n + 1);
        assert!(
            decision(n)["progress"]["total_steps"].is_null()
                && decision(n)["progress"]["completion_percentage"].is_null()
        );
        assert_eq!(decision(n)["progress"]["steps_completed"], json!([]));
    }
    let end = &of(&events, "session_ended")[0];
    assert_eq!(
        (&end["reason"], &end["stop_reason"], &end["iterations"]),
        (&json!("completed"), &json!("completed"), &json!(5))
    );
    assert_eq!(end["final_response"], steps[4]);
    fleet.end().await
}
