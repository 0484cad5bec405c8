//! A tool that takes effect once per call: keeps notes. `cargo run -p example-tool-rust --bin rs_note`
//!
//! It says that it is idempotent, so a call whose replica or executor died is made again under the same id, perhaps
//! while the first try still runs. All replicas share `NOTES_DIR`, and a note is there under its call's id or not at
//! all.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use ailoop_tool::{Call, Effect, Tool, ToolError, Tools, schemars};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The text of the note.
    text: String,
}

async fn note(Arguments { text }: Arguments, call: Call) -> Result<Value, ToolError> {
    let id = call.id().to_owned();
    // The id becomes a file's name, and whoever calls by hand may send anything.
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(ToolError::new("rs_note needs the header Ailoop-Call: letters, digits, - and _"));
    }
    // Files are slow, and what is slow blocks on a thread of its own.
    tokio::task::spawn_blocking(move || keep(&id, &text)).await??;
    // A repeated call gets the same answer as the first one.
    Ok(json!({"kept": true}))
}

fn keep(id: &str, text: &str) -> Result<(), ToolError> {
    let dir = PathBuf::from(env("NOTES_DIR").unwrap_or_else(|| "notes".to_owned()));
    fs::create_dir_all(&dir)?;
    // 1. Write all of it where nobody looks. Whoever is killed here leaves a draft and no effect.
    let mut draft = NamedTempFile::new_in(&dir)?;
    draft.write_all(text.as_bytes())?;
    draft.as_file().sync_all()?;
    // 2. Effect and mark in one step: of all tries of this call one gives its draft the name, whoever dies when.
    match draft.persist_noclobber(dir.join(format!("{id}.txt"))) {
        Ok(_) => witness("rs_note", id),
        Err(kept) if kept.error.kind() == ErrorKind::AlreadyExists => Ok(()), // an earlier try did it: say so again
        Err(failed) => Err(failed.error.into()),
    }
}

/// For tests: a line for each effect, added in one write.
fn witness(tool: &str, call: &str) -> Result<(), ToolError> {
    let Some(path) = env("EFFECTS_FILE") else { return Ok(()) };
    let line = format!("{}\n", json!({"tool": tool, "call": call, "pid": std::process::id()}));
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())?;
    Ok(())
}

fn env(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tool = Tool::typed("rs_note", note).description("Keeps a note for later.").effect(Effect::Idempotent); // called again with the same id, it takes effect once
    let url = env("NATS_URL").unwrap_or_else(|| "nats://127.0.0.1:4222".to_owned());
    // A file of `ailoop nats-auth user add`, where NATS has users.
    let tools = match env("NATS_CREDENTIALS") {
        Some(file) => Tools::connect_with_credentials(&url, file).await?,
        None => Tools::connect(&url).await?,
    };
    tools.tool(tool).serve().await?.until_ctrl_c().await;
    Ok(())
}
