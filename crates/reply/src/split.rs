//! Splits a reply's text, as it comes, into what people read and the envelope around or behind it.
//!
//! It goes character by character, so that it cannot matter how the reply was cut. What may become an envelope is held
//! back; what turns out to be none is shown then. The `response` of an envelope with which a reply begins is shown while it
//! grows; that of one behind other text is shown at the end, since only the end tells that nothing follows.

use serde_json::Value;

use crate::json;
use crate::response::Decoder;

/// Keys that only an envelope has together.
const KEYS: &[&str] = &["continuation", "response", "tool_calls", "completion_percentage"];
/// Bytes within which an object must have shown one of those keys to be held any longer.
const UNKNOWN_BYTES_MAX: usize = 2 << 10;
/// White space between a fence and its object.
const LEAD_BYTES_MAX: usize = 256;
/// What stands between text and the response of an envelope behind it.
const BETWEEN: &str = "\n\n";

/// An envelope that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The object.
    pub value: Value,
    /// Whether it had been broken off: then nothing that it asks for is run.
    pub repaired: bool,
}

/// Splits one reply.
#[derive(Debug, Default)]
pub struct Splitter {
    state: State,
    /// White space that waits for what follows it.
    gap: String,
    /// Whether anything but white space was shown.
    began: bool,
    /// Backticks just before, in a row.
    ticks: usize,
    /// Within a code block.
    fenced: bool,
    found: Option<Found>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// What may be the fence before an envelope.
    Lead(String),
    /// An object that may be an envelope.
    Object(Box<Object>),
    /// After an envelope behind text: as long as nothing but its fence follows, it is one.
    Tail { raw: String, value: Value, ticks: usize },
    /// After an envelope with which the reply began.
    After { ticks: usize },
}

/// What a character made of an object.
enum Grown {
    More,
    Closed,
    /// It is no envelope; the character is not part of what was held.
    NotOne,
}

impl Splitter {
    /// Takes a piece in and returns what can be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        piece.chars().for_each(|c| self.step(c, &mut out));
        out
    }

    /// Ends the reply: what is left to be shown, and the envelope.
    pub fn finish(mut self) -> (String, Option<Found>) {
        let mut out = String::new();
        match std::mem::take(&mut self.state) {
            State::Text => out.push_str(&self.gap),
            State::Lead(raw) => {
                self.release(&raw, &mut out);
                out.push_str(&self.gap);
            }
            State::Object(object) => self.broken_off(&object, &mut out),
            State::Tail { value, .. } => self.behind(value, false, &mut out),
            State::After { .. } => {}
        }
        (out, self.found)
    }

    fn step(&mut self, c: char, out: &mut String) {
        match std::mem::take(&mut self.state) {
            State::Text => self.text(c, out),
            State::Lead(raw) => self.lead(raw, c, out),
            State::Object(object) => self.object(object, c, out),
            State::Tail { raw, value, ticks } => self.tail(raw, value, ticks, c, out),
            State::After { ticks } => self.after(ticks, c, out),
        }
    }

    fn text(&mut self, c: char, out: &mut String) {
        let may_begin = self.found.is_none() && !self.fenced;
        if may_begin && c == '{' {
            self.state = State::Object(Box::new(Object::new(String::new(), !self.began)));
        } else if may_begin && c == '`' && self.ticks == 0 {
            self.state = State::Lead(c.to_string());
        } else {
            self.show(c, out);
        }
    }

    /// Shows a character of the text; white space waits, since none is shown before an envelope.
    fn show(&mut self, c: char, out: &mut String) {
        if c == '`' {
            self.ticks += 1;
            self.fenced ^= self.ticks == 3;
        } else {
            self.ticks = 0;
        }
        if c.is_whitespace() {
            self.gap.push(c);
        } else {
            out.push_str(&self.gap);
            self.gap.clear();
            out.push(c);
            self.began = true;
        }
    }

    /// Shows what was held and is text.
    fn release(&mut self, raw: &str, out: &mut String) {
        raw.chars().for_each(|c| self.show(c, out));
        if matches!(self.state, State::Text) {
            return;
        }
        self.state = State::Text;
    }

    fn lead(&mut self, mut raw: String, c: char, out: &mut String) {
        match lead(&raw, c) {
            Lead::Open => {
                raw.push(c);
                self.state = State::Lead(raw);
            }
            Lead::Object => self.state = State::Object(Box::new(Object::new(raw, !self.began))),
            Lead::Text => {
                self.release(&raw, out);
                self.step(c, out);
            }
        }
    }

    fn object(&mut self, mut object: Box<Object>, c: char, out: &mut String) {
        let shown = out.len();
        match object.grow(c, out) {
            Grown::More => {
                if out.len() > shown {
                    self.gap.clear();
                }
                self.state = State::Object(object);
            }
            Grown::NotOne => {
                self.release(&object.raw, out);
                self.step(c, out);
            }
            Grown::Closed => self.closed(*object, out),
        }
        if out.len() > shown {
            self.began = true;
        }
    }

    fn closed(&mut self, object: Object, out: &mut String) {
        match json::parse(object.json()).filter(is_envelope) {
            Some(value) if object.leads => {
                self.found = Some(Found { value, repaired: false });
                self.state = State::After { ticks: 0 };
            }
            Some(value) => self.state = State::Tail { raw: object.raw, value, ticks: 0 },
            // Nothing is lost: what was not shown of it is shown as it stands.
            None => self.release(object.unshown(), out),
        }
    }

    fn tail(&mut self, mut raw: String, value: Value, ticks: usize, c: char, out: &mut String) {
        let next = match c {
            '`' if ticks < 3 => ticks + 1,
            c if c.is_whitespace() && matches!(ticks, 0 | 3) => ticks,
            _ => {
                self.release(&raw, out);
                return self.step(c, out);
            }
        };
        raw.push(c);
        self.state = State::Tail { raw, value, ticks: next };
    }

    fn after(&mut self, ticks: usize, c: char, out: &mut String) {
        match c {
            '`' if ticks < 3 => self.state = State::After { ticks: ticks + 1 },
            c if c.is_whitespace() && matches!(ticks, 0 | 3) => self.state = State::After { ticks },
            _ => {
                self.gap.clear();
                if self.began {
                    self.gap.push_str(BETWEEN);
                }
                let lost = if ticks == 3 { 0 } else { ticks };
                self.release(&"`".repeat(lost), out);
                self.step(c, out);
            }
        }
    }

    /// The reply ended within an object.
    fn broken_off(&mut self, object: &Object, out: &mut String) {
        match json::repair(object.json()).filter(is_envelope) {
            Some(value) if object.leads => self.found = Some(Found { value, repaired: true }),
            Some(value) => self.behind(value, true, out),
            // The response is all that came of it.
            None if object.response.is_some() && json::is_cut_off(object.json()) => {}
            None => {
                self.release(object.unshown(), out);
                out.push_str(&self.gap);
            }
        }
    }

    /// An envelope behind text is at the reply's end.
    fn behind(&mut self, value: Value, repaired: bool, out: &mut String) {
        let response = value["response"].as_str().unwrap_or_default();
        if !response.is_empty() {
            out.push_str(BETWEEN);
            out.push_str(response);
        }
        self.found = Some(Found { value, repaired });
    }
}

