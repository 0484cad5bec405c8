//! Splits a reply's text, as it comes, into what people read, what the model thought, and the signal for the loop.
//!
//! It goes character by character, so that it cannot matter how the reply was cut. What may become a signal is held
//! back; what turns out to be none is shown then. An object that names the signal is never shown, however damaged it
//! is.

mod held_object;
mod object;
mod tail;
mod text;

use contract::model::SignalForm;

use held_object::HeldObject;

use crate::lead::{LEAD_BYTES_MAX, Lead, LeadProgress, Recogniser};
use crate::parsed_signal::ParsedSignal;

/// Bytes that may be read more than once. A reply that needs more of it is read in one pass from there on.
const REREAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of text that may follow a signal. Before more of it the object was an example, and orders nothing.
const BEHIND_BYTES_MAX: usize = 120;

/// Splits one reply, chunk by chunk.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about the text so far")]
#[derive(Debug)]
pub struct Splitter {
    form: SignalForm,
    state: State,
    /// White space that waits for what follows it.
    pending_space: String,
    /// Whether anything but white space was shown.
    has_text: bool,
    /// The character before; the end of a line at the beginning.
    last_char: char,
    /// Whether nothing but white space came since the line began.
    at_line: bool,
    /// Backticks just before, in a row.
    ticks: usize,
    /// Within a block of code.
    in_code: bool,
    /// The fence around a signal is open: its end is not shown.
    hides_fence: bool,
    /// Something was left out since the last character that was shown.
    has_omission: bool,
    /// An object was left out, or its response shown in its place.
    had_object: bool,
    signal: Option<ParsedSignal>,
    /// Tool calls in tags that were left out.
    unread_calls: usize,
    /// Bytes that were shown before it.
    signal_at: usize,
    thought: String,
    /// Bytes that were shown.
    shown: usize,
    /// Offset in the shown text, in bytes, of the text after the last thought; `usize::MAX` until such text comes.
    spoken_from: usize,
    /// Bytes that were read again.
    reread_bytes: usize,
}

/// Remaining output at the end of a reply.
#[derive(Debug, Default, PartialEq)]
pub struct Remainder {
    /// Text to be shown.
    pub text: String,
    /// Thought that was not taken yet.
    pub thought: String,
    /// The signal; the last one counts.
    pub signal: Option<ParsedSignal>,
    /// Tool calls in tags that were left out: the model's server should have read them. Nobody runs them.
    pub unread_calls: usize,
    /// Offset in the shown text, in bytes, of the text after the last thought.
    pub spoken_from: usize,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// Possible beginning of a signal or a thought.
    Lead { raw: String, recogniser: Recogniser },
    /// An object that may be a signal.
    Object(Box<HeldObject>),
    /// After a signal: what only closes it is not shown.
    Tail { is_tight: bool, ticks: usize, tag: Option<String> },
    /// After a signal within code, or calls without a signal: they count only if nothing but the end of the code, or of
    /// the reply, follows.
    OpenTail { held: Box<HeldObject>, written: ParsedSignal, from: usize },
    /// Within a thought, with what may be its end.
    Thought { close: String },
}

impl Splitter {
    /// Splits a reply of a session that asked for signals in this form.
    pub fn new(form: SignalForm) -> Self {
        Self {
            form,
            state: State::Text,
            pending_space: String::new(),
            has_text: false,
            last_char: '\n',
            at_line: true,
            ticks: 0,
            in_code: false,
            hides_fence: false,
            has_omission: false,
            had_object: false,
            signal: None,
            unread_calls: 0,
            signal_at: 0,
            thought: String::new(),
            shown: 0,
            spoken_from: 0,
            reread_bytes: 0,
        }
    }

