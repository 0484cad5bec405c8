//! Contract of the bus: ids, subjects, messages. It is the single source of every shape and every subject.
//!
//! This crate does no IO, reads no clock and draws no random numbers (I1). A subject is built only by [`subject`], from
//! ids that cannot contain `.`, `*`, `>` or white space (I6).

pub mod ai_config;
pub mod backoff;
pub mod budget;
pub mod cell;
pub mod client_tool;
pub mod command;
pub mod commit;
pub mod compose;
mod default;
pub mod error;
pub mod event;
pub mod fleet;
pub mod hash;
pub mod ids;
pub mod json;
mod layered;
pub mod limits;
pub mod mail;
pub mod model;
pub mod progress;
pub mod proposal;
pub mod repair;
pub mod settings;
pub mod spent;
pub mod streams;
pub mod subject;
pub mod text;
pub mod timestamp;
pub mod tool;
pub mod tool_request;
pub mod trace;
mod transcript_part;
pub mod version;
mod words;

pub use ai_config::AiConfig;
pub use client_tool::ClientTool;
pub use error::{Coded, ErrorClass, ErrorCode};
pub use ids::{AgentId, CallId, CellName, CommandId, MailId, SessionId, TenantId, ToolName};
pub use json::Json;
pub use timestamp::Timestamp;
