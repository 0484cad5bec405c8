//! The check of each request against what its caller was granted, and the audit log.

use contract::ErrorCode;
use contract::command::Start;
use session_api::{Method, Scope};

use super::grant::ApiCaller;
use crate::api_error::ApiError;

/// The result of the check that a caller may use the agent of a start. Only this module makes it, so no session is
/// started for a caller without the check.
#[derive(Debug)]
pub(crate) struct AllowedAgent(());

/// Checks that a caller may use a method now, and counts the request.
pub fn authorize(caller: &ApiCaller, method: Method, session: Option<&str>) -> Result<(), ApiError> {
    let outcome = check(caller, method).and_then(|()| caller.grant.count_request());
    audit(caller, method, session, &outcome);
    outcome
}

/// Checks that a caller may use another method for a request that was authorized and counted already.
pub fn authorize_part(caller: &ApiCaller, method: Method) -> Result<(), ApiError> {
    let outcome = check(caller, method);
    audit(caller, method, None, &outcome);
    outcome
}

impl ApiCaller {
    /// Whether the caller may use a method now, for what is offered to it. It is checked again when it is used.
    pub fn may_use(&self, method: Method) -> bool {
        check(self, method).is_ok()
    }

    /// Checks that the caller may use an agent, by its id.
    pub(crate) fn allow_agent(&self, agent: &str) -> Result<AllowedAgent, ApiError> {
        if self.grant.allows_agent(agent) {
            return Ok(AllowedAgent(()));
        }
        let message = format!("{} may not use the agent {agent}", self.subject());
        Err(ApiError::new(ErrorCode::Forbidden, message))
    }

    /// Refuses settings of a start to a caller that may only talk.
    pub(crate) fn check_settings(&self, start: &Start) -> Result<(), ApiError> {
        if self.grant.scopes.contains(&Scope::Run) {
            return Ok(());
        }
        let Some(field) = find_setting(start) else { return Ok(()) };
        let (subject, converse, run) = (self.subject(), Scope::Converse, Scope::Run);
        let message = format!("`{field}` needs the scope `{run}`, and {subject} has `{converse}`: leave the field out");
        Err(ApiError::new(ErrorCode::Forbidden, message))
    }

    /// Allows whatever agent the loop finds, for a caller that may use all of them.
    pub(crate) fn allow_any_agent(&self) -> Option<AllowedAgent> {
        self.grant.agents.is_none().then_some(AllowedAgent(()))
    }
}

/// Writes what was refused, and all administration and operation, to the audit log. A caller over its rate would fill it.
fn audit(caller: &ApiCaller, method: Method, session: Option<&str>, outcome: &Result<(), ApiError>) {
    let is_refused = outcome.as_ref().is_err_and(|error| error.code != ErrorCode::Overloaded);
    if is_refused || [Scope::Administer, Scope::Operate].contains(&method.scope()) {
        let outcome = outcome.as_ref().map_or_else(|error| error.code.as_str(), |()| "allowed");
        tracing::info!(
            target: "audit",
            tenant = %caller.tenant, subject = caller.subject(), method = method.name(), session, outcome,
            address = %caller.address,
            "access"
        );
    }
}

/// Finds the first field of a start that says how the agent works, and not what it is told.
fn find_setting(start: &Start) -> Option<&'static str> {
    let Start {
        agent: _,
        prompt: _,
        interactive: _,
        messages: _,
        resume_from: _,
        model,
        parameters,
        ai_config,
        continuation,
        features,
        tools,
        client_tools: _,
        streaming: _,
        parent,
    } = start;
    let settings = [
        ("model", model.is_some()),
        ("parameters", !parameters.is_empty()),
        ("ai_config", !ai_config.is_empty()),
        ("continuation", continuation.is_some()),
        ("features", !features.is_empty()),
        ("tools", tools.is_some()),
        ("parent", parent.is_some()),
    ];
    settings.into_iter().find_map(|(field, is_set)| is_set.then_some(field))
}

