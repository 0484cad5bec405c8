//! Whether a reply without tool calls leads to another step.

mod patterns;

pub use patterns::{PatternError, Patterns};

use contract::event::DecisionSource;
use contract::model::FinishReason;
use contract::settings::ContinuationSettings;
use reply::{Signal, Status};

/// What is known of a reply when it is decided about.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What the user reads.
    pub text: &'a str,
    /// The model's own signal.
    pub signal: Option<&'a Signal>,
    /// Whether it asks for tools.
    pub has_calls: bool,
    /// Why it ended.
    pub finish: FinishReason,
    /// Whether a user message waits that the model has not seen.
    pub unseen: bool,
    /// The step's number within its turn.
    pub step: u32,
}

/// A decision and what made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether another step follows.
    pub continues: bool,
    /// What made the decision.
    pub source: DecisionSource,
    /// Why.
    pub reason: String,
    /// What the loop says to the model at the start of that step.
    pub nudge: Option<String>,
}

/// Decides. The order of the questions is the order of precedence.
pub fn decide(settings: &ContinuationSettings, patterns: &Patterns, facts: Facts<'_>) -> Verdict {
    let verdict = without_limits(settings, patterns, facts);
    if verdict.continues && facts.step >= settings.max_iterations {
        return Verdict {
            continues: false,
            source: DecisionSource::Limit("max_iterations".to_owned()),
            reason: format!("the turn's {} steps are used up", settings.max_iterations),
            nudge: None,
        };
    }
    verdict
}

fn without_limits(settings: &ContinuationSettings, patterns: &Patterns, facts: Facts<'_>) -> Verdict {
    let verdict =
        |continues, source, reason: &str| Verdict { continues, source, reason: reason.to_owned(), nudge: None };
    if facts.has_calls {
        return verdict(true, DecisionSource::ToolCalls, "the model asks for tools");
    }
    if facts.unseen {
        return verdict(true, DecisionSource::Message, "the user said something that the model has not seen");
    }
    if let Some(signal) = facts.signal {
        return match signal.status {
            Status::Continue => {
                Verdict { nudge: Some(signal.nudge()), ..verdict(true, DecisionSource::Explicit, &signal.reason) }
            }
            Status::Terminate if signal.is_known() => verdict(false, DecisionSource::Explicit, &signal.reason),
            Status::Terminate => {
                let word: String = signal.word.chars().take(40).collect();
                let reason = format!("the status {word:?} is neither CONTINUE nor TERMINATE, and ends the turn");
                verdict(false, DecisionSource::Explicit, &reason)
            }
        };
    }
    if facts.finish == FinishReason::Length && settings.continue_on_length {
        let nudge = Some("Your reply was cut at the output limit. Go on exactly where it broke off.".to_owned());
        return Verdict { nudge, ..verdict(true, DecisionSource::Length, "the reply was cut at the output limit") };
    }
    if settings.require_explicit_signal {
        return verdict(false, DecisionSource::Default, "no signal, and this agent requires one to go on");
    }
    if let Some(pattern) = patterns.terminates(facts.text) {
        return verdict(
            false,
            DecisionSource::Pattern(format!("termination:{pattern}")),
            "the text says that it is done",
        );
    }
    if let Some(pattern) = patterns.continues(facts.text) {
        let nudge = Some("Go on.".to_owned());
        let source = DecisionSource::Pattern(format!("continuation:{pattern}"));
        return Verdict { nudge, ..verdict(true, source, "the text announces a next step") };
    }
    verdict(false, DecisionSource::Default, "neither a signal nor a pattern")
}
