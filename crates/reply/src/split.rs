//! Splits a reply's text, as it comes, into what people read and the envelope around or behind it.
//!
//! It goes character by character, so that it cannot matter how the reply was cut. What may become an envelope is held
//! back; what turns out to be none is shown then. The `response` of an envelope with which a reply begins is shown while it
//! grows; that of one behind other text is shown at the end, since only the end tells that nothing follows.

use serde_json::Value;

use crate::json;
use crate::object::{Grown, Object};

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

impl Splitter {
    /// Takes a piece in and returns what can be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        let mut rest = piece;
        loop {
            if matches!(self.state, State::Text) {
                // Nothing else can begin an envelope, so that most of a reply is shown as it comes.
                let plain = rest.bytes().position(|byte| matches!(byte, b'{' | b'`')).unwrap_or(rest.len());
                self.plain(&rest[..plain], &mut out);
                rest = &rest[plain..];
            }
            let mut chars = rest.chars();
            let Some(c) = chars.next() else { return out };
            self.step(c, &mut out);
            rest = chars.as_str();
        }
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

    /// Shows text without backticks.
    fn plain(&mut self, text: &str, out: &mut String) {
        if !text.is_empty() {
            self.ticks = 0;
        }
        let shown = text.trim_end();
        if !shown.is_empty() {
            out.push_str(&self.gap);
            self.gap.clear();
            out.push_str(shown);
            self.began = true;
        }
        self.gap.push_str(&text[shown.len()..]);
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
