//! Describe a tool for ailoop agents and serve it over NATS.
//!
//! A tool is a queue subscription plus a description that the NATS services protocol answers; the fleet finds it
//! within two seconds of its start and forgets it when it is gone. Nothing else of ailoop is needed.
//!
//! ```no_run
//! use ailoop_tool::{Call, Effect, Tool, ToolError, Tools};
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize)]
//! struct Arguments {
//!     text: String,
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let word_count = Tool::new("word_count")
//!     .description("Counts the words of a text.")
//!     .parameters(json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}))
//!     .effect(Effect::Pure)
//!     .handler(|call: Call| async move {
//!         let Arguments { text } = call.arguments()?;
//!         Ok::<_, ToolError>(json!({"words": text.split_whitespace().count()}))
//!     });
//! let serving = Tools::connect("nats://127.0.0.1:4222").await?.tool(word_count).serve().await?;
//! serving.until_ctrl_c().await;
//! # Ok(())
//! # }
//! ```

mod call;
mod describe;
mod reply;
mod running;
mod serve;
mod services;
pub mod wire;

pub use async_nats;
pub use call::Call;
pub use describe::{Approval, Effect, Tool};
pub use reply::{Reply, ToolError};
pub use serve::{ServeError, Serving, Tools};
