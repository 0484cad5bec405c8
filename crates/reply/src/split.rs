//! Splits a reply's text, as it comes, into what people read, what the model thought, and the signal for the loop.
//!
//! It goes character by character, so that it cannot matter how the reply was cut. What may become a signal is held back;
//! what turns out to be none is shown then. An object that names the signal is never shown, however damaged it is.

use contract::model::SignalForm;

use crate::envelope::Envelope;
use crate::lead::{LEAD_BYTES_MAX, Lead, Place, Recogniser, Step};
use crate::tolerant::{self, End, Object};
use crate::written::{Meaning, Written, meaning, mentions_signal};

/// Bytes within which an object must have named a key of a signal to be held any longer.
const UNKNOWN_BYTES_MAX: usize = 2 << 10;
/// Bytes that may be read more than once. A reply that needs more of it is read in one pass from there on.
const REREAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of text that may follow a signal. Before more of it the object was an example, and orders nothing.
const BEHIND_BYTES_MAX: usize = 120;
/// What stands between texts with a signal between them.
const BETWEEN: &str = "\n\n";

/// Splits one reply.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about the text so far")]
#[derive(Debug)]
pub struct Splitter {
    form: SignalForm,
    state: State,
    /// White space that waits for what follows it.
    gap: String,
    /// Whether anything but white space was shown.
    began: bool,
    /// The character before; the end of a line at the beginning.
    before: char,
    /// Whether nothing but white space came since the line began.
    at_line: bool,
    /// Backticks just before, in a row.
    ticks: usize,
    /// Within a block of code.
    in_code: bool,
    /// The fence around a signal is open: its end is not shown.
    hides_fence: bool,
    /// Something was left out since the last character that was shown.
    left_out: bool,
    /// An object was left out, or its response shown in its place.
    had_object: bool,
    signal: Option<Written>,
    /// Tool calls in tags that were left out.
    unread_calls: usize,
    /// Bytes that were shown before it.
    signal_at: usize,
    thought: String,
    /// Bytes that were shown.
    shown: usize,
    /// Where what the model says behind its thoughts begins.
    spoken_from: usize,
    /// Bytes that were read again.
    reread: usize,
}

/// What is left at a reply's end.
#[derive(Debug, Default, PartialEq)]
pub struct Rest {
    /// Text to be shown.
    pub text: String,
    /// Thought that was not taken yet.
    pub thought: String,
    /// The signal; the last one counts.
    pub signal: Option<Written>,
    /// Tool calls in tags that were left out: the model's server should have read them. Nobody runs them.
    pub unread_calls: usize,
    /// Where in the shown text the model speaks after its last thought, in bytes.
    pub spoken_from: usize,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// What may be the beginning of a signal or a thought.
    Lead { raw: String, recogniser: Recogniser },
    /// An object that may be a signal.
    Object(Box<Held>),
    /// After a signal: what only closes it is not shown.
    Tail { is_tight: bool, ticks: usize, tag: Option<String> },
    /// After a signal within code, or calls without a signal: they count only if nothing but the end of the code, or of
    /// the reply, follows.
    OpenTail { held: Box<Held>, written: Written, from: usize },
    /// Within a thought, with what may be its end.
    Thought { close: String },
}

/// An object that is held back.
#[derive(Debug)]
struct Held {
    /// All of it, with what stands before the brace.
    raw: String,
    /// Where the brace is.
    from: usize,
    /// Whether it stands in code or behind a backtick: there it may be quoted.
    is_quoted: bool,
    /// Whether the model said nothing before it, so that it can be the whole reply.
    is_first: bool,
    /// Whether the tag of a tool call stands before it, at the beginning of a line.
    is_tagged: bool,
    /// Shows the response of the envelope that the session asked for while it grows.
    envelope: Option<Envelope>,
}

impl Held {
    fn json(&self) -> &str {
        &self.raw[self.from..]
    }

    /// Whether it is a tool call in tags.
    fn is_call(&self, object: &Object) -> bool {
        let value = &object.value;
        let has_arguments = ["arguments", "parameters"].iter().any(|key| value.get(key).is_some());
        let is_cut =
            object.end == End::Open && object.cut_key.as_deref().is_none_or(|key| "arguments".starts_with(key));
        self.is_tagged && value["name"].is_string() && (has_arguments || is_cut)
    }

    /// Whether what has come may be one.
    fn is_call_so_far(&self) -> bool {
        self.is_tagged && self.is_call(&tolerant::read_so_far(self.json()))
    }

    /// Whether a part of its response was shown: then it is an envelope, whatever else follows in it.
    fn has_shown(&self) -> bool {
        self.envelope.as_ref().is_some_and(Envelope::has_shown)
    }
}

