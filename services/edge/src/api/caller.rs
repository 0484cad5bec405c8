//! Rights of a caller, so that a client offers nothing that would be refused.

use std::collections::BTreeSet;

use contract::{AgentId, TenantId};
use serde::Serialize;
use session_api::{Method, Scope};

use crate::access::ApiCaller;

/// The answer to `caller.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CallerInfo {
    /// As the credential names its holder.
    pub(crate) subject: String,
    pub(crate) tenant: TenantId,
    pub(crate) scopes: BTreeSet<Scope>,
    /// The agents whose sessions the caller reaches; absent if it reaches all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agents: Option<BTreeSet<AgentId>>,
    /// Names of the methods that the caller may use now.
    pub(crate) methods: Vec<&'static str>,
}

impl CallerInfo {
    /// Describes the credential of a caller.
    pub(crate) fn of(caller: &ApiCaller) -> Self {
        let usable = Method::ALL.iter().copied().filter(|method| caller.may_use(*method));
        Self {
            subject: caller.grant.subject.clone(),
            tenant: caller.tenant.clone(),
            scopes: caller.grant.scopes.clone(),
            agents: caller.grant.agents.clone(),
            methods: usable.map(Method::name).collect(),
        }
    }
}
