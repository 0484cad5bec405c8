//! Intent of a reply in everyday words: whether it announces another step.
//!
//! A reply is read as sentences, from its end. Each sentence either says nothing about going on, or takes a stance: it
//! announces work, asks the reader, or says that all is done. The last stance counts. A sentence takes its stance by
//! who acts in it (the model, the reader, a thing), and by when: now, under a condition, or in the past.

mod cjk;
mod english;
mod european;
mod lexicon;
mod lines;
mod not_spoken;
mod script;
mod sentence;
mod stance;
mod tags;

use lexicon::Words;
use lines::Lines;
use sentence::{End, LineKind, SPAN, Sentences};
use stance::Stance;

/// Lines of a reply's end that are read at first.
const LINES_FIRST: usize = 6;
/// Sentences before one that its stance may depend on.
const SENTENCES_BEFORE: usize = 5;
/// Sentences without a stance that may follow one with a stance.
const NEUTRAL_AFTER_MAX: usize = 4;
/// The same for an announcement. Behind more of them the reply itself was what was announced.
const NEUTRAL_AFTER_ANNOUNCEMENT_MAX: usize = 2;

/// Intent of a reply about another step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Whether it announces another step.
    pub continues: bool,
    /// Rule that decided, for people: `announces`, `unfinished`, `asks`, `done`.
    pub rule: &'static str,
    /// The sentence that decided, in lower case.
    pub sentence: String,
}

impl Intent {
    /// Whether what a pattern takes from its sentence cannot be meant: an announcement is not done, a question
    /// announces nothing.
    pub(crate) fn contradicts(&self, continues: bool) -> bool {
        self.rule == if continues { ASKS } else { ANNOUNCES }
    }
}

/// The names of rules.
const ANNOUNCES: &str = "announces";
const UNFINISHED: &str = "unfinished";
const ASKS: &str = "asks";
const DONE: &str = "done";

/// Finds the intent of a reply; none if it says nothing about another step.
pub fn intent(reply: &str) -> Option<Intent> {
    let lines = Lines::of(reply);
    // Mostly the last lines tell, and the others need not be read.
    let mut last = LINES_FIRST;
    loop {
        let sentences = lines.sentences(last);
        let (intent, first) = intent_of(&sentences);
        if first >= SENTENCES_BEFORE || last >= lines.len() {
            return intent;
        }
        last = lines.len().min(4 * last);
    }
}

/// Finds the intent of sentences, and the index of the earliest sentence that was read.
fn intent_of(sentences: &Sentences) -> (Option<Intent>, usize) {
    let all = sentences.all();
    let mut words = Words::default();
    let (mut behind, mut items) = (0, 0);
    for (at, sentence) in all.iter().enumerate().rev() {
        let text = sentences.text(sentence);
        let stance = stance(sentences, at, &mut words);
        let follows = behind + items > 0 || sentences.is_followed;
        let (continues, rule) = match stance {
            Stance::Announces if depends_on_reader(sentences, at, &mut words) => (false, ASKS),
            Stance::Reports if follows => return (None, at),
            Stance::Announces | Stance::Reports if behind > NEUTRAL_AFTER_ANNOUNCEMENT_MAX => return (None, at),
            Stance::Announces | Stance::Reports => (true, ANNOUNCES),
            Stance::Unfinished if behind <= 1 => (true, UNFINISHED),
            Stance::Asks | Stance::Requests => (false, ASKS),
            Stance::Done => (false, DONE),
            Stance::Neutral | Stance::Unfinished => {
                let is_item = sentence.kind == LineKind::Item;
                items += usize::from(is_item);
                behind += usize::from(!is_item);
                if behind > NEUTRAL_AFTER_MAX {
                    return (None, at);
                }
                continue;
            }
        };
        return (Some(Intent { continues, rule, sentence: text.to_owned() }), at);
    }
    (None, 0)
}

fn stance<'a>(sentences: &'a Sentences, at: usize, words: &mut Words<'a>) -> Stance {
    let sentence = &sentences.all()[at];
    let text = sentences.text(sentence);
    if at > 0 && is_speech(sentences, at - 1) {
        return Stance::Neutral;
    }
    if let Some(stance) = cjk::stance(sentence, text) {
        return stance;
    }
    // "- `index.html`: landing page with a form" names a thing and describes it.
    let is_described = sentence.kind == LineKind::Item
        && at > 0
        && sentences.all()[at - 1].end == End::Colon
        && sentences.text(&sentences.all()[at - 1]).trim_matches(SPAN).is_empty();
    if is_described && english::is_fragment(text) {
        return Stance::Neutral;
    }
    words.read(text);
    let is_under_way = || {
        let before = &sentences.all()[..at];
        before.iter().rev().take(3).any(|sentence| is_done_statement(sentences.text(sentence)))
    };
    let english = english::stance(sentence, text, words, sentence.end == End::Colon && is_under_way());
    if english == Stance::Neutral { european::stance(sentence, text, words) } else { english }
}

/// Whether a sentence announces what somebody said: "He answered:".
fn is_speech(sentences: &Sentences, at: usize) -> bool {
    const SPEECH: &[&str] =
        &["said", "says", "asked", "asks", "replied", "answered", "wrote", "writes", "told", "reads"];
    let sentence = &sentences.all()[at];
    let text = sentences.text(sentence);
    sentence.end == End::Colon && SPEECH.iter().any(|verb| text.ends_with(verb))
}

fn is_done_statement(text: &str) -> bool {
    ["done", "complete", "finished", "erledigt", "fertig", "termin", "complet"].iter().any(|word| text.contains(word))
}

/// Whether an announcement is about what comes after the reader has done something.
fn depends_on_reader<'a>(sentences: &'a Sentences, at: usize, words: &mut Words<'a>) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    if !matches!(stance(sentences, before, words), Stance::Requests | Stance::Asks) {
        return false;
    }
    // "Over to you: ..." says what the reader does.
    if sentences.all()[before].end == End::Colon {
        return true;
    }
    let text = sentences.text(&sentences.all()[at]);
    words.read(text);
    english::is_afterwards(words) || cjk::is_afterwards(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may")]
mod tests {
    use super::*;

    #[test]
    fn last_lines_match_like_all_lines() {
        for row in include_str!("../../tests/corpus/tuned.jsonl").lines() {
            let row: serde_json::Value = serde_json::from_str(row).unwrap();
            let text = row["text"].as_str().unwrap();
            // Also where more lines stand before what tells.
            for text in [text.to_owned(), format!("{text}\n\n{text}")] {
                let lines = Lines::of(&text);
                let (whole, _) = intent_of(&lines.sentences(lines.len()));
                assert_eq!(intent(&text), whole, "{text}");
            }
        }
    }
}
