//! The example of the original design: an agent that works in announced steps, without a signal and without a tool.

use ailoop_tests::fleet::{Fleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::events::of;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eamonn_executes_the_plan_by_patterns_alone() -> anyhow::Result<()> {
    let steps = [
        "I'll execute the python-ast-json plan. Now I'll read the plan and set up the module.",
        "The module is there. Next, I'll write the visitor that turns nodes into dictionaries.",
        "The visitor handles expressions. Moving on to statements and their line numbers.",
        "Statements are in. Let me write the tests next, then the command line.",
        "All five steps have been carried out and the tests pass. Task complete.",
    ];
    let model = ModelServer::with_replies(steps.map(Reply::text).to_vec()).await?;
    let fleet = Fleet::as_shipped(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.begin_as("s", "begin", "Execute the python-ast-json plan", &json!({"agent": "e"})).await?;
    let seen = client.watch("s").await?.to_end().await?;

    judge::seqs(&seen)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    let decisions = of(&seen, "continuation.progress");
    let sources: Vec<&str> = decisions.iter().map(|decision| decision["source"].as_str().unwrap()).collect();
    assert_eq!(
        sources,
        [
            "pattern:continuation:now I'll",
            "pattern:continuation:next, I",
            "pattern:continuation:moving on to",
            "pattern:continuation:let me.*next",
            "pattern:termination:task (is )?complete",
        ]
    );
    let told = |n: usize| &decisions[n];
    for n in 0..5 {
        assert_eq!((&told(n)["iteration"], &told(n)["max_iterations"]), (&json!(n + 1), &json!(10)));
        assert_eq!((&told(n)["agent_id"], &told(n)["status"]), (&json!("e"), &json!("UNKNOWN")));
        assert_eq!(told(n)["progress"]["current_step"], n + 1);
        assert!(told(n)["progress"]["total_steps"].is_null() && told(n)["progress"]["completion_percentage"].is_null());
        assert_eq!(told(n)["progress"]["steps_completed"], json!([]));
    }
    let end = &of(&seen, "session_ended")[0];
    assert_eq!(
        (&end["reason"], &end["stop_reason"], &end["iterations"]),
        (&json!("completed"), &json!("completed"), &json!(5))
    );
    assert_eq!(end["final_response"], steps[4]);
    fleet.end().await
}
