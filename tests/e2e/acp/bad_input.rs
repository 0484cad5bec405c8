//! Lines and requests that cannot be served: each gets an error, and the connection goes on.

use ailoop_tests::editor::{Editor, error_codes};
use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use anyhow::Context as _;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_refused_and_the_connection_goes_on() -> anyhow::Result<()> {
    let gate = Gate::new();
    let reply = ScriptedReply::signal("Done.", "TERMINATE").before(&gate);
    let model = ModelServer::with_replies(vec![reply, ScriptedReply::status(401, "{}")]).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut editor = Editor::start(&fleet.url(), &[])?;
    assert_eq!(editor.refused("session/list", &json!({})).await?, (-32600, "not_now".to_owned()), "before initialize");
    editor.ok("initialize", &json!({"protocolVersion": 9, "clientCapabilities": {"fs": {}}, "x": 1})).await?;

    let long = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"{}"}}"#, "x".repeat(4 << 20));
    for (line, expect) in [
        ("{", (-32700, "bad_request")),
        ("[]", (-32600, "bad_request")),
        (r#"{"id":1,"method":"session/list"}"#, (-32600, "bad_request")),
        (&long, (-32600, "too_large")),
    ] {
        editor.write(line).await?;
        let refused = editor.until(|message| message.get("error").is_some()).await?;
        let (number, code) = error_codes(&refused["error"])?;
        assert_eq!((number, code.as_str()), expect, "{}", &line[..line.len().min(80)]);
    }
    // Notifications and responses that nobody knows are ignored.
    editor.notify("session/unknown", &json!({})).await?;
    editor.notify("session/cancel", &json!({"sessionId": "nobody"})).await?;
    editor.reply(&json!(77), &json!({})).await?;

    let session = editor.new_session().await?;
    let prompt = |session: &str, content: Value| json!({"sessionId": session, "prompt": content});
    let text = json!([{"type": "text", "text": "Hello"}]);
    let open = |session: &str| json!({"sessionId": session, "cwd": "/", "mcpServers": []});
    for (method, params, expect) in [
        ("session/fly", json!({}), (-32601, "unknown_method")),
        ("session/new", json!({"mcpServers": []}), (-32602, "bad_request")),
        ("session/prompt", prompt("nobody", text.clone()), (-32002, "unknown_session")),
        ("session/load", open("nobody"), (-32002, "unknown_session")),
        ("session/resume", open("nobody"), (-32002, "unknown_session")),
        ("session/load", open("no body"), (-32602, "bad_request")),
        ("session/close", json!({"sessionId": "nobody"}), (-32002, "unknown_session")),
        ("session/prompt", prompt(&session, json!([])), (-32602, "empty_message")),
        ("session/prompt", prompt(&session, json!([{"type": "audio"}])), (-32602, "bad_request")),
        ("session/list", json!({"cursor": "?"}), (-32602, "bad_request")),
    ] {
        let (number, code) = editor.refused(method, &params).await?;
        assert_eq!((number, code.as_str()), expect, "{method} {params}");
    }

    let first = editor.prompt(&session, "Hello").await?;
    let refused = editor.refused("session/prompt", &prompt(&session, text.clone())).await?;
    assert_eq!(refused, (-32600, "not_now".to_owned()), "a prompt runs");
    gate.open();
    assert_eq!(editor.stop_reason(first).await?, "end_turn");
    let failed = editor.refused("session/prompt", &prompt(&session, text.clone())).await?;
    assert_eq!(failed, (-32603, "model_auth".to_owned()), "the turn failed");
    let client = fleet.client().await?;
    client.control(&session, ailoop_tests::client::Control::Stop).await?;
    editor.ok("session/load", &open(&session)).await?;
    assert_eq!(editor.refused("session/prompt", &prompt(&session, text)).await?.1, "session_ended");
    assert_eq!(editor.close().await?, Some(0));
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_that_cannot_be_reached_is_an_error_of_the_request() -> anyhow::Result<()> {
    let mut editor = Editor::open("http://127.0.0.1:1").await?;
    let error = editor.call("session/new", &json!({"cwd": "/", "mcpServers": []})).await?.err().context("an error")?;
    assert_eq!(error_codes(&error)?, (-32603, "unavailable".to_owned()));
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("ailoop up"), "the message must say what to do: {message}");
    assert_eq!(editor.close().await?, Some(0));
    Ok(())
}
