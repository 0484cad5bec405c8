//! Gates: approvals and questions at the editor, answered there or elsewhere.

use ailoop_tests::editor::Editor;
use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::tool_server::{ToolAnswer, ToolServer, ToolServerBuilder};
use ailoop_tests::wait::eventually;
use ailoop_tool::{Approval, Effect, Tool};
use serde_json::{Value, json};

/// Whether the request brings the result of a call, and no new message.
fn is_after_a_call(request: &RecordedRequest) -> bool {
    request.messages().last().is_some_and(|message| message["role"] == "tool")
}

/// A model that calls a tool in the first step of each turn.
async fn model_that_calls(tool: &'static str, arguments: Value) -> std::io::Result<ModelServer> {
    ModelServer::start(move |request| {
        if !is_after_a_call(request) {
            return ScriptedReply::calls(&[(tool, arguments.clone())]);
        }
        ScriptedReply::signal(&format!("The result: {}", request.last_results().join(" ")), "TERMINATE")
    })
    .await
}

async fn launch(nats: &str) -> anyhow::Result<ToolServer> {
    let tool = Tool::new("launch").effect(Effect::AtMostOnce).approval(Approval::Always);
    ToolServerBuilder::at(nats).await?.with(tool, |call| ToolAnswer::Json(call.arguments.clone())).open().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_is_asked_in_the_editor_and_runs_the_call_once() -> anyhow::Result<()> {
    let model = model_that_calls("launch", json!({"to": "the moon"})).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tools = launch(&fleet.nats.url()).await?;
    fleet.wait_for_tools(&["launch"]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.new_session().await?;

    let prompt = editor.prompt(&session, "Go").await?;
    let (request, asked) = editor.asked("session/request_permission").await?;
    assert_eq!((&asked["sessionId"], &asked["toolCall"]["rawInput"]), (&json!(session), &json!({"to": "the moon"})));
    assert!(tools.calls().is_empty(), "the call runs without an approval");
    editor.choose(&request, "allow").await?;
    assert_eq!(editor.stop_reason(prompt).await?, "end_turn");
    assert_eq!(editor.call_statuses(), ["pending", "in_progress", "completed"]);
    assert_eq!(tools.calls().len(), 1);

    let prompt = editor.prompt(&session, "Again").await?;
    let (request, _) = editor.asked("session/request_permission").await?;
    editor.choose(&request, "reject").await?;
    assert_eq!(editor.stop_reason(prompt).await?, "end_turn");
    assert_eq!((tools.calls().len(), editor.call_statuses().last()), (1, Some(&"failed")));

    // Another client is faster: the request is taken back, and a late answer changes nothing.
    let prompt = editor.prompt(&session, "Once more").await?;
    let (request, _) = editor.asked("session/request_permission").await?;
    let client = fleet.client().await?;
    let gates = client.gates(&session).await?;
    client.answer(&gates[0], "deny", |_| {}).await?;
    let cancelled = editor.until(|message| message["method"] == "$/cancel_request").await?;
    assert_eq!(cancelled["params"]["requestId"], request);
    editor.choose(&request, "allow").await?;
    assert_eq!(editor.stop_reason(prompt).await?, "end_turn");
    assert_eq!(tools.calls().len(), 1);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_at_an_approval_denies_the_call() -> anyhow::Result<()> {
    let replies = vec![ScriptedReply::calls(&[("launch", json!({}))]), ScriptedReply::signal("Done.", "TERMINATE")];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tools = launch(&fleet.nats.url()).await?;
    fleet.wait_for_tools(&["launch"]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.new_session().await?;
    let prompt = editor.prompt(&session, "Go").await?;
    let (request, _) = editor.asked("session/request_permission").await?;
    editor.notify("session/cancel", &json!({"sessionId": session})).await?;
    editor.reply(&request, &json!({"outcome": {"outcome": "cancelled"}})).await?;
    assert_eq!(editor.stop_reason(prompt).await?, "cancelled");
    let client = fleet.client().await?;
    eventually("no gate waits", async || client.gates(&session).await.is_ok_and(|gates| gates.is_empty())).await?;
    assert_eq!(editor.stop_reason_of(&session, "Something else").await?, "end_turn");
    let requests = model.requests();
    assert!(requests[1].last_results().join(" ").contains("the turn ended before anybody answered"), "{requests:?}");
    assert!(tools.calls().is_empty());
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_is_a_choice_or_the_next_prompt_without_forms() -> anyhow::Result<()> {
    let model = ModelServer::start(|request| {
        if is_after_a_call(request) {
            return ScriptedReply::signal(&format!("You chose {}.", request.last_results().join(" ")), "TERMINATE");
        }
        let choices: &[&str] = if request.last_user() == "Offer" { &["red", "blue"] } else { &[] };
        ScriptedReply::calls(&[("ask_user", json!({"question": "Which colour?", "choices": choices}))])
    })
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut editor = Editor::open(&fleet.url()).await?;
    let session = editor.new_session().await?;

    let prompt = editor.prompt(&session, "Offer").await?;
    let (request, asked) = editor.asked("session/request_permission").await?;
    assert_eq!(asked["options"][1]["name"], "blue");
    editor.choose(&request, "choice-1").await?;
    assert_eq!(editor.stop_reason(prompt).await?, "end_turn");
    editor.until_text("You chose blue.").await?;

    assert_eq!(editor.stop_reason_of(&session, "Ask").await?, "end_turn");
    editor.until_text("your next message is the answer").await?;
    assert_eq!(editor.stop_reason_of(&session, "mauve").await?, "end_turn");
    editor.until_text("You chose mauve.").await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_is_a_form_where_the_editor_shows_forms() -> anyhow::Result<()> {
    let model = model_that_calls("ask_user", json!({"question": "Which colour?"})).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut editor = Editor::start(&fleet.url(), &[])?;
    let abilities = json!({"elicitation": {"form": {}}});
    editor.ok("initialize", &json!({"protocolVersion": 1, "clientCapabilities": abilities})).await?;
    let session = editor.new_session().await?;
    let prompt = editor.prompt(&session, "Ask").await?;
    let (request, asked) = editor.asked("elicitation/create").await?;
    assert_eq!((&asked["mode"], &asked["message"]), (&json!("form"), &json!("Which colour?")));
    editor.reply(&request, &json!({"action": "accept", "content": {"answer": "mauve"}})).await?;
    assert_eq!(editor.stop_reason(prompt).await?, "end_turn");
    editor.until_text("The result: mauve").await?;

    // A form that is closed leaves the question to the next prompt.
    let prompt = editor.prompt(&session, "Ask").await?;
    let (request, _) = editor.asked("elicitation/create").await?;
    editor.reply(&request, &json!({"action": "cancel"})).await?;
    assert_eq!(editor.stop_reason(prompt).await?, "end_turn");
    assert_eq!(editor.stop_reason_of(&session, "green").await?, "end_turn");
    editor.until_text("The result: green").await?;
    fleet.end().await
}
