//! Rights of a caller, so that a client offers nothing that would be refused.

use session_api::{Caller, Method};

use crate::access::ApiCaller;

/// Describes the credential of a caller.
pub fn describe_caller(caller: &ApiCaller) -> Caller {
    let usable = Method::ALL.iter().copied().filter(|method| caller.may_use(*method));
    Caller {
        subject: caller.grant.subject.clone(),
        tenant: caller.tenant.clone(),
        scopes: caller.grant.scopes.clone(),
        agents: caller.grant.agents.clone(),
        methods: usable.map(Method::name).collect(),
    }
}
