//! Leads: text that may stand before a signal's object, and the tags around thoughts; recognised byte by byte.
//!
//! A dense automaton tells after each byte whether what has come can still become one of them. So no text is held back
//! longer than it may be part of a signal, and it cannot matter how a reply was cut.

use std::sync::LazyLock;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::util::syntax;
use regex_automata::{Anchored, MatchKind};

/// Bytes that may stand before an object.
pub(crate) const LEAD_BYTES_MAX: usize = 256;

// White space and marks within a lead are repeated without a number: [`LEAD_BYTES_MAX`] bounds the whole, and numbers would
// multiply the states, so that the first reply of a process waited for its automata.

/// A label: `Continuation signal:`, `**Status**:`, `"continuation": `.
const LABEL: &str = r#"(?:[#>*_"'` \t-]{0,8}(?:continuation|signal|status|envelope|json)(?:[ _-](?:signal|status|envelope|block|json|decision))?["'*_` ]*[:=(]?["'*_` \t]*\n{0,2})"#;
/// The same within a line: only the key itself, since prose has the other words.
const KEY: &str = r#"(?:(?:["'*_`]{1,3}|“)?continuation(?:["'*_`]{1,3}|”)?[ \t]{0,2}[:=(][ \t]*)"#;
const FENCE: &str = r"(?:(?:```|~~~)[a-zA-Z0-9_+-]*[ \t]*\r?\n?[ \t\r\n]*)";
const TICK: &str = "`";
const TAG: &str = r"(?:<\|?[a-z_]{3,}\|?>[ \t\r\n]*)";
/// A brace, and the beginning of a key.
const OBJECT: &str = r#"\{[ \t\r\n]*(?:["'`]|“|”|„|‘|’|continuation\b|status\b|\})"#;
/// The same, where only what is surely an envelope counts.
const KNOWN_OBJECT: &str = r#"\{[ \t\r\n]*(?:["'`]|“|”|„|‘|’)?(?:continuation|status)\b"#;
/// A call as models write it whose server leaves it in the text.
const TAGGED_CALL: &str = r#"<\|?(?:tool_call|function_call)\|?>[ \t\r\n]*\{[ \t\r\n]*""#;
const THINK: &str = r"<(?:think|thinking|thought|thoughts|reasoning)>";
const THOUGHT: &str = r"</(?:think|thinking|thought|thoughts|reasoning)>";

/// Kind of a recognised lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// An object may be a signal: its brace and the beginning of its first key have come.
    Object,
    /// The opening tag of a thought.
    ThoughtBegins,
    /// The closing tag of a thought.
    ThoughtEnds,
}

/// Position at which a lead may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeadPosition {
    /// At the beginning of a line.
    Line,
    /// Behind other text of a line.
    Within,
    /// In a block of code.
    Code,
    /// Any position in a session without signals: only thoughts and calls in tags count.
    Off,
}

static AUTOMATA: LazyLock<Option<[dense::DFA<Vec<u32>>; 4]>> = LazyLock::new(|| {
    let line = format!("(?:{LABEL})?(?:{FENCE}|{TICK})?(?:{TAG})?(?:{KEY})?{OBJECT}");
    let within = format!("(?:{FENCE}|{TICK})?(?:{TAG})?(?:{KEY})?{OBJECT}");
    Some([
        automaton(&[&line, THINK, THOUGHT])?,
        automaton(&[&within, r"\z\A[a&&b]", THOUGHT])?,
        automaton(&[KNOWN_OBJECT])?,
        automaton(&[TAGGED_CALL, THINK, THOUGHT])?,
    ])
});

fn automaton(patterns: &[&str]) -> Option<dense::DFA<Vec<u32>>> {
    let config = dense::Config::new().start_kind(StartKind::Anchored).match_kind(MatchKind::All);
    let syntax = syntax::Config::new().case_insensitive(true).unicode(false).utf8(false);
    dense::Builder::new().configure(config).syntax(syntax).build_many(patterns).ok()
}

