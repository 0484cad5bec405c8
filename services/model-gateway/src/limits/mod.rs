//! Limits that gateways share through the bus: rates of providers' keys, and budgets of tenants and agents.

pub(crate) mod account;
pub(crate) mod entry;
pub(crate) mod rate;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::{Bus, BusError};
use configuration::models::{BudgetRule, BudgetScope, Rates};
use contract::Timestamp;
use contract::model::FailureKind;
use service::clock::Clock;
use service::tasks::Tasks;

use crate::failure::CallFailure;
use crate::job::ModelJob;
use account::{AccountRequest, Amount, BudgetAccount, BudgetLimit, CallReservation, ChargeOutcome};
use entry::EntryWriter;
use rate::{Grant, TokenBucket};

/// Time after the deadline of a call until its open reservation expires and is charged.
const GRACE: Duration = Duration::from_mins(1);
/// Pause before a call asks again for a budget that is reserved, and before a failed settlement is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Access of one gateway to the shared limits.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    /// Name of this gateway, unique among all gateways of all times.
    name: String,
    runs: AtomicU64,
    buckets: EntryWriter<TokenBucket>,
    accounts: EntryWriter<BudgetAccount>,
}

impl SharedLimits {
    /// Starts the tasks that write the limits under the name of this gateway.
    pub(crate) fn start(bus: &Bus, clock: &Arc<dyn Clock>, name: &str, tasks: &Tasks) -> Self {
        let (buckets, write) = EntryWriter::new(bus.clone(), clock.clone(), name.to_owned(), tasks.token());
        tasks.spawn("rates", write);
        let (accounts, write) = EntryWriter::new(bus.clone(), clock.clone(), name.to_owned(), tasks.token());
        tasks.spawn("budgets", write);
        Self { name: name.to_owned(), runs: AtomicU64::new(0), buckets, accounts }
    }

    /// Takes tokens from the rate limit of a provider. Returns the wait until the request may be sent, or a failure if
    /// the wait is longer than `max_wait`.
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
                let message = format!("the rate limit of the provider {provider} in models.yaml is used up");
                Err(CallFailure { retry_after: Some(wait), ..CallFailure::new(FailureKind::RateLimited, message) })
            }
        })
    }

    /// Replaces the estimated tokens of a request by the tokens that it used. No call waits for this; if it is lost,
    /// the limit is slightly off for a minute.
    pub(crate) fn correct_rate(&self, provider: &str, rates: Rates, estimated: u64, used: u64) {
        if rates.tokens_per_minute.is_none() || estimated == used {
            return;
        }
        let difference =
            i64::try_from(used).unwrap_or(i64::MAX).saturating_sub(i64::try_from(estimated).unwrap_or(i64::MAX));
        self.buckets.submit_without_reply(rate_key(provider), (rates, rate::RateRequest::Correct { difference }));
    }

    /// Names the reservation of a try in each of its budgets, without reserving yet.
    fn name_reservation(&self, job: &ModelJob, budgets: &[&BudgetRule], reserved: Amount) -> OpenCharge {
        let run = format!("{}.{}", self.name, self.runs.fetch_add(1, Ordering::Relaxed));
        let keys = budgets.iter().map(|budget| budget_key(budget, job)).collect();
        OpenCharge { keys, call: call_name(job), run, reserved, cost: None }
    }

    /// Reserves the maximum cost of a try in all budgets or in none.
    async fn reserve(
        &self,
        open: &OpenCharge,
        job: &ModelJob,
        budgets: &[&BudgetRule],
        now: Timestamp,
    ) -> Result<Result<(), CallFailure>, BusError> {
        let amount = open.reserved;
        for (budget, key) in budgets.iter().zip(&open.keys) {
            let nano_usd = budget.usd.map(|usd| Amount::new(usd, 0).nano_usd);
            let until = job.item.meta.deadline.after(GRACE);
            let request = AccountRequest::Reserve {
                call: open.call.clone(),
                reservation: CallReservation { run: open.run.clone(), amount, until },
                limit: BudgetLimit { nano_usd, tokens: budget.tokens },
                period_start: budget.per.start(now),
            };
            let refusal = match self.accounts.submit(key.clone(), request).await {
                Ok(ChargeOutcome::Done) => continue,
                Ok(ChargeOutcome::BudgetSpent { spent }) => Ok(Err(spent_failure(budget, job, spent, amount, now))),
                Ok(ChargeOutcome::BudgetReserved { reserved }) => {
                    Ok(Err(reserved_failure(budget, job, reserved, amount)))
                }
                // The reservation may have been stored nevertheless.
                Err(error) => Err(error),
            };
            // No request was sent, so release what was reserved.
            self.settle(open, Amount::default()).await;
            return refusal;
        }
        Ok(Ok(()))
    }

    /// Settles the actual cost of a try in all its budgets. Returns when the cost is stored, so that no result is
    /// reported before that.
    async fn settle(&self, open: &OpenCharge, used: Amount) {
        let OpenCharge { keys, call, run, .. } = open;
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

    /// Charges the open reservation of a call that is not run again.
    pub(crate) async fn charge_abandoned(&self, job: &ModelJob, budgets: &[&BudgetRule]) -> Result<(), BusError> {
        for budget in budgets {
            self.accounts
                .submit(budget_key(budget, job), AccountRequest::ChargeAbandoned { call: call_name(job) })
                .await?;
        }
        Ok(())
    }
}

