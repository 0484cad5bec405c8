//! Decides from the text of a reply whether the model continues: by a configured pattern, or by the intent of the
//! words.

use crate::intent::{Intent, intent};
use crate::patterns::{PatternMatch, Patterns};
use crate::prose::Prose;

/// The part of the text that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence<'a> {
    /// A match of a configured pattern.
    Pattern(PatternMatch<'a>),
    /// The words of a sentence, in any supported language.
    Intent(Intent),
}

/// Finds the evidence of a text whether the model continues, if there is any. `detects_intent` enables the intent of
/// words.
///
/// A pattern has precedence over the words of its sentence and of all sentences before it. A later sentence with an
/// intent has precedence over the pattern: "Step 1 is all done. Let me look at step 2." So has its own sentence if the
/// pattern takes announced work for finished work, or a question for an announcement.
pub fn evidence<'a>(patterns: &'a Patterns, text: &str, detects_intent: bool) -> Option<Evidence<'a>> {
    let prose = Prose::of(text);
    let found = patterns.match_prose(&prose);
    if !detects_intent {
        return found.map(|(found, _)| Evidence::Pattern(found));
    }
    let Some((found, end)) = found else { return intent(text).map(Evidence::Intent) };
    let sentence = prose.sentence_around(end);
    let later = intent(&prose.text[sentence.end..]);
    let own = || {
        intent(&prose.text[sentence.clone()])?;
        intent(&prose.text[..sentence.end]).filter(|own| own.contradicts(found.continues))
    };
    Some(later.or_else(own).map_or(Evidence::Pattern(found), Evidence::Intent))
}
