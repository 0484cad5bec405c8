//! Spending limits of tenants and agents: the `budgets` of `models.yaml`.

use contract::limits::BUDGETS_MAX;
use contract::{AgentId, TenantId, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;
use time::{Date, OffsetDateTime, Time};

use crate::error::ConfigError;
use crate::text_file::TextFile;
use crate::yaml;

/// Stands for each one by itself.
const EACH: &str = "*";

/// A checked entry of `budgets`.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetRule {
    /// Tenant of the budget; none: each tenant has one of its own.
    pub tenant: Option<TenantId>,
    /// Agents of the tenant whose spending counts.
    pub scope: BudgetScope,
    /// Period after which it begins anew.
    pub per: Period,
    /// Limit in US dollars, if any.
    pub usd: Option<f64>,
    /// Tokens of requests and replies.
    pub tokens: Option<u64>,
}

/// Agents whose spending counts against a tenant's budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetScope {
    /// The spending of all agents together.
    Tenant,
    /// Each agent has one of its own.
    EachAgent,
    /// The spending of one agent.
    Agent(AgentId),
}

contract::words! {
    /// Period after which a budget begins anew, in UTC.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(rename = "period")]
    pub enum Period {
        /// At the start of each hour.
        Hour = "hour",
        /// At each midnight, in UTC.
        Day = "day",
        /// On the first of each month.
        Month = "month",
    }

    /// Its name in `models.yaml`.
    fn as_str;
}

/// Spending limit of a tenant or an agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "budget")]
pub(super) struct BudgetShape {
    /// Tenant of the budget; `"*"`: each tenant has one of its own.
    tenant: String,
    /// Agent whose spending counts; `"*"`: each agent has a budget of its own. If it is absent, the spending of all
    /// agents of the tenant counts.
    #[serde(default)]
    agent: Option<String>,
    /// Period after which it begins anew, in UTC.
    per: Period,
    /// US dollars, after the prices of models.
    #[serde(default)]
    #[schemars(range(min = 0.0))]
    usd: Option<f64>,
    /// Tokens of requests and replies.
    #[serde(default)]
    tokens: Option<u64>,
}

impl Period {
    /// Returns the start of the period that contains `now`.
    pub fn start(self, now: Timestamp) -> Timestamp {
        let Some(at) = when(now) else { return Timestamp::default() };
        let at = match self {
            Self::Hour => Time::from_hms(at.hour(), 0, 0).map_or(at, |hour| at.replace_time(hour)),
            Self::Day => at.replace_time(Time::MIDNIGHT),
            Self::Month => at.replace_time(Time::MIDNIGHT).replace_day(1).unwrap_or(at),
        };
        millis(at)
    }

    /// Returns the start of the next period.
    pub fn end(self, now: Timestamp) -> Timestamp {
        let start = self.start(now);
        match self {
            Self::Hour => start.after(std::time::Duration::from_hours(1)),
            Self::Day => start.after(std::time::Duration::from_hours(24)),
            Self::Month => {
                let days = when(start).map_or(31, |at| at.month().length(at.year()));
                start.after(std::time::Duration::from_hours(24 * u64::from(days)))
            }
        }
    }
}

fn when(at: Timestamp) -> Option<OffsetDateTime> {
    let whole = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.as_millis()) * 1_000_000).ok()?;
    (whole.date() < Date::MAX).then_some(whole)
}

fn millis(at: OffsetDateTime) -> Timestamp {
    Timestamp::from_millis(u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default())
}

impl BudgetRule {
    /// Precedence of the rule: one that names a tenant comes before one for each tenant, then one that names an agent.
    pub fn rank(&self) -> (bool, bool) {
        (self.tenant.is_some(), matches!(self.scope, BudgetScope::Agent(_)))
    }

    fn is_of(&self, tenant: &TenantId, agent: &str) -> bool {
        let agent = match &self.scope {
            BudgetScope::Tenant | BudgetScope::EachAgent => true,
            BudgetScope::Agent(own) => own.as_str() == agent,
        };
        agent && self.tenant.as_ref().is_none_or(|own| own == tenant)
    }
}

/// The rules that an agent's calls count against: of each period one of the tenant and one of the agent, the most
/// particular ones.
pub(super) fn applying_to<'a>(rules: &'a [BudgetRule], tenant: &TenantId, agent: &str) -> Vec<&'a BudgetRule> {
    let mut found = Vec::new();
    for period in Period::ALL {
        for whole in [true, false] {
            let fits = rules.iter().filter(|rule| {
                rule.per == *period && (rule.scope == BudgetScope::Tenant) == whole && rule.is_of(tenant, agent)
            });
            found.extend(fits.max_by_key(|rule| rule.rank()));
        }
    }
    found
}

/// Checks the budgets of a file.
pub(super) fn check(file: &TextFile, shapes: Vec<Spanned<BudgetShape>>) -> Result<Vec<BudgetRule>, ConfigError> {
    let mut budgets: Vec<BudgetRule> = Vec::new();
    for shape in shapes {
        let refuse = |message: String| Err(yaml::at(file, shape.referenced, message));
        let BudgetShape { tenant, agent, per, usd, tokens } = &shape.value;
        let tenant = match tenant.as_str() {
            EACH => None,
            name => match TenantId::new(name) {
                Ok(tenant) => Some(tenant),
                Err(error) => return refuse(format!("a budget's tenant: {error}; or \"*\" for each")),
            },
        };
        let scope = match agent.as_deref() {
            None => BudgetScope::Tenant,
            Some(EACH) => BudgetScope::EachAgent,
            Some(name) => match AgentId::new(name) {
                Ok(agent) => BudgetScope::Agent(agent),
                Err(error) => return refuse(format!("a budget's agent: {error}; or \"*\" for each")),
            },
        };
        if usd.is_none() && tokens.is_none() {
            return refuse("a budget needs usd or tokens".to_owned());
        }
        if usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            return refuse("a budget's usd must not be below 0".to_owned());
        }
        let budget = BudgetRule { tenant, scope, per: *per, usd: *usd, tokens: *tokens };
        let same =
            |other: &&BudgetRule| (&other.tenant, &other.scope, other.per) == (&budget.tenant, &budget.scope, *per);
        if budgets.iter().find(same).is_some() {
            return refuse(format!("there are two budgets per {per} for the same tenant and agent"));
        }
        if budgets.len() == BUDGETS_MAX {
            return refuse(format!("there are more than {BUDGETS_MAX} budgets"));
        }
        budgets.push(budget);
    }
    Ok(budgets)
}
