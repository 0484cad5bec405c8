//! Whether a reply without tool calls leads to another step.

use contract::event::{DecisionSource, Spent, StopReason};
use contract::model::{FinishReason, SignalForm, ToolCall};
use contract::settings::{ContinuationSettings, Limits};
use reply::{Evidence, Intent, PatternError, PatternMatch, Patterns, Signal, Status};

/// Characters of the sentence that decided, in a reason.
const SENTENCE_CHARS_MAX: usize = 120;

/// Facts about a reply, as input of [`decide`].
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Visible text of the reply after its last thought.
    pub text: &'a str,
    /// The model's own signal.
    pub signal: Option<&'a Signal>,
    /// Whether it asks for tools.
    pub has_calls: bool,
    /// Reason why the reply ended.
    pub finish: FinishReason,
    /// Whether a user message waits that the model has not seen.
    pub unseen: bool,
    /// Whether the turn was given another step already since the model was not sure: that happens once in a turn.
    pub doubted: bool,
    /// The limit that keeps the turn from another step.
    pub limit: Option<StopReason>,
}

/// A decision and what made it.
#[derive(Debug, Clone, PartialEq)]
pub struct ContinuationVerdict {
    /// Whether another step follows.
    pub continues: bool,
    /// Rule, judge or limit that made the decision.
    pub source: DecisionSource,
    /// Reason for the decision, for people.
    pub reason: String,
    /// Message of the loop to the model at the start of that step.
    pub nudge: Option<String>,
    /// Tokens and cost of the judge; zero if no judge answered.
    pub spent: Spent,
    /// The limit that keeps the turn from the step that would follow.
    pub limit: Option<StopReason>,
    /// Whether nothing in the reply spoke for or against another step, so that a judge may be asked.
    pub is_silent: bool,
}

impl ContinuationVerdict {
    /// The same, where a limit allows no other step.
    pub(crate) fn within(self, settings: &ContinuationSettings, limit: Option<StopReason>) -> Self {
        match limit {
            Some(limit) if self.continues => Self {
                continues: false,
                source: DecisionSource::Limit(limit.as_str().to_owned()),
                reason: used_up(settings, limit),
                nudge: None,
                limit: Some(limit),
                ..self
            },
            Some(_) | None => self,
        }
    }

    pub(crate) fn unseen_message() -> Self {
        verdict(true, DecisionSource::Message, "the user said something that the model has not seen")
    }
}

/// A question that may decide whether another step follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Tools that were asked for are run, and the model reads what they say.
    ToolCalls,
    /// There is a user message that the model has not seen.
    Message,
    /// Continuation is switched off.
    Switch,
    /// The model's own signal.
    Signal,
    /// A reply that was cut at the output limit goes on.
    Length,
    /// Without a signal there is no other step, where the agent requires one.
    Required,
    /// Match of a pattern in the text, or the intent of its words.
    Text,
}

impl Rule {
    /// The order of precedence: the first that knows, decides.
    pub const ORDER: &'static [Self] =
        &[Self::ToolCalls, Self::Message, Self::Switch, Self::Signal, Self::Length, Self::Required, Self::Text];
}

/// A reply outside of a session, about which the loop would decide.
#[derive(Debug, Clone, Copy)]
pub struct SampleReply<'a> {
    /// Its text as the model wrote it.
    pub text: &'a str,
    /// The tools that it asks for.
    pub calls: &'a [ToolCall],
    /// Reason why it ended.
    pub finish: FinishReason,
    /// The step of its turn, from 1.
    pub step: u32,
    /// The form in which the session asks for signals.
    pub signal: SignalForm,
}

/// Decides about a reply outside of a session; also returns what a user reads of it. A pattern that cannot be used is
/// the error.
pub fn decide_sample(
    settings: &ContinuationSettings,
    sample: SampleReply<'_>,
) -> Result<(ContinuationVerdict, String), PatternError> {
    let patterns = Patterns::compile(settings)?;
    let reading = reply::read(sample.text, sample.calls, sample.signal);
    let facts = Facts {
        text: reading.spoken(),
        signal: reading.signal.as_ref(),
        has_calls: !reading.calls.is_empty() || sample.calls.iter().any(|call| !call.is_signal()),
        finish: sample.finish,
        unseen: false,
        doubted: false,
        limit: (sample.step >= settings.max_iterations).then_some(StopReason::MaxIterations),
    };
    let mut verdict = decide(settings, &patterns, facts);
    if let Some(judge) = settings.judge().filter(|_| verdict.is_silent && facts.limit.is_none()) {
        verdict.reason = format!("{}; in a session the judge {judge} is asked", verdict.reason);
    }
    Ok((verdict, reading.visible))
}

/// Decides whether a turn takes another step after a reply.
pub fn decide(settings: &ContinuationSettings, patterns: &Patterns, facts: Facts<'_>) -> ContinuationVerdict {
    decide_in(Rule::ORDER, settings, patterns, facts)
}

/// Decides in another order than [`Rule::ORDER`]: for tests, which prove that the order matters.
pub fn decide_in(
    order: &[Rule],
    settings: &ContinuationSettings,
    patterns: &Patterns,
    facts: Facts<'_>,
) -> ContinuationVerdict {
    let known = order.iter().find_map(|rule| rule.ask(settings, patterns, facts));
    let verdict = known.unwrap_or_else(|| ContinuationVerdict { is_silent: true, ..silent("") });
    verdict.within(settings, facts.limit)
}

