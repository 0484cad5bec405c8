//! A tool that must not run twice, and takes its time: rings a bell. `cargo run -p example-tool-rust --bin rs_bell`
//!
//! If its replica dies, nobody can tell whether the bell rang; the tool declares this (`at_most_once`), and the model
//! reads that the outcome is unknown. It reports progress, looks at its deadline, and a cancel stops it before it
//! rings.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use ailoop_tool::{Call, Effect, Tool, ToolError, Tools, schemars};
use serde_json::{Value, json};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Seconds from now until it rings.
    #[schemars(range(max = 600))]
    seconds: u32,
}

async fn bell(Arguments { seconds }: Arguments, call: Call) -> Result<Value, ToolError> {
    // Nobody waits longer than the deadline: a call that comes too late is not begun.
    if call.time_left().is_some_and(|left| left.is_zero()) {
        return Err(ToolError::new("nobody waits for the bell any more"));
    }
    for left in (1..=seconds).rev() {
        // People see it, and the deadline moves on: the time-out counts from here again.
        call.progress(format!("rings in {left} s")).await;
        // A cancel drops this function where it awaits: from here on the bell does not ring.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    ring(call.id())?;
    Ok(json!({"rang": true}))
}

/// The effect: a line in a file, added in one write. It is not asked whether it rang before: that is the executor's
/// part.
fn ring(call: &str) -> Result<(), ToolError> {
    let path = env("EFFECTS_FILE").unwrap_or_else(|| "bell.log".to_owned());
    let line = format!("{}\n", json!({"tool": "rs_bell", "call": call, "pid": std::process::id()}));
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())?;
    Ok(())
}

fn env(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tool = Tool::typed("rs_bell", bell)
        .description("Rings the bell, after some seconds.")
        .effect(Effect::AtMostOnce) // also what holds where nothing is said
        .timeout(Duration::from_secs(10)); // without a sign of progress
    let url = env("NATS_URL").unwrap_or_else(|| "nats://127.0.0.1:4222".to_owned());
    // A file of `ailoop nats-auth user add`, where NATS has users.
    let tools = match env("NATS_CREDENTIALS") {
        Some(file) => Tools::connect_with_credentials(&url, file).await?,
        None => Tools::connect(&url).await?,
    };
    tools.tool(tool).serve().await?.until_ctrl_c().await;
    Ok(())
}
