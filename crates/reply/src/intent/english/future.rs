//! Announcements of the model: "I'll", "let me".

use crate::intent::lexicon::Words;
use crate::intent::sentence::SPAN;
use crate::intent::stance::Stance;
use crate::intent::tags::english::{ADVERBS, FUTURE, IDLE, IDLE_TOGETHER, REPORT};

/// Returns the stance of each "I'll" and "let me".
pub(super) fn futures(words: &Words<'_>) -> impl Iterator<Item = Stance> {
    let places = (0..words.all.len()).filter_map(|at| Some((at, words.longest_at(at, FUTURE)?)));
    places.map(|(at, length)| future(words, at, length))
}

fn future(words: &Words<'_>, at: usize, length: usize) -> Stance {
    let all = &words.all;
    let mut verb = at + length;
    while verb + 1 < all.len() && words.alone(verb, ADVERBS) {
        verb += 1;
    }
    let Some(first) = all.get(verb) else { return Stance::Neutral };
    let goes = matches!(*first, "get" | "see")
        && all
            .get(verb + 1)
            .is_some_and(|word| matches!(*word, "started" | "going" | "what" | "if" | "how" | "whether" | "the"));
    let together = (all[at].starts_with("we") || all[at] == "let's") && !goes;
    // "There is nothing further I'll do.", "No key that would let me look at it."
    let would_let =
        all[at] == "let" && at > 0 && matches!(all[at - 1], "would" | "will" | "could" | "doesn't" | "didn't");
    if all[..at].contains(&"nothing") || would_let {
        return Stance::Neutral;
    }
    let is_doing = *first == "be" && all.get(verb + 1).is_some_and(|word| word.ends_with("ing"));
    // "I'll have `main()` take arguments" gives work to a thing.
    let has_done = *first == "have" && all.get(verb + 1).is_some_and(|word| word.contains(SPAN))
        || all[verb..].windows(3).any(|three| three[0] == "have" && matches!(three[2], "look" | "try" | "go"));
    // "Let's call the weather tool": no name is given.
    let calls = *first == "call"
        && all[verb..].iter().any(|word| matches!(*word, "again" | "tool" | "function" | "api" | "endpoint"));
    if words.has_at(verb, IDLE) && !is_doing && !has_done && !calls
        || together && words.alone(verb, IDLE_TOGETHER) && !calls
    {
        let goes_on = all[verb + 1..].iter().any(|word| matches!(*word, "and" | "then"));
        let to_reader = all.iter().any(|word| matches!(*word, "you" | "your" | "you're" | "you've"));
        let moves = goes_on && !to_reader && matches!(*first, "wait" | "stop" | "assume");
        return if moves { Stance::Announces } else { Stance::Neutral };
    }
    // "Once all tests pass it is complete, so I'll continue" depends on nothing.
    let clause = all[..at].iter().rposition(|word| *word == "so").unwrap_or_default();
    let depends = all[clause..at].iter().any(|word| matches!(*word, "if" | "unless" | "once" | "when"));
    if depends || is_condition(&all[verb..]) {
        return Stance::Neutral;
    }
    // "I'll go through those before I write the conclusions."
    let goes_on = all[verb..].windows(2).any(|pair| pair == ["before", "i"]);
    if !goes_on && (at + length..=verb).any(|place| words.has_at(place, REPORT)) {
        Stance::Reports
    } else {
        Stance::Announces
    }
}

/// Whether it is a word for other people, for what they give, or for what they do.
fn is_of_others(word: &str) -> bool {
    let leave = ["confirmation", "confirms", "approval", "approves", "sign-off", "go-ahead", "permission", "access"];
    let reply = ["reply", "replies", "answer", "answers", "response", "feedback"];
    let person = ["somebody", "someone", "their", "his", "her"];
    leave.contains(&word) || reply.contains(&word) || person.contains(&word)
}

/// Whether something else must happen first: "if nobody objects", but not "and if not, restart it".
fn is_condition(behind: &[&str]) -> bool {
    // "When the last two have answered", "once I have them".
    // "As soon as that's there", "when their confirmation comes in".
    let behind_when = behind.iter().position(|word| matches!(*word, "when" | "once" | "until" | "after"));
    let others_give = behind_when.is_some_and(|at| behind[at..].iter().take(8).any(|word| is_of_others(word)));
    let soon =
        behind.windows(4).any(|four| four[..3] == ["as", "soon", "as"] && !matches!(four[3], "i" | "i've" | "it"));
    if others_give || soon {
        return true;
    }
    let waits_for = behind.windows(3).any(|three| {
        matches!(three[0], "when" | "once")
            && (matches!(three[1], "they" | "both" | "all" | "everyone" | "everybody" | "he" | "she")
                || matches!(
                    (three[1], three[2]),
                    ("i", "have" | "get" | "hear") | ("i've", _) | ("the", "last" | "others")
                ))
    });
    if waits_for {
        return true;
    }
    let Some(at) = behind.iter().position(|word| matches!(*word, "if" | "unless")) else { return false };
    let is_own = matches!(behind.get(at + 1), Some(&("not" | "so" | "any" | "it" | "they" | "there")));
    let looks = behind[..at]
        .iter()
        .any(|word| matches!(*word, "see" | "look" | "check" | "verify" | "test" | "what" | "happens"));
    !is_own && !looks
}
