//! Patterns that speak for going on or for being done, compiled once and bounded in size.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use contract::settings::ContinuationSettings;
use regex::{Match, Regex, RegexBuilder};

use crate::prose::Prose;

/// Bytes of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Bytes of a pattern's text.
const PATTERN_BYTES_MAX: usize = 2 << 10;
/// Patterns of one list.
pub const PATTERNS_MAX: usize = 32;
/// Compiled lists that are kept for the sessions to come.
const SHARED_MAX: usize = 256;

/// Both lists of texts, and what they compile to.
type Shared = HashMap<(Vec<String>, Vec<String>), Arc<Patterns>>;

/// Agents are few and sessions many; compiling costs more time and memory than all else of a session.
static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);

/// A named bundle of settings that an agent may begin with.
#[derive(Debug, Clone, Copy)]
pub struct Template {
    /// Its name in `agents.yaml`.
    pub name: &'static str,
    continuation: &'static [&'static str],
    termination: &'static [&'static str],
}

/// The templates that there are.
pub const TEMPLATES: &[Template] = &[
    Template {
        name: "multi_step_tool_work",
        continuation: &["now I'll", "next,? I'll", "let me.*proceed", "continuing with", "moving on to"],
        termination: &["task.*complete", "all done", "finished.*successfully", "completed.*all.*steps"],
    },
    PLAIN_WORDS,
];

/// The settings of a template.
pub fn template(name: &str) -> Option<ContinuationSettings> {
    let owned = |list: &[&str]| list.iter().map(|pattern| (*pattern).to_owned()).collect();
    TEMPLATES.iter().find(|template| template.name == name).map(|template| ContinuationSettings {
        require_explicit_signal: false,
        continuation_patterns: owned(template.continuation),
        termination_patterns: owned(template.termination),
        ..ContinuationSettings::default()
    })
}

