//! Whether a user only asks to go on: after a turn that ended, a sign that it ended too early.

use std::sync::LazyLock;

use regex::Regex;

/// Characters of a message that can be nothing but "go on".
const CHARS_MAX: usize = 80;

static NUDGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words = r"(?i)^\W*(?:(?:yes|ok|okay|sure|please|and|now|so|then|just|you can|you may|why did you stop|don't stop)\W+)*(?:continue|go on|go ahead|keep going|carry on|proceed|resume|move on|next|finish(?: it| this| the (?:task|job|rest|plan))?|do (?:it|the rest|the next step)|weiter|mach(?:e)? weiter)(?:\W+(?:please|then|now|on|working|with (?:it|that|this|the (?:rest|plan|task|work|next step))|until (?:it is|it's|you are|you're) (?:done|finished)))*\W*$";
    Regex::new(words).ok()
});

/// Whether a message says nothing but "go on".
pub fn is_nudge(text: &str) -> bool {
    let text = text.trim();
    text.chars().nth(CHARS_MAX).is_none()
        && NUDGE.as_ref().is_some_and(|nudge| nudge.is_match(&text.replace('\u{2019}', "'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nudges_are_recognised_by_their_words() {
        for text in [
            "continue",
            "Continue.",
            "please continue",
            "Go on!",
            "ok, go ahead",
            "Yes, please proceed.",
            "keep going until you're done",
            "carry on with the plan",
            "Finish the task",
            "next",
            "and now do the rest",
            "weiter",
        ] {
            assert!(is_nudge(text), "{text}");
        }
        for text in [
            "",
            "continue the sentence: once upon a time",
            "What is next?  And why?",
            "don't continue",
            "stop",
            "the next file has a bug",
            "continue-on-error is set in the workflow, remove it",
            "thanks",
        ] {
            assert!(!is_nudge(text), "{text}");
        }
    }
}
