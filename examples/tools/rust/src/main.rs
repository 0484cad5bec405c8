//! A tool for ailoop agents: counts letters. `NATS_URL=nats://127.0.0.1:4222 cargo run -p example-tool-rust`

use ailoop_tool::{Call, Effect, Tool, ToolError, Tools};
use serde_json::{Value, json};

#[derive(serde::Deserialize)]
struct Arguments {
    text: String,
    letter: char,
}

async fn letter_count(call: Call) -> Result<Value, ToolError> {
    let Arguments { text, letter } = call.arguments()?;
    let count = text.chars().filter(|c| c.eq_ignore_ascii_case(&letter)).count();
    Ok(json!({"letter": letter, "count": count}))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tool = Tool::new("letter_count")
        .description("Counts how often a letter stands in a text. Use it instead of counting yourself.")
        .parameters(json!({
            "type": "object",
            "properties": {"text": {"type": "string"}, "letter": {"type": "string", "maxLength": 1}},
            "required": ["text", "letter"],
        }))
        .effect(Effect::Pure)
        .handler(letter_count);
    let url = std::env::var_os("NATS_URL").and_then(|url| url.into_string().ok());
    let url = url.as_deref().unwrap_or("nats://127.0.0.1:4222");
    Tools::connect(url).await?.tool(tool).serve().await?.until_ctrl_c().await;
    Ok(())
}
