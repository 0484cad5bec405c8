//! What the text of a reply says about going on: a pattern that somebody configured, or the text's own words.

use crate::intent::{Intent, intent};
use crate::patterns::{Heard, Patterns};
use crate::prose::Prose;

/// What decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence<'a> {
    /// A pattern.
    Pattern(Heard<'a>),
    /// The words of a sentence, in any of the languages that are known.
    Intent(Intent),
}

/// What a text says about going on; none where it says nothing. `detects_intent`: whether its words are read where no
/// pattern matches.
///
/// A pattern that matches decides over the words of its sentence, and of all before it. A later sentence that says
/// something decides over the pattern: "Step 1 is all done. Let me look at step 2." So does the sentence itself where a
/// pattern would take work that is announced for work that is done, or a question for an announcement.
pub fn evidence<'a>(patterns: &'a Patterns, text: &str, detects_intent: bool) -> Option<Evidence<'a>> {
    let prose = Prose::of(text);
    let heard = patterns.hear_in(&prose);
    if !detects_intent {
        return heard.map(|(heard, _)| Evidence::Pattern(heard));
    }
    let Some((heard, end)) = heard else { return intent(text).map(Evidence::Intent) };
    let sentence = prose.sentence_around(end);
    let later = intent(&prose.text[sentence.end..]);
    let own = || {
        intent(&prose.text[sentence.clone()])?;
        intent(&prose.text[..sentence.end]).filter(|own| own.contradicts(heard.continues))
    };
    Some(later.or_else(own).map_or(Evidence::Pattern(heard), Evidence::Intent))
}
