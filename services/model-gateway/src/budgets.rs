//! Answers what tenants and agents have spent, and measures it for the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError};
use configuration::models::{BudgetRule, BudgetScope};
use contract::budget::{BudgetReply, BudgetRequest, BudgetStatus};
use contract::streams::Bucket;
use contract::{Coded as _, ErrorCode, TenantId, Timestamp};
use futures::FutureExt;
use service::clock::Clock;
use service::reload::Reload;
use tokio_util::sync::CancellationToken;

use crate::limits::account::{Amount, BudgetAccount};
use crate::limits::{account_key, to_key_token};
use crate::provider::Providers;

/// Pause between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(15);

/// The budgets that this gateway knows, and the accounts that all gateways share.
#[derive(Clone)]
pub(crate) struct Budgets {
    pub(crate) bus: Bus,
    pub(crate) providers: Arc<Reload<Providers>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Budgets {
    /// Answers requests and measures, until the end.
    pub(crate) async fn run(self, ending: CancellationToken) {
        let serve = || {
            let this = self.clone();
            self.bus.serve_budgets(move |request| {
                let this = this.clone();
                async move { this.answer(request).await }.boxed()
            })
        };
        let serving = bus::rpc::serve_until_cancelled(&ending, serve);
        tokio::join!(serving, ending.run_until_cancelled(self.measure()));
    }

    async fn answer(&self, request: BudgetRequest) -> BudgetReply {
        let answered = match &request {
            BudgetRequest::List { tenant } => self.list(tenant).await.map(BudgetReply::Budgets),
            BudgetRequest::Reset { tenant, budget } => self.reset(tenant, budget).await,
        };
        answered.unwrap_or_else(|error| BudgetReply::Refused { code: error.code(), message: error.to_string() })
    }

    async fn list(&self, tenant: &TenantId) -> Result<Vec<BudgetStatus>, BusError> {
        let providers = self.providers.get();
        let accounts = self.accounts(tenant).await?;
        Ok(statuses(providers.budgets(), tenant, &accounts, self.clock.now()))
    }

    async fn reset(&self, tenant: &TenantId, budget: &str) -> Result<BudgetReply, BusError> {
        let before = self.list(tenant).await?;
        if !before.iter().any(|status| status.budget == budget) {
            let known: Vec<&str> = before.iter().map(|status| status.budget.as_str()).collect();
            let known = if known.is_empty() { "models.yaml has none".to_owned() } else { known.join(", ") };
            let message = format!("there is no budget {budget:?} with an account: {known}");
            return Ok(BudgetReply::Refused { code: ErrorCode::UnknownBudget, message });
        }
        self.bus.transport().kv_delete(Bucket::Limits, &account_key(tenant.as_str(), budget)).await?;
        tracing::warn!(%tenant, budget, "a budget was reset by an operator");
        self.list(tenant).await.map(BudgetReply::Budgets)
    }

    /// The accounts of a tenant by the names of their budgets.
    async fn accounts(&self, tenant: &TenantId) -> Result<BTreeMap<String, BudgetAccount>, BusError> {
        let entries = self.bus.transport().kv_list(Bucket::Limits, &account_key(tenant.as_str(), ">")).await?;
        Ok(entries
            .iter()
            .filter_map(|(key, entry)| read_account(key, entry))
            .map(|(_, name, found)| (name, found))
            .collect())
    }

    /// Measures the accounts of all tenants again and again.
    async fn measure(&self) {
        loop {
            tokio::time::sleep(MEASURE_EVERY).await;
            if self.providers.get().budgets().is_empty() {
                continue;
            }
            let entries = match self.bus.transport().kv_list(Bucket::Limits, &account_key("*", ">")).await {
                Ok(entries) => entries,
                Err(error) => {
                    tracing::debug!(%error, "the budgets were not measured");
                    continue;
                }
            };
            let mut by_tenant: BTreeMap<TenantId, BTreeMap<String, BudgetAccount>> = BTreeMap::new();
            for (tenant, name, account) in entries.iter().filter_map(|(key, entry)| read_account(key, entry)) {
                by_tenant.entry(tenant).or_default().insert(name, account);
            }
            for (tenant, accounts) in &by_tenant {
                for status in statuses(self.providers.get().budgets(), tenant, accounts, self.clock.now()) {
                    telemetry::metric::budget(tenant.as_str(), &status.budget, status.spent_ratio());
                }
            }
        }
    }
}

/// The tenant, the budget's name and the account of an entry; none of an entry that cannot be read.
fn read_account(key: &str, entry: &[u8]) -> Option<(TenantId, String, BudgetAccount)> {
    let (tenant, name) = key.strip_prefix("budget.")?.split_once('.')?;
    Some((tenant.parse().ok()?, name.to_owned(), serde_json::from_slice(entry).ok()?))
}

/// The budgets of a tenant with their accounts. A budget that each agent has is there for those agents that have spent.
fn statuses(
    rules: &[BudgetRule],
    tenant: &TenantId,
    accounts: &BTreeMap<String, BudgetAccount>,
    now: Timestamp,
) -> Vec<BudgetStatus> {
    let mut found: BTreeMap<String, BudgetStatus> = BTreeMap::new();
    let mut of_tenant: Vec<&BudgetRule> =
        rules.iter().filter(|rule| rule.tenant.as_ref().is_none_or(|own| own == tenant)).collect();
    // The most particular rule counts, as for a call: it comes last.
    of_tenant.sort_by_key(|rule| rule.rank());
    for rule in of_tenant {
        let per = rule.per.as_str();
        let names: Vec<(String, Option<String>)> = match &rule.scope {
            BudgetScope::Tenant => vec![(per.to_owned(), None)],
            BudgetScope::Agent(agent) => {
                vec![(format!("{per}.{}", to_key_token(agent.as_str())), Some(agent.to_string()))]
            }
            BudgetScope::EachAgent => {
                let agents =
                    accounts.keys().filter_map(|name| Some((name, name.strip_prefix(per)?.strip_prefix('.')?)));
                agents.map(|(name, agent)| (name.clone(), Some(agent.to_owned()))).collect()
            }
        };
        for (name, agent) in names {
            found.insert(name.clone(), status(rule, name.clone(), agent, accounts.get(&name), now));
        }
    }
    found.into_values().collect()
}

fn status(
    rule: &BudgetRule,
    budget: String,
    agent: Option<String>,
    account: Option<&BudgetAccount>,
    now: Timestamp,
) -> BudgetStatus {
    let (spent, reserved, running) = account.map_or_else(Default::default, |account| {
        // What was spent in an earlier period does not count any more.
        let is_current = account.period_start >= rule.per.start(now);
        let spent = if is_current { account.spent } else { Amount::default() };
        (spent, account.total_reserved(), account.open.len() as u64)
    });
    BudgetStatus {
        budget,
        agent,
        per: rule.per.to_string(),
        usd_max: rule.usd,
        tokens_max: rule.tokens,
        usd_spent: spent.usd(),
        tokens_spent: spent.tokens,
        usd_reserved: reserved.usd(),
        tokens_reserved: reserved.tokens,
        running,
        ends: rule.per.end(now),
    }
}

#[cfg(test)]
mod tests {
    use configuration::models::Period;

