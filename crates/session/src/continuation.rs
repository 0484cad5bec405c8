//! Whether a reply without tool calls leads to another step.

use contract::event::{DecisionSource, StopReason};
use contract::model::FinishReason;
use contract::settings::{ContinuationSettings, Limits};
use reply::{Heard, Patterns, Signal, Status};

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
    /// The limit that keeps the turn from another step.
    pub limit: Option<StopReason>,
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
    match facts.limit {
        Some(limit) if verdict.continues => Verdict {
            continues: false,
            source: DecisionSource::Limit(limit.as_str().to_owned()),
            reason: used_up(settings, limit),
            nudge: None,
        },
        Some(_) | None => verdict,
    }
}

/// What is said of a limit, for people.
fn used_up(settings: &ContinuationSettings, limit: StopReason) -> String {
    let Limits { tokens, cost_usd, tool_calls, repetition, no_progress } = settings.limits;
    match limit {
        StopReason::MaxIterations => format!("the turn's {} steps are used up", settings.max_iterations),
        StopReason::Timeout => format!("the turn's {} seconds are used up", settings.timeout),
        StopReason::TokenLimit => format!("the turn's {} tokens are used up", tokens.unwrap_or_default()),
        StopReason::CostLimit => format!("the turn's {} US dollars are used up", cost_usd.unwrap_or_default()),
        StopReason::ToolCallLimit => format!("the turn's {} tool calls are used up", tool_calls.unwrap_or_default()),
        StopReason::Repetition => format!("the model made the same call {repetition} times"),
        StopReason::NoProgress => format!("{no_progress} steps in a row brought nothing new"),
        StopReason::Completed | StopReason::Stopped | StopReason::Error => String::new(),
    }
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
    if !settings.enabled {
        return verdict(false, DecisionSource::Default, "continuation is switched off");
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
    let heard = patterns.hear(facts.text);
    if let Some(Heard { continues: false, pattern }) = heard {
        let source = DecisionSource::Pattern(format!("termination:{pattern}"));
        return verdict(false, source, "the text says that it is done");
    }
    if let Some(Heard { continues: true, pattern }) = heard {
        let nudge = Some("Go on.".to_owned());
        let source = DecisionSource::Pattern(format!("continuation:{pattern}"));
        return Verdict { nudge, ..verdict(true, source, "the text announces a next step") };
    }
    verdict(false, DecisionSource::Default, "neither a signal nor a pattern")
}
