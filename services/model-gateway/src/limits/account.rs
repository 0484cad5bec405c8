//! The account of one budget: what was spent in a period, and what running calls may still cost.
//!
//! A call reserves what it may cost before it is made and settles what it did cost before its result is told. A gateway that
//! dies leaves its reservation open: whoever makes the call again finds it and books it in full, since nobody knows what the
//! provider did; where nobody does, that happens when the call's time is over.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};

use contract::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::SharedEntry;

/// Nano-dollars of a dollar.
const NANO_PER_USD: f64 = 1e9;

/// Money and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Amount {
    /// Billionths of a US dollar: a token costs thousands of them.
    pub(crate) nano_usd: u64,
    /// Tokens of requests and replies.
    pub(crate) tokens: u64,
}

impl Amount {
    /// An amount in US dollars; what is no amount is none.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, as it should")]
    pub(crate) fn new(usd: f64, tokens: u64) -> Self {
        Self { nano_usd: (usd * NANO_PER_USD).round() as u64, tokens }
    }

    /// The money in US dollars.
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    pub(crate) fn usd(self) -> f64 {
        self.nano_usd as f64 / NANO_PER_USD
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What may be spent; none: as much as one likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BudgetLimit {
    /// Billionths of a US dollar.
    pub(crate) nano_usd: Option<u64>,
    /// Tokens.
    pub(crate) tokens: Option<u64>,
}

impl BudgetLimit {
    fn has_room_for(self, amount: Amount) -> bool {
        self.nano_usd.is_none_or(|max| amount.nano_usd <= max) && self.tokens.is_none_or(|max| amount.tokens <= max)
    }
}

/// An account, as all gateways see it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    /// When the period began that `spent` is of.
    #[serde(rename = "since")]
    pub(crate) period_start: Timestamp,
    /// What was spent in it.
    pub(crate) spent: Amount,
    /// What running calls may cost, by `<session>/<call>.<attempt>`.
    pub(crate) open: BTreeMap<String, CallReservation>,
}

/// What one call may cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallReservation {
    /// The run of the call that made it: a call that is made again is another run.
    pub(crate) run: String,
    /// The most that it is thought to cost.
    #[serde(flatten)]
    pub(crate) amount: Amount,
    /// When the call is over, whatever becomes of it.
    pub(crate) until: Timestamp,
}

/// What is asked of an account; each may be asked again without a second effect.
#[derive(Debug, Clone)]
pub(crate) enum AccountRequest {
    /// Room for a call.
    Reserve {
        /// Which call.
        call: String,
        /// What it may cost.
        reservation: CallReservation,
        /// What may be spent.
        limit: BudgetLimit,
        /// When the period began that it is now.
        period_start: Timestamp,
    },
    /// A call's cost takes the place of what was reserved for it.
    Settle {
        /// Which call.
        call: String,
        /// The run that reserved.
        run: String,
        /// What it cost.
        used: Amount,
    },
    /// What an earlier run of a call left open is booked in full: it will not be made again.
    ChargeAbandoned {
        /// Which call.
        call: String,
    },
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChargeOutcome {
    /// It is done.
    Done,
    /// There is no room, and will be none in this period.
    BudgetSpent {
        /// What was spent.
        spent: Amount,
    },
    /// There is no room as long as other calls run.
    BudgetReserved {
        /// What they may cost.
        reserved: Amount,
    },
}

impl SharedEntry for Account {
    type Request = AccountRequest;
    type Response = ChargeOutcome;

    fn new(_: Timestamp) -> Self {
        Self::default()
    }

    fn apply(&mut self, request: &AccountRequest, now: Timestamp) -> ChargeOutcome {
        match request {
            AccountRequest::Reserve { call, reservation, limit, period_start } => {
                self.start_period(*period_start);
                self.charge_expired(now);
                self.reserve(call, reservation, *limit)
            }
            AccountRequest::Settle { call, run, used } => {
                if self.open.get(call).is_some_and(|open| open.run == *run) {
                    self.open.remove(call);
                    self.spent += *used;
                }
                ChargeOutcome::Done
            }
            AccountRequest::ChargeAbandoned { call } => {
                self.charge_in_full(call);
                ChargeOutcome::Done
            }
        }
    }
}

impl Account {
    /// What running calls may cost.
    pub(crate) fn total_reserved(&self) -> Amount {
        self.open.values().fold(Amount::default(), |sum, open| sum + open.amount)
    }

    fn start_period(&mut self, period_start: Timestamp) {
        if period_start > self.period_start {
            self.period_start = period_start;
            self.spent = Amount::default();
        }
    }

    fn charge_expired(&mut self, now: Timestamp) {
        let over: Vec<String> =
            self.open.iter().filter(|(_, open)| open.until < now).map(|(call, _)| call.clone()).collect();
        for call in over {
            self.charge_in_full(&call);
        }
    }

