//! A cell as an edge uses it: a bus, and everything that is kept for the sessions on it.

use std::sync::Arc;

use bus::{Bus, BusError, Head, Read};
use contract::subject::SessionKey;
use contract::{CommandId, TenantId};
use service::tasks::Tasks;

use crate::accepted_names::AcceptedNames;
use crate::admission::AdmissionLimits;
use crate::command_waiters::CommandWaiters;
use crate::tenants::{TenantState, Tenants};
use crate::watch::feed::Feeds;

/// One set of streams, and what this replica keeps for the sessions in them.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) bus: Bus,
    pub(crate) command_waiters: CommandWaiters,
    pub(crate) accepted_names: AcceptedNames,
    pub(crate) feeds: Feeds,
    pub(crate) tenants: Tenants,
}

impl Cell {
    /// Starts the subscriptions of this replica on a bus, and loads the index of the edge's own tenant.
    pub(crate) async fn open(
        bus: Bus,
        replica_id: &CommandId,
        own: &TenantId,
        limits: AdmissionLimits,
        tasks: &Tasks,
    ) -> Result<Self, BusError> {
        Ok(Self {
            command_waiters: CommandWaiters::start(bus.clone(), replica_id.clone(), tasks).await?,
            accepted_names: AcceptedNames::default(),
            feeds: Feeds::new(bus.clone(), tasks.clone()),
            tenants: Tenants::start(bus.clone(), own.clone(), limits, tasks.clone()),
            bus,
        })
    }

    /// Loads the head of a session. Only the leader is believed if there is none.
    pub(crate) async fn load_head(&self, key: &SessionKey) -> Result<Option<Head>, BusError> {
        match self.bus.head(key, Read::Any).await? {
            Some(head) => Ok(Some(head)),
            None => self.bus.head(key, Read::Leader).await,
        }
    }

    /// What this replica keeps for a tenant.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Arc<TenantState> {
        self.tenants.get(tenant)
    }
}
