//! Stance of an English sentence about another step. The phrases are in `words/en.txt`.

mod future;
mod reader;
mod work;

use future::futures;
use reader::{asks_reader, waits_for_reader};
use work::{
    acts_in_present, is_doing, is_gerund, is_label, is_named_work, is_passive_work, names_first_step, names_step,
    starts_next_step,
};

use super::lexicon::Words;
use super::sentence::{End, LineKind, Sentence};
use super::stance::Stance;
use super::tags::english::{AFTERWARDS, AT_ONCE, DONE, INTERJECTIONS, UNFINISHED};

/// Returns the stance of the sentence. `is_under_way`: whether a sentence before it says that some work is done.
pub(super) fn stance(sentence: &Sentence, text: &str, words: &Words<'_>, is_under_way: bool) -> Stance {
    let all = &words.all;
    if all.is_empty() {
        return Stance::Neutral;
    }
    if sentence.end == End::Question {
        return Stance::Asks;
    }
    let lead = (0..all.len() - 1).take_while(|at| words.alone(*at, INTERJECTIONS)).count();
    // "Please hold on", but not "please call them right away".
    let begins_polite = all[lead] == "please";
    let asks_for_a_moment = begins_polite && words.has_at(lead + 1, AT_ONCE);
    let at_once = !begins_polite
        && words.places(AT_ONCE).any(|at| at <= lead || matches!(all[at - 1], "so" | "and" | "then" | "now"));
    // "One sec while I open it."
    let while_i = words.places(AT_ONCE).any(|at| words.all[at..].windows(2).any(|pair| pair == ["while", "i"]));
    if at_once || asks_for_a_moment || while_i {
        return Stance::Announces;
    }
    if asks_reader(text, words) || waits_for_reader(words) {
        return Stance::Asks;
    }
    let futures: Vec<Stance> = futures(words).collect();
    // "Now let's divide by m, which gives a = g."
    let is_formula = text.contains(" = ") && !all.iter().any(|word| *word == "i" || word.starts_with("i'"));
    if is_formula && !all.contains(&"me") && !all.contains(&"call") {
        return Stance::Neutral;
    }
    if futures.contains(&Stance::Announces) {
        return Stance::Announces;
    }
    if let Some(reports) = futures.iter().find(|stance| **stance == Stance::Reports) {
        return *reports;
    }
    if !futures.is_empty() {
        // "I need to know that, so I am reading it", "Looking it up now, and then I'll answer".
        let acts = is_doing(words) || is_gerund(words, lead) && all.contains(&"now");
        return if acts { Stance::Announces } else { Stance::Neutral };
    }
    if all.contains(&"please") {
        return Stance::Requests;
    }
    // "Streaming:" is the name of something.
    let is_name = sentence.end == End::Colon && all.len() == 1;
    if is_passive_work(words) || is_doing(words) || acts_in_present(words) {
        return Stance::Announces;
    }
    let names_work = starts_next_step(text, words)
        || names_first_step(words)
        || is_label(sentence, words, lead)
        || sentence.kind != LineKind::Item && is_named_work(words, lead);
    if names_work
        || is_gerund(words, lead) && !is_name && !sentence.is_ticked
        || [["starting", "now"], ["come", "now"], ["comes", "now"]].iter().any(|end| all.ends_with(end))
        || sentence.end == End::Colon && is_under_way && names_step(words, lead)
    {
        return Stance::Announces;
    }
    if is_unfinished(words) && sentence.kind == LineKind::Text && sentence.end != End::Colon {
        return Stance::Unfinished;
    }
    if words.has(DONE) { Stance::Done } else { Stance::Neutral }
}

/// Whether nobody acts in the text: it begins with a form in -ing, and nothing is said of when.
pub(super) fn is_fragment(text: &str) -> bool {
    let first = text.split(' ').next().unwrap_or_default();
    first.ends_with("ing") && !text.ends_with(" now") && !text.ends_with(" next")
}

/// Whether the sentence is about what comes after something else. "I'll look at it first and then write" begins at
/// once.
pub(super) fn is_afterwards(words: &Words<'_>) -> bool {
    words.has(AFTERWARDS) && !words.all.contains(&"first")
}

/// Whether something of the work at hand is left to do. "A job that is not finished after ten minutes is killed" is
/// about any job, and "the cycle, which comes next" about the order of things.
fn is_unfinished(words: &Words<'_>) -> bool {
    let Some((at, _)) = words.first(UNFINISHED) else { return false };
    let before = &words.all[..at];
    let denies = words.all.iter().any(|word| matches!(*word, "nothing" | "no" | "none" | "didn't"))
        || words.all.windows(2).any(|pair| matches!(pair[0], "for" | "to") && matches!(pair[1], "you" | "your"));
    let relates =
        matches!(before.last(), Some(&("which" | "what"))) || words.all.windows(2).any(|pair| pair == ["next", "to"]);
    let any = matches!(before, ["a" | "an", ..] | ["in" | "for" | "with", _, "a" | "an", ..]);
    !denies && !relates && !any
}
