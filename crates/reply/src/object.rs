//! An object of a reply that may be its envelope, while it comes.

use crate::response::Decoder;

/// Keys that only an envelope has together.
const KEYS: &[&str] = &["continuation", "response", "tool_calls", "completion_percentage"];
/// Bytes within which an object must have shown one of those keys to be held any longer.
const UNKNOWN_BYTES_MAX: usize = 2 << 10;

/// What a character made of an object.
pub(crate) enum Grown {
    More,
    Closed,
    /// It is no envelope; the character is not part of what was held.
    NotOne,
}

/// Where in an object's text something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Nothing,
    String,
    /// Behind a backslash.
    Escape,
}

/// An object that may be an envelope, as far as it has come.
#[derive(Debug)]
pub(crate) struct Object {
    /// Everything held, the fence before it included.
    pub(crate) raw: String,
    /// Where the object begins.
    from: usize,
    /// Whether the reply begins with it.
    pub(crate) leads: bool,
    depth: u32,
    within: Within,
    /// The last key at depth 1.
    key: String,
    /// After the colon at depth 1.
    value: bool,
    /// Whether a key of an envelope was seen.
    known: bool,
    /// The response: how its string is decoded, and how far what is held was shown.
    pub(crate) response: Option<Decoder>,
    shown: usize,
}

impl Object {
    /// An object behind a fence, or behind nothing, whose brace has come.
    pub(crate) fn new(fence: String, leads: bool) -> Self {
        let (from, mut raw) = (fence.len(), fence);
        raw.push('{');
        Self {
            raw,
            from,
            leads,
            depth: 1,
            within: Within::Nothing,
            key: String::new(),
            value: false,
            known: false,
            response: None,
            shown: 0,
        }
    }

    pub(crate) fn json(&self) -> &str {
        &self.raw[self.from..]
    }

    /// What was held and not shown.
    pub(crate) fn unshown(&self) -> &str {
        &self.raw[self.shown..]
    }

    pub(crate) fn grow(&mut self, c: char, out: &mut String) -> Grown {
        let first = self.raw.len() == self.from + 1 || self.json()[1..].trim_start().is_empty();
        let begins = !first || c.is_whitespace() || matches!(c, '"' | '}');
        if !begins || (!self.known && self.json().len() >= UNKNOWN_BYTES_MAX) {
            return Grown::NotOne;
        }
        self.raw.push(c);
        match self.within {
            Within::Nothing => self.between(c),
            Within::String => self.string(c, out),
            Within::Escape => {
                self.within = Within::String;
                self.content(c, out);
            }
        }
        if self.depth == 0 { Grown::Closed } else { Grown::More }
    }

    fn between(&mut self, c: char) {
        match c {
            '"' => {
                self.within = Within::String;
                if self.depth == 1 && !self.value {
                    self.key.clear();
                } else if self.depth == 1 && self.leads && self.key == "response" && self.response.is_none() {
                    self.response = Some(Decoder::default());
                    self.shown = self.raw.len();
                }
            }
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth -= 1,
            ':' if self.depth == 1 => self.value = true,
            ',' if self.depth == 1 => self.value = false,
            _ => {}
        }
    }

    fn string(&mut self, c: char, out: &mut String) {
        if c != '"' {
            if c == '\\' {
                self.within = Within::Escape;
            }
            return self.content(c, out);
        }
        self.within = Within::Nothing;
        if self.depth == 1 && !self.value {
            self.known |= KEYS.contains(&self.key.as_str());
        }
    }

    /// A character of a string's content, as it is written.
    fn content(&mut self, c: char, out: &mut String) {
        if self.depth != 1 {
            return;
        }
        if !self.value {
            self.key.push(c);
        } else if self.key == "response"
            && self.shown + c.len_utf8() == self.raw.len()
            && let Some(response) = &mut self.response
        {
            response.push(c, out);
            self.shown = self.raw.len();
        }
    }
}