/// What a beginning with a backtick is.
enum Lead {
    Open,
    Object,
    Text,
}

fn lead(raw: &str, c: char) -> Lead {
    let ticks = raw.bytes().take_while(|byte| *byte == b'`').count();
    let (language, spaces) = raw[ticks..].split_at(raw[ticks..].trim_end().len());
    let is_json = |language: &str| language.is_empty() || language.eq_ignore_ascii_case("json");
    match c {
        '`' if ticks == raw.len() && ticks < 3 => Lead::Open,
        _ if ticks < 3 || raw.len() > LEAD_BYTES_MAX => Lead::Text,
        '{' if is_json(language) => Lead::Object,
        c if c.is_whitespace() && is_json(language) => Lead::Open,
        c if spaces.is_empty()
            && "json".get(language.len()..).is_some_and(|rest| rest.starts_with(c.to_ascii_lowercase())) =>
        {
            Lead::Open
        }
        _ => Lead::Text,
    }
}

/// Whether an object says what only an envelope says.
fn is_envelope(value: &Value) -> bool {
    let calls = || {
        value["tool_calls"]
            .as_array()
            .is_some_and(|calls| calls.iter().any(|call| call["function"]["name"].is_string()))
    };
    value["continuation"]["status"].is_string() || value["response"].is_string() || calls()
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
struct Object {
    /// Everything held, the fence before it included.
    raw: String,
    /// Where the object begins.
    from: usize,
    /// Whether the reply begins with it.
    leads: bool,
    depth: u32,
    within: Within,
    /// The last key at depth 1.
    key: String,
    /// After the colon at depth 1.
    value: bool,
    /// Whether a key of an envelope was seen.
    known: bool,
    /// The response: how its string is decoded, and how far what is held was shown.
    response: Option<Decoder>,
    shown: usize,
}

impl Object {
    /// An object behind a fence, or behind nothing, whose brace has come.
    fn new(fence: String, leads: bool) -> Self {
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

    fn json(&self) -> &str {
        &self.raw[self.from..]
    }

    /// What was held and not shown.
    fn unshown(&self) -> &str {
        &self.raw[self.shown..]
    }

    fn grow(&mut self, c: char, out: &mut String) -> Grown {
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
