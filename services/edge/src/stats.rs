//! Statistics of turns by agent and model, from the session index, which may lag behind the logs.

use std::collections::BTreeMap;

use contract::commit::{SessionCounters, SessionSummary};
use contract::event::{Spent, StopReason};
use serde::Serialize;

/// Statistics of the sessions of one agent with one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AgentStats {
    pub(crate) agent: String,
    /// The model that the sessions used last.
    pub(crate) model: String,
    pub(crate) sessions: u32,
    /// Number of turns that ended.
    pub(crate) turns: u32,
    /// Turns that ended, by stop reason.
    pub(crate) stop_reasons: BTreeMap<String, u32>,
    /// Turns that ended at a limit.
    pub(crate) limit_hits: u32,
    /// Turns that ended as completed although the user had to ask the agent to continue.
    pub(crate) premature: u32,
    /// Number of steps of the turns that ended.
    pub(crate) iterations: u32,
    /// Decisions by source: `explicit`, `pattern`, `tool_calls`, `length`, `message`, `limit`, `default`.
    pub(crate) decisions: BTreeMap<String, u32>,
    pub(crate) tool_calls: u32,
    pub(crate) spent: Spent,
    /// Share of completed turns among those that ended; `None` if no turn ended.
    pub(crate) completed_rate: Option<f64>,
    /// Share of premature turns among the completed ones; `None` if no turn completed.
    pub(crate) premature_rate: Option<f64>,
}

/// Sums up the counters of sessions by agent and model, in their order.
pub(crate) fn summarize<'a>(summaries: impl IntoIterator<Item = &'a SessionSummary>) -> Vec<AgentStats> {
    let mut groups: BTreeMap<(&str, &str), (u32, SessionCounters, Spent)> = BTreeMap::new();
    for summary in summaries {
        let (sessions, tally, spent) = groups.entry((&summary.agent, &summary.model)).or_default();
        *sessions += 1;
        add_counters(tally, &summary.tally);
        *spent = spent.plus(summary.spent);
    }
    groups
        .into_iter()
        .map(|((agent, model), (sessions, tally, spent))| to_stats(agent, model, sessions, tally, spent))
        .collect()
}

fn to_stats(agent: &str, model: &str, sessions: u32, tally: SessionCounters, spent: Spent) -> AgentStats {
    let SessionCounters { turns: stop_reasons, iterations, decisions, premature, tool_calls } = tally;
    let turns: u32 = stop_reasons.values().sum();
    let count = |reason: StopReason| stop_reasons.get(reason.as_str()).copied().unwrap_or(0);
    let completed = count(StopReason::Completed);
    let ended = completed + count(StopReason::Stopped) + count(StopReason::Error);
    let rate = |part: u32, whole: u32| (whole > 0).then(|| f64::from(part) / f64::from(whole));
    AgentStats {
        agent: agent.to_owned(),
        model: model.to_owned(),
        sessions,
        turns,
        limit_hits: turns.saturating_sub(ended),
        premature,
        iterations,
        decisions,
        tool_calls,
        spent,
        completed_rate: rate(completed, turns),
        premature_rate: rate(premature, completed),
        stop_reasons,
    }
}

fn add_counters(sum: &mut SessionCounters, more: &SessionCounters) {
    let SessionCounters { turns, iterations, decisions, premature, tool_calls } = more;
    for (into, from) in [(&mut sum.turns, turns), (&mut sum.decisions, decisions)] {
        for (name, count) in from {
            *into.entry(name.clone()).or_default() += count;
        }
    }
    sum.iterations += iterations;
    sum.premature += premature;
    sum.tool_calls += tool_calls;
}
