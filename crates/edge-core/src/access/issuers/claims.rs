//! The claims of a verified token, and what they grant (RFC 9068).

use std::collections::BTreeSet;
use std::time::Duration;

use contract::limits::API_KEY_AGENTS_MAX;
use contract::{AgentId, ErrorCode, TenantId, Timestamp};
use serde_json::{Map, Value};
use session_api::Scope;

use super::super::grant::Grant;
use crate::api_error::ApiError;
use crate::config::IssuerConfig;

/// Largest difference between the clocks of the issuer and of this machine.
pub(super) const LEEWAY: Duration = Duration::from_mins(1);
/// Bytes of the name of a holder.
const SUBJECT_BYTES_MAX: usize = 255;
/// The latest end of a token, beyond which a time cannot be written: the year 9999.
const END_MAX: Duration = Duration::from_secs(253_402_300_799);

/// Checks the claims of a token of this issuer, whose signature was verified, and makes its grant.
pub(super) fn to_grant(
    config: &IssuerConfig,
    default_tenant: &TenantId,
    claims: &Map<String, Value>,
    now: Timestamp,
) -> Result<Grant, ApiError> {
    let expires = check_times(claims, now).map_err(|why| unauthorized(&why))?;
    let is_own = |audience: &&str| config.audience.iter().any(|own| own == audience);
    if !words(claims.get("aud")).is_some_and(|audiences| audiences.iter().any(is_own)) {
        let own = config.audience.join(", ");
        return Err(unauthorized(&format!("its claim `aud` has none of the audiences of edge.issuers: {own}")));
    }
    check_subject(claims, "sub").map_err(|why| unauthorized(&why))?;
    let subject = check_subject(claims, &config.subject_claim).map_err(|why| forbidden(&why))?;
    let scopes = find_scopes(config, claims).map_err(|why| forbidden(&why))?;
    let tenant = find_tenant(config, default_tenant, claims).map_err(|why| forbidden(&why))?;
    let agents = config
        .agents_claim
        .as_ref()
        .map(|claim| find_agents(claims, claim))
        .transpose()
        .map_err(|why| forbidden(&why))?;
    Ok(Grant { agents, expires: Some(expires), ..Grant::full(tenant, subject).with_scopes(scopes) })
}

/// Checks `exp` and `nbf`; returns when the token ends.
fn check_times(claims: &Map<String, Value>, now: Timestamp) -> Result<Timestamp, String> {
    let expires = read_time(claims, "exp")?.ok_or("it has no claim `exp`")?.after(LEEWAY);
    if now >= expires {
        return Err("it expired: get a new one".to_owned());
    }
    match read_time(claims, "nbf")? {
        Some(begins) if begins > now.after(LEEWAY) => Err("its claim `nbf` lies in the future".to_owned()),
        Some(_) | None => Ok(expires),
    }
}

/// Reads seconds since 1970, with or without a fraction.
fn read_time(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, String> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let since = value.as_u64().map(Duration::from_secs);
    let since = since.or_else(|| Duration::try_from_secs_f64(value.as_f64()?).ok());
    let since = since.filter(|since| *since <= END_MAX).and_then(|since| u64::try_from(since.as_millis()).ok());
    since.map(|ms| Some(Timestamp::from_millis(ms))).ok_or_else(|| format!("its claim `{name}` is no time"))
}

fn check_subject(claims: &Map<String, Value>, name: &str) -> Result<String, String> {
    let subject = claims.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_name = (1..=SUBJECT_BYTES_MAX).contains(&subject.len())
        && !subject.chars().any(|character| character.is_control() || character.is_whitespace());
    if is_name {
        return Ok(subject.to_owned());
    }
    Err(format!("its claim `{name}` must have 1 to {SUBJECT_BYTES_MAX} bytes, without white space"))
}

fn find_scopes(config: &IssuerConfig, claims: &Map<String, Value>) -> Result<BTreeSet<Scope>, String> {
    let IssuerConfig { scope_claim, scope_prefix, .. } = config;
    let words = words(claims.get(scope_claim)).unwrap_or_default();
    let words = words.into_iter().flat_map(str::split_whitespace);
    let scopes: BTreeSet<Scope> =
        words.filter_map(|word| Scope::parse(word.strip_prefix(scope_prefix.as_str())?)).collect();
    if scopes.is_empty() {
        let known: Vec<String> = Scope::ALL.iter().map(|scope| format!("{scope_prefix}{scope}")).collect();
        return Err(format!("its claim `{scope_claim}` has none of the scopes {}", known.join(", ")));
    }
    Ok(scopes)
}

fn find_tenant(
    config: &IssuerConfig,
    default_tenant: &TenantId,
    claims: &Map<String, Value>,
) -> Result<TenantId, String> {
    let Some(claim) = &config.tenant_claim else {
        return Ok(config.tenant.as_ref().unwrap_or(default_tenant).clone());
    };
    let name = claims.get(claim).and_then(Value::as_str).ok_or_else(|| format!("it has no claim `{claim}`"))?;
    TenantId::new(name).map_err(|_| format!("its claim `{claim}` is no name of a tenant"))
}

fn find_agents(claims: &Map<String, Value>, claim: &str) -> Result<BTreeSet<AgentId>, String> {
    let names = words(claims.get(claim)).unwrap_or_default();
    let names: BTreeSet<&str> = names.into_iter().flat_map(str::split_whitespace).collect();
    if !(1..=API_KEY_AGENTS_MAX).contains(&names.len()) {
        return Err(format!("its claim `{claim}` must name 1 to {API_KEY_AGENTS_MAX} agents"));
    }
    let agents: Result<_, _> = names.into_iter().map(AgentId::new).collect();
    agents.map_err(|_| format!("its claim `{claim}` has a word that is no name of an agent"))
}

