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
    // The words of the reply alone: see `intent`.
    Template { name: "plain_words", continuation: &[], termination: &[] },
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
