//! A provider without a model: it plays a script over the transcript, for rehearsals and tests.

pub(crate) mod context;
pub(crate) mod play;
pub(crate) mod script;

pub(crate) use play::ScriptPlayer;
pub(crate) use script::Script;