    /// Takes a piece of the reply and returns what can be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        self.feed(piece, &mut out);
        self.shown += out.len();
        out
    }

    /// Takes the thoughts of the model that were received since the last call.
    pub fn take_thought(&mut self) -> String {
        std::mem::take(&mut self.thought)
    }

    /// Ends the reply and returns what is left of it.
    pub fn finish(mut self) -> Remainder {
        let mut out = String::new();
        loop {
            match std::mem::take(&mut self.state) {
                State::Text => break,
                State::Lead { raw, .. } => self.release(&raw, &mut out),
                State::Object(held) => self.end_object(*held, &mut out),
                State::Tail { ticks, .. } => {
                    let lost = if ticks < 3 { "`".repeat(ticks) } else { String::new() };
                    self.start_paragraph();
                    lost.chars().for_each(|c| self.show(c, &mut out));
                }
                State::OpenTail { held, written, from } => {
                    self.accept_signal(&held, written, &mut out);
                    self.state = State::Text;
                    self.start_paragraph();
                    let tail = &held.raw[from..];
                    tail.trim_end().chars().for_each(|c| self.show(c, &mut out));
                }
                State::Thought { close } => self.thought.push_str(&close),
            }
        }
        if !self.has_omission {
            out.push_str(&self.pending_space);
        }
        let behind = (self.shown + out.len()).saturating_sub(self.signal_at);
        let mut signal = self.signal.filter(|_| behind <= BEHIND_BYTES_MAX);
        if let Some(signal) = &mut signal {
            signal.is_whole_reply &= behind == 0;
        }
        let (unread_calls, spoken_from) = (self.unread_calls, self.spoken_from);
        Remainder { text: out, thought: self.thought, signal, unread_calls, spoken_from }
    }

    fn feed(&mut self, piece: &str, out: &mut String) {
        let mut rest = piece;
        loop {
            if matches!(self.state, State::Text) && !self.at_line {
                // Nothing else can begin a signal, so most of a reply is shown as it comes.
                let plain = self.plain_prefix_bytes(rest);
                self.show_plain(&rest[..plain], out);
                rest = &rest[plain..];
            }
            let mut chars = rest.chars();
            let Some(c) = chars.next() else { return };
            self.step(c, out);
            rest = chars.as_str();
        }
    }

    fn step(&mut self, c: char, out: &mut String) {
        match std::mem::take(&mut self.state) {
            State::Text => self.text(c, out),
            State::Lead { raw, recogniser } => self.push_to_lead(raw, recogniser, c, out),
            State::Object(held) => self.object(held, c, out),
            State::Tail { is_tight, ticks, tag } => self.tail(is_tight, ticks, tag, c, out),
            State::OpenTail { held, written, from } => self.open_tail(held, written, from, c, out),
            State::Thought { close } => self.push_thought(close, c),
        }
    }

    fn text(&mut self, c: char, out: &mut String) {
        let Some(mut recogniser) = self.lead_position(c).and_then(Recogniser::new) else { return self.show(c, out) };
        match recogniser.push(c) {
            LeadProgress::NoLead => self.show(c, out),
            step @ (LeadProgress::Partial | LeadProgress::Found(_)) => {
                self.advance_lead(step, c.to_string(), recogniser, out);
            }
        }
    }

    fn push_to_lead(&mut self, mut raw: String, mut recogniser: Recogniser, c: char, out: &mut String) {
        raw.push(c);
        let step = recogniser.push(c);
        self.advance_lead(step, raw, recogniser, out);
    }

    /// Holds, releases or handles the text of a lead, as the recogniser says.
    fn advance_lead(&mut self, step: LeadProgress, raw: String, recogniser: Recogniser, out: &mut String) {
        match step {
            LeadProgress::Partial if raw.len() < LEAD_BYTES_MAX => self.state = State::Lead { raw, recogniser },
            LeadProgress::Partial | LeadProgress::NoLead => self.release(&raw, out),
            LeadProgress::Found(Lead::ThoughtBegins) => self.state = State::Thought { close: String::new() },
            LeadProgress::Found(Lead::ThoughtEnds) => {
                // The thought began before the reply: it was shown, and the model speaks from here on.
                self.has_omission = true;
                self.pending_space.clear();
                self.spoken_from = self.shown + out.len();
                self.at_line = true;
            }
            LeadProgress::Found(Lead::Object) => self.hold(&raw, out),
        }
    }
}
