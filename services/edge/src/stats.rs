//! Statistics of turns by agent and model, from the session index, which may lag behind the logs.

use std::collections::BTreeMap;

use contract::Timestamp;
use contract::commit::{SessionCounters, SessionSummary};
use contract::event::{Spent, StopReason};
use serde::Serialize;

use crate::params::Intervals;

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

/// Statistics of the sessions that started in one interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IntervalStats {
    pub(crate) start: Timestamp,
    pub(crate) sessions: u32,
    /// Sessions whose last turn failed or ended at a limit.
    pub(crate) failed: u32,
    /// What these sessions have used up to now.
    pub(crate) spent: Spent,
}

/// Counts sessions by the interval in which they started. Later ones are in the last interval, since clocks differ.
pub(crate) fn summarize_intervals<'a>(
    summaries: impl IntoIterator<Item = &'a SessionSummary>,
    intervals: &Intervals,
) -> Vec<IntervalStats> {
    let Intervals { length_ms, first, count } = *intervals;
    let starts = (first..).take(count).map(|number| Timestamp::from_millis(number * length_ms));
    let empty = |start| IntervalStats { start, sessions: 0, failed: 0, spent: Spent::default() };
    let mut found: Vec<IntervalStats> = starts.map(empty).collect();
    let Some(last) = count.checked_sub(1) else { return found };
    for summary in summaries {
        let number = (summary.started.as_millis() / length_ms).saturating_sub(first);
        let interval = &mut found[usize::try_from(number).map_or(last, |number| number.min(last))];
        interval.sessions += 1;
        interval.failed += u32::from(summary.stop_reason.is_some_and(StopReason::is_failure));
        interval.spent = interval.spent.plus(summary.spent);
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_counts_in_the_interval_of_its_start_and_a_later_one_in_the_last() {
        let summary = |started_ms: u64, stop_reason: Option<StopReason>| {
            let text = serde_json::json!({
                "session_id": "s", "tenant": "default", "phase": "idle", "agent": "e", "model": "m", "title": "",
                "turn": 1, "step": 0, "seq": 1, "spent": Spent::default(),
                "started": Timestamp::from_millis(started_ms), "updated": Timestamp::from_millis(started_ms),
            });
            SessionSummary { stop_reason, ..serde_json::from_value(text).unwrap() }
        };
        let summaries = [
            summary(60_000, Some(StopReason::Completed)),
            summary(119_999, Some(StopReason::Timeout)),
            summary(120_000, Some(StopReason::Stopped)),
            summary(999_000, Some(StopReason::Error)),
        ];
        let intervals = Intervals { length_ms: 60_000, first: 1, count: 3 };
        let found = summarize_intervals(&summaries, &intervals);
        let counts: Vec<_> = found.iter().map(|one| (one.start.as_millis(), one.sessions, one.failed)).collect();
        assert_eq!(counts, [(60_000, 2, 1), (120_000, 1, 0), (180_000, 1, 1)]);
    }
}
