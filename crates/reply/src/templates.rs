//! Named bundles of patterns.

use contract::settings::ContinuationSettings;

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
