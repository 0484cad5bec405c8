//! Rights that a credential grants.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use contract::{AgentId, ErrorCode, TenantId, Timestamp};
use governor::clock::Clock as _;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use service::connections::ConnectionLimits;
use service::pace::Pace;
use session_api::Scope;
use tokio_util::sync::CancellationToken;

use crate::api_error::ApiError;
use crate::clock;
use crate::fair_queue::{Flow, FlowOwner};

/// Rights of the holder of a credential, with the tenant and the name of the holder.
#[derive(Debug)]
pub struct Grant {
    pub(crate) tenant: TenantId,
    /// Name of the holder in the log.
    pub(crate) subject: String,
    pub(crate) scopes: BTreeSet<Scope>,
    /// Whether the credential names its scopes. One that does not grants all of them.
    pub names_scopes: bool,
    /// The agents whose sessions the holder reaches; all of them where none are given.
    pub(crate) agents: Option<BTreeSet<AgentId>>,
    pub(crate) expires: Option<Timestamp>,
    /// Cancelled when the credential is removed or replaced.
    pub(crate) revoked: CancellationToken,
    /// Limits of the holder over all connections; `None` if many clients show the same credential.
    pub(super) limits: Option<Arc<HolderLimits>>,
}

/// Limits on the requests of one holder, on this replica.
#[derive(Debug)]
pub(super) struct HolderLimits {
    pace: Arc<Pace>,
    requests: Option<RequestLimit>,
}

/// Requests in a minute of one holder.
#[derive(Debug)]
struct RequestLimit {
    per_minute: NonZeroU32,
    limiter: DefaultDirectRateLimiter,
}

impl HolderLimits {
    /// Limits for a holder who has sent nothing yet. A minute's requests may come at once.
    pub(super) fn new(limits: &ConnectionLimits, per_minute: Option<NonZeroU32>) -> Arc<Self> {
        let requests = per_minute
            .map(|per_minute| RequestLimit { per_minute, limiter: RateLimiter::direct(Quota::per_minute(per_minute)) });
        Arc::new(Self { pace: limits.new_pace(), requests })
    }
}

impl Grant {
    /// Grants everything in a tenant, without an end.
    pub(crate) fn full(tenant: TenantId, subject: impl Into<String>) -> Self {
        Self {
            tenant,
            subject: subject.into(),
            scopes: Scope::ALL.iter().copied().collect(),
            names_scopes: false,
            agents: None,
            expires: None,
            revoked: CancellationToken::new(),
            limits: None,
        }
    }

    /// Grants these scopes, which the credential names.
    #[must_use]
    pub(crate) fn with_scopes(mut self, scopes: BTreeSet<Scope>) -> Self {
        (self.scopes, self.names_scopes) = (scopes, true);
        self
    }

