//! What gateways share through the bus: the rates of providers' keys, and the budgets of tenants and agents.

pub mod account;
pub mod entry;
pub mod rate;

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

use crate::failure::Failure;
use crate::job::Job;
use account::{Account, Amount, Ask, Booked, Ceiling, Reserved};
use entry::Entries;
use rate::{Level, Turn};

/// How long after a call's deadline its reservation is booked if nobody has settled it.
const GRACE: Duration = Duration::from_mins(1);
/// Pause before a budget that running calls hold is asked again, and before a settlement that was not stored.
const PAUSE: Duration = Duration::from_secs(1);

/// The shared limits, as one gateway sees them.
#[derive(Debug)]
pub struct Limits {
    /// This gateway's name: no other one has it, nor had.
    name: String,
    runs: AtomicU64,
    levels: Entries<Level>,
    accounts: Entries<Account>,
}

/// What was reserved for a try of a call.
#[derive(Debug)]
struct Reservation {
    keys: Vec<String>,
    call: String,
    run: String,
}

impl Limits {
    /// Begins; `tasks` own what writes, under this gateway's name.
    pub fn start(bus: &Bus, clock: &Arc<dyn Clock>, name: &str, tasks: &Tasks) -> Self {
        let (levels, write) = Entries::new(bus.clone(), clock.clone(), name.to_owned(), tasks.token());
        tasks.spawn("rates", write);
        let (accounts, write) = Entries::new(bus.clone(), clock.clone(), name.to_owned(), tasks.token());
        tasks.spawn("budgets", write);
        Self { name: name.to_owned(), runs: AtomicU64::new(0), levels, accounts }
    }

    /// A turn to ask a provider for so many tokens: after which wait, or a refusal where that is over `patience`.
    pub async fn turn(
        &self,
        provider: &str,
        rates: Rates,
        tokens: u64,
        patience: Duration,
    ) -> Result<Result<Duration, Failure>, BusError> {
        if rates.is_none() {
            return Ok(Ok(Duration::ZERO));
        }
        let ask = (rates, rate::Ask::Take { tokens, patience });
        Ok(match self.levels.ask(rate_key(provider), ask).await? {
            Turn::After(wait) => Ok(wait),
            Turn::TooLong(wait) => {
                let message = format!("the limit that models.yaml sets for the provider {provider} is used up");
                Err(Failure { retry_after: Some(wait), ..Failure::new(FailureKind::RateLimited, message) })
            }
        })
    }

    /// A reply has come: what it took takes the place of what was thought. Nobody waits for it; one that is lost makes the
    /// limit a little wrong for a minute.
    pub fn correct(&self, provider: &str, rates: Rates, thought: u64, took: u64) {
        if rates.tokens_per_minute.is_none() || thought == took {
            return;
        }
        let more = i64::try_from(took).unwrap_or(i64::MAX).saturating_sub(i64::try_from(thought).unwrap_or(i64::MAX));
        self.levels.tell(rate_key(provider), (rates, rate::Ask::Correct { more }));
    }

    /// A reservation in every budget that a try of a call counts against. Nothing is reserved yet.
    fn reservation(&self, job: &Job, budgets: &[&Budget]) -> Reservation {
        let run = format!("{}.{}", self.name, self.runs.fetch_add(1, Ordering::Relaxed));
        let keys = budgets.iter().map(|budget| budget_key(budget, job)).collect();
        Reservation { keys, call: name(job), run }
    }

    /// Reserves what a try may cost, everywhere or nowhere.
    async fn reserve(
        &self,
        reservation: &Reservation,
        job: &Job,
        budgets: &[&Budget],
        amount: Amount,
        now: Timestamp,
    ) -> Result<Result<(), Failure>, BusError> {
        for (budget, key) in budgets.iter().zip(&reservation.keys) {
            let nano = budget.usd.map(|usd| Amount::new(usd, 0).nano);
            let ask = Ask::Reserve {
                call: reservation.call.clone(),
                reserved: Reserved { run: reservation.run.clone(), amount, until: job.meta().deadline.after(GRACE) },
                ceiling: Ceiling { nano, tokens: budget.tokens },
                since: budget.per.start(now),
            };
            let refused = match self.accounts.ask(key.clone(), ask).await {
                Ok(Booked::Done) => continue,
                Ok(Booked::Spent { spent }) => Ok(Err(spent_up(budget, job, spent, amount, now))),
                Ok(Booked::Held { held }) => Ok(Err(held_up(budget, job, held, amount))),
                // It may have been stored all the same.
                Err(error) => Err(error),
            };
            // Nothing was asked of a provider: nothing of it is booked.
            self.settle(reservation, Amount::default()).await;
            return refused;
        }
        Ok(Ok(()))
    }

