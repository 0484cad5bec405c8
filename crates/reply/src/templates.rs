//! Named bundles of patterns.

use contract::command::ContinuationOverride;
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

impl Template {
    /// Settings of the template. It leaves all others as they are.
    pub fn settings(&self) -> ContinuationOverride {
        let owned = |list: &[&str]| list.iter().map(|pattern| (*pattern).to_owned()).collect();
        ContinuationOverride {
            require_explicit_signal: Some(false),
            continuation_patterns: Some(owned(self.continuation)),
            termination_patterns: Some(owned(self.termination)),
            // Without patterns the words decide.
            detect_intent: self.continuation.is_empty().then_some(true),
            ..ContinuationOverride::default()
        }
    }
}

/// The settings of a template over those that are built in.
pub fn template(name: &str) -> Option<ContinuationSettings> {
    let found = TEMPLATES.iter().find(|template| template.name == name)?;
    Some(found.settings().over(&ContinuationSettings::default()))
}
