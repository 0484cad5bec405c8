//! What gateways share through the bus: the rates of providers' keys, and the budgets of tenants and agents.

pub(crate) mod account;
pub(crate) mod entry;
pub(crate) mod rate;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::{Bus, BusError};
use contract::Timestamp;
use contract::model::FailureKind;
use service::clock::Clock;
use service::models::{Budget, BudgetScope, Rates};
use service::tasks::Tasks;

use crate::failure::CallFailure;
use crate::job::Job;
use account::{Account, AccountRequest, Amount, BudgetLimit, CallReservation, ChargeOutcome};
use entry::EntryWriter;
use rate::{Grant, TokenBucket};

/// How long after a call's deadline its reservation is booked if nobody has settled it.
const GRACE: Duration = Duration::from_mins(1);
/// Pause before a budget that running calls hold is asked again, and before a settlement that was not stored.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The shared limits, as one gateway sees them.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    /// This gateway's name: no other one has it, nor had.
    name: String,
    runs: AtomicU64,
    buckets: EntryWriter<TokenBucket>,
    accounts: EntryWriter<Account>,
}

/// What was reserved for a try of a call.
#[derive(Debug)]
struct TryReservation {
    keys: Vec<String>,
    call: String,
    run: String,
}

impl SharedLimits {
    /// Begins; `tasks` own what writes, under this gateway's name.
    pub(crate) fn start(bus: &Bus, clock: &Arc<dyn Clock>, name: &str, tasks: &Tasks) -> Self {
        let (buckets, write) = EntryWriter::new(bus.clone(), clock.clone(), name.to_owned(), tasks.token());
        tasks.spawn("rates", write);
        let (accounts, write) = EntryWriter::new(bus.clone(), clock.clone(), name.to_owned(), tasks.token());
        tasks.spawn("budgets", write);
        Self { name: name.to_owned(), runs: AtomicU64::new(0), buckets, accounts }
    }

    /// A turn to ask a provider for so many tokens: after which wait, or a refusal where that is over `patience`.
    pub(crate) async fn acquire_rate(
        &self,
        provider: &str,
        rates: Rates,
        tokens: u64,
        max_wait: Duration,
    ) -> Result<Result<Duration, CallFailure>, BusError> {
        if rates.is_none() {
            return Ok(Ok(Duration::ZERO));
        }
        let request = (rates, rate::RateRequest::Take { tokens, max_wait });
        Ok(match self.buckets.submit(rate_key(provider), request).await? {
            Grant::After(wait) => Ok(wait),
            Grant::TooLong(wait) => {
                let message = format!("the limit that models.yaml sets for the provider {provider} is used up");
                Err(CallFailure { retry_after: Some(wait), ..CallFailure::new(FailureKind::RateLimited, message) })
            }
        })
    }

    /// A reply has come: what it took takes the place of what was thought. Nobody waits for it; one that is lost makes the
    /// limit a little wrong for a minute.
    pub(crate) fn correct_rate(&self, provider: &str, rates: Rates, estimated: u64, used: u64) {
        if rates.tokens_per_minute.is_none() || estimated == used {
            return;
        }
        let difference =
            i64::try_from(used).unwrap_or(i64::MAX).saturating_sub(i64::try_from(estimated).unwrap_or(i64::MAX));
        self.buckets.submit_without_reply(rate_key(provider), (rates, rate::RateRequest::Correct { difference }));
    }

    /// A reservation in every budget that a try of a call counts against. Nothing is reserved yet.
    fn reservation(&self, job: &Job, budgets: &[&Budget]) -> TryReservation {
        let run = format!("{}.{}", self.name, self.runs.fetch_add(1, Ordering::Relaxed));
        let keys = budgets.iter().map(|budget| budget_key(budget, job)).collect();
        TryReservation { keys, call: call_name(job), run }
    }

    /// Reserves what a try may cost, everywhere or nowhere.
    async fn reserve(
        &self,
        reservation: &TryReservation,
        job: &Job,
        budgets: &[&Budget],
        amount: Amount,
        now: Timestamp,
    ) -> Result<Result<(), CallFailure>, BusError> {
        for (budget, key) in budgets.iter().zip(&reservation.keys) {
            let nano_usd = budget.usd.map(|usd| Amount::new(usd, 0).nano_usd);
            let request = AccountRequest::Reserve {
                call: reservation.call.clone(),
                reservation: CallReservation {
                    run: reservation.run.clone(),
                    amount,
                    until: job.meta().deadline.after(GRACE),
                },
                limit: BudgetLimit { nano_usd, tokens: budget.tokens },
                period_start: budget.per.start(now),
            };
            let refusal = match self.accounts.submit(key.clone(), request).await {
                Ok(ChargeOutcome::Done) => continue,
                Ok(ChargeOutcome::BudgetSpent { spent }) => Ok(Err(spent_failure(budget, job, spent, amount, now))),
                Ok(ChargeOutcome::BudgetReserved { reserved }) => {
                    Ok(Err(reserved_failure(budget, job, reserved, amount)))
                }
                // It may have been stored all the same.
                Err(error) => Err(error),
            };
            // Nothing was asked of a provider: nothing of it is booked.
            self.settle(reservation, Amount::default()).await;
            return refusal;
        }
        Ok(Ok(()))
    }

