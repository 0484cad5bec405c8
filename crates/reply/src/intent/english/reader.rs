//! Whether a sentence leaves what happens next to its reader.

use crate::intent::lexicon::Words;
use crate::intent::tags::english::{ASKS, DECIDES, DOING, FUTURE, WAITS, WHEN};

/// Verbs by which a reader hands something over.
const HANDOVER_VERBS: &[&str] = &[
    "drop", "send", "put", "give", "paste", "upload", "tell", "forward", "share", "leave", "attach", "reply", "say",
    "type", "answer", "confirm", "press", "click", "pick",
];

/// "Just drop it in the folder, and I'll take care of it.", "Should it differ, paste it here and I will find the gap."
fn hands_over(text: &str) -> bool {
    text.split([',', ';']).any(|clause| {
        let mut words = clause.trim_start().split(' ').skip_while(|word| matches!(*word, "just" | "please" | "then"));
        words.next().is_some_and(|verb| HANDOVER_VERBS.contains(&verb))
    })
}

/// Whether it is up to the reader what happens.
pub(super) fn asks_reader(text: &str, words: &Words<'_>) -> bool {
    let offers =
        [&["i", "can", "also"][..], &["i", "could", "also"], &["say"]].iter().any(|it| words.all.starts_with(it));
    let decides = words.first(WHEN).is_some_and(|(at, length)| {
        // "I'll see if you have flour" asks nobody.
        let looks = at > 0 && matches!(words.all[at - 1], "see" | "check" | "verify" | "know" | "determine" | "test");
        // "The crash that appears when you resize the window" is what the model works on.
        let about = |from: usize| words.all[from..at].iter().any(|word| matches!(*word, "that" | "which" | "who"));
        let is_about = words.first(FUTURE).is_some_and(|(future, _)| future < at && about(future));
        let end = (at + length + 3).min(words.all.len());
        !is_about && !looks && words.has_word(at + length..end, DECIDES)
    });
    let is_own = words.all[0] == "i" || words.all[0].starts_with("i'");
    let hands_over = !is_own
        && hands_over(text)
        && words.all.windows(2).any(|pair| matches!(pair, ["and", "i'll" | "i"] | ["then", "i'll"]));
    // "No input is needed from you."
    let needs_nobody = words.all.windows(2).any(|pair| pair == ["from", "you"])
        && words.all.iter().any(|word| matches!(*word, "no" | "none" | "nothing"));
    words.has(ASKS) && !needs_nobody || offers || decides || hands_over
}

/// Whether the model waits for somebody or needs something. "I need the rate, so let me look it up" does not wait, nor
/// does "I won't delete anything while doing so".
pub(super) fn waits_for_reader(words: &Words<'_>) -> bool {
    let Some((at, length)) = words.first(WAITS) else { return false };
    if words.all[at + length - 1] == "won't" && words.all.contains(&"while") {
        return false;
    }
    // "Next I need the survey so I can compare the two."
    let is_step = matches!(words.all[0], "next" | "now") && words.all[1..].starts_with(&["i", "need"]);
    if is_step && words.all.windows(3).any(|three| three == ["so", "i", "can"]) {
        return false;
    }
    let follows = (at + length + 1..words.all.len())
        .any(|next| words.has_at(next, FUTURE | DOING) && matches!(words.all[next - 1], "so" | "but" | "and"));
    !follows && !waits_a_moment(words)
}

/// "I'll wait a few seconds and try once more."
fn waits_a_moment(words: &Words<'_>) -> bool {
    let has = |wanted: &[&str]| words.all.iter().any(|word| wanted.contains(word));
    let by_reader = has(&["you", "your", "you've", "you're"])
        || has(&["approval", "confirmation", "decision", "review", "answer", "reply", "feedback"]);
    has(&["and", "then"]) && !by_reader && words.all.contains(&"wait")
}
