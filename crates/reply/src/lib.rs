//! Reads a model's reply: the text for people, and the signal for the loop.
//!
//! A model signals whether it continues in the form that its session asks for: by a pseudo-call, by an object in its
//! text, or by an envelope that is the whole reply. The gateway streams the text, and the loop reads the whole reply
//! later. Both use [`Splitter`], so that the streamed text equals the committed text, however the reply was split into
//! chunks.

mod calls;
mod envelope;
mod evidence;
mod intent;
mod lead;
mod matcher;
mod nudge;
mod parsed_signal;
mod pattern;
mod pattern_error;
mod patterns;
mod prefilter;
mod progress;
mod prose;
mod read;
#[cfg(test)]
mod reference_matcher;
mod required_literals;
mod response;
mod schema;
mod shape;
mod split;
mod suggest;
mod templates;
mod tolerant;
mod windows;

pub use calls::{is_only_calls, is_only_marked_calls};
pub use evidence::{Evidence, evidence};
pub use intent::{Intent, intent};
pub use nudge::is_nudge;
pub use parsed_signal::ParsedSignal;
pub use pattern::TextPattern;
pub use pattern_error::PatternError;
pub use patterns::{
    CACHE_BYTES_MAX, COMPILED_LISTS_BYTES_MAX, PATTERN_TEXTS_BYTES_MAX, PATTERNS_MAX, PatternMatch, Patterns,
};
pub use read::{NextAction, Reading, Signal, Status, read};
pub use schema::{definition, envelope, response_format};
pub use split::{Remainder, Splitter};
pub use suggest::{Suggestion, suggest};
pub use templates::{TEMPLATES, Template, template};
