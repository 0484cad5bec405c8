//! The tool's part: one that answers at once, over NATS like anybody's.

use ailoop_tool::{Call, Effect, Tool, ToolError, Tools};
use serde_json::{Value, json};

use crate::process::announce;

/// Its name.
pub(crate) const TOOL: &str = "word_count";
/// Calls that it answers at the same time: as many as an executor has by default.
const CONCURRENCY: usize = 64;

#[derive(serde::Deserialize)]
struct Arguments {
    text: String,
}

/// Serves until the process is ended.
pub(crate) async fn serve(nats: &str) -> anyhow::Result<()> {
    let tool = Tool::new(TOOL)
        .description("Counts the words of a text.")
        .parameters(json!({
            "type": "object",
            "properties": {"text": {"type": "string"}, "part": {"type": "integer"}},
            "required": ["text"],
        }))
        .effect(Effect::Pure)
        .handler(count);
    let serving = Tools::connect(nats).await?.tool(tool).concurrency(CONCURRENCY).serve().await?;
    announce("serving");
    serving.until_ctrl_c().await;
    Ok(())
}

async fn count(call: Call) -> Result<Value, ToolError> {
    let Arguments { text } = call.arguments()?;
    Ok(json!({"words": text.split_whitespace().count()}))
}