/// Reservation of the current try of one call. It outlives the tries, since each may be dropped at any point, also
/// while it reserves.
#[derive(Debug, Default)]
pub(crate) struct CallCharge {
    open: Option<OpenCharge>,
}

/// The try that has reserved or is reserving.
#[derive(Debug)]
struct OpenCharge {
    /// Keys of its budgets.
    keys: Vec<String>,
    call: String,
    run: String,
    reserved: Amount,
    /// Actual cost, once it is known; it may not be stored yet.
    cost: Option<Amount>,
}

impl CallCharge {
    /// Reserves the maximum cost of a try. The try before must be settled.
    pub(crate) async fn reserve(
        &mut self,
        limits: &SharedLimits,
        job: &ModelJob,
        budgets: &[&BudgetRule],
        amount: Amount,
        now: Timestamp,
    ) -> Result<Result<(), CallFailure>, BusError> {
        let open = self.open.insert(limits.name_reservation(job, budgets, amount));
        let reserved = limits.reserve(open, job, budgets, now).await;
        if !matches!(reserved, Ok(Ok(()))) {
            self.open = None;
        }
        reserved
    }

    /// Settles the actual cost of the try. If an earlier settlement was dropped before it was stored, its cost counts.
    pub(crate) async fn settle(&mut self, limits: &SharedLimits, cost: Amount) {
        if let Some(open) = &mut self.open {
            let cost = *open.cost.get_or_insert(cost);
            limits.settle(open, cost).await;
        }
        self.open = None;
    }

    /// Charges the reservation of the try in full, since its actual cost is unknown.
    pub(crate) async fn charge_abandoned(&mut self, limits: &SharedLimits) {
        let reserved = self.open.as_ref().map_or(Amount::default(), |open| open.reserved);
        self.settle(limits, reserved).await;
    }
}

/// Name of a call in an account.
fn call_name(job: &ModelJob) -> String {
    format!("{}/{}", job.key.session, job.call)
}

fn rate_key(provider: &str) -> String {
    format!("rate.{}", to_key_token(provider))
}

fn budget_key(budget: &BudgetRule, job: &ModelJob) -> String {
    let name = match budget.scope {
        BudgetScope::Tenant => budget.per.to_string(),
        BudgetScope::EachAgent | BudgetScope::Agent(_) => {
            format!("{}.{}", budget.per, to_key_token(&job.item.meta.agent))
        }
    };
    account_key(job.key.tenant.as_str(), &name)
}

/// The key of a budget's account, by the tenant and the name of the budget: `day`, or `day.<agent>`.
pub(crate) fn account_key(tenant: &str, budget: &str) -> String {
    format!("budget.{tenant}.{budget}")
}

/// A name as a token of a key. Characters that a key cannot have are escaped as `=` and two hexadecimal digits.
pub(crate) fn to_key_token(name: &str) -> String {
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

fn describe_owner(budget: &BudgetRule, job: &ModelJob) -> String {
    let tenant = &job.key.tenant;
    match budget.scope {
        BudgetScope::Tenant => format!("the tenant {tenant}"),
        BudgetScope::EachAgent | BudgetScope::Agent(_) => {
            format!("the agent {} of tenant {tenant}", job.item.meta.agent)
        }
    }
}

fn describe_amounts(budget: &BudgetRule, so_far: &str, sum: Amount, amount: Amount) -> String {
    let mut sums = Vec::new();
    if let Some(usd) = budget.usd {
        sums.push(format!("of {usd} USD {:.4} {so_far}, this call may cost {:.4}", sum.usd(), amount.usd()));
    }
    if let Some(tokens) = budget.tokens {
        sums.push(format!("of {tokens} tokens {} {so_far}, this call may take {}", sum.tokens, amount.tokens));
    }
    sums.join("; ")
}

fn spent_failure(budget: &BudgetRule, job: &ModelJob, spent: Amount, amount: Amount, now: Timestamp) -> CallFailure {
    let (owner, per, amounts) =
        (describe_owner(budget, job), budget.per, describe_amounts(budget, "are spent", spent, amount));
    let message = format!(
        "the budget of {owner} per {per} is not sufficient: {amounts}. The next period begins at {}; models.yaml sets the budget",
        per.end(now)
    );
    CallFailure::new(FailureKind::Quota, message)
}

fn reserved_failure(budget: &BudgetRule, job: &ModelJob, reserved: Amount, amount: Amount) -> CallFailure {
    let (owner, per, amounts) = (
        describe_owner(budget, job),
        budget.per,
        describe_amounts(budget, "are reserved by running calls", reserved, amount),
    );
    let message = format!("the budget of {owner} per {per} is not sufficient while other calls run: {amounts}");
    CallFailure { retry_after: Some(RETRY_PAUSE), ..CallFailure::new(FailureKind::RateLimited, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_name_in_a_key_is_escaped() {
        assert_eq!(rate_key("openai"), "rate.openai");
        assert_eq!(rate_key("a.b *>/\u{e4}"), "rate.a=2eb=20=2a=3e=2f=c3=a4");
    }
}
