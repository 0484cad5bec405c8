//! Objects within a reply: held back, then read as a signal, left out, or shown.

use contract::model::SignalForm;

use super::held_object::HeldObject;
use super::{REREAD_BYTES_MAX, Splitter, State};
use crate::envelope::Envelope;
use crate::parsed_signal::{Meaning, ParsedSignal, meaning, mentions_signal};
use crate::tolerant::{self, End, Object};

/// Bytes within which an object must have named a key of a signal to be held any longer.
const UNKNOWN_BYTES_MAX: usize = 2 << 10;

impl Splitter {
    pub(super) fn hold(&mut self, raw: &str, out: &mut String) {
        let from = raw.rfind('{').unwrap_or_default();
        let is_quoted = self.in_code || (raw[..from].ends_with('`') && !raw[..from].contains("```"));
        let is_first = !self.had_object
            && !self.in_code
            && raw[..from].trim().is_empty()
            && self.spoken_from == self.shown + out.len();
        let envelope = (self.form == SignalForm::Envelope && !self.has_text && !is_quoted).then(Envelope::default);
        let is_tagged = self.at_line && !is_quoted && raw.starts_with('<') && raw[..from].contains("_call");
        let mut held = HeldObject { raw: raw.to_owned(), from, is_quoted, is_first, is_tagged, envelope };
        if let Some(envelope) = &mut held.envelope {
            raw[from..].chars().for_each(|c| envelope.push(c, out));
        }
        self.state = State::Object(Box::new(held));
        if raw.ends_with('}') {
            self.try_close(out);
        }
    }

    pub(super) fn object(&mut self, mut held: Box<HeldObject>, c: char, out: &mut String) {
        held.raw.push(c);
        if let Some(envelope) = &mut held.envelope {
            let from = out.len();
            envelope.push(c, out);
            if out.len() > from {
                self.has_text = true;
                self.pending_space.clear();
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
    pub(super) fn try_close(&mut self, out: &mut String) {
        let State::Object(held) = &self.state else { return };
        if self.reread_bytes > REREAD_BYTES_MAX && held.envelope.as_ref().is_none_or(|envelope| envelope.depth() > 0) {
            return;
        }
        let object = tolerant::read_so_far(held.json());
        let is_whole = object.end == End::Closed && object.bytes == held.json().len();
        if !is_whole {
            self.reread_bytes += held.json().len();
            if object.end == End::Stopped && !mentions_signal(held.json()) {
                self.reject(out);
            }
            return;
        }
        let meaning = self.meaning(&object, held);
        // What is damaged may only seem to end here.
        if matches!(meaning, Meaning::Text) && !object.is_valid && mentions_signal(held.json()) {
            self.reread_bytes += held.json().len();
            return;
        }
        let State::Object(held) = std::mem::take(&mut self.state) else { return };
        match meaning {
            Meaning::Signal(written) if held.is_quoted => self.hold_until_end(held, written),
            Meaning::Calls(written) => self.hold_until_end(held, written),
            Meaning::Signal(written) => self.accept_signal(&held, written, out),
            Meaning::UnreadCall => {
                self.unread_calls += 1;
                self.omit(&held);
            }
            Meaning::Silent if !held.is_quoted => self.omit(&held),
            Meaning::Text if held.has_shown() => self.omit(&held),
            Meaning::Silent | Meaning::Text => {
                self.state = State::Object(held);
                self.reject(out);
            }
        }
    }

    pub(super) fn meaning(&self, object: &Object, held: &HeldObject) -> Meaning {
        let meaning = match self.form {
            SignalForm::Off => Meaning::Text,
            SignalForm::Text | SignalForm::Call | SignalForm::Envelope => meaning(object, self.form, held.is_first),
        };
        if matches!(meaning, Meaning::Text) && held.is_call(object) { Meaning::UnreadCall } else { meaning }
    }

    pub(super) fn hold_until_end(&mut self, held: Box<HeldObject>, written: ParsedSignal) {
        let from = held.raw.len();
        self.state = State::OpenTail { held, written, from };
    }

    /// The object is text for people.
    pub(super) fn reject(&mut self, out: &mut String) {
        let State::Object(held) = std::mem::take(&mut self.state) else { return };
        if held.is_quoted {
            return self.show_quoted(&held.raw, held.from + 1, out);
        }
        self.release(&held.raw, out);
    }

    /// The reply ended within an object.
    pub(super) fn end_object(&mut self, held: HeldObject, out: &mut String) {
        let object = tolerant::read(held.json());
        let behind = held.json()[object.bytes..].to_owned();
        match self.meaning(&object, &held) {
            Meaning::UnreadCall => {
                self.unread_calls += 1;
                self.omit(&held);
                self.feed(&behind, out);
            }
            Meaning::Signal(_) | Meaning::Silent if held.is_quoted && object.end != End::Closed => {
                // Cut off in code: the session did not ask for it there, and half of it is not shown.
                self.start_paragraph();
            }
            Meaning::Calls(written) if behind.trim().is_empty() => self.accept_signal(&held, written, out),
            Meaning::Signal(written) => {
                self.accept_signal(&held, written, out);
                self.feed(&behind, out);
            }
            Meaning::Text | Meaning::Calls(_) if !held.has_shown() => {
                self.state = State::Object(Box::new(held));
                self.reject(out);
            }
            Meaning::Silent | Meaning::Text | Meaning::Calls(_) => {
                self.omit(&held);
                self.feed(&behind, out);
            }
        }
    }

    pub(super) fn accept_signal(&mut self, held: &HeldObject, written: ParsedSignal, out: &mut String) {
        let response = written.value["response"].as_str().unwrap_or_default().to_owned();
        let shown = held.envelope.as_ref().map_or("", Envelope::shown);
        if let Some(rest) = response.strip_prefix(shown) {
            if shown.is_empty() && !rest.trim().is_empty() {
                self.start_paragraph();
                self.flush_space(out);
            }
            out.push_str(rest);
            self.has_text |= !response.trim().is_empty();
        }
        if self.signal.as_ref().is_none_or(|_| !written.value["continuation"].is_null()) {
            self.signal = Some(written);
            self.signal_at = self.shown + out.len();
        } else if let Some(earlier) = &mut self.signal {
            earlier.is_whole_reply = false;
        }
        self.omit(held);
    }

    pub(super) fn omit(&mut self, held: &HeldObject) {
        let lead = &held.raw[..held.from];
        self.hides_fence |= lead.contains("```") || lead.contains("~~~");
        let tag = lead.contains('<').then(String::new);
        self.had_object = true;
        self.start_paragraph();
        self.state = State::Tail { is_tight: true, ticks: 0, tag };
    }
}
