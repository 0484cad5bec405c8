//! Guard against endless turns: counters, and hashes of earlier calls, texts and results.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use contract::command::Budget;
use contract::event::{Spent, StopReason};
use contract::hash::sha256;
use contract::limits::LAST_WORD_RESERVE_PERCENT;
use contract::settings::{ContinuationSettings, Limits};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Hexadecimal digits of a hash that tell one text from another within a turn.
const DIGITS: usize = 20;

/// Hash of a text, written as hexadecimal digits. Each decision copies the hashes of the turn, so it is no `String`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Digest(u128);

impl Digest {
    fn of(text: &str) -> Self {
        let mut first = [0; 16];
        first.copy_from_slice(&sha256(text.as_bytes())[..16]);
        Self(u128::from_be_bytes(first) >> (128 - 4 * DIGITS))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:0DIGITS$x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = Cow::<'de, str>::deserialize(deserializer)?;
        let is_whole = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = is_whole.then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
        number.map(Self).ok_or_else(|| de::Error::custom("no digest of 20 hexadecimal digits"))
    }
}

/// Counters and hashes of one turn.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RepetitionGuard {
    tool_calls: u32,
    /// Number of times that each call was made, by hash of tool and arguments.
    calls: BTreeMap<Digest, u32>,
    /// Texts and results that came.
    seen: BTreeSet<Digest>,
    /// Whether the running step brought something new.
    fresh: bool,
    /// Steps in a row that brought nothing new.
    stale: u32,
    /// Number of times that a person granted as much again, by limit.
    granted: BTreeMap<String, u32>,
}

impl RepetitionGuard {
    /// A call was identified. One that was not made before is news, whatever comes of it: many tools just say "ok".
    pub(crate) fn called(&mut self, tool: &str, arguments: &str) {
        self.tool_calls += 1;
        let times = self.calls.entry(Digest::of(&format!("{tool} {arguments}"))).or_default();
        *times += 1;
        self.fresh |= *times == 1;
    }

    /// A child session made calls for this turn.
    pub(crate) fn used(&mut self, tool_calls: u32) {
        self.tool_calls = self.tool_calls.saturating_add(tool_calls);
    }

    /// Returns the remainder of the limits that are shared with children.
    pub(crate) fn left(&self, settings: &ContinuationSettings, spent: Spent) -> Budget {
        let Limits { tokens, cost_usd, tool_calls, .. } = settings.limits;
        let times = |limit| self.times(limit);
        Budget {
            tokens: tokens.map(|max| {
                max.saturating_mul(times(StopReason::TokenLimit).into()).saturating_sub(spent.usage.total())
            }),
            cost_usd: cost_usd.map(|max| (max * f64::from(times(StopReason::CostLimit)) - spent.cost_usd).max(0.0)),
            tool_calls: tool_calls
                .map(|max| max.saturating_mul(times(StopReason::ToolCallLimit)).saturating_sub(self.tool_calls)),
            timeout: None,
        }
    }

    /// A reply without calls, or a result, came. The same failure is nothing new either.
    pub(crate) fn learned(&mut self, what: &str) {
        self.fresh |= self.seen.insert(Digest::of(what.trim()));
    }

    /// The next step begins.
    pub(crate) fn step(&mut self, step: u32) {
        if step > 1 {
            self.stale = if self.fresh { 0 } else { self.stale + 1 };
        }
        self.fresh = false;
    }

    /// Returns the number of questions to a person that granted more.
    pub(crate) fn asked(&self) -> u32 {
        self.granted.values().sum()
    }

    /// A person lets the turn use as much again.
    pub(crate) fn grant(&mut self, limit: StopReason) {
        *self.granted.entry(limit.as_str().to_owned()).or_default() += 1;
    }

    fn times(&self, limit: StopReason) -> u32 {
        self.granted.get(limit.as_str()).copied().unwrap_or(0) + 1
    }

    /// Whether one more request and reply, of so many tokens together, stay within a tenth above the limits on tokens
    /// and money. A token is reckoned at what those of the turn cost so far.
    pub(crate) fn affords_last_step(settings: &ContinuationSettings, spent: Spent, step_tokens: u64) -> bool {
        let used = spent.usage.input.saturating_add(spent.usage.output);
        let tokens = settings.limits.tokens.is_none_or(|max| {
            let reserve = u128::from(max) * u128::from(LAST_WORD_RESERVE_PERCENT) / 100;
            u128::from(used) + u128::from(step_tokens) <= u128::from(max) + reserve
        });
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let money = settings.limits.cost_usd.is_none_or(|max| {
            let price = spent.cost_usd / used.max(1) as f64;
            let most = max * (1.0 + LAST_WORD_RESERVE_PERCENT as f64 / 100.0);
            spent.cost_usd + price * step_tokens as f64 <= most
        });
        tokens && money
    }

    /// The first limit that a turn has reached. `settled`: nothing of its running step is still to come.
    pub(crate) fn reached(
        &self,
        settings: &ContinuationSettings,
        step: u32,
        settled: bool,
        spent: Spent,
    ) -> Option<StopReason> {
        let Limits { tokens, cost_usd, tool_calls, repetition, no_progress } = settings.limits;
        let used = spent.usage.input.saturating_add(spent.usage.output);
        let most = self.calls.values().copied().max().unwrap_or(0);
        let stale = self.stale + u32::from(settled && !self.fresh && step > 0);
        let times = |limit| self.times(limit);
        let over = |count: u32, max: u32, limit| max > 0 && count >= max.saturating_mul(times(limit));
        if over(step, settings.max_iterations, StopReason::MaxIterations) {
            Some(StopReason::MaxIterations)
        } else if tokens.is_some_and(|max| used >= max.saturating_mul(times(StopReason::TokenLimit).into())) {
            Some(StopReason::TokenLimit)
        } else if cost_usd.is_some_and(|max| spent.cost_usd >= max * f64::from(times(StopReason::CostLimit))) {
            Some(StopReason::CostLimit)
        } else if tool_calls.is_some_and(|max| self.tool_calls >= max.saturating_mul(times(StopReason::ToolCallLimit)))
        {
            Some(StopReason::ToolCallLimit)
        } else if over(most, repetition, StopReason::Repetition) {
            Some(StopReason::Repetition)
        } else if over(stale, no_progress, StopReason::NoProgress) {
            Some(StopReason::NoProgress)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_is_stored_as_hexadecimal_digits_and_read_again() {
        let mut guard = RepetitionGuard::default();
        guard.called("look", "{}");
        guard.learned("so");
        let stored = serde_json::to_string(&guard).unwrap();
        let hex = |text: &str| contract::tool::sha256_hex(text.as_bytes())[..20].to_owned();
        assert!(
            stored.contains(&format!(r#""calls":{{"{}":1}},"seen":["{}"]"#, hex("look {}"), hex("so"))),
            "{stored}"
        );
        let again: RepetitionGuard = serde_json::from_str(&stored).unwrap();
        assert_eq!((again.calls, again.seen), (guard.calls, guard.seen));
        for wrong in ["", "abc", "+bcdefabcdefabcdefab", "zzcdefabcdefabcdefab"] {
            assert!(serde_json::from_value::<Digest>(wrong.into()).is_err(), "{wrong}");
        }
    }
}
