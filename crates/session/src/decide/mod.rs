//! From an input to events. Handlers say what happened; `advance` then opens whatever may be opened.

mod advance;
mod ask;
mod builder;
mod child;
mod client_tool;
mod configure;
mod context;
mod control;
mod judge;
mod message;
mod model;
mod session_settings;
mod start;
mod timer;
mod tool;
mod turn;

pub use ask::ask_user_spec;
pub(crate) use builder::decide;
pub use child::delegate_spec;
