//! Shows the response of an envelope while it grows.
//!
//! Only its status makes an object an envelope, so a response is shown while it grows where the status stands before
//! it. It follows valid JSON only. Where the envelope is damaged it stops early, and the rest is shown at the end.

use serde_json::Value;

use crate::parsed_signal::gives_status;
use crate::response::Decoder;

/// Follows one object of a reply while it comes.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about the object so far")]
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    depth: u32,
    within: Within,
    /// The last key of the outermost object.
    key: String,
    /// Behind the colon of the outermost object.
    is_value: bool,
    /// The value of `continuation`, as it is written.
    continuation: String,
    /// Whether it has come, and gives a status.
    has_status: bool,
    response: Decoder,
    is_response: bool,
    has_response: bool,
    shown: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Within {
    #[default]
    Nothing,
    String,
    /// The next character is escaped.
    Escape,
}

impl Envelope {
    /// Brackets that are open.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the part of the response that was shown.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn has_shown(&self) -> bool {
        !self.shown.is_empty()
    }

    /// Takes a character, and shows what of the response came with it.
    pub(crate) fn push(&mut self, c: char, out: &mut String) {
        if self.is_value && self.key == "continuation" {
            self.continuation.push(c);
        }
        match self.within {
            Within::Nothing => self.between(c),
            Within::Escape => {
                self.within = Within::String;
                self.content(c, out);
            }
            Within::String if c == '"' => {
                self.within = Within::Nothing;
                self.is_response = false;
            }
            Within::String => {
                if c == '\\' {
                    self.within = Within::Escape;
                }
                self.content(c, out);
            }
        }
    }

    fn between(&mut self, c: char) {
        match c {
            '"' => {
                self.within = Within::String;
                if self.depth == 1 && !self.is_value {
                    self.key.clear();
                } else if self.depth == 1 && self.key == "response" && self.has_status && !self.has_response {
                    (self.is_response, self.has_response) = (true, true);
                }
            }
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            ':' if self.depth == 1 => {
                self.is_value = true;
                self.continuation.clear();
            }
            ',' if self.depth == 1 => {
                // It holds the comma, too.
                let value = self.continuation.trim_end_matches(',');
                self.has_status |= serde_json::from_str::<Value>(value).is_ok_and(|value| gives_status(&value));
                self.is_value = false;
            }
            _ => {}
        }
    }

    /// A character of a string, as it is written.
    fn content(&mut self, c: char, out: &mut String) {
        if self.is_response {
            let from = out.len();
            self.response.push(c, out);
            self.shown.push_str(&out[from..]);
        } else if self.depth == 1 && !self.is_value && self.key.len() < 64 {
            self.key.push(c);
        }
    }
}