impl Splitter {
    /// Splits a reply of a session that asked for signals in this form.
    pub fn new(form: SignalForm) -> Self {
        Self {
            form,
            state: State::Text,
            gap: String::new(),
            began: false,
            before: '\n',
            at_line: true,
            ticks: 0,
            in_code: false,
            hides_fence: false,
            left_out: false,
            had_object: false,
            signal: None,
            unread_calls: 0,
            signal_at: 0,
            thought: String::new(),
            shown: 0,
            spoken_from: 0,
            reread: 0,
        }
    }

    /// Takes a piece of the reply and returns what can be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        self.feed(piece, &mut out);
        self.shown += out.len();
        out
    }

    /// What of the model's thoughts has come since it was asked last.
    pub fn take_thought(&mut self) -> String {
        std::mem::take(&mut self.thought)
    }

    /// Ends the reply.
    pub fn finish(mut self) -> Rest {
        let mut out = String::new();
        loop {
            match std::mem::take(&mut self.state) {
                State::Text => break,
                State::Lead { raw, .. } => self.release(&raw, &mut out),
                State::Object(held) => self.end_object(*held, &mut out),
                State::Tail { ticks, .. } => {
                    let lost = if ticks < 3 { "`".repeat(ticks) } else { String::new() };
                    self.between();
                    lost.chars().for_each(|c| self.show(c, &mut out));
                }
                State::OpenTail { held, written, from } => {
                    self.found(&held, written, &mut out);
                    self.state = State::Text;
                    self.between();
                    let tail = &held.raw[from..];
                    tail.trim_end().chars().for_each(|c| self.show(c, &mut out));
                }
                State::Thought { close } => self.thought.push_str(&close),
            }
        }
        if !self.left_out {
            out.push_str(&self.gap);
        }
        let behind = (self.shown + out.len()).saturating_sub(self.signal_at);
        let mut signal = self.signal.filter(|_| behind <= BEHIND_BYTES_MAX);
        if let Some(signal) = &mut signal {
            signal.is_whole_reply &= behind == 0;
        }
        let (unread_calls, spoken_from) = (self.unread_calls, self.spoken_from);
        Rest { text: out, thought: self.thought, signal, unread_calls, spoken_from }
    }

    fn feed(&mut self, piece: &str, out: &mut String) {
        let mut rest = piece;
        loop {
            if matches!(self.state, State::Text) && !self.at_line {
                // Nothing else can begin a signal, so most of a reply is shown as it comes.
                let plain = self.plain_bytes(rest);
                self.plain(&rest[..plain], out);
                rest = &rest[plain..];
            }
            let mut chars = rest.chars();
            let Some(c) = chars.next() else { return };
            self.step(c, out);
            rest = chars.as_str();
        }
    }

    /// How much of a text is sure to begin nothing.
    fn plain_bytes(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let begins = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| bytes.get(before));
            let is_in_word = before.map_or_else(|| self.before.is_ascii_alphanumeric(), u8::is_ascii_alphanumeric);
            match bytes[at] {
                b'c' | b'C' => !is_in_word && may_be_key(&bytes[at..]),
                b'"' | b'\'' | b'*' | b'_' => !is_in_word,
                _ => true,
            }
        };
        let mut from = 0;
        while let Some(next) = bytes[from..].iter().position(|byte| BEGINS[usize::from(*byte)]) {
            if begins(from + next) {
                return from + next;
            }
            from += next + 1;
        }
        bytes.len()
    }

    fn step(&mut self, c: char, out: &mut String) {
        match std::mem::take(&mut self.state) {
            State::Text => self.text(c, out),
            State::Lead { raw, recogniser } => self.lead(raw, recogniser, c, out),
            State::Object(held) => self.object(held, c, out),
            State::Tail { is_tight, ticks, tag } => self.tail(is_tight, ticks, tag, c, out),
            State::OpenTail { held, written, from } => self.open_tail(held, written, from, c, out),
            State::Thought { close } => self.think(close, c),
        }
    }

    fn text(&mut self, c: char, out: &mut String) {
        let Some(mut recogniser) = self.place(c).and_then(Recogniser::new) else { return self.show(c, out) };
        match recogniser.push(c) {
            Step::Dead => self.show(c, out),
            step @ (Step::Open | Step::Found(_)) => self.led(step, c.to_string(), recogniser, out),
        }
    }

    /// Where a lead may begin with this character; none where it cannot.
    fn place(&self, c: char) -> Option<Place> {
        if c.is_whitespace() || (c != '<' && self.form == SignalForm::Off) {
            return None;
        }
        if self.in_code {
            return (c == '{' && self.at_line && self.form != SignalForm::Off).then_some(Place::Code);
        }
        if self.at_line {
            return Some(if self.form == SignalForm::Off { Place::Off } else { Place::Line });
        }
        let is_word = self.before.is_alphanumeric() && !matches!(c, '{' | '<');
        let begins = u8::try_from(c).is_ok_and(|byte| BEGINS[usize::from(byte)]);
        (begins && !is_word && (c != '`' || self.ticks == 0)).then_some(if self.form == SignalForm::Off {
            Place::Off
        } else {
            Place::Within
        })
    }

    fn lead(&mut self, mut raw: String, mut recogniser: Recogniser, c: char, out: &mut String) {
        raw.push(c);
        let step = recogniser.push(c);
        self.led(step, raw, recogniser, out);
    }

    /// What came may begin something, as far as the recogniser knows.
    fn led(&mut self, step: Step, raw: String, recogniser: Recogniser, out: &mut String) {
        match step {
            Step::Open if raw.len() < LEAD_BYTES_MAX => self.state = State::Lead { raw, recogniser },
            Step::Open | Step::Dead => self.release(&raw, out),
            Step::Found(Lead::ThoughtBegins) => self.state = State::Thought { close: String::new() },
            Step::Found(Lead::ThoughtEnds) => {
                // The thought began before the reply: it was shown, and the model speaks from here on.
                self.left_out = true;
                self.gap.clear();
                self.spoken_from = self.shown + out.len();
                self.at_line = true;
            }
            Step::Found(Lead::Object) => self.hold(&raw, out),
        }
    }

    fn hold(&mut self, raw: &str, out: &mut String) {
        let from = raw.rfind('{').unwrap_or_default();
        let is_quoted = self.in_code || (raw[..from].ends_with('`') && !raw[..from].contains("```"));
        let is_first = !self.had_object
            && !self.in_code
            && raw[..from].trim().is_empty()
            && self.spoken_from == self.shown + out.len();
        let envelope = (self.form == SignalForm::Envelope && !self.began && !is_quoted).then(Envelope::default);
        let is_tagged = self.at_line && !is_quoted && raw.starts_with('<') && raw[..from].contains("_call");
        let mut held = Held { raw: raw[..from].to_owned(), from, is_quoted, is_first, is_tagged, envelope };
        let object = raw[from..].to_owned();
        held.raw.push_str(&object);
        if let Some(envelope) = &mut held.envelope {
            object.chars().for_each(|c| envelope.push(c, out));
        }
        let is_closed = object.ends_with('}');
        self.state = State::Object(Box::new(held));
        if is_closed {
            self.try_close(out);
        }
    }

    fn object(&mut self, mut held: Box<Held>, c: char, out: &mut String) {
        held.raw.push(c);
        if let Some(envelope) = &mut held.envelope {
            let from = out.len();
            envelope.push(c, out);
            if out.len() > from {
                self.began = true;
                self.gap.clear();
            }
        }
        let is_unknown =
            held.json().len() == UNKNOWN_BYTES_MAX && !mentions_signal(held.json()) && !held.is_call_so_far();
        self.state = State::Object(held);
        if c == '}' {
            self.try_close(out);
        } else if is_unknown {
            self.reject(out);
        }
    }

    /// Looks whether the brace that came closes the object.
    fn try_close(&mut self, out: &mut String) {
        let State::Object(held) = &self.state else { return };
        if self.reread > REREAD_BYTES_MAX && held.envelope.as_ref().is_none_or(|envelope| envelope.depth() > 0) {
            return;
        }
        let object = tolerant::read_so_far(held.json());
        let is_whole = object.end == End::Closed && object.bytes == held.json().len();
        if !is_whole {
            self.reread += held.json().len();
            if object.end == End::Stopped && !mentions_signal(held.json()) {
                self.reject(out);
            }
            return;
        }
        let meaning = self.meaning(&object, held);
        // What is damaged may only seem to end here.
        if matches!(meaning, Meaning::Text) && !object.is_valid && mentions_signal(held.json()) {
            self.reread += held.json().len();
            return;
        }
        let State::Object(held) = std::mem::take(&mut self.state) else { return };
        match meaning {
            Meaning::Signal(written) if held.is_quoted => self.await_end(held, written),
            Meaning::Calls(written) => self.await_end(held, written),
            Meaning::Signal(written) => self.found(&held, written, out),
            Meaning::UnreadCall => {
                self.unread_calls += 1;
                self.leave_out(&held);
            }
            Meaning::Silent if !held.is_quoted => self.leave_out(&held),
            Meaning::Text if held.has_shown() => self.leave_out(&held),
            Meaning::Silent | Meaning::Text => {
                self.state = State::Object(held);
                self.reject(out);
            }
        }
    }

    fn meaning(&self, object: &Object, held: &Held) -> Meaning {
        let meaning = match self.form {
            SignalForm::Off => Meaning::Text,
            SignalForm::Text | SignalForm::Call | SignalForm::Envelope => meaning(object, self.form, held.is_first),
        };
        if matches!(meaning, Meaning::Text) && held.is_call(object) { Meaning::UnreadCall } else { meaning }
    }

    fn await_end(&mut self, held: Box<Held>, written: Written) {
        let from = held.raw.len();
        self.state = State::OpenTail { held, written, from };
    }

    /// The object is text for people.
    fn reject(&mut self, out: &mut String) {
        let State::Object(held) = std::mem::take(&mut self.state) else { return };
        if held.is_quoted {
            return self.show_quoted(&held.raw, held.from + 1, out);
        }
        self.release(&held.raw, out);
    }

    /// The reply ended within an object.
    fn end_object(&mut self, held: Held, out: &mut String) {
        let object = tolerant::read(held.json());
        let behind = held.json()[object.bytes..].to_owned();
        match self.meaning(&object, &held) {
            Meaning::UnreadCall => {
                self.unread_calls += 1;
                self.leave_out(&held);
                self.feed(&behind, out);
            }
            Meaning::Signal(_) | Meaning::Silent if held.is_quoted && object.end != End::Closed => {
                // Cut off in code: nobody asked for it there, and nobody is to read half of it.
                self.between();
            }
            Meaning::Calls(written) if behind.trim().is_empty() => self.found(&held, written, out),
            Meaning::Signal(written) => {
                self.found(&held, written, out);
                self.feed(&behind, out);
            }
            Meaning::Text | Meaning::Calls(_) if !held.has_shown() => {
                self.state = State::Object(Box::new(held));
                self.reject(out);
            }
            Meaning::Silent | Meaning::Text | Meaning::Calls(_) => {
                self.leave_out(&held);
                self.feed(&behind, out);
            }
        }
    }

    fn found(&mut self, held: &Held, written: Written, out: &mut String) {
        let response = written.value["response"].as_str().unwrap_or_default().to_owned();
        let shown = held.envelope.as_ref().map_or("", Envelope::shown);
        if let Some(rest) = response.strip_prefix(shown) {
            if shown.is_empty() && !rest.trim().is_empty() {
                self.between();
                self.gap_before_text(out);
            }
            out.push_str(rest);
            self.began |= !response.trim().is_empty();
        }
        if self.signal.as_ref().is_none_or(|_| !written.value["continuation"].is_null()) {
            self.signal = Some(written);
            self.signal_at = self.shown + out.len();
        } else if let Some(earlier) = &mut self.signal {
            earlier.is_whole_reply = false;
        }
        self.leave_out(held);
    }

    fn leave_out(&mut self, held: &Held) {
        let lead = &held.raw[..held.from];
        let fenced = lead.contains("```") || lead.contains("~~~");
        self.hides_fence |= fenced;
        let tag = lead.contains('<').then(String::new);
        self.had_object = true;
        self.between();
        self.state = State::Tail { is_tight: true, ticks: 0, tag };
    }

    /// What comes next is a paragraph of its own.
    fn between(&mut self) {
        self.gap.clear();
        self.left_out = true;
        self.before = '\n';
        self.at_line = true;
        self.ticks = 0;
    }

    fn tail(&mut self, is_tight: bool, ticks: usize, tag: Option<String>, c: char, out: &mut String) {
        if let Some(mut tag) = tag.clone().filter(|tag| !tag.is_empty() || c == '<') {
            tag.push(c);
            let is_tag = |c: char| c.is_ascii_alphabetic() || matches!(c, '<' | '/' | '_' | '|');
            if c == '>' {
                self.state = State::Tail { is_tight: false, ticks, tag: None };
            } else if is_tag(c) && tag.len() <= 32 {
                self.state = State::Tail { is_tight: false, ticks, tag: Some(tag) };
            } else {
                self.feed(&tag, out);
            }
            return;
        }
        match c {
            '`' if ticks < 3 && (self.hides_fence || is_tight || ticks > 0) => {
                self.state = State::Tail { is_tight: ticks == 0 && is_tight, ticks: ticks + 1, tag };
                if ticks == 2 {
                    self.hides_fence = false;
                }
            }
            '}' if ticks == 0 => self.state = State::Tail { is_tight, ticks, tag },
            ']' | ')' | ';' | ',' | '"' | '\'' | '*' | '_' if is_tight && ticks == 0 => {
                self.state = State::Tail { is_tight, ticks, tag };
            }
            c if c.is_whitespace() && matches!(ticks, 0 | 1 | 3) => {
                self.state = State::Tail { is_tight: false, ticks, tag };
            }
            _ => {
                self.between();
                if ticks == 2 || (ticks == 1 && !is_tight) {
                    "`".repeat(ticks).chars().for_each(|c| self.show(c, out));
                }
                self.step(c, out);
            }
        }
    }

    fn open_tail(&mut self, mut held: Box<Held>, written: Written, from: usize, c: char, out: &mut String) {
        held.raw.push(c);
        if c.is_whitespace() || (held.is_quoted && matches!(c, '`' | '}')) {
            self.state = State::OpenTail { held, written, from };
        } else {
            self.show_quoted(&held.raw, from, out);
        }
    }

    /// Shows what is quoted as it stands, and reads on behind it.
    fn show_quoted(&mut self, raw: &str, behind: usize, out: &mut String) {
        raw[..behind].chars().for_each(|c| self.show(c, out));
        self.reread += raw.len() - behind;
        if self.reread > REREAD_BYTES_MAX {
            raw[behind..].chars().for_each(|c| self.show(c, out));
        } else {
            self.feed(&raw[behind..], out);
        }
    }

    fn think(&mut self, mut close: String, c: char) {
        close.push(c);
        let closes =
            |tag: &str| ["</think>", "</thinking>", "</thought>", "</thoughts>", "</reasoning>"].contains(&tag);
        let may_close = |tag: &str| {
            ["</think>", "</thinking>", "</thought>", "</thoughts>", "</reasoning>"]
                .iter()
                .any(|end| end.starts_with(tag))
        };
        let lower = close.to_ascii_lowercase();
        if closes(&lower) {
            self.between();
            if self.began {
                self.spoken_from = usize::MAX;
            }
            return;
        }
        if !may_close(&lower) {
            let kept = if c == '<' { close.len() - 1 } else { close.len() };
            self.thought.push_str(&close[..kept]);
            close.drain(..kept);
        }
        self.state = State::Thought { close };
    }

    /// Shows what was held and is text. Its first character begins nothing; what follows may.
    fn release(&mut self, raw: &str, out: &mut String) {
        self.state = State::Text;
        if self.hides_fence && raw.starts_with("```") && raw[3..].trim().is_empty() {
            self.hides_fence = false;
            self.between();
            return;
        }
        let mut chars = raw.chars();
        if let Some(first) = chars.next() {
            self.show(first, out);
        }
        self.reread += chars.as_str().len();
        if self.reread > REREAD_BYTES_MAX {
            chars.for_each(|c| self.show(c, out));
        } else {
            self.feed(chars.as_str(), out);
        }
    }

    /// Shows a character of the text; white space waits, since none is shown before a signal.
    fn show(&mut self, c: char, out: &mut String) {
        if c == '`' {
            self.ticks += 1;
            self.in_code ^= self.ticks == 3;
        } else {
            self.ticks = 0;
        }
        if c == '\n' {
            self.at_line = true;
        }
        self.before = c;
        if c.is_whitespace() {
            self.gap.push(c);
        } else {
            self.at_line = false;
            self.gap_before_text(out);
            out.push(c);
        }
    }

    /// Shows text in which nothing can begin.
    fn plain(&mut self, text: &str, out: &mut String) {
        let Some(last) = text.chars().next_back() else { return };
        self.ticks = 0;
        self.before = last;
        let shown = text.trim_end();
        if !shown.is_empty() {
            self.gap_before_text(out);
            out.push_str(shown);
        }
        self.gap.push_str(&text[shown.len()..]);
    }

    /// White space that waited is shown, or what stands for what was left out.
    fn gap_before_text(&mut self, out: &mut String) {
        if self.left_out {
            self.gap.clear();
            if self.began {
                out.push_str(BETWEEN);
            }
            self.left_out = false;
            if self.spoken_from == usize::MAX {
                self.spoken_from = self.shown + out.len();
            }
        } else {
            out.push_str(&self.gap);
            self.gap.clear();
        }
        self.began = true;
    }
}

/// Whether a text may begin with the key of a signal.
fn may_be_key(text: &[u8]) -> bool {
    const KEY: &[u8] = b"continuation";
    let length = text.len().min(KEY.len());
    text[..length].eq_ignore_ascii_case(&KEY[..length])
}

/// Bytes that may begin a lead within a line, and line ends, after which any may.
static BEGINS: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"{`<cC\"'*_\n";
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};