    /// Refuses a credential that was removed or is too old.
    pub fn check_valid(&self) -> Result<(), ApiError> {
        if self.revoked.is_cancelled() {
            let message = format!("the credential of {} was revoked: use another one", self.subject);
            return Err(ApiError::new(ErrorCode::Unauthorized, message));
        }
        match self.expires {
            Some(expires) if clock::now() >= expires => {
                let message = format!("the credential of {} expired at {expires}: get a new one", self.subject);
                Err(ApiError::new(ErrorCode::Unauthorized, message))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a request, and refuses it over the limit.
    pub fn count_request(&self) -> Result<(), ApiError> {
        let requests = self.limits.as_ref().and_then(|limits| limits.requests.as_ref());
        let Some(RequestLimit { per_minute, limiter }) = requests else { return Ok(()) };
        limiter.check().map_err(|until| {
            let message = format!("{} made more than {per_minute} requests in a minute", self.subject);
            let after = until.wait_time_from(governor::clock::DefaultClock::default().now());
            ApiError::new(ErrorCode::Overloaded, message).with_retry_after(after)
        })
    }

    /// Whether the holder reaches sessions of an agent.
    pub fn allows_agent(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|allowed| allowed.as_str() == agent))
    }

    /// Waits until the credential is no longer valid; returns why.
    pub async fn wait_for_end(&self) -> ApiError {
        loop {
            if let Err(error) = self.check_valid() {
                return error;
            }
            let left = self.expires.map(|expires| expires.since(clock::now()));
            let expired = async {
                match left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.revoked.cancelled() => {}
                () = expired => {}
            }
        }
    }
}

/// The client that sends a request, after authentication.
#[derive(Debug, Clone)]
pub struct ApiCaller {
    /// Tenant of the credential.
    pub tenant: TenantId,
    /// Scopes and agents that the credential grants.
    pub grant: Arc<Grant>,
    /// The address from which the client sends.
    pub(crate) address: IpAddr,
    /// Share of the fair queue that pays for the client's requests.
    pub(crate) flow: Flow,
    /// Pace at which the client's requests are read.
    pub pace: Arc<Pace>,
}

impl ApiCaller {
    /// Makes the caller of a request from an address, on a connection of this number and pace.
    pub(crate) fn new(grant: Arc<Grant>, address: IpAddr, connection: u64, pace: &Arc<Pace>) -> Self {
        let (owner, pace) = match &grant.limits {
            Some(limits) => {
                let (tenant, subject) = (grant.tenant.clone(), grant.subject.clone());
                (FlowOwner::Holder { tenant, subject }, &limits.pace)
            }
            None => (FlowOwner::Address(address), pace),
        };
        let (flow, pace) = (Flow { owner, connection }, pace.clone());
        Self { tenant: grant.tenant.clone(), grant, address, flow, pace }
    }

    /// Name of the client in the log.
    pub fn subject(&self) -> &str {
        &self.grant.subject
    }

    /// Name of the client that no client of another tenant has.
    pub fn name(&self) -> String {
        format!("{}/{}", self.tenant, self.subject())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_over_the_limit_are_refused_with_a_time() {
        let limits = HolderLimits::new(&ConnectionLimits::default(), NonZeroU32::new(3));
        let grant = Grant { limits: Some(limits), ..Grant::full(TenantId::default(), "ci") };
        assert!((0..3).all(|_| grant.count_request().is_ok()));
        let refused = grant.count_request().unwrap_err();
        assert_eq!(refused.code, ErrorCode::Overloaded);
        let after = refused.retry_after.unwrap();
        assert!(after > std::time::Duration::from_secs(15) && after <= std::time::Duration::from_secs(20), "{after:?}");
    }

    #[tokio::test]
    async fn holder_has_one_flow_and_pace_wherever_requests_come_from() {
        let limits = ConnectionLimits::default();
        let caller = |grant: &Arc<Grant>, last: u8, connection| {
            ApiCaller::new(grant.clone(), IpAddr::from([10, 0, 0, last]), connection, &limits.new_pace())
        };
        let own = HolderLimits::new(&limits, None);
        let own = Arc::new(Grant { limits: Some(own), ..Grant::full(TenantId::default(), "ann") });
        let (one, two) = (caller(&own, 1, 1), caller(&own, 2, 2));
        assert!(one.flow.owner == two.flow.owner && Arc::ptr_eq(&one.pace, &two.pace));
        let shared = Arc::new(Grant::full(TenantId::default(), "client"));
        let (one, two) = (caller(&shared, 1, 1), caller(&shared, 2, 2));
        assert!(one.flow.owner != two.flow.owner && !Arc::ptr_eq(&one.pace, &two.pace));
    }

    #[tokio::test]
    async fn revoked_or_expired_grant_ends() {
        let grant = Grant::full(TenantId::default(), "ci");
        assert!(grant.check_valid().is_ok());
        grant.revoked.cancel();
        assert!(grant.wait_for_end().await.message.contains("revoked"));
        let old = Grant { expires: Some(clock::now()), ..Grant::full(TenantId::default(), "ci") };
        assert!(old.wait_for_end().await.message.contains("expired"));
    }
}
