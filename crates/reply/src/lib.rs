//! What a model's reply says: the text that people read, and what it tells the loop besides.
//!
//! A model signals whether it goes on in the form that its session asked for: by a pseudo-call, by an object in its text,
//! or by an envelope that is the whole reply. The gateway streams the text while it comes and the loop reads the whole of it
//! later; both use the one [`Splitter`], so the streamed text is the committed text, however the reply was cut.

mod cache;
mod calls;
mod envelope;
mod evidence;
mod intent;
mod lead;
mod matcher;
mod needs;
mod nudge;
mod pattern;
mod patterns;
#[cfg(test)]
mod plain;
mod progress;
mod prose;
mod read;
mod response;
mod schema;
mod shape;
mod sieve;
mod split;
mod suggest;
mod templates;
mod tolerant;
mod windows;
mod written;

pub use calls::{is_only_calls, is_only_marked_calls};
pub use evidence::{Evidence, evidence};
pub use intent::{Intent, intent};
pub use nudge::is_nudge;
pub use pattern::TextPattern;
pub use patterns::{
    CACHE_BYTES_MAX, COMPILED_LISTS_BYTES_MAX, Heard, PATTERN_TEXTS_BYTES_MAX, PATTERNS_MAX, PatternError, Patterns,
};
pub use read::{NextAction, Reading, Signal, Status, read};
pub use schema::{definition, envelope, response_format};
pub use split::{Rest, Splitter};
pub use suggest::{Suggestion, suggest};
pub use templates::{TEMPLATES, Template, template};
pub use written::Written;
