//! A provider without a model: plays a script over the transcript, for rehearsals and tests.

pub mod context;
pub mod play;
pub mod script;

pub use play::ScriptPlayer;
pub use script::Script;
