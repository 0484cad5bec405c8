//! What a model's reply says: the text that people read, and what it tells the loop besides.
//!
//! A model signals whether it goes on by a pseudo-call, or by an envelope: a JSON object that is the whole reply, or stands
//! in a code fence or at the end of its text. The gateway streams the text while it comes and the loop reads the whole of it
//! later; both use the one [`Splitter`], so that what was streamed is what was said, however the reply was cut.

mod json;
mod object;
mod patterns;
mod prose;
mod read;
mod response;
mod split;

pub use patterns::{Heard, PatternError, Patterns, TEMPLATES, Template, template};
pub use read::{NextAction, Reading, Signal, Status, definition, is_signal, read};
pub use split::{Found, Splitter};
