//! The lines of a reply's end in which the model speaks to its reader, without code, quotations and thinking.

use super::not_spoken::{begins_letter, ends_letter, introduces_draft, staged};
use super::sentence::Sentences;

/// Bytes of a reply that are read, from its end.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Sentences that are read, from the end.
const SENTENCES_MAX: usize = 80;
/// Tags around a thought; what stands between them is not meant for the reader.
const THOUGHTS: &[&str] = &["think", "thinking", "thought", "reasoning"];

/// A line in which the model speaks to its reader.
#[derive(Debug)]
struct Line<'a> {
    text: &'a str,
    paragraph: usize,
    /// Whether code, a quotation or a text for somebody else comes before the next such line.
    is_followed: bool,
}

/// The lines of a reply's end in which the model speaks to its reader.
#[derive(Debug, Default)]
pub(super) struct Lines<'a>(Vec<Line<'a>>);

impl<'a> Lines<'a> {
    pub(super) fn of(reply: &'a str) -> Self {
        let from = reply.ceil_char_boundary(reply.len().saturating_sub(TEXT_BYTES_MAX));
        let (mut from, mut reply) = (from, reply);
        if reply[from..].contains('<') {
            let thoughts = thoughts_end(&reply[from..]);
            reply = without_open_thought(reply, from);
            from = (from + thoughts).min(reply.len());
        }
        let begin = reply[..from].rfind('\n').map_or(0, |end| end + 1);
        let mut fenced = reply[..begin].lines().filter(|line| is_fence(line)).count() % 2 == 1;
        let mut lines = Self::default();
        let stated = staged(&reply[begin..]);
        let (mut paragraph, mut skipped, mut is_letter) = (0, from - begin, false);
        // Up to which paragraph the lines are those of a text for somebody else, and whether a rule ends it.
        let (mut draft, mut is_ruled) = (None, false);
        for (number, whole) in reply[begin..].lines().enumerate() {
            let line = whole.get(std::mem::take(&mut skipped)..).unwrap_or_default();
            if is_fence(whole) {
                fenced = !fenced;
                lines.skip();
            } else if fenced || is_quoted(whole) || stated.contains(&number) {
                lines.skip();
            } else if line.trim().is_empty() {
                paragraph += 1;
            } else if is_rule(line) && (is_ruled || draft.is_some_and(|last| paragraph <= last)) {
                // A rule that no other one closes is no frame.
                let is_closed = is_ruled || reply[begin..].lines().skip(number + 1).any(is_rule);
                (draft, is_ruled) = (None, !is_ruled && is_closed);
            } else if is_ruled || draft.is_some_and(|last| paragraph <= last) {
                lines.skip();
            } else if let Some((end, is_whole)) = introduces_draft(line) {
                lines.0.push(Line { text: &line[..end], paragraph, is_followed: true });
                // Behind a blank line the draft is the next paragraph.
                let is_apart = reply[begin..].lines().nth(number + 1).is_none_or(|next| next.trim().is_empty());
                draft = Some(paragraph + usize::from(is_whole && is_apart));
            } else if is_letter || begins_letter(line) {
                is_letter = !ends_letter(line);
                lines.skip();
            } else {
                lines.0.push(Line { text: line, paragraph, is_followed: false });
            }
        }
        lines
    }

    /// Notes that a line is left out, as it does not speak to the reader.
    fn skip(&mut self) {
        if let Some(line) = self.0.last_mut() {
            line.is_followed = true;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The sentences of the last lines.
    pub(super) fn sentences(&self, last: usize) -> Sentences {
        let lines = &self.0[self.0.len().saturating_sub(last)..];
        let capacity = lines.iter().map(|line| line.text.len()).sum();
        let mut sentences = Sentences::with_capacity(capacity);
        for line in lines {
            sentences.add_line(line.text, line.paragraph, line.is_followed);
        }
        sentences.keep_last(SENTENCES_MAX);
        sentences
    }
}

/// Returns the end of the last thought, also of one that began earlier; 0 if there is none.
fn thoughts_end(end: &str) -> usize {
    let close = |tag: &&'static str| Some(end.rfind(&format!("</{tag}>"))? + tag.len() + 3);
    THOUGHTS.iter().filter_map(close).max().unwrap_or(0)
}

/// The reply without a thought at its end that was cut off.
fn without_open_thought(reply: &str, from: usize) -> &str {
    let open = |tag: &&'static str| {
        let at = from + reply[from..].rfind(&format!("<{tag}>"))?;
        (!reply[at..].contains(&format!("</{tag}>"))).then_some(at)
    };
    &reply[..THOUGHTS.iter().filter_map(open).min().unwrap_or(reply.len())]
}

/// A line between two texts.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.bytes().all(|byte| matches!(byte, b'-' | b'*' | b'_'))
}

fn is_fence(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("```") || line.starts_with("~~~")
}

/// A quotation, a row of a table, or what somebody says in a story.
fn is_quoted(line: &str) -> bool {
    let line = line.trim_start();
    let is_statement =
        || line.strip_prefix(['\u{2014}', '\u{2013}']).is_some_and(|stated| stated.starts_with(char::is_alphabetic));
    line.starts_with(['>', '|']) || is_statement()
}
