//! The tool's part: one that answers at once, over NATS like anybody's.

use ailoop_tool::async_nats;
use ailoop_tool::{Call, Effect, Tool, ToolError, Tools};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::paced_model::now_ns;
use crate::process::announce;

pub(crate) const TOOL: &str = "word_count";
/// Subject on which its process answers raw requests.
pub(crate) const ECHO: &str = "bench_echo";
/// The field of its results that says when the handler ran, in nanoseconds.
pub(crate) const AT: &str = "handled_ns";
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
    let client = async_nats::connect(nats.split(',').collect::<Vec<_>>()).await?;
    let echoes = client.subscribe(ECHO).await?;
    client.flush().await?;
    announce("serving");
    tokio::select! {
        () = serving.until_ctrl_c() => {}
        () = echo(client, echoes) => {}
    }
    Ok(())
}

/// Answers raw requests, for the floor.
async fn echo(client: async_nats::Client, mut echoes: async_nats::Subscriber) {
    while let Some(message) = echoes.next().await {
        if let Some(reply) = message.reply
            && client.publish(reply, message.payload).await.is_err()
        {
            return;
        }
    }
}

async fn count(call: Call) -> Result<Value, ToolError> {
    let Arguments { text } = call.arguments()?;
    Ok(json!({"words": text.split_whitespace().count(), AT: now_ns()}))
}
