//! Text after a signal or within a thought, which is not shown as it comes.

use super::held_object::HeldObject;
use super::{Splitter, State};
use crate::parsed_signal::ParsedSignal;

impl Splitter {
    pub(super) fn tail(&mut self, is_tight: bool, ticks: usize, tag: Option<String>, c: char, out: &mut String) {
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
                self.start_paragraph();
                if ticks == 2 || (ticks == 1 && !is_tight) {
                    "`".repeat(ticks).chars().for_each(|c| self.show(c, out));
                }
                self.step(c, out);
            }
        }
    }

    pub(super) fn open_tail(
        &mut self,
        mut held: Box<HeldObject>,
        written: ParsedSignal,
        from: usize,
        c: char,
        out: &mut String,
    ) {
        held.raw.push(c);
        if c.is_whitespace() || (held.is_quoted && matches!(c, '`' | '}')) {
            self.state = State::OpenTail { held, written, from };
        } else {
            self.show_quoted(&held.raw, from, out);
        }
    }

    pub(super) fn push_thought(&mut self, mut close: String, c: char) {
        close.push(c);
        let ends: &[&str] = &["</think>", "</thinking>", "</thought>", "</thoughts>", "</reasoning>"];
        let lower = close.to_ascii_lowercase();
        if ends.contains(&lower.as_str()) {
            self.start_paragraph();
            if self.has_text {
                self.spoken_from = usize::MAX;
            }
            return;
        }
        if !ends.iter().any(|end| end.starts_with(&lower)) {
            let kept = if c == '<' { close.len() - 1 } else { close.len() };
            self.thought.push_str(&close[..kept]);
            close.drain(..kept);
        }
        self.state = State::Thought { close };
    }
}