    /// Settles what a try did cost, wherever it had reserved. Returns when that is stored: until then nobody is told of the
    /// call's end.
    async fn settle(&self, reservation: &Reservation, used: Amount) {
        let Reservation { keys, call, run } = reservation;
        for key in keys {
            let ask = || Ask::Settle { call: call.clone(), run: run.clone(), used };
            while let Err(error) = self.accounts.ask(key.clone(), ask()).await {
                if error.is_final() {
                    tracing::error!(key, call, %error, "cost not booked");
                    break;
                }
                tracing::warn!(key, call, %error, "cost not booked yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Books what an earlier run of a call left open, where the call is not made again.
    pub async fn forfeit(&self, job: &Job, budgets: &[&Budget]) -> Result<(), BusError> {
        for budget in budgets {
            self.accounts.ask(budget_key(budget, job), Ask::Forfeit { call: name(job) }).await?;
        }
        Ok(())
    }
}

/// What the tries of one call reserve and settle, one after the other. It outlives them, since each may be dropped at any
/// point, also while it reserves.
#[derive(Debug, Default)]
pub struct Charge {
    open: Option<Open>,
}

/// The try that has reserved, or is about to.
#[derive(Debug)]
struct Open {
    reservation: Reservation,
    reserved: Amount,
    /// What it cost, once that is known; it may not be stored yet.
    cost: Option<Amount>,
}

impl Charge {
    /// Reserves for a try what it may cost; the one before must be settled.
    pub async fn reserve(
        &mut self,
        limits: &Limits,
        job: &Job,
        budgets: &[&Budget],
        amount: Amount,
        now: Timestamp,
    ) -> Result<Result<(), Failure>, BusError> {
        let open =
            self.open.insert(Open { reservation: limits.reservation(job, budgets), reserved: amount, cost: None });
        let reserved = limits.reserve(&open.reservation, job, budgets, amount, now).await;
        if !matches!(reserved, Ok(Ok(()))) {
            self.open = None;
        }
        reserved
    }

    /// Settles what the try did cost. Where that was begun before and dropped, what was said then counts.
    pub async fn settle(&mut self, limits: &Limits, cost: Amount) {
        if let Some(open) = &mut self.open {
            let cost = *open.cost.get_or_insert(cost);
            limits.settle(&open.reservation, cost).await;
        }
        self.open = None;
    }

    /// Books what the try had reserved: nobody knows what it did cost.
    pub async fn forfeit(&mut self, limits: &Limits) {
        let reserved = self.open.as_ref().map_or(Amount::default(), |open| open.reserved);
        self.settle(limits, reserved).await;
    }
}

/// A call by its name in an account.
fn name(job: &Job) -> String {
    format!("{}/{}", job.key.session, job.call)
}

fn rate_key(provider: &str) -> String {
    format!("rate.{}", token(provider))
}

fn budget_key(budget: &Budget, job: &Job) -> String {
    let (tenant, per) = (&job.key.tenant, budget.per);
    match budget.scope {
        BudgetScope::Tenant => format!("budget.{tenant}.{per}"),
        BudgetScope::EachAgent | BudgetScope::Agent(_) => {
            format!("budget.{tenant}.{per}.{}", token(&job.meta().agent))
        }
    }
}

/// A name as a token of a key: what a key cannot hold is written as `=` and two digits.
fn token(name: &str) -> String {
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

fn whose(budget: &Budget, job: &Job) -> String {
    let tenant = &job.key.tenant;
    match budget.scope {
        BudgetScope::Tenant => format!("the tenant {tenant}"),
        BudgetScope::EachAgent | BudgetScope::Agent(_) => format!("the agent {} of tenant {tenant}", job.meta().agent),
    }
}

fn sums(budget: &Budget, so_far: &str, sum: Amount, amount: Amount) -> String {
    let mut sums = Vec::new();
    if let Some(usd) = budget.usd {
        sums.push(format!("of {usd} USD {:.4} {so_far}, this call may cost {:.4}", sum.usd(), amount.usd()));
    }
    if let Some(tokens) = budget.tokens {
        sums.push(format!("of {tokens} tokens {} {so_far}, this call may take {}", sum.tokens, amount.tokens));
    }
    sums.join("; ")
}

fn spent_up(budget: &Budget, job: &Job, spent: Amount, amount: Amount, now: Timestamp) -> Failure {
    let (whose, per, sums) = (whose(budget, job), budget.per, sums(budget, "are spent", spent, amount));
    let message = format!(
        "the budget of {whose} per {per} does not reach: {sums}. It begins anew at {}; it is set in models.yaml",
        per.end(now)
    );
    Failure::new(FailureKind::Quota, message)
}

fn held_up(budget: &Budget, job: &Job, held: Amount, amount: Amount) -> Failure {
    let (whose, per, sums) = (whose(budget, job), budget.per, sums(budget, "are held by running calls", held, amount));
    let message = format!("the budget of {whose} per {per} does not reach as long as other calls run: {sums}");
    Failure { retry_after: Some(PAUSE), ..Failure::new(FailureKind::RateLimited, message) }
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
