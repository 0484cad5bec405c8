//! A second model, the judge, decides on a reply that does not say whether work is left.

use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use serde_json::json;

use crate::e2e::events::of;

const AGENTS: &str = "
default_agent: x
agents:
  x: {name: Xaver, continuation_config: {require_explicit_signal: false, judge: small}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn judge_decides_on_a_reply_that_does_not_say_whether_work_is_left() -> anyhow::Result<()> {
    let replies = ["The config has no port.", "It has one now: 8080. Task complete."];
    let model = ModelServer::with_replies(replies.iter().map(|reply| ScriptedReply::text(reply)).collect()).await?;
    let small = ModelServer::with_replies(vec![ScriptedReply::text("CONTINUE: the port is not set yet")]).await?;
    let fleet = TestFleet::with_agents(&[("test", &model.base_url()), ("small", &small.base_url())], AGENTS).await?;
    let client = fleet.client().await?;
    let options = json!({"parameters": {"temperature": 0.5}});
    client.begin_as("s", "begin", "Set the port to 8080.", &options).await?;
    let events = client.watch("s").await?.to_end().await?;

    judge::seqs(&events)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    let decisions = of(&events, "continuation.progress");
    let decided: Vec<_> = decisions.iter().map(|decision| (&decision["source"], &decision["continues"])).collect();
    assert_eq!(decided, [(&json!("judge:small"), &json!(true)), (&json!("intent:done"), &json!(false))]);
    assert_eq!(decisions[0]["reason"], "the port is not set yet");
    assert!(decisions[0]["spent"]["usage"]["input"].as_u64() > Some(0), "{}", decisions[0]);
    assert!(decisions[1]["spent"].is_null());
    assert_eq!(of(&events, "session_ended")[0]["final_response"], replies[1]);

    let requests = small.requests();
    let [request] = &requests[..] else { panic!("asked {} times", requests.len()) };
    assert!(request.last_user().contains("Set the port") && request.last_user().contains(replies[0]));
    assert!(request.body["temperature"].is_null() && request.tools().is_empty(), "{}", request.body);

    // An unknown judge is refused at the start.
    let options = json!({"continuation": {"judge": "smal"}});
    let refused = format!("{:#}", client.begin("t", "Set the port.", &options).await.unwrap_err());
    assert!(refused.contains("unknown_model") && refused.contains("continuation.judge"), "{refused}");
    fleet.end().await
}
