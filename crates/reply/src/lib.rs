//! What a model's reply says: the text that people read, and what it tells the loop besides.
//!
//! A model signals whether it goes on by a pseudo-call, or by an envelope: a JSON object that is the whole reply, or stands
//! in a code fence or at the end of its text. The gateway streams the text while it comes and the loop reads the whole of it
//! later; both use the one [`Splitter`], so that what was streamed is what was said, however the reply was cut.

mod cache;
mod intent;
mod json;
mod matcher;
mod needs;
mod nudge;
mod object;
mod pattern;
mod patterns;
#[cfg(test)]
mod plain;
mod prose;
mod read;
mod response;
mod schema;
mod shape;
mod sieve;
mod split;
mod suggest;
mod templates;
mod windows;

pub use intent::{Intent, intent};
pub use nudge::is_nudge;
pub use pattern::TextPattern;
pub use patterns::{
    CACHE_BYTES_MAX, COMPILED_LISTS_BYTES_MAX, Heard, PATTERN_TEXTS_BYTES_MAX, PATTERNS_MAX, PatternError, Patterns,
};
pub use read::{NextAction, Reading, Signal, Status, is_signal, read};
pub use schema::{definition, envelope, response_format};
pub use split::{Found, Splitter};
pub use suggest::{Suggestion, suggest};
pub use templates::{TEMPLATES, Template, template};
