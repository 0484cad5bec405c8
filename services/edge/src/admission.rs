//! Whether the fleet has room for another turn: what is taken in waits in its stream for as long as it takes, so that too
//! much is better refused at the door.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bus::{Bus, BusError, Depth};
use contract::streams::{Queue, Stream};
use contract::{ErrorCode, TenantId, subject};
use serde::Serialize;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::guard::Caller;
use crate::sessions::Sessions;

/// How old a look at the queue may be.
const FRESH: Duration = Duration::from_secs(1);
/// When a client that was refused should try again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What is in the fleet's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Each queue.
    pub queues: Vec<QueueDepth>,
    /// Model calls that may wait before new turns are refused.
    pub waiting_calls_max: u64,
    /// Those of the caller's tenant among them.
    pub tenant_waiting_calls_max: u64,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueDepth {
    /// `drive` (inputs), `due` (timers), `model` or `tool` (calls).
    pub queue: &'static str,
    /// What is in it.
    #[serde(flatten)]
    pub depth: Depth,
}

/// How many model calls may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Of all tenants.
    pub(crate) all: u64,
    /// Of one tenant.
    pub(crate) tenant: u64,
}

/// How many wait.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    at: Instant,
    all: u64,
    /// Of the edge's tenant; never more than of all.
    tenant: u64,
}

/// The last look, shared by all requests of this replica.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    seen: Mutex<Option<Waiting>>,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, seen: Mutex::new(None) }
    }

    /// Refuses a turn when too many model calls wait for a gateway, of all tenants or of this one. A look that fails
    /// refuses nothing: the streams have limits of their own.
    pub(crate) async fn admit(&self, bus: &Bus, tenant: &TenantId) -> Result<(), Failure> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = match seen {
            Some(seen) if seen.at.elapsed() < FRESH => seen,
            Some(_) | None => {
                let Ok(waiting) = self.look(bus, tenant).await else { return Ok(()) };
                *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
                waiting
            }
        };
        let Waiting { all, tenant: own, .. } = waiting;
        let what = if all >= self.limits.all {
            format!("{all} model calls wait for a gateway already")
        } else if own >= self.limits.tenant {
            format!("{own} model calls of tenant {tenant} wait for a gateway already, which is its share")
        } else {
            return Ok(());
        };
        let message = format!("{what}; what was taken in goes on, try again later");
        Err(Failure::new(ErrorCode::Overloaded, message).retry_after(AGAIN_AFTER))
    }

    async fn look(&self, bus: &Bus, tenant: &TenantId) -> Result<Waiting, BusError> {
        let depth = bus.transport().depth(Queue::Model).await?;
        let (at, all) = (Instant::now(), depth.waiting);
        // To count a tenant's costs the server more, and below its limit of all nobody can be above it.
        if all < self.limits.tenant {
            return Ok(Waiting { at, all, tenant: 0 });
        }
        let own = bus.transport().count(Stream::Model, &subject::model_items_of(tenant)).await?;
        // The stream does not tell those that wait from those that are held: a tenant has as large a part of either.
        let (own, waiting, both) = (u128::from(own), u128::from(all), u128::from(all + depth.held));
        let tenant = u64::try_from(own * waiting / both.max(1)).unwrap_or(all).min(all);
        Ok(Waiting { at, all, tenant })
    }
}

impl Sessions {
    /// What waits in the fleet: how much is before whoever waits.
    pub async fn queues(&self, _: &Caller) -> Result<Queues, Failure> {
        let mut queues = Vec::new();
        for queue in Queue::ALL {
            let depth = self.bus().transport().depth(*queue).await?;
            queues.push(QueueDepth { queue: queue.durable(), depth });
        }
        let Limits { all, tenant } = self.admission().limits;
        Ok(Queues { queues, waiting_calls_max: all, tenant_waiting_calls_max: tenant })
    }
}