    fn charge_in_full(&mut self, call: &str) {
        if let Some(open) = self.open.remove(call) {
            self.spent += open.amount;
        }
    }

    fn reserve(&mut self, call: &str, reservation: &CallReservation, limit: BudgetLimit) -> ChargeOutcome {
        match self.open.get(call) {
            Some(open) if open.run == reservation.run => return ChargeOutcome::Done,
            Some(_) => self.charge_in_full(call),
            None => {}
        }
        if !limit.has_room_for(self.spent + reservation.amount) {
            return ChargeOutcome::BudgetSpent { spent: self.spent };
        }
        let reserved = self.total_reserved();
        if !limit.has_room_for(self.spent + reserved + reservation.amount) {
            return ChargeOutcome::BudgetReserved { reserved };
        }
        self.open.insert(call.to_owned(), reservation.clone());
        ChargeOutcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: BudgetLimit = BudgetLimit { nano_usd: Some(100), tokens: None };

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn nano(nano: u64) -> Amount {
        Amount { nano_usd: nano, tokens: 0 }
    }

    fn reserve(call: &str, run: u64, amount: u64, period_start: u64) -> AccountRequest {
        let reservation = CallReservation { run: run.to_string(), amount: nano(amount), until: at(1_000) };
        AccountRequest::Reserve { call: call.to_owned(), reservation, limit: LIMIT, period_start: at(period_start) }
    }

    fn settle(call: &str, run: u64, used: u64) -> AccountRequest {
        AccountRequest::Settle { call: call.to_owned(), run: run.to_string(), used: nano(used) }
    }

    fn after(requests: &[AccountRequest]) -> (Account, ChargeOutcome) {
        let mut account = Account::default();
        let outcome = requests.iter().map(|request| account.apply(request, at(10))).last();
        (account, outcome.unwrap_or(ChargeOutcome::Done))
    }

    #[test]
    fn a_call_reserves_and_settles_once_however_often_it_asks() {
        let (account, _) =
            after(&[reserve("a", 1, 60, 1), reserve("a", 1, 60, 1), settle("a", 1, 40), settle("a", 1, 40)]);
        assert_eq!((account.spent, account.open.len()), (nano(40), 0));
    }

    #[test]
    fn what_is_spent_or_held_is_not_given_again() {
        assert_eq!(after(&[reserve("a", 1, 101, 1)]).1, ChargeOutcome::BudgetSpent { spent: nano(0) });
        assert_eq!(
            after(&[reserve("a", 1, 60, 1), reserve("b", 1, 50, 1)]).1,
            ChargeOutcome::BudgetReserved { reserved: nano(60) }
        );
        let spent = [reserve("a", 1, 60, 1), settle("a", 1, 70), reserve("b", 1, 50, 1)];
        assert_eq!(after(&spent).1, ChargeOutcome::BudgetSpent { spent: nano(70) });
        // A call may cost more than was thought: that is booked all the same.
        assert_eq!(after(&[reserve("a", 1, 60, 1), settle("a", 1, 500)]).0.spent, nano(500));
    }

    #[test]
    fn a_call_that_is_made_again_books_what_its_dead_gateway_had_reserved() {
        let taken_over = [reserve("a", 1, 30, 1), reserve("a", 2, 30, 1), settle("a", 1, 5), settle("a", 2, 7)];
        let (account, _) = after(&taken_over);
        assert_eq!((account.spent, account.open.len()), (nano(37), 0));
        let (account, _) = after(&[reserve("a", 1, 30, 1), AccountRequest::ChargeAbandoned { call: "a".to_owned() }]);
        assert_eq!((account.spent, account.open.len()), (nano(30), 0));
    }

    #[test]
    fn a_reservation_that_nobody_comes_back_to_is_booked_when_its_time_is_over() {
        let (mut account, _) = after(&[reserve("a", 1, 30, 1)]);
        let outcome = account.apply(&reserve("b", 1, 10, 1), at(1_001));
        assert_eq!((account.spent, account.total_reserved(), outcome), (nano(30), nano(10), ChargeOutcome::Done));
    }

    #[test]
    fn a_new_period_begins_at_nothing_but_for_what_runs() {
        let (account, outcome) =
            after(&[reserve("a", 1, 60, 1), settle("a", 1, 60), reserve("b", 1, 40, 1), reserve("c", 1, 60, 2)]);
        assert_eq!((account.spent, account.total_reserved(), outcome), (nano(0), nano(100), ChargeOutcome::Done));
        // A clock that is behind does not bring the old one back.
        let (account, _) = after(&[reserve("a", 1, 60, 2), settle("a", 1, 60), reserve("b", 1, 1, 1)]);
        assert_eq!(account.spent, nano(60));
    }
}
