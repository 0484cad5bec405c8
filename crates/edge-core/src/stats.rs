//! Statistics of turns by agent and model, from the session index, which may lag behind the logs.

use std::collections::BTreeMap;

use contract::Timestamp;
use contract::commit::{SessionCounters, SessionSummary};
use contract::event::StopReason;
use session_api::{AgentStats, IntervalStats, OwnSpend, StatsParams};

use crate::api_error::ApiError;
use crate::params::LIST_MAX;

/// Shortest interval of statistics, in seconds.
const INTERVAL_SECONDS_MIN: u32 = 60;

/// Intervals of equal length, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intervals {
    length_ms: u64,
    /// Number of the first interval, where that of the epoch is 0.
    first: u64,
    count: usize,
}

impl Intervals {
    /// Returns the intervals up to now, which begin at whole multiples of their length; none if none are asked for.
    pub(crate) fn of(params: &StatsParams, now: Timestamp) -> Result<Option<Self>, ApiError> {
        let Some(seconds) = params.interval else { return Ok(None) };
        let Some(since) = params.since else {
            return Err(ApiError::bad_request("`interval` needs `since`: the first interval begins there"));
        };
        if seconds < INTERVAL_SECONDS_MIN {
            let message = format!("`interval` is {seconds}, it must be at least {INTERVAL_SECONDS_MIN} seconds");
            return Err(ApiError::bad_request(message));
        }
        let length_ms = u64::from(seconds) * 1_000;
        let first = since.as_millis() / length_ms;
        let count = (now.as_millis() / length_ms + 1).saturating_sub(first);
        match usize::try_from(count) {
            Ok(count) if count <= LIST_MAX => Ok(Some(Self { length_ms, first, count })),
            Ok(_) | Err(_) => {
                let message =
                    format!("`interval` gives {count} intervals since `since`, at most {LIST_MAX} are allowed");
                Err(ApiError::bad_request(message))
            }
        }
    }
}

fn add_spend(sum: &mut OwnSpend, summary: &SessionSummary) {
    match summary.spent_own {
        Some(own) => sum.spent_own = sum.spent_own.plus(own),
        None => sum.uncounted += 1,
    }
}

/// Counts sessions by the interval in which they started. Later ones are in the last interval, since clocks differ.
pub(crate) fn summarize_intervals<'a>(
    summaries: impl IntoIterator<Item = &'a SessionSummary>,
    intervals: &Intervals,
) -> Vec<IntervalStats> {
    let Intervals { length_ms, first, count } = *intervals;
    let starts = (first..).take(count).map(|number| Timestamp::from_millis(number * length_ms));
    let empty = |start| IntervalStats { start, sessions: 0, failed: 0, spend: OwnSpend::default() };
    let mut found: Vec<IntervalStats> = starts.map(empty).collect();
    let Some(last) = count.checked_sub(1) else { return found };
    for summary in summaries {
        let number = (summary.started.as_millis() / length_ms).saturating_sub(first);
        let interval = &mut found[usize::try_from(number).map_or(last, |number| number.min(last))];
        interval.sessions += 1;
        interval.failed += u32::from(summary.stop_reason.is_some_and(StopReason::is_failure));
        add_spend(&mut interval.spend, summary);
    }
    found
}

/// Sums up the counters of sessions by agent and model, in their order.
pub(crate) fn summarize<'a>(summaries: impl IntoIterator<Item = &'a SessionSummary>) -> Vec<AgentStats> {
    let mut groups: BTreeMap<(&str, &str), (u32, SessionCounters, OwnSpend)> = BTreeMap::new();
    for summary in summaries {
        let (sessions, tally, spend) = groups.entry((&summary.agent, &summary.model)).or_default();
        *sessions += 1;
        add_counters(tally, &summary.tally);
        add_spend(spend, summary);
    }
    groups
        .into_iter()
        .map(|((agent, model), (sessions, tally, spend))| to_stats(agent, model, sessions, tally, spend))
        .collect()
}

fn to_stats(agent: &str, model: &str, sessions: u32, tally: SessionCounters, spend: OwnSpend) -> AgentStats {
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
        spend,
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
    use contract::event::Spent;

    use super::*;

    #[test]
    fn parent_and_child_are_added_up_cost_is_counted_once_and_an_unknown_part_is_named() {
        let spent = |usd: f64| Spent { cost_usd: usd, ..Spent::default() };
        let summary = |parent: Option<&str>, all: f64, own: Option<f64>| -> SessionSummary {
            let text = serde_json::json!({
                "session_id": "s", "tenant": "default", "phase": "idle", "agent": "e", "model": "m", "title": "",
                "turn": 1, "step": 0, "seq": 1, "spent": spent(all), "spent_own": own.map(spent), "parent": parent,
                "started": Timestamp::from_millis(60_000), "updated": Timestamp::from_millis(60_000),
            });
            serde_json::from_value(text).unwrap()
        };
        let summaries = [summary(None, 0.75, Some(0.25)), summary(Some("p"), 0.5, Some(0.5)), summary(None, 8.0, None)];
        let expected = OwnSpend { spent_own: spent(0.75), uncounted: 1 };
        let found = summarize(&summaries);
        assert_eq!((found.len(), found[0].spend), (1, expected));
        let intervals = Intervals { length_ms: 60_000, first: 1, count: 1 };
        assert_eq!(summarize_intervals(&summaries, &intervals)[0].spend, expected);
    }

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
