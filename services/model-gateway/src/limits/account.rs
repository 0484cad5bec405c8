//! The account of one budget: the amount spent in a period, and the amounts reserved by running calls.
//!
//! A call reserves its maximum cost before it is sent, and settles its actual cost before its result is reported. If a
//! gateway dies, its reservation stays open. The gateway that runs the call again charges it in full, since the actual
//! cost is unknown. If no gateway does, the reservation is charged when it expires.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};

use contract::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::SharedEntry;

const NANO_PER_USD: f64 = 1e9;

/// An amount of money and of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Amount {
    /// Billionths of a US dollar; a token costs thousands of them.
    pub(crate) nano_usd: u64,
    pub(crate) tokens: u64,
}

impl Amount {
    /// An amount in US dollars and tokens; a negative or NaN price counts as 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, as it should")]
    pub(crate) fn new(usd: f64, tokens: u64) -> Self {
        Self { nano_usd: (usd * NANO_PER_USD).round() as u64, tokens }
    }

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

/// Upper bounds of what may be spent in a period; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BudgetLimit {
    pub(crate) nano_usd: Option<u64>,
    pub(crate) tokens: Option<u64>,
}

impl BudgetLimit {
    fn has_room_for(self, amount: Amount) -> bool {
        self.nano_usd.is_none_or(|max| amount.nano_usd <= max) && self.tokens.is_none_or(|max| amount.tokens <= max)
    }
}

/// An account, shared by all gateways.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct BudgetAccount {
    /// Start of the period in which `spent` was spent.
    #[serde(rename = "since")]
    pub(crate) period_start: Timestamp,
    pub(crate) spent: Amount,
    /// Reservations of running calls, by `<session>/<call>.<attempt>`.
    pub(crate) open: BTreeMap<String, CallReservation>,
}

/// Reservation of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallReservation {
    /// The run that reserved; each run of a call has another name.
    pub(crate) run: String,
    /// Estimated maximum cost of the call.
    #[serde(flatten)]
    pub(crate) amount: Amount,
    /// Time at which the reservation expires.
    pub(crate) until: Timestamp,
}

/// A change of an account. Each change is idempotent.
#[derive(Debug, Clone)]
pub(crate) enum AccountRequest {
    /// Reserve the maximum cost of a call.
    Reserve {
        call: String,
        reservation: CallReservation,
        limit: BudgetLimit,
        /// Start of the current period.
        period_start: Timestamp,
    },
    /// Replace the reservation of a call by its actual cost.
    Settle { call: String, run: String, used: Amount },
    /// Charge the open reservation of a call in full, since the call is not run again.
    ChargeAbandoned { call: String },
}

/// Result of a change of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChargeOutcome {
    Done,
    /// The budget of this period is spent.
    BudgetSpent {
        spent: Amount,
    },
    /// The budget is reserved by calls that still run.
    BudgetReserved {
        reserved: Amount,
    },
}

impl SharedEntry for BudgetAccount {
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

impl BudgetAccount {
    /// Sum of the open reservations.
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

    fn after(requests: &[AccountRequest]) -> (BudgetAccount, ChargeOutcome) {
        let mut account = BudgetAccount::default();
        let outcome = requests.iter().map(|request| account.apply(request, at(10))).last();
        (account, outcome.unwrap_or(ChargeOutcome::Done))
    }

    #[test]
    fn reservation_and_settlement_repeated_count_once() {
        let (account, _) =
            after(&[reserve("a", 1, 60, 1), reserve("a", 1, 60, 1), settle("a", 1, 40), settle("a", 1, 40)]);
        assert_eq!((account.spent, account.open.len()), (nano(40), 0));
    }

    #[test]
    fn budget_spent_or_reserved_refuses_a_reservation() {
        assert_eq!(after(&[reserve("a", 1, 101, 1)]).1, ChargeOutcome::BudgetSpent { spent: nano(0) });
        assert_eq!(
            after(&[reserve("a", 1, 60, 1), reserve("b", 1, 50, 1)]).1,
            ChargeOutcome::BudgetReserved { reserved: nano(60) }
        );
        let spent = [reserve("a", 1, 60, 1), settle("a", 1, 70), reserve("b", 1, 50, 1)];
        assert_eq!(after(&spent).1, ChargeOutcome::BudgetSpent { spent: nano(70) });
        // A call may cost more than it reserved, and is charged in full.
        assert_eq!(after(&[reserve("a", 1, 60, 1), settle("a", 1, 500)]).0.spent, nano(500));
    }

    #[test]
    fn call_run_again_charges_the_reservation_of_the_first_run() {
        let taken_over = [reserve("a", 1, 30, 1), reserve("a", 2, 30, 1), settle("a", 1, 5), settle("a", 2, 7)];
        let (account, _) = after(&taken_over);
        assert_eq!((account.spent, account.open.len()), (nano(37), 0));
        let (account, _) = after(&[reserve("a", 1, 30, 1), AccountRequest::ChargeAbandoned { call: "a".to_owned() }]);
        assert_eq!((account.spent, account.open.len()), (nano(30), 0));
    }

    #[test]
    fn reservation_expired_is_charged_in_full() {
        let (mut account, _) = after(&[reserve("a", 1, 30, 1)]);
        let outcome = account.apply(&reserve("b", 1, 10, 1), at(1_001));
        assert_eq!((account.spent, account.total_reserved(), outcome), (nano(30), nano(10), ChargeOutcome::Done));
    }

    #[test]
    fn new_period_has_only_open_reservations() {
        let (account, outcome) =
            after(&[reserve("a", 1, 60, 1), settle("a", 1, 60), reserve("b", 1, 40, 1), reserve("c", 1, 60, 2)]);
        assert_eq!((account.spent, account.total_reserved(), outcome), (nano(0), nano(100), ChargeOutcome::Done));
        // A clock that is behind does not restore the old period.
        let (account, _) = after(&[reserve("a", 1, 60, 2), settle("a", 1, 60), reserve("b", 1, 1, 1)]);
        assert_eq!(account.spent, nano(60));
    }
}