/// How models say in everyday words that they go on, or are done.
const PLAIN_WORDS: Template = Template {
    name: "plain_words",
    continuation: &[
        r"\b(?:I|we)(?:'ll| will| shall|'m going to|'re going to| am going to| are going to|'m about to)(?: now| next| also| then| first| just| again|,)* [a-z]{2,}",
        r"\blet(?: me|'s| us)(?: now| next| also| then| first| just| quickly|,)* [a-z]{2,}",
        r"\bI(?:'m| am)(?: now| also| currently)? [a-z]{2,}ing\b",
        r"\bI (?:should (?:now|next|also|first)|(?:still|now|first|also) (?:need|have) to|(?:need|have|want) to (?:check|find|look|read|see|verify|do|fix))\b",
        r"\bI'd better [a-z]{2,}",
        r"\bwe (?:(?:now|still|next) (?:need|have) to|(?:now |then |next )?(?:proceed|continue|move on))\b",
        r"(?:^|[.!?:,;\u{2013}\u{2014}-]\s+|\b(?:now|so|and|then) )(?:moving|proceeding|continuing|carrying|going|turning|switching|jumping|heading|returning|back|on|onwards?)(?: on| over| back| ahead| now)? (?:to|with)\b",
        r"(?:^|[.!?,:\u{2014}]\s+)(?:proceeding|continuing|resuming|moving on|on it|onwards?)\s*(?:[.!:,\u{2026}]|$)",
        r"(?:^|[.!?:\u{2026}]\s+)(?:now|next),? [a-z]{2,}ing\b",
        r"(?:^|[.!?:\u{2026}]\s+)\W*[a-z]{2,}ing\b[^.!?\n]*(?:\b(?:now|next|first|again)\s*(?:[.!:\u{2026}]|$)|(?:\.\.\.|\u{2026})\s*$)",
        r"(?:^|[.!?:\u{2026}]\s+)\W*(?:re-?)?(?:trying|checking|looking|opening|fetching|searching|starting|beginning|pulling|updating|applying|inspecting|scanning|querying|kicking off|working on|writing (?:it|the)|reading (?:it|the)|running (?:it|the))\b",
        r"\b(?:next up|up next|starting now)\b",
        r"(?:^|[.!?]\s+)\W*(?:my |the )?next(?: steps?| action| task| move| item)?(?: for me)?(?::|\s*$)",
        r"\b(?:the|my) next (?:step|thing|action|item|task|move)(?: I'll do| for me)? is to\b",
        r"(?:^|[.!?:]\s+)(?:now |so )?(?:it's )?time (?:for me )?to [a-z]{2,}",
        r"(?:^|[.!?:]\s+)now (?:for|on to|onto|the same for|to) ",
        r"(?:^|[.!?:]\s+)here I [a-z]{2,}",
        r"\bthere(?:'s| is| are) (?:still )?(?:more to do|more work|work left)\b",
        r"\b(?:one|a|just a) (?:moment|second|minute) while I\b",
        r"\bI(?:'m| am) not (?:quite |yet )?(?:finished|done)\b",
    ],
    termination: &[
        r"\b(?:is|are|was|were|been|considered?|'s)(?: now| all| fully| finally| successfully)* (?:done|complete|completed|finished|accomplished|implemented|resolved|set up|carried out)(?: as well| and [a-z]+)?(?: (?:successfully|now|with|at|in full|as requested)\b|\s*[.,;:!)]|\s*$|\s*\u{2705})",
        r"(?:^|[.!?:]\s+)\W*(?:[a-z-]+ )?(?:complete|completed|done|finished)\b\W*(?:[.!:,\u{2705}\u{2014}\u{2013}]|$)",
        r"\b(?:task|job|work|plan|processing|clean-?up|migration|implementation|deployment|rollout)s?(?: is| was| has been)?(?: now)? complete[d]?\b(?:\s*[.,;:!)]|\s*$| successfully| and)",
        r"\b(?:all|both|every|everything)\b[^.!?\n]{0,70}\b(?:done|complete|completed|finished|carried out|converted|in place|implemented|achieved|met|added|made|set up|ready|working|checks out)\b",
        r"\b(?:you're )?(?:all set|good to go|all done)\b",
        r"\bthat(?:'s| is| was) (?:everything|it|all|the last)\b",
        r"\b(?:that|this|which) (?:concludes|completes|finishes|wraps up|should do it)\b",
        r"\b(?:mission accomplished|voil\u{e0}|job done)\b",
        r"\bI(?:'ve| have)(?: now| just| successfully| also)* (?:finished|completed|wrapped|implemented|created|added|made|updated|fixed|applied)\b",
        r"\bI(?: successfully)? (?:finished|completed) (?:all|everything|both|the|your)\b",
        r"\b(?:no (?:further|more|other|remaining)|nothing (?:else|more|further|left|remains)|no [a-z]+ (?:remain|left))\b",
        r"\b(?:we|I)(?:'re|'m| are| am)(?: all)? (?:done|finished)\b",
        r"\b(?:RFC|plan|report|document|summary|file|changes?|spreadsheet)\b[^.!?\n]{0,40}\b(?:has been|have(?: all)? been|was|is) (?:created|ready|written|made|saved|generated)\b",
        r"\b(?:finished|completed|through) successfully\b",
        r"(?:^|[.!?]\s+)\W*successfully [a-z]+ed\b",
        r"\b(?:fully|successfully) (?:implemented|completed|finished|set up|created)\b",
        r"\bsummary of (?:what was done|the changes|changes|my work)\b",
        r"\bthe last (?:open |missing |remaining )?(?:point|item|file|rule|step|piece|task)\b",
    ],
};

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// Which one.
    pub pattern: String,
    /// Why, with the position where there is one.
    pub why: String,
}

impl std::fmt::Display for PatternError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pattern {:?} cannot be used: {}", self.pattern, self.why)
    }
}

impl std::error::Error for PatternError {}

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard<'a> {
    /// Whether the text announces a next step; otherwise it says that it is done.
    pub continues: bool,
    /// The pattern that heard it.
    pub pattern: &'a str,
}

/// Both lists, compiled.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    continuation: Vec<Regex>,
    termination: Vec<Regex>,
}

impl Patterns {
    /// Compiles both lists, once for all sessions that use the same; the first one that cannot be used is the error.
    pub fn compile(settings: &ContinuationSettings) -> Result<Arc<Self>, PatternError> {
        let lists = (settings.continuation_patterns.clone(), settings.termination_patterns.clone());
        let shared = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared().get(&lists) {
            return Ok(known.clone());
        }
        let patterns = Arc::new(Self { continuation: compile(&lists.0)?, termination: compile(&lists.1)? });
        let mut shared = shared();
        if shared.len() >= SHARED_MAX {
            shared.clear();
        }
        shared.insert(lists, patterns.clone());
        Ok(patterns)
    }

    /// Whether one pattern can be used.
    pub fn check(pattern: &str) -> Result<(), PatternError> {
        regex(pattern).map(drop)
    }

