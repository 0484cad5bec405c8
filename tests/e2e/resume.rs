//! A session that begins with the transcript of another one.

use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tool::Tool;
use serde_json::{Value, json};

fn roles(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["role"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_resumed_from_another_one_repeats_no_call() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::text("I look.").and_calls(&[("look", json!({"n": 1})), ("look", json!({"n": 2}))]),
        ScriptedReply::text("Two things."),
        ScriptedReply::text("As I said: two."),
        ScriptedReply::text("I look again.").and_calls(&[("look", json!({"n": 3}))]),
        ScriptedReply::text("Three now."),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tool_server = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let tool_server =
        tool_server.with(Tool::new("look"), |call| ToolAnswer::Json(call.arguments.clone())).open().await?;
    fleet.wait_for_tools(&["look"]).await?;
    let client = fleet.client().await?;
    client.start("old", "How many?").await?;
    client.watch("old").await?.to_end().await?;

    // From its end.
    client.begin_as("new", "begin", "Say it again.", &json!({"resume_from": {"session_id": "old"}})).await?;
    client.watch("new").await?.to_end().await?;
    let requests = model.requests();
    let messages = requests[2].messages();
    assert_eq!(roles(messages), ["system", "user", "assistant", "tool", "tool", "assistant", "user"]);
    assert_eq!((&messages[1]["content"], &messages[6]["content"]), (&json!("How many?"), &json!("Say it again.")));

    // From the middle of its first step: calls without a result get one, and new calls have new ids.
    let options = json!({"resume_from": {"session_id": "old", "at": 1}});
    client.begin_as("fork", "begin", "Go on.", &options).await?;
    client.watch("fork").await?.to_end().await?;
    judge::requests(&model.requests())?;
    let requests = model.requests();
    let messages = requests[3].messages();
    assert_eq!(roles(messages), ["system", "user", "assistant", "tool", "tool", "user"]);
    assert!(messages[3]["content"].as_str().unwrap().starts_with("unknown"), "{}", messages[3]);
    let ids: Vec<&Value> = requests[4]
        .messages()
        .iter()
        .flat_map(|m| m["tool_calls"].as_array().into_iter().flatten())
        .map(|call| &call["id"])
        .collect();
    assert_eq!(ids, [&json!("p-c1-1-1"), &json!("p-c1-1-2"), &json!("c1-1-1")]);
    assert_eq!(tool_server.calls().len(), 3, "nothing that the old session did is done again");

    // An invalid origin is refused, and no session begins.
    let refused = client.begin("none", "x", &json!({"resume_from": {"session_id": "nobody"}})).await;
    assert!(format!("{:#}", refused.unwrap_err()).starts_with("unknown_session"));
    for session in ["old", "new", "fork"] {
        judge::log(&fleet.bus, &key(session)?, 10).await?;
    }
    fleet.end().await
}