fn check(caller: &ApiCaller, method: Method) -> Result<(), ApiError> {
    let grant = &caller.grant;
    grant.check_valid()?;
    let forbidden = |why: String| Err(ApiError::new(ErrorCode::Forbidden, why));
    if !method.scopes().iter().any(|scope| grant.scopes.contains(scope)) {
        let has: Vec<&str> = grant.scopes.iter().map(|scope| scope.as_str()).collect();
        return forbidden(format!(
            "{} needs the scope {}, and {} has only: {}",
            method.name(),
            method.list_scopes(),
            grant.subject,
            has.join(", ")
        ));
    }
    if grant.agents.is_some() && !method.is_of_agents() {
        return forbidden(format!(
            "{} concerns all agents of the tenant, and {} is limited to some of them",
            method.name(),
            grant.subject
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::sync::Arc;

    use contract::TenantId;
    use service::connections::ConnectionLimits;

    use super::super::grant::Grant;
    use super::*;

    fn caller(scopes: &[Scope], agents: Option<&[&str]>) -> ApiCaller {
        let agents = agents.map(|agents| agents.iter().map(|agent| contract::AgentId::new(agent).unwrap()).collect());
        let scopes: BTreeSet<Scope> = scopes.iter().copied().collect();
        let grant = Grant { scopes, agents, ..Grant::full(TenantId::default(), "ci") };
        let pace = ConnectionLimits::default().new_pace();
        ApiCaller::new(Arc::new(grant), IpAddr::from([127, 0, 0, 1]), 1, &pace)
    }

    #[test]
    fn each_method_needs_exactly_its_scope() {
        for method in Method::ALL {
            for &scope in Scope::ALL {
                let outcome = authorize(&caller(&[scope], None), *method, None);
                assert_eq!(outcome.is_ok(), method.scopes().contains(&scope), "{} with {scope}", method.name());
            }
            let others: Vec<Scope> =
                Scope::ALL.iter().copied().filter(|scope| !method.scopes().contains(scope)).collect();
            let refused = authorize(&caller(&others, None), *method, None).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Forbidden);
            assert!(refused.message.contains(method.name()) && refused.message.contains("ci"), "{refused}");
        }
    }

    #[test]
    fn caller_that_may_only_talk_sets_nothing() {
        let talker = caller(&[Scope::Converse], None);
        let talk = r#"{"agent": "a", "prompt": "x", "interactive": true, "streaming": {}, "resume_from":
            {"session_id": "s"}, "messages": [{"role": "user", "content": "x"}]}"#;
        assert!(talker.check_settings(&serde_json::from_str(talk).unwrap()).is_ok());
        for (field, value) in [
            ("model", r#""m""#),
            ("parameters", r#"{"temperature": 1}"#),
            ("ai_config", r#"{"system_prompt": "x"}"#),
            ("continuation", r#"{"limits": {"tokens": 1}}"#),
            ("features", r#"{"enable": ["x"]}"#),
            ("tools", "[]"),
        ] {
            let start: Start = serde_json::from_str(&format!(r#"{{"prompt": "x", "{field}": {value}}}"#)).unwrap();
            let refused = talker.check_settings(&start).unwrap_err();
            let has_field = refused.message.contains(&format!("`{field}`"));
            assert!(refused.code == ErrorCode::Forbidden && has_field, "{field}: {refused}");
            assert!(caller(&[Scope::Run, Scope::Converse], None).check_settings(&start).is_ok(), "{field}");
        }
    }

    #[test]
    fn scope_of_a_tenant_shows_nothing_of_the_fleet() {
        let administrator = caller(&[Scope::Administer], None);
        for (method, is_allowed) in [
            (Method::ListDeadLetters, true),
            (Method::ResetBudget, false),
            (Method::GetStatus, false),
            (Method::GetQueues, false),
        ] {
            assert_eq!(authorize(&administrator, method, None).is_ok(), is_allowed, "{}", method.name());
            assert_eq!(authorize(&caller(&[Scope::Operate], None), method, None).is_ok(), !is_allowed);
        }
    }

    #[test]
    fn caller_of_some_agents_uses_no_method_of_the_whole_tenant() {
        let caller = caller(Scope::ALL, Some(&["writer"]));
        assert!(authorize(&caller, Method::ListSessions, None).is_ok());
        for method in [Method::ListMail, Method::ResetBudget, Method::GetStatus, Method::ListDeadLetters] {
            assert_eq!(authorize(&caller, method, None).unwrap_err().code, ErrorCode::Forbidden, "{}", method.name());
        }
    }
}