/// Nothing decides; `why` says so of a judge.
pub(crate) fn silent(why: &str) -> ContinuationVerdict {
    verdict(false, DecisionSource::Default, &format!("neither a signal nor a pattern{why}"))
}

/// Description of a limit, for people.
pub(crate) fn used_up(settings: &ContinuationSettings, limit: StopReason) -> String {
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

pub(crate) fn verdict(continues: bool, source: DecisionSource, reason: &str) -> ContinuationVerdict {
    let (reason, spent) = (reason.to_owned(), Spent::default());
    ContinuationVerdict { continues, source, reason, nudge: None, spent, limit: None, is_silent: false }
}

impl Rule {
    /// The decision, if this question knows it.
    fn ask(
        self,
        settings: &ContinuationSettings,
        patterns: &Patterns,
        facts: Facts<'_>,
    ) -> Option<ContinuationVerdict> {
        match self {
            Self::ToolCalls => {
                facts.has_calls.then(|| verdict(true, DecisionSource::ToolCalls, "the model asks for tools"))
            }
            Self::Message => facts.unseen.then(ContinuationVerdict::unseen_message),
            Self::Switch => {
                (!settings.enabled).then(|| verdict(false, DecisionSource::Default, "continuation is switched off"))
            }
            Self::Signal => facts.signal.map(|signal| {
                decide_by_signal(signal, settings.confidence_min, facts.doubted || facts.limit.is_some())
            }),
            Self::Length => (facts.finish == FinishReason::Length && settings.continue_on_length).then(|| {
                let nudge = "Your reply was cut at the output limit. Go on exactly where it broke off.".to_owned();
                let cut = verdict(true, DecisionSource::Length, "the reply was cut at the output limit");
                ContinuationVerdict { nudge: Some(nudge), ..cut }
            }),
            Self::Required => settings
                .require_explicit_signal
                .then(|| verdict(false, DecisionSource::Default, "no signal, and this agent requires one to go on")),
            Self::Text => {
                reply::evidence(patterns, facts.text, settings.detect_intent).map(|evidence| match evidence {
                    Evidence::Pattern(found) => decide_by_pattern(found),
                    Evidence::Intent(intent) => decide_by_intent(&intent),
                })
            }
        }
    }
}

fn decide_by_signal(signal: &Signal, confidence_min: Option<f64>, doubted: bool) -> ContinuationVerdict {
    let unsure = signal.confidence.zip(confidence_min).filter(|(is, min)| is < min);
    // Whole percents are enough for people and for models.
    let percent = |part: f64| (part * 100.0).round();
    match (signal.status, unsure) {
        (Status::Continue, Some((is, min))) => {
            let nudge = format!(
                "{} You said that you are {} % sure; {} % is wanted. Find out what you do not know first, or ask the user.",
                signal.nudge(),
                percent(is),
                percent(min)
            );
            ContinuationVerdict { nudge: Some(nudge), ..verdict(true, DecisionSource::Explicit, &signal.reason) }
        }
        (Status::Continue, None) => ContinuationVerdict {
            nudge: Some(signal.nudge()),
            ..verdict(true, DecisionSource::Explicit, &signal.reason)
        },
        (Status::Terminate, Some((is, min))) if signal.is_known() && !doubted => {
            let (is, min) = (percent(is), percent(min));
            let nudge = format!(
                "You said that you are done and {is} % sure; {min} % is wanted. Check what you are not sure of, with tools \
                 where you have them. Then answer the user: what is certain, and what is not."
            );
            let reason = format!("the model is {is} % sure that it is done; {min} % is wanted");
            ContinuationVerdict { nudge: Some(nudge), ..verdict(true, DecisionSource::Confidence, &reason) }
        }
        (Status::Terminate, _) if signal.is_known() => verdict(false, DecisionSource::Explicit, &signal.reason),
        (Status::Terminate, _) => {
            let word: String = signal.word.chars().take(40).collect();
            let reason = format!("the status {word:?} is neither CONTINUE nor TERMINATE, and ends the turn");
            verdict(false, DecisionSource::Explicit, &reason)
        }
    }
}

fn decide_by_pattern(found: PatternMatch<'_>) -> ContinuationVerdict {
    let pattern = found.pattern;
    if found.continues {
        let source = DecisionSource::Pattern(format!("continuation:{pattern}"));
        let announced = verdict(true, source, "the text announces a next step");
        return ContinuationVerdict { nudge: Some("Go on.".to_owned()), ..announced };
    }
    verdict(false, DecisionSource::Pattern(format!("termination:{pattern}")), "the text says that it is done")
}

fn decide_by_intent(intent: &Intent) -> ContinuationVerdict {
    let reason = match (intent.continues, intent.rule) {
        (true, "unfinished") => "the text says that something is left to do",
        (true, _) => "the text announces a next step",
        (false, "asks") => "the text asks the user, or waits",
        (false, _) => "the text says that it is done",
    };
    let sentence: String = intent.sentence.chars().take(SENTENCE_CHARS_MAX).collect();
    let source = DecisionSource::Intent(intent.rule.to_owned());
    let decided = verdict(intent.continues, source, &format!("{reason}: {sentence:?}"));
    ContinuationVerdict { nudge: intent.continues.then(|| "Go on.".to_owned()), ..decided }
}
