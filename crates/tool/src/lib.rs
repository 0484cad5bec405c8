//! Describe a tool for ailoop agents and serve it over NATS.
//!
//! A tool is a queue subscription plus a description that the NATS services protocol answers; the fleet finds it
//! within two seconds of its start and forgets it when it is gone. Nothing else of ailoop is needed.
//!
//! ```no_run
//! use ailoop_tool::{Call, Effect, Tool, ToolError, Tools, schemars};
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Arguments {
//!     /// The text to count in.
//!     text: String,
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let word_count = Tool::typed("word_count", async |Arguments { text }, _call: Call| {
//!     Ok::<_, ToolError>(json!({"words": text.split_whitespace().count()}))
//! })
//! .description("Counts the words of a text. Use it instead of counting yourself.")
//! .effect(Effect::Pure);
//! let serving = Tools::connect("nats://127.0.0.1:4222").await?.tool(word_count).serve().await?;
//! serving.until_ctrl_c().await;
//! # Ok(())
//! # }
//! ```
//!
//! If NATS has users, [`Tools::connect_with_credentials`] takes the file that `ailoop nats-auth user add` made.
//!
//! [`Tool::typed`] takes the schema from the type, and [`Tool::handler`] one that you write. `ailoop tools verify
//! <name>` checks a tool that runs.
//!
//! # Tools that take effect
//!
//! The executor that waits for a call may die, and so may the replica that works on it. [`Effect`] decides what happens
//! then:
//!
//! | | after a loss | what the tool owes |
//! |---|---|---|
//! | [`Effect::Pure`] | called again | it changes nothing |
//! | [`Effect::Idempotent`] | called again under the same [`Call::id`], perhaps while the first try still runs | it takes effect once per id |
//! | [`Effect::AtMostOnce`] | never called again: the model learns that the outcome is unknown | nothing |
//! | [`Effect::Reconcilable`] | never called again: the tool is asked for the outcome of the call | [`Tool::probe`] finds it |
//!
//! An idempotent tool must decide by state that all of its replicas share, and effect and mark must be *one* step: a
//! replica can be killed between two steps. There are three ways:
//!
//! - **A file:** write it under another name, then rename it to a name made of the call's id, unless that exists. One
//!   try wins; for the others the effect took place already, and the answer is the same.
//! - **A row:** write the id into a unique column in the transaction that does the work.
//! - **An interface of another system:** pass the id on as its idempotency key.
//!
//! ```
//! use std::io::{ErrorKind, Write};
//! use std::path::Path;
//! use ailoop_tool::ToolError;
//!
//! /// Keeps a note once per call, even with concurrent tries.
//! fn keep(dir: &Path, call: &str, text: &str) -> Result<(), ToolError> {
//!     // The id becomes a file name, and a caller may send anything.
//!     if call.is_empty() || !call.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
//!         return Err(ToolError::new("this tool needs a call id (header Ailoop-Call)"));
//!     }
//!     let mut draft = tempfile::NamedTempFile::new_in(dir)?;
//!     draft.write_all(text.as_bytes())?;
//!     match draft.persist_noclobber(dir.join(call)) {
//!         Err(kept) if kept.error.kind() != ErrorKind::AlreadyExists => Err(kept.error.into()),
//!         Ok(_) | Err(_) => Ok(()),
//!     }
//! }
//! # let dir = tempfile::tempdir().unwrap();
//! # keep(dir.path(), "s-c1-1-1", "a").unwrap();
//! # keep(dir.path(), "s-c1-1-1", "a").unwrap();
//! # assert!(keep(dir.path(), "../x", "a").is_err());
//! ```

mod call;
mod connect;
mod error;
mod intake;
mod reply;
mod running_calls;
mod serve;
mod services;
mod tool;
mod typed;
pub mod wire;

pub use async_nats;
pub use call::Call;
pub use connect::{connect, connect_with_tls};
pub use error::ServeError;
pub use nats_credentials::{TlsFiles, is_tls_failure};
pub use reply::{Reply, ToolError};
pub use schemars;
pub use serve::{Serving, Tools};
pub use tool::{Approval, Effect, Tool};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