/// A lead that is being recognised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recogniser {
    position: LeadPosition,
    state: StateID,
}

/// State of a lead after one more character.
#[derive(Clone, Copy)]
pub(crate) enum LeadProgress {
    /// It can still become a lead.
    Partial,
    Found(Lead),
    NoLead,
}

impl Recogniser {
    pub(crate) fn new(position: LeadPosition) -> Option<Self> {
        let config = start::Config::new().anchored(Anchored::Yes);
        let state = automata(position)?.start_state(&config).ok()?;
        Some(Self { position, state })
    }

    pub(crate) fn push(&mut self, c: char) -> LeadProgress {
        let Some(automaton) = automata(self.position) else { return LeadProgress::NoLead };
        let mut buffer = [0; 4];
        for byte in c.encode_utf8(&mut buffer).bytes() {
            self.state = automaton.next_state(self.state, byte);
        }
        if automaton.is_dead_state(self.state) || automaton.is_quit_state(self.state) {
            return LeadProgress::NoLead;
        }
        // A match shows one byte later, so it is asked for as if the text ended here.
        let end = automaton.next_eoi_state(self.state);
        if !automaton.is_match_state(end) {
            return LeadProgress::Partial;
        }
        LeadProgress::Found(match automaton.match_pattern(end, 0).as_usize() {
            0 => Lead::Object,
            1 => Lead::ThoughtBegins,
            _ => Lead::ThoughtEnds,
        })
    }
}

fn automata(position: LeadPosition) -> Option<&'static dense::DFA<Vec<u32>>> {
    let [line, within, code, off] = AUTOMATA.as_ref()?;
    Some(match position {
        LeadPosition::Line => line,
        LeadPosition::Within => within,
        LeadPosition::Code => code,
        LeadPosition::Off => off,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognise(position: LeadPosition, text: &str) -> Option<Lead> {
        let mut recogniser = Recogniser::new(position).unwrap();
        for (at, c) in text.char_indices() {
            match recogniser.push(c) {
                LeadProgress::Partial => {}
                LeadProgress::NoLead => return None,
                LeadProgress::Found(lead) => {
                    assert_eq!(at + c.len_utf8(), text.len(), "{text}");
                    return Some(lead);
                }
            }
        }
        None
    }

    #[test]
    fn leads_are_recognised_with_their_last_byte() {
        for (position, text, lead) in [
            (LeadPosition::Line, "{\"", Some(Lead::Object)),
            (LeadPosition::Line, "{ '", Some(Lead::Object)),
            (LeadPosition::Line, "{continuation", Some(Lead::Object)),
            (LeadPosition::Line, "{x", None),
            (LeadPosition::Line, "```json\n{\n  \"", Some(Lead::Object)),
            (LeadPosition::Line, "```jsonc\n{\"", Some(Lead::Object)),
            (LeadPosition::Line, "**Continuation signal:**\n```json\n{\"", Some(Lead::Object)),
            (LeadPosition::Line, "\"continuation\": {\"", Some(Lead::Object)),
            (LeadPosition::Line, "<tool_call>\n{\"", Some(Lead::Object)),
            (LeadPosition::Line, "Status: all is well", None),
            (LeadPosition::Line, "<think>", Some(Lead::ThoughtBegins)),
            (LeadPosition::Line, "</think>", Some(Lead::ThoughtEnds)),
            (LeadPosition::Within, "<think>", None),
            (LeadPosition::Within, "continuation: {\"", Some(Lead::Object)),
            (LeadPosition::Within, "status: {\"", None),
            (LeadPosition::Code, "{\"a\"", None),
            (LeadPosition::Off, "{\"", None),
            (LeadPosition::Off, "<tool_call>\n{\"", Some(Lead::Object)),
            (LeadPosition::Off, "<tool>{\"", None),
            (LeadPosition::Off, "<think>", Some(Lead::ThoughtBegins)),
        ] {
            assert_eq!(recognise(position, text), lead, "{position:?} {text}");
        }
    }
}