    /// What a text says of going on; none when it says nothing. A text that says that it is done is believed, unless it
    /// announces a next step after that.
    pub fn hear(&self, text: &str) -> Option<Heard<'_>> {
        let prose = Prose::of(text);
        let done = last(&self.termination, &prose, |found| !prose.is_negated(found));
        let more = last(&self.continuation, &prose, |found| !prose.is_asked(found));
        let heard = |(pattern, _), continues| Heard { continues, pattern };
        match (done, more) {
            (Some(done), Some(more)) if more.1 > done.1 => Some(heard(more, true)),
            (Some(done), _) => Some(heard(done, false)),
            (None, more) => more.map(|more| heard(more, true)),
        }
    }
}

/// The pattern whose match ends last among those that count, and where it ends.
fn last<'a>(list: &'a [Regex], prose: &Prose, counts: impl Fn(&Match<'_>) -> bool) -> Option<(&'a str, usize)> {
    let ends = list.iter().filter_map(|regex| {
        let matches = regex.find_iter(&prose.text).filter(|found| !prose.is_quoted(found) && counts(found));
        matches.last().map(|found| (regex.as_str(), found.end()))
    });
    // Of those that end at the same place the first in the list.
    ends.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

fn compile(list: &[String]) -> Result<Vec<Regex>, PatternError> {
    if list.len() > PATTERNS_MAX {
        let why = format!("{} patterns in one list; at most {PATTERNS_MAX}", list.len());
        return Err(PatternError { pattern: String::new(), why });
    }
    list.iter().map(|pattern| regex(pattern)).collect()
}

fn regex(pattern: &str) -> Result<Regex, PatternError> {
    let refuse = |why| PatternError { pattern: pattern.chars().take(80).collect(), why };
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(refuse(format!("{} bytes; at most {PATTERN_BYTES_MAX}", pattern.len())));
    }
    let built =
        RegexBuilder::new(pattern).case_insensitive(true).multi_line(true).size_limit(COMPILED_BYTES_MAX).build();
    built.map_err(|error| refuse(in_a_line(&error.to_string())))
}

/// The parser's words without its drawing: what is wrong, and at which character.
fn in_a_line(error: &str) -> String {
    // It draws a caret below the pattern, both indented by four blanks.
    let caret = error.lines().find_map(|line| line.strip_prefix("    ").filter(|line| line.trim_end().ends_with('^')));
    let place = caret.and_then(|line| line.find('^')).map(|at| format!(" at its character {}", at + 1));
    let reason = error.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or(error);
    format!("{reason}{}", place.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns() -> Arc<Patterns> {
        let settings = ContinuationSettings {
            continuation_patterns: vec!["now I'll".into(), "not.*finished".into()],
            termination_patterns: vec!["all done".into(), "finished".into()],
            ..ContinuationSettings::default()
        };
        Patterns::compile(&settings).unwrap()
    }

    #[test]
    fn what_is_heard() {
        for (text, expected) in [
            ("I am finished.", Some(false)),
            ("I'm not finished yet.", Some(true)),
            ("It isn't all done.", None),
            ("Not so fast. All done.", Some(false)),
            ("We have yet to get it finished", None),
            ("Once it is finished I report", None),
            ("Nothing else. All done!", Some(false)),
            ("Step 1 is all done. Now I\u{2019}ll read it", Some(true)),
            ("Now I'll read it. All done.", Some(false)),
            ("It printed \"all done\".", None),
            ("It printed `all done`.", None),
            ("> all done\n\nThat is the quotation.", None),
            ("```\nall done\n```", None),
            ("If you like, now I'll read it.", None),
            ("Now I'll read it?", None),
        ] {
            let (patterns, text) = (patterns(), text);
            assert_eq!(patterns.hear(text).map(|heard| heard.continues), expected, "{text}");
        }
    }

    #[test]
    fn bad_patterns_are_refused_with_their_place() {
        for (pattern, expected) in [
            ("now I'll", ""),
            ("done (", "pattern \"done (\" cannot be used: unclosed group at its character 6"),
            (
                "a(?=b)",
                "pattern \"a(?=b)\" cannot be used: look-around, including look-ahead and look-behind, is not supported at its character 2",
            ),
            (
                "[z-a]",
                "pattern \"[z-a]\" cannot be used: invalid character class range, the start must be <= the end at its character 2",
            ),
            (
                r"(\w{1,1000}){1,1000}",
                r#"pattern "(\\w{1,1000}){1,1000}" cannot be used: Compiled regex exceeds size limit of 1048576 bytes."#,
            ),
        ] {
            assert_eq!(Patterns::check(pattern).err().map(|error| error.to_string()).unwrap_or_default(), expected);
        }
    }
}
