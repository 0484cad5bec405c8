//! The role `toolsmith` may try and verify tools, and nothing else.

use ailoop_tests::cli::WorkDir;
use ailoop_tests::nats::NatsServer;
use ailoop_tool::{Call, Effect, Tool, ToolError, Tools};
use serde_json::json;

use crate::deploy::probe::Probe;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn toolsmith_tries_and_verifies_a_tool() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let tool = Tool::new("word_count").description("Counts.").parameters(schema).effect(Effect::Pure);
    let tool = tool.handler(async |call: Call| {
        let arguments: serde_json::Value = call.arguments()?;
        let text = arguments["text"].as_str().ok_or_else(|| ToolError::new("there is no text"))?;
        Ok(json!({"words": text.split_whitespace().count()}))
    });
    let mut probe = Probe::of(&server, "word_count").await?;
    let _serving = Tools::new(probe.client.clone()).tool(tool).serve().await?;
    probe.round_trip().await?;

    let work_dir = WorkDir::new()?
        .with("AILOOP__NATS__URL", server.url())
        .with("AILOOP__NATS__CREDENTIALS", server.credentials_of("toolsmith").display().to_string());
    let tried = work_dir.run(["tools", "try", "word_count", "--args", r#"{"text": "one two"}"#]).await?;
    assert_eq!((tried.code, tried.stdout.as_str()), (0, "{\"words\":2}\n"), "{}", tried.stderr);
    let verified = work_dir.run(["tools", "verify", "word_count"]).await?;
    assert_eq!(verified.code, 0, "{} {}", verified.stdout, verified.stderr);
    assert!(verified.stdout.contains("no executor has found it"), "{}", verified.stdout);
    Ok(())
}
