//! The check of each request against what its caller was granted, and the audit log.

use contract::ErrorCode;

use super::grant::{ApiCaller, Scope};
use crate::api_error::ApiError;
use crate::fair_queue::Flow;
use crate::method::Method;

/// Checks that a caller may use a method now, and counts the request.
pub(crate) fn authorize(caller: &ApiCaller, method: Method, session: Option<&str>) -> Result<(), ApiError> {
    let outcome = check(caller, method).and_then(|()| caller.grant.count_request());
    audit(caller, method, session, &outcome);
    outcome
}

/// Checks that a caller may use another method for a request that was authorized and counted already.
pub(crate) fn authorize_part(caller: &ApiCaller, method: Method) -> Result<(), ApiError> {
    let outcome = check(caller, method);
    audit(caller, method, None, &outcome);
    outcome
}

impl ApiCaller {
    /// Whether the caller may use a method now, for what is offered to it. It is checked again when it is used.
    pub(crate) fn may_use(&self, method: Method) -> bool {
        check(self, method).is_ok()
    }
}

/// Writes what was refused, and all administration, to the audit log. A caller over its rate would fill it.
fn audit(caller: &ApiCaller, method: Method, session: Option<&str>, outcome: &Result<(), ApiError>) {
    let is_refused = outcome.as_ref().is_err_and(|error| error.code != ErrorCode::Overloaded);
    if is_refused || method.scope() == Scope::Administer {
        let outcome = outcome.as_ref().map_or_else(|error| error.code.as_str(), |()| "allowed");
        tracing::info!(
            target: "audit",
            tenant = %caller.tenant, subject = caller.subject(), method = method.name(), session, outcome,
            address = %caller.flow.address,
            "access"
        );
    }
}

/// Writes a refused connection or request to the audit log.
pub(super) fn audit_refused_connection(flow: Flow, error: &ApiError) {
    tracing::info!(
        target: "audit",
        outcome = error.code.as_str(), reason = error.message, address = %flow.address,
        "access"
    );
}

fn check(caller: &ApiCaller, method: Method) -> Result<(), ApiError> {
    let grant = &caller.grant;
    grant.check_valid()?;
    let scope = method.scope();
    let forbidden = |why: String| Err(ApiError::new(ErrorCode::Forbidden, why));
    if !grant.scopes.contains(&scope) {
        let has: Vec<&str> = grant.scopes.iter().map(|scope| scope.as_str()).collect();
        return forbidden(format!(
            "{} needs the scope `{scope}`, and {} has only: {}",
            method.name(),
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
    use std::sync::Arc;

    use contract::TenantId;

    use super::super::grant::Grant;
    use super::*;

    fn caller(scopes: &[Scope], agents: Option<&[&str]>) -> ApiCaller {
        let agents = agents.map(|agents| agents.iter().map(|agent| contract::AgentId::new(agent).unwrap()).collect());
        let scopes: BTreeSet<Scope> = scopes.iter().copied().collect();
        let grant = Grant { scopes, agents, ..Grant::full(TenantId::default(), "ci") };
        ApiCaller::new(Arc::new(grant), Flow::default())
    }

    #[test]
    fn each_method_needs_exactly_its_scope() {
        for method in Method::ALL {
            for scope in Scope::ALL {
                let outcome = authorize(&caller(&[scope], None), *method, None);
                assert_eq!(outcome.is_ok(), method.scope() == scope, "{} with {scope}", method.name());
            }
            let others: Vec<Scope> = Scope::ALL.into_iter().filter(|scope| *scope != method.scope()).collect();
            let refused = authorize(&caller(&others, None), *method, None).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Forbidden);
            assert!(refused.message.contains(method.name()) && refused.message.contains("ci"), "{refused}");
        }
    }

    #[test]
    fn caller_of_some_agents_uses_no_method_of_the_whole_tenant() {
        let caller = caller(&Scope::ALL, Some(&["writer"]));
        assert!(authorize(&caller, Method::ListSessions, None).is_ok());
        for method in [Method::ListMail, Method::ResetBudget, Method::GetStatus, Method::ListDeadLetters] {
            assert_eq!(authorize(&caller, method, None).unwrap_err().code, ErrorCode::Forbidden, "{}", method.name());
        }
    }
}
