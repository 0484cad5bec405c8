//! Prompts: streamed answers, tool calls, images, settings, and cancellation.

use ailoop_tests::editor::Editor;
use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::tool_server::ToolServer;
use anyhow::Context as _;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_streams_text_thoughts_and_tool_calls() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::text("Let me look.").and_reasoning("Hm.").and_calls(&[("pure", json!({"path": "a.rs"}))]),
        ScriptedReply::signal("All is well.", "TERMINATE"),
        ScriptedReply::signal("Again.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let _tools = ToolServer::of_every_effect(&fleet.nats.url()).await?;
    fleet.wait_for_tools(&["pure"]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.ok("session/new", &json!({"cwd": "/work", "mcpServers": [{"name": "x"}]})).await?;
    assert_eq!(session["configOptions"][0]["currentValue"], "e");
    let session = session["sessionId"].as_str().context("an id")?.to_owned();

    assert_eq!(editor.stop_reason_of(&session, "Look").await?, "end_turn");
    let text = editor.text("agent_message_chunk");
    assert!(text.contains("MCP server"), "the person must know that MCP servers are not used: {text}");
    assert!(text.ends_with("Let me look.All is well."), "{text:?}");
    assert_eq!(editor.text("agent_thought_chunk"), "Hm.");
    assert_eq!(editor.text("user_message_chunk"), "", "the editor shows its own prompt");
    assert_eq!(editor.call_statuses(), ["pending", "in_progress", "completed"]);
    let call = editor.updates().find(|update| update["sessionUpdate"] == "tool_call").context("a call")?;
    assert_eq!((&call["title"], &call["rawInput"]), (&json!("pure a.rs"), &json!({"path": "a.rs"})));

    editor.forget();
    assert_eq!(editor.stop_reason_of(&session, "Once more").await?, "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Again.", "the notice comes once");
    let listed = editor.ok("session/list", &json!({"cwd": "/elsewhere"})).await?;
    assert_eq!(
        (&listed["sessions"][0]["sessionId"], &listed["sessions"][0]["cwd"]),
        (&json!(session), &json!("/work"))
    );
    assert_eq!(listed["sessions"][0]["title"], "Look");
    assert_eq!(editor.close().await?, Some(0));
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_of_a_prompt_reach_the_model_in_the_first_and_in_later_messages() -> anyhow::Result<()> {
    let model = ModelServer::start(|_| ScriptedReply::signal("Seen.", "TERMINATE")).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.new_session().await?;
    for image in ["QUJD", "REVG"] {
        let prompt = json!([
            {"type": "text", "text": "What is "},
            {"type": "resource_link", "uri": "file:///a.png", "name": "a.png"},
            {"type": "image", "data": image, "mimeType": "image/png"}
        ]);
        editor.ok("session/prompt", &json!({"sessionId": session, "prompt": prompt})).await?;
        let requests = model.requests();
        let message = requests.last().and_then(|request| request.messages().last()).context("a request")?;
        assert_eq!(message["content"][0]["text"], "What is [@a.png](file:///a.png)");
        assert_eq!(message["content"][1]["image_url"]["url"], format!("data:image/png;base64,{image}"));
    }
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_prompt_is_answered_and_the_session_goes_on() -> anyhow::Result<()> {
    let gate = Gate::new();
    let replies = vec![
        ScriptedReply::text("One two").and_gate(&gate).and_text(" three"),
        ScriptedReply::signal("Something else.", "TERMINATE"),
        ScriptedReply::signal("And more.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.new_session().await?;
    let prompt = editor.prompt(&session, "Count").await?;
    editor.until_text("One two").await?;
    editor.notify("session/cancel", &json!({"sessionId": session})).await?;
    assert_eq!(editor.stop_reason(prompt).await?, "cancelled");
    let client = fleet.client().await?;
    assert_eq!(client.phase(&session).await?, "idle");

    editor.forget();
    assert_eq!(editor.stop_reason_of(&session, "Do something else").await?, "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Something else.", "the cancelled reply stays silent");
    assert_eq!(model.requests()[1].last_user(), "Do something else");
    assert_eq!(editor.stop_reason_of(&session, "More").await?, "end_turn");
    gate.open();
    // A cancel between prompts changes nothing.
    editor.notify("session/cancel", &json!({"sessionId": session})).await?;
    editor.ok("session/close", &json!({"sessionId": session})).await?;
    assert_eq!(client.phase(&session).await?, "idle");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_somebody_else_paused_is_not_resumed_by_a_prompt() -> anyhow::Result<()> {
    let model = ModelServer::start(|_| ScriptedReply::signal("Done.", "TERMINATE")).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.new_session().await?;
    editor.stop_reason_of(&session, "Hello").await?;
    let client = fleet.client().await?;
    client.control(&session, ailoop_tests::client::Control::Pause).await?;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "More"}]});
    editor.ok("session/load", &json!({"sessionId": session, "cwd": "/", "mcpServers": []})).await?;
    assert_eq!(editor.refused("session/prompt", &prompt).await?, (-32600, "not_now".to_owned()));
    client.control(&session, ailoop_tests::client::Control::Resume).await?;
    editor.ok("session/load", &json!({"sessionId": session, "cwd": "/", "mcpServers": []})).await?;
    editor.ok("session/prompt", &prompt).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_and_model_are_chosen_before_and_in_a_session() -> anyhow::Result<()> {
    let model = ModelServer::start(|_| ScriptedReply::signal("Done.", "TERMINATE")).await?;
    let fleet = TestFleet::as_shipped(&[("test", &model.base_url()), ("other", &model.base_url())]).await?;
    let mut editor = Editor::start(&fleet.url(), &["--agent", "Eamonn"])?;
    editor.ok("initialize", &json!({"protocolVersion": 1})).await?;
    let session = editor.new_session().await?;
    let set = |config: &str, value: &str| json!({"sessionId": session, "configId": config, "value": value});
    let current = |options: &Value| {
        [options["configOptions"][0]["currentValue"].clone(), options["configOptions"][1]["currentValue"].clone()]
    };
    let options = editor.ok("session/set_config_option", &set("model", "other")).await?;
    assert_eq!(current(&options), ["e", "other"]);
    assert_eq!(editor.refused("session/set_config_option", &set("agent", "x")).await?.1, "unknown_agent");
    assert_eq!(editor.refused("session/set_config_option", &set("colour", "x")).await?.1, "bad_request");
    // Another editor sees what the session has, and not what was asked for.
    let mut other = Editor::open(&fleet.url()).await?;
    let open = json!({"sessionId": session, "cwd": "/", "mcpServers": []});
    editor.stop_reason_of(&session, "Hello").await?;
    assert_eq!(current(&other.ok("session/load", &open).await?), ["e", "other"]);
    let options = editor.ok("session/set_config_option", &set("agent", "t")).await?;
    assert_eq!(current(&options), ["t", "test"], "an agent brings its model");
    let update = other.until(|message| message["params"]["update"]["sessionUpdate"] == "config_option_update").await?;
    assert_eq!(update["params"]["update"]["configOptions"][0]["currentValue"], "t");
    editor.stop_reason_of(&session, "Hello").await?;
    assert_eq!(current(&other.ok("session/load", &open).await?), ["t", "test"]);
    fleet.end().await
}
