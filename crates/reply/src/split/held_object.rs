//! An object that is held back until it is known whether it is a signal.

use crate::envelope::Envelope;
use crate::tolerant::{self, End, Object};

/// An object that is held back.
#[derive(Debug)]
pub(super) struct HeldObject {
    /// All of it, with what stands before the brace.
    pub(super) raw: String,
    /// Offset of the opening brace in `raw`, in bytes.
    pub(super) from: usize,
    /// Whether it stands in code or behind a backtick: there it may be quoted.
    pub(super) is_quoted: bool,
    /// Whether no text stands before it, so that it can be the whole reply.
    pub(super) is_first: bool,
    /// Whether the tag of a tool call stands before it, at the beginning of a line.
    pub(super) is_tagged: bool,
    /// Shows the response of the envelope that the session asked for while it grows.
    pub(super) envelope: Option<Envelope>,
}

impl HeldObject {
    pub(super) fn json(&self) -> &str {
        &self.raw[self.from..]
    }

    /// Whether it is a tool call in tags.
    pub(super) fn is_call(&self, object: &Object) -> bool {
        let value = &object.value;
        let has_arguments = ["arguments", "parameters"].iter().any(|key| value.get(key).is_some());
        let is_cut =
            object.end == End::Open && object.cut_key.as_deref().is_none_or(|key| "arguments".starts_with(key));
        self.is_tagged && value["name"].is_string() && (has_arguments || is_cut)
    }

    /// Whether what has come may be one.
    pub(super) fn is_call_so_far(&self) -> bool {
        self.is_tagged && self.is_call(&tolerant::read_so_far(self.json()))
    }

    /// Whether a part of its response was shown: then it is an envelope, whatever else follows in it.
    pub(super) fn has_shown(&self) -> bool {
        self.envelope.as_ref().is_some_and(Envelope::has_shown)
    }
}