    /// Settles what a try did cost, wherever it had reserved. Returns when that is stored: until then nobody is told of the
    /// call's end.
    async fn settle(&self, reservation: &TryReservation, used: Amount) {
        let TryReservation { keys, call, run } = reservation;
        for key in keys {
            let request = || AccountRequest::Settle { call: call.clone(), run: run.clone(), used };
            while let Err(error) = self.accounts.submit(key.clone(), request()).await {
                if error.is_final() {
                    tracing::error!(key, call, %error, "cost not booked");
                    break;
                }
                tracing::warn!(key, call, %error, "cost not booked yet");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Books what an earlier run of a call left open, where the call is not made again.
    pub(crate) async fn charge_abandoned(&self, job: &Job, budgets: &[&Budget]) -> Result<(), BusError> {
        for budget in budgets {
            self.accounts
                .submit(budget_key(budget, job), AccountRequest::ChargeAbandoned { call: call_name(job) })
                .await?;
        }
        Ok(())
    }
}

/// What the tries of one call reserve and settle, one after the other. It outlives them, since each may be dropped at any
/// point, also while it reserves.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    open: Option<OpenCharge>,
}

/// The try that has reserved, or is about to.
#[derive(Debug)]
struct OpenCharge {
    reservation: TryReservation,
    reserved: Amount,
    /// What it cost, once that is known; it may not be stored yet.
    cost: Option<Amount>,
}

impl Charge {
    /// Reserves for a try what it may cost; the one before must be settled.
    pub(crate) async fn reserve(
        &mut self,
        limits: &SharedLimits,
        job: &Job,
        budgets: &[&Budget],
        amount: Amount,
        now: Timestamp,
    ) -> Result<Result<(), CallFailure>, BusError> {
        let open = self.open.insert(OpenCharge {
            reservation: limits.reservation(job, budgets),
            reserved: amount,
            cost: None,
        });
        let reserved = limits.reserve(&open.reservation, job, budgets, amount, now).await;
        if !matches!(reserved, Ok(Ok(()))) {
            self.open = None;
        }
        reserved
    }

    /// Settles what the try did cost. Where that was begun before and dropped, what was said then counts.
    pub(crate) async fn settle(&mut self, limits: &SharedLimits, cost: Amount) {
        if let Some(open) = &mut self.open {
            let cost = *open.cost.get_or_insert(cost);
            limits.settle(&open.reservation, cost).await;
        }
        self.open = None;
    }

    /// Books what the try had reserved: nobody knows what it did cost.
    pub(crate) async fn charge_abandoned(&mut self, limits: &SharedLimits) {
        let reserved = self.open.as_ref().map_or(Amount::default(), |open| open.reserved);
        self.settle(limits, reserved).await;
    }
}

/// A call by its name in an account.
fn call_name(job: &Job) -> String {
    format!("{}/{}", job.key.session, job.call)
}

fn rate_key(provider: &str) -> String {
    format!("rate.{}", to_key_token(provider))
}

fn budget_key(budget: &Budget, job: &Job) -> String {
    let (tenant, per) = (&job.key.tenant, budget.per);
    match budget.scope {
        BudgetScope::Tenant => format!("budget.{tenant}.{per}"),
        BudgetScope::EachAgent | BudgetScope::Agent(_) => {
            format!("budget.{tenant}.{per}.{}", to_key_token(&job.meta().agent))
        }
    }
}

/// A name as a token of a key: what a key cannot hold is written as `=` and two digits.
fn to_key_token(name: &str) -> String {
    let mut token = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            token.push(char::from(byte));
        } else {
            let _ = write!(token, "={byte:02x}");
        }
    }
    token
}

fn describe_owner(budget: &Budget, job: &Job) -> String {
    let tenant = &job.key.tenant;
    match budget.scope {
        BudgetScope::Tenant => format!("the tenant {tenant}"),
        BudgetScope::EachAgent | BudgetScope::Agent(_) => format!("the agent {} of tenant {tenant}", job.meta().agent),
    }
}

fn describe_amounts(budget: &Budget, so_far: &str, sum: Amount, amount: Amount) -> String {
    let mut sums = Vec::new();
    if let Some(usd) = budget.usd {
        sums.push(format!("of {usd} USD {:.4} {so_far}, this call may cost {:.4}", sum.usd(), amount.usd()));
    }
    if let Some(tokens) = budget.tokens {
        sums.push(format!("of {tokens} tokens {} {so_far}, this call may take {}", sum.tokens, amount.tokens));
    }
    sums.join("; ")
}

fn spent_failure(budget: &Budget, job: &Job, spent: Amount, amount: Amount, now: Timestamp) -> CallFailure {
    let (owner, per, amounts) =
        (describe_owner(budget, job), budget.per, describe_amounts(budget, "are spent", spent, amount));
    let message = format!(
        "the budget of {owner} per {per} does not reach: {amounts}. It begins anew at {}; it is set in models.yaml",
        per.end(now)
    );
    CallFailure::new(FailureKind::Quota, message)
}

fn reserved_failure(budget: &Budget, job: &Job, reserved: Amount, amount: Amount) -> CallFailure {
    let (owner, per, amounts) = (
        describe_owner(budget, job),
        budget.per,
        describe_amounts(budget, "are held by running calls", reserved, amount),
    );
    let message = format!("the budget of {owner} per {per} does not reach as long as other calls run: {amounts}");
    CallFailure { retry_after: Some(RETRY_PAUSE), ..CallFailure::new(FailureKind::RateLimited, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_providers_become_tokens_of_keys() {
        assert_eq!(rate_key("openai"), "rate.openai");
        assert_eq!(rate_key("a.b *>/\u{e4}"), "rate.a=2eb=20=2a=3e=2f=c3=a4");
    }
}
