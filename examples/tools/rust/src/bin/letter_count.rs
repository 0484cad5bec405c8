//! A tool that changes nothing: counts letters. `cargo run -p example-tool-rust --bin letter_count`

use ailoop_tool::{Call, Effect, Tool, ToolError, Tools, schemars};
use serde_json::{Value, json};

/// The model is shown the schema of this type, doc comments included.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The text to count in.
    text: String,
    /// The letter to count; upper and lower case are one.
    letter: char,
}

async fn letter_count(Arguments { text, letter }: Arguments, _call: Call) -> Result<Value, ToolError> {
    let count = text.chars().filter(|c| c.eq_ignore_ascii_case(&letter)).count();
    Ok(json!({"letter": letter, "count": count}))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tool = Tool::typed("letter_count", letter_count)
        .description("Counts how often a letter stands in a text. Use it instead of counting yourself.")
        .effect(Effect::Pure); // it changes nothing, so it may run twice
    let url = std::env::var_os("NATS_URL").and_then(|url| url.into_string().ok());
    let url = url.as_deref().unwrap_or("nats://127.0.0.1:4222");
    // A file of `ailoop nats-auth user add`, where NATS has users.
    let tools = match std::env::var_os("NATS_CREDENTIALS") {
        Some(file) => Tools::connect_with_credentials(url, file).await?,
        None => Tools::connect(url).await?,
    };
    tools.tool(tool).serve().await?.until_ctrl_c().await;
    Ok(())
}
