//! Text for people: which of it is sure to begin nothing, and how it is shown.

use contract::model::SignalForm;

use super::{REREAD_BYTES_MAX, Splitter, State};
use crate::lead::LeadPosition;
use crate::prose::byte_set;

/// Separator of texts with a signal between them.
const PARAGRAPH_BREAK: &str = "\n\n";

impl Splitter {
    /// Returns the position of a lead that may begin with this character; none if none can.
    pub(super) fn lead_position(&self, c: char) -> Option<LeadPosition> {
        if c.is_whitespace() || (c != '<' && self.form == SignalForm::Off) {
            return None;
        }
        if self.in_code {
            return (c == '{' && self.at_line && self.form != SignalForm::Off).then_some(LeadPosition::Code);
        }
        if self.at_line {
            return Some(if self.form == SignalForm::Off { LeadPosition::Off } else { LeadPosition::Line });
        }
        let is_word = self.last_char.is_alphanumeric() && !matches!(c, '{' | '<');
        let begins = u8::try_from(c).is_ok_and(|byte| BEGINS[usize::from(byte)]);
        (begins && !is_word && (c != '`' || self.ticks == 0)).then_some(if self.form == SignalForm::Off {
            LeadPosition::Off
        } else {
            LeadPosition::Within
        })
    }

    /// Returns the number of bytes at the start of a text in which no lead can begin.
    pub(super) fn plain_prefix_bytes(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let begins = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| bytes.get(before));
            let is_in_word = before.map_or_else(|| self.last_char.is_ascii_alphanumeric(), u8::is_ascii_alphanumeric);
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

    /// Shows what is quoted as it stands, and reads on behind it.
    pub(super) fn show_quoted(&mut self, raw: &str, behind: usize, out: &mut String) {
        raw[..behind].chars().for_each(|c| self.show(c, out));
        self.reread_bytes += raw.len() - behind;
        if self.reread_bytes > REREAD_BYTES_MAX {
            raw[behind..].chars().for_each(|c| self.show(c, out));
        } else {
            self.feed(&raw[behind..], out);
        }
    }

    /// Shows what was held and is text. Its first character begins nothing; what follows may.
    pub(super) fn release(&mut self, raw: &str, out: &mut String) {
        self.state = State::Text;
        if self.hides_fence && raw.starts_with("```") && raw[3..].trim().is_empty() {
            self.hides_fence = false;
            self.start_paragraph();
            return;
        }
        let mut chars = raw.chars();
        if let Some(first) = chars.next() {
            self.show(first, out);
        }
        self.reread_bytes += chars.as_str().len();
        if self.reread_bytes > REREAD_BYTES_MAX {
            chars.for_each(|c| self.show(c, out));
        } else {
            self.feed(chars.as_str(), out);
        }
    }

    /// Makes the text that follows a paragraph of its own.
    pub(super) fn start_paragraph(&mut self) {
        self.pending_space.clear();
        self.has_omission = true;
        self.last_char = '\n';
        self.at_line = true;
        self.ticks = 0;
    }

    /// Shows a character of the text; white space waits, since none is shown before a signal.
    pub(super) fn show(&mut self, c: char, out: &mut String) {
        if c == '`' {
            self.ticks += 1;
            self.in_code ^= self.ticks == 3;
        } else {
            self.ticks = 0;
        }
        if c == '\n' {
            self.at_line = true;
        }
        self.last_char = c;
        if c.is_whitespace() {
            self.pending_space.push(c);
        } else {
            self.at_line = false;
            self.flush_space(out);
            out.push(c);
        }
    }

    /// Shows text in which nothing can begin.
    pub(super) fn show_plain(&mut self, text: &str, out: &mut String) {
        let Some(last) = text.chars().next_back() else { return };
        self.ticks = 0;
        self.last_char = last;
        let shown = text.trim_end();
        if !shown.is_empty() {
            self.flush_space(out);
            out.push_str(shown);
        }
        self.pending_space.push_str(&text[shown.len()..]);
    }

    /// White space that waited is shown, or what stands for what was left out.
    pub(super) fn flush_space(&mut self, out: &mut String) {
        if self.has_omission {
            self.pending_space.clear();
            if self.has_text {
                out.push_str(PARAGRAPH_BREAK);
            }
            self.has_omission = false;
            if self.spoken_from == usize::MAX {
                self.spoken_from = self.shown + out.len();
            }
        } else {
            out.push_str(&self.pending_space);
            self.pending_space.clear();
        }
        self.has_text = true;
    }
}

/// Whether a text may begin with the key of a signal.
fn may_be_key(text: &[u8]) -> bool {
    const KEY: &[u8] = b"continuation";
    let length = text.len().min(KEY.len());
    text[..length].eq_ignore_ascii_case(&KEY[..length])
}

/// Bytes that may begin a lead within a line, and line ends, after which any may.
static BEGINS: [bool; 256] = byte_set(b"{`<cC\"'*_\n");