    use super::*;

    fn rule(scope: BudgetScope, usd: f64) -> BudgetRule {
        BudgetRule { tenant: None, scope, per: Period::Day, usd: Some(usd), tokens: Some(1_000) }
    }

    #[test]
    fn budgets_of_a_tenant_have_their_accounts_of_this_period() {
        let now = Timestamp::parse("2026-01-15T10:30:00Z").unwrap();
        let account = |since: &str, usd: f64| BudgetAccount {
            period_start: Timestamp::parse(since).unwrap(),
            spent: Amount::new(usd, 10),
            open: BTreeMap::new(),
        };
        let accounts = BTreeMap::from([
            ("day".to_owned(), account("2026-01-15T00:00:00Z", 1.5)),
            ("day.a".to_owned(), account("2026-01-14T00:00:00Z", 9.0)),
            ("day.e".to_owned(), account("2026-01-15T00:00:00Z", 2.0)),
            ("hour".to_owned(), account("2026-01-15T10:00:00Z", 7.0)),
        ]);
        let rules = [
            rule(BudgetScope::Agent("e".parse().unwrap()), 4.0),
            rule(BudgetScope::EachAgent, 5.0),
            rule(BudgetScope::Tenant, 3.0),
        ];
        let found = statuses(&rules, &TenantId::default(), &accounts, now);
        let rows: Vec<_> =
            found.iter().map(|status| (status.budget.as_str(), status.usd_max, status.usd_spent)).collect();
        assert_eq!(rows, [("day", Some(3.0), 1.5), ("day.a", Some(5.0), 0.0), ("day.e", Some(4.0), 2.0)]);
        assert!((found[0].spent_ratio() - 0.5).abs() < 1e-9);
        assert_eq!(found[0].ends.to_string(), "2026-01-16T00:00:00.000Z");
        assert!(statuses(&[], &TenantId::default(), &accounts, now).is_empty());
    }
}
