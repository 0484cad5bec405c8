//! A cell as an edge uses it: a bus, and everything that is kept for the sessions on it.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, Head, Read};
use contract::subject::SessionKey;
use contract::{CommandId, TenantId};
use service::fresh::Fresh;
use service::health::Readiness;
use service::tasks::Tasks;

use crate::admission::AdmissionLimits;
use crate::command_waiters::CommandWaiters;
use crate::feed::Feeds;
use crate::tenants::{TenantState, Tenants};

/// Time for which names that the composer accepted are not checked again.
const NAMES_AGE_MAX: Duration = Duration::from_secs(10);
/// Bytes of the accepted names that are kept, with their requests.
const NAMES_BYTES_MAX: u64 = 1 << 20;

/// One set of streams, and what this replica keeps for the sessions in them.
#[derive(Debug)]
pub struct Cell {
    pub(crate) bus: Bus,
    pub(crate) command_waiters: CommandWaiters,
    /// Agents that the composer found lately, by the JSON of the request that named them: a start that names them again
    /// is not checked again. If they are gone meanwhile, the loop refuses the start.
    pub(crate) accepted_names: Fresh<String, String>,
    pub(crate) feeds: Feeds,
    pub(crate) tenants: Tenants,
}

impl Cell {
    /// Loads the head of a session. Only the leader is believed if there is none.
    pub(crate) async fn load_head(&self, key: &SessionKey) -> Result<Option<Head>, BusError> {
        match self.bus.head(key, Read::Any).await? {
            Some(head) => Ok(Some(head)),
            None => self.bus.head(key, Read::Leader).await,
        }
    }

    /// Returns the state of a tenant on this replica.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Arc<TenantState> {
        self.tenants.get(tenant)
    }
}

/// Values with which an edge opens a cell on its bus.
#[derive(Debug, Clone)]
pub struct CellOpener {
    /// Id of this replica.
    pub replica_id: CommandId,
    /// The edge's own tenant, whose index is always in memory.
    pub own: TenantId,
    /// Limits of the queues, beyond which nothing new begins.
    pub limits: AdmissionLimits,
    /// Tasks that end after the clients.
    pub tasks: Tasks,
    /// Readiness of the edge, as reported to an operator who asks the fleet of the cell.
    pub readiness: Readiness,
    /// Ready while a cell can be reached; its warning names the others.
    pub reached: Readiness,
}

impl CellOpener {
    /// Opens a cell whose streams are those of the bus: it starts the subscriptions of this replica, and loads the
    /// index of the edge's own tenant.
    pub async fn open(&self, bus: Bus) -> Result<Cell, BusError> {
        let Self { replica_id, own, limits, tasks, .. } = self;
        Ok(Cell {
            command_waiters: CommandWaiters::start(bus.clone(), replica_id.clone(), tasks).await?,
            accepted_names: Fresh::new(NAMES_AGE_MAX, NAMES_BYTES_MAX),
            feeds: Feeds::new(bus.clone(), tasks.clone()),
            tenants: Tenants::start(bus.clone(), own.clone(), *limits, tasks.clone()),
            bus,
        })
    }
}
