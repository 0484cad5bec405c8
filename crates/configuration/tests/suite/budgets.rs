//! Budgets of `models.yaml`: their periods, which of them applies, and what makes one refused.

use configuration::models::{self, ModelsFile, Period};
use configuration::{ConfigError, TextFile};
use contract::{TenantId, Timestamp};

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
    models::parse(&TextFile { origin: "models.yaml".to_owned(), text })
}

#[test]
fn several_budgets_apply_most_specific_of_each_period_counts() {
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
fn model_under_any_id_has_the_price_of_its_entry() {
    let text = "providers: {p: {kind: openai_chat, base_url: 'http://p'}, q: {kind: openai_chat, base_url: 'http://q'}}\n\
                models: {m: {provider: p, prices: {input: 3.0}}, n: {provider: p, model: up, prices: {input: 4.0}}}\n";
    let file = TextFile { origin: "models.yaml".to_owned(), text: text.to_owned() };
    let models = models::parse(&file).unwrap();
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
fn invalid_budget_is_refused() {
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
