//! Shows the response of an envelope while it grows.
//!
//! It follows valid JSON only. Where the envelope is damaged it stops early, and the rest is shown at the end.

use crate::response::Decoder;

/// Follows one object.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    depth: u32,
    within: Within,
    /// The last key of the outermost object.
    key: String,
    /// Behind the colon of the outermost object.
    is_value: bool,
    response: Decoder,
    is_response: bool,
    has_response: bool,
    shown: String,
    /// Bytes of the object up to the last one that was shown.
    read: usize,
    all: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Within {
    #[default]
    Nothing,
    String,
    /// Behind a backslash.
    Escape,
}

impl Envelope {
    /// Brackets that are open.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// What was shown of the response.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn has_shown(&self) -> bool {
        !self.shown.is_empty()
    }

    pub(crate) fn read_bytes(&self) -> usize {
        self.read
    }

    /// Takes a character, and shows what of the response came with it.
    pub(crate) fn push(&mut self, c: char, out: &mut String) {
        self.all += c.len_utf8();
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
                } else if self.depth == 1 && self.key == "response" && !self.has_response {
                    (self.is_response, self.has_response) = (true, true);
                }
            }
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            ':' if self.depth == 1 => self.is_value = true,
            ',' if self.depth == 1 => self.is_value = false,
            _ => {}
        }
    }

    /// A character of a string, as it is written.
    fn content(&mut self, c: char, out: &mut String) {
        if self.is_response {
            let from = out.len();
            self.response.push(c, out);
            self.shown.push_str(&out[from..]);
            self.read = self.all;
        } else if self.depth == 1 && !self.is_value && self.key.len() < 64 {
            self.key.push(c);
        }
    }
}
