//! Sessions after their editor or their edge died.

use ailoop_tests::editor::Editor;
use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::{EdgeReplica, Launcher, ProcessFleet};
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tool::{Approval, Tool};
use bus::NatsConfig;
use serde_json::{Value, json};

fn open_params(session: &str) -> Value {
    json!({"sessionId": session, "cwd": "/", "mcpServers": []})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_a_killed_editor_is_loaded_while_its_turn_runs() -> anyhow::Result<()> {
    let gate = Gate::new();
    let replies = vec![
        ScriptedReply::signal("First.", "TERMINATE"),
        ScriptedReply::text("One two")
            .and_gate(&gate)
            .and_text(" three")
            .and_calls(&[("continuation", json!({"status": "TERMINATE", "reason": "scripted"}))]),
        ScriptedReply::signal("Third.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.new_session().await?;
    editor.stop_reason_of(&session, "Begin").await?;
    editor.prompt(&session, "Count").await?;
    editor.until_text("One two").await?;
    editor.kill().await?;

    let mut second = Editor::open(&fleet.url()).await?;
    let loaded = second.ok("session/load", &open_params(&session)).await?;
    assert_eq!(loaded["configOptions"][0]["currentValue"], "e");
    assert_eq!(second.text("user_message_chunk"), "BeginCount", "everything was shown before the answer");
    second.until_text("First.One two").await?;
    gate.open();
    second.until_text(" three").await?;
    assert_eq!(second.text("agent_message_chunk"), "First.One two three");

    // A session that is taken up shows nothing of the past.
    let mut third = Editor::open(&fleet.url()).await?;
    third.ok("session/resume", &open_params(&session)).await?;
    assert_eq!(third.updates().count(), 0);
    assert_eq!(third.stop_reason_of(&session, "And?").await?, "end_turn");
    assert_eq!(third.text("agent_message_chunk"), "Third.");
    // The other editor, which has the session open too, sees the message of this one.
    second.until_text("Third.").await?;
    assert!(second.text("user_message_chunk").ends_with("And?"));
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_approval_is_asked_again_by_the_editor_that_loads() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::calls(&[("launch", json!({"to": "the moon"}))]),
        ScriptedReply::signal("Landed.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tool = Tool::new("launch").approval(Approval::Always);
    let tools = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let tools = tools.with(tool, |call| ToolAnswer::Json(call.arguments.clone())).open().await?;
    fleet.wait_for_tools(&["launch"]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.new_session().await?;
    editor.prompt(&session, "Go").await?;
    editor.asked("session/request_permission").await?;
    editor.kill().await?;

    for method in ["session/load", "session/resume"] {
        let mut editor = Editor::open(&fleet.url()).await?;
        editor.ok(method, &open_params(&session)).await?;
        let (request, _) = editor.asked("session/request_permission").await?;
        assert!(tools.calls().is_empty());
        if method == "session/resume" {
            editor.choose(&request, "allow").await?;
            editor.until_text("Landed.").await?;
        }
    }
    assert_eq!(tools.calls().len(), 1);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edge_killed_in_a_prompt_repeats_no_text() -> anyhow::Result<()> {
    let (gate, last) = (Gate::new(), Gate::new());
    let reply = ScriptedReply::text("One two").and_gate(&gate).and_text(" three").and_gate(&last).and_text(" four");
    let model = ModelServer::with_replies(vec![
        reply.and_calls(&[("continuation", json!({"status": "TERMINATE", "reason": "scripted"}))]),
    ])
    .await?;
    let fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let _services = fleet.spawn_all(&["orchestrator", "gateway", "executor"]).await?;
    let mut edge = fleet.edge().await?;
    let mut editor = Editor::open(&edge.url()).await?;
    let session = editor.new_session().await?;
    let prompt = editor.prompt(&session, "Count").await?;
    editor.until_text("One two").await?;

    let address = edge.addresses()?.1.to_string();
    edge.replica.kill()?;
    let models = [("test", &*model.base_url())];
    let launcher = Launcher::new(&models, &[("AILOOP__EDGE__GRPC__LISTEN", &address)])?;
    let nats = NatsConfig { url: fleet.nats.url(), ..NatsConfig::default() };
    let _edge = EdgeReplica::of(launcher.spawn("edge", &nats).await?)?;
    gate.open();
    // The reply still runs when the editor is connected again, so the text so far comes once more.
    editor.until_text("three").await?;
    last.open();
    assert_eq!(editor.stop_reason(prompt).await?, "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "One two three four");
    Ok(())
}