/// The texts of a claim, which is one text or a list of them.
fn words(claim: Option<&Value>) -> Option<Vec<&str>> {
    if let Some(Value::Array(list)) = claim {
        return list.iter().map(Value::as_str).collect();
    }
    claim.and_then(Value::as_str).map(|text| vec![text])
}

/// Error for a token that is not valid here.
pub(super) fn unauthorized(why: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, format!("the access token is refused: {why}"))
}

/// Error for a token that is valid, and grants nothing.
fn forbidden(why: &str) -> ApiError {
    ApiError::new(ErrorCode::Forbidden, format!("the access token grants nothing: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn grant(config: &Value, claims: &Value) -> Result<Grant, ApiError> {
        let mut settings = json!({"issuer": "https://i.example.org", "audience": "ailoop"});
        settings.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        let config: IssuerConfig = serde_json::from_value(settings).unwrap();
        let mut all = json!({"aud": "ailoop", "sub": "ann", "exp": NOW + 60, "scope": "openid ailoop:run"});
        for (name, value) in claims.as_object().unwrap() {
            if value.is_null() {
                all.as_object_mut().unwrap().remove(name);
            } else {
                all[name] = value.clone();
            }
        }
        let now = Timestamp::from_millis(NOW * 1_000);
        to_grant(&config, &TenantId::new("own").unwrap(), all.as_object().unwrap(), now)
    }

    #[test]
    fn claims_choose_tenant_subject_scopes_and_agents() {
        let plain = grant(&json!({}), &json!({})).unwrap();
        assert_eq!((plain.tenant.as_str(), &*plain.subject), ("own", "ann"));
        assert_eq!((plain.scopes, plain.agents), ([Scope::Run].into(), None));
        assert_eq!(plain.expires, Some(Timestamp::from_millis((NOW + 120) * 1_000)));
        let config = json!({"tenant_claim": "org", "subject_claim": "email", "scope_claim": "scp", "scope_prefix": "",
            "agents_claim": "agents"});
        let claims = json!({"org": "acme", "email": "ann@example.org", "scp": ["observe", "approve fly"],
            "agents": ["a", "b"], "aud": ["other", "ailoop"]});
        let full = grant(&config, &claims).unwrap();
        assert_eq!((full.tenant.as_str(), &*full.subject), ("acme", "ann@example.org"));
        assert_eq!(full.scopes, [Scope::Observe, Scope::Approve].into());
        assert!(full.allows_agent("b") && !full.allows_agent("c"));
        assert_eq!(grant(&json!({"tenant": "t"}), &json!({})).unwrap().tenant.as_str(), "t");
        let several = json!({"audience": ["https://e.example.org/mcp", "https://e.example.org"]});
        assert!(grant(&several, &json!({"aud": "https://e.example.org"})).is_ok());
        assert!(grant(&several, &json!({"aud": "ailoop"})).is_err());
    }

    #[test]
    fn claim_that_is_missing_or_wrong_is_refused() {
        let unauthorized = [
            (json!({"exp": null}), "exp"),
            (json!({"exp": "1"}), "exp"),
            (json!({"exp": -1}), "exp"),
            (json!({"exp": 1e300}), "exp"),
            (json!({"exp": u64::MAX}), "exp"),
            (json!({"exp": NOW - 60}), "expired"),
            (json!({"exp": NOW - 59, "nbf": NOW + 61}), "nbf"),
            (json!({"nbf": "now"}), "nbf"),
            (json!({"aud": null}), "aud"),
            (json!({"aud": "ailoop2"}), "aud"),
            (json!({"aud": []}), "aud"),
            (json!({"aud": ["a", "b"]}), "aud"),
            (json!({"aud": ["ailoop", 7]}), "aud"),
            (json!({"aud": "ailoop other"}), "aud"),
            (json!({"sub": null}), "sub"),
            (json!({"sub": ""}), "sub"),
            (json!({"sub": "a\nb"}), "sub"),
            (json!({"sub": 7}), "sub"),
        ];
        for (claims, wanted) in unauthorized {
            let refused = grant(&json!({}), &claims).unwrap_err();
            assert!(refused.code == ErrorCode::Unauthorized && refused.message.contains(wanted), "{wanted}: {refused}");
        }
        let config = json!({"tenant_claim": "org", "agents_claim": "agents", "subject_claim": "email"});
        let good = json!({"org": "acme", "agents": "a", "email": "e"});
        assert!(grant(&config, &good).is_ok());
        let forbidden = [
            (json!({"scope": null}), "ailoop:run, ailoop:converse"),
            (json!({"scope": "run observe"}), "scope"),
            (json!({"scope": "ailoop:fly xailoop:run AILOOP:run"}), "scope"),
            (json!({"org": null}), "org"),
            (json!({"org": "a.b"}), "org"),
            (json!({"org": ["acme"]}), "org"),
            (json!({"agents": null}), "agents"),
            (json!({"agents": []}), "agents"),
            (json!({"agents": "a.b"}), "agents"),
            (json!({"agents": (0..65).map(|n| format!("a{n}")).collect::<Vec<_>>()}), "agents"),
            (json!({"email": "a b"}), "email"),
        ];
        for (claims, wanted) in forbidden {
            let mut all = good.clone();
            all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
            let refused = grant(&config, &all).unwrap_err();
            assert!(refused.code == ErrorCode::Forbidden && refused.message.contains(wanted), "{wanted}: {refused}");
        }
        assert!(grant(&json!({}), &json!({"exp": NOW - 59, "nbf": NOW + 60})).is_ok(), "within the leeway");
    }
}
