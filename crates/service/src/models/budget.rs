//! What tenants and agents may spend: the `budgets` of `models.yaml`.

use std::fmt;

use contract::limits::BUDGETS_MAX;
use contract::{AgentId, TenantId, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;
use time::{Date, OffsetDateTime, Time};

use super::ModelsFile;
use crate::config::ConfigError;
use crate::paths::TextFile;
use crate::yaml;

/// Stands for each one by itself.
const EACH: &str = "*";

/// A budget, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// Whose it is; none: each tenant has one of its own.
    pub tenant: Option<TenantId>,
    /// Of which agents of the tenant.
    pub scope: BudgetScope,
    /// When it begins anew.
    pub per: Period,
    /// US dollars.
    pub usd: Option<f64>,
    /// Tokens of requests and replies.
    pub tokens: Option<u64>,
}

/// Whose spending counts against a tenant's budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetScope {
    /// All of it.
    Tenant,
    /// Each agent has one of its own.
    EachAgent,
    /// That of one agent.
    Agent(AgentId),
}

/// When a budget begins anew, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "period")]
pub enum Period {
    /// With each hour.
    Hour,
    /// At midnight.
    Day,
    /// On the first of each month.
    Month,
}

/// What a tenant or an agent may spend.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "budget")]
pub(super) struct BudgetShape {
    /// Whose it is; `"*"`: each tenant has one of its own.
    tenant: String,
    /// Whose spending counts: one agent's, `"*"` for each agent by itself; all of the tenant's where none is given.
    #[serde(default)]
    agent: Option<String>,
    /// When it begins anew, in UTC.
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
    /// Every period.
    pub const ALL: &'static [Self] = &[Self::Hour, Self::Day, Self::Month];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// When the one began that `now` is in.
    pub fn start(self, now: Timestamp) -> Timestamp {
        let Some(at) = when(now) else { return Timestamp::default() };
        let at = match self {
            Self::Hour => Time::from_hms(at.hour(), 0, 0).map_or(at, |hour| at.replace_time(hour)),
            Self::Day => at.replace_time(Time::MIDNIGHT),
            Self::Month => at.replace_time(Time::MIDNIGHT).replace_day(1).unwrap_or(at),
        };
        millis(at)
    }

    /// When the next one begins.
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

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn when(at: Timestamp) -> Option<OffsetDateTime> {
    let whole = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.as_millis()) * 1_000_000).ok()?;
    (whole.date() < Date::MAX).then_some(whole)
}

fn millis(at: OffsetDateTime) -> Timestamp {
    Timestamp::from_millis(u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default())
}

impl Budget {
    /// How particular it is: one that names a tenant before one for each, then one that names an agent.
    fn rank(&self) -> (bool, bool) {
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

impl ModelsFile {
    /// The budgets that an agent's calls count against: of each period one of the tenant and one of the agent, the most
    /// particular ones.
    pub fn budgets_of(&self, tenant: &TenantId, agent: &str) -> Vec<&Budget> {
        let mut found = Vec::new();
        for period in Period::ALL {
            for whole in [true, false] {
                let fits = self.budgets.iter().filter(|budget| {
                    budget.per == *period
                        && (budget.scope == BudgetScope::Tenant) == whole
                        && budget.is_of(tenant, agent)
                });
                found.extend(fits.max_by_key(|budget| budget.rank()));
            }
        }
        found
    }
}

/// Checks the budgets of a file.
pub(super) fn check(file: &TextFile, shapes: Vec<Spanned<BudgetShape>>) -> Result<Vec<Budget>, ConfigError> {
    let mut budgets: Vec<Budget> = Vec::new();
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
        let budget = Budget { tenant, scope, per: *per, usd: *usd, tokens: *tokens };
        let same = |other: &&Budget| (&other.tenant, &other.scope, other.per) == (&budget.tenant, &budget.scope, *per);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn periods_begin_and_end_in_utc() {
        let now = at("2024-02-29T13:45:06.789Z");
        let both = |period: Period| (period.start(now), period.end(now));
        assert_eq!(both(Period::Hour), (at("2024-02-29T13:00:00Z"), at("2024-02-29T14:00:00Z")));
        assert_eq!(both(Period::Day), (at("2024-02-29T00:00:00Z"), at("2024-03-01T00:00:00Z")));
        assert_eq!(both(Period::Month), (at("2024-02-01T00:00:00Z"), at("2024-03-01T00:00:00Z")));
        assert_eq!(Period::Month.end(at("2025-12-31T23:59:59.999Z")), at("2026-01-01T00:00:00Z"));
    }

    fn parse(budgets: &str) -> Result<ModelsFile, ConfigError> {
        let text = format!("budgets:\n{budgets}");
        super::super::parse(&TextFile { origin: "models.yaml".to_owned(), text })
    }

    #[test]
    fn the_most_particular_budget_of_each_period_counts() {
        let models = parse(
            "
  - {tenant: '*', per: day, usd: 1}
  - {tenant: acme, per: day, usd: 2}
  - {tenant: '*', per: month, usd: 3}
  - {tenant: '*', agent: '*', per: day, usd: 4}
  - {tenant: '*', agent: scout, per: day, usd: 5}
  - {tenant: acme, agent: '*', per: day, tokens: 6}
",
        )
        .unwrap();
        let of = |tenant: &str, agent: &str| -> Vec<f64> {
            let found = models.budgets_of(&TenantId::new(tenant).unwrap(), agent);
            found.iter().map(|budget| budget.usd.unwrap_or(-1.0)).collect()
        };
        assert_eq!(of("acme", "scout"), [2.0, -1.0, 3.0]);
        assert_eq!(of("other", "scout"), [1.0, 5.0, 3.0]);
        assert_eq!(of("other", "e"), [1.0, 4.0, 3.0]);
    }

    #[test]
    fn a_model_costs_what_its_entry_says_however_it_is_asked_for() {
        let text = "providers: {p: {kind: openai_chat, base_url: 'http://p'}, q: {kind: openai_chat, base_url: 'http://q'}}\n\
                    models: {m: {provider: p, prices: {input: 3.0}}, n: {provider: p, model: up, prices: {input: 4.0}}}\n";
        let file = TextFile { origin: "models.yaml".to_owned(), text: text.to_owned() };
        let models = super::super::parse(&file).unwrap();
        let price = |id: &str| models.resolve(id).unwrap().entry.prices.map(|prices| prices.input);
        for (id, expected) in [
            ("m", Some(3.0)),
            ("p/m", Some(3.0)),
            ("p/m-2025", Some(3.0)),
            ("p/up", Some(4.0)),
            ("p/other", None),
            ("q/m", None),
        ] {
            assert_eq!(price(id), expected, "{id}");
        }
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        for (bad, why) in [
            ("  - {tenant: Acme, per: day, usd: 1}", "tenant"),
            ("  - {tenant: a, agent: 'x y', per: day, usd: 1}", "agent"),
            ("  - {tenant: a, per: day}", "needs usd or tokens"),
            ("  - {tenant: a, per: day, usd: -1}", "below 0"),
            ("  - {tenant: a, per: year, usd: 1}", "year"),
            ("  - {tenant: a, per: day, usd: 1}\n  - {tenant: a, per: day, tokens: 1}", "two budgets"),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
