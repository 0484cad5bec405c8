//! Admission control: an accepted command stays in its stream until it is handled, so a turn is refused if too much
//! waits or is stored already.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::{Bus, BusError, Depth, Storage};
use contract::command::Verb;
use contract::streams::{Objects, Queue, Stream};
use contract::{ErrorCode, SessionId, TenantId, subject};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::session_index::SessionIndex;

/// Age up to which a measurement of the queues is used.
const LOAD_AGE_MAX: Duration = Duration::from_secs(1);
/// Retry delay for a client whose turn was refused.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Age up to which a measurement of all stored bytes is used.
const STORED_AGE_MAX: Duration = Duration::from_secs(2);
/// Age up to which a count of one tenant's stored bytes is used.
const STORED_COUNT_AGE_MAX: Duration = Duration::from_secs(30);
/// Retry delay for a client whose tenant has too much stored: space becomes free slowly.
const STORED_RETRY_AFTER: Duration = Duration::from_mins(1);
/// Longest time for which a start counts as a session while the index does not show it.
const RECENT_START_AGE_MAX: Duration = Duration::from_secs(10);
/// Maximum number of starts that are remembered until the index shows them.
const RECENT_STARTS_MAX: usize = 10_000;

/// Limits of an edge for new turns and sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionLimits {
    pub(crate) all: u64,
    /// Waiting model calls of the tenant.
    pub(crate) tenant: u64,
    /// Waiting turns of the tenant.
    pub(crate) turns: u64,
    /// Open tool calls of the tenant.
    pub(crate) tool_calls: u64,
    pub(crate) sessions: usize,
    /// Bytes of the tenant in the log and the archive.
    pub(crate) stored_bytes: u64,
}

/// A measurement of what waits.
#[derive(Debug, Clone, Copy)]
struct QueueLoad {
    at: Instant,
    /// Model calls of all tenants.
    all: u64,
    /// Model calls of the edge's tenant; never more than `all`.
    tenant: u64,
    /// Turns of the edge's tenant: its model calls, and its commands that begin a turn.
    turns: u64,
    /// Open tool calls of the edge's tenant.
    tool_calls: u64,
}

/// A measurement of what the edge's tenant has stored.
#[derive(Debug, Clone, Copy)]
struct StoredBytes {
    fresh_until: Instant,
    bytes: u64,
}

/// Limits and the last measurements, shared by all requests of this replica.
#[derive(Debug)]
pub(crate) struct AdmissionControl {
    limits: AdmissionLimits,
    load: Mutex<Option<QueueLoad>>,
    stored: Mutex<Option<StoredBytes>>,
    /// Sessions that were started here and that the index may not show yet, at most [`RECENT_STARTS_MAX`].
    recent_starts: Mutex<HashMap<SessionId, Instant>>,
}

impl AdmissionControl {
    pub(crate) fn new(limits: AdmissionLimits) -> Self {
        Self { limits, load: Mutex::default(), stored: Mutex::default(), recent_starts: Mutex::default() }
    }

    pub(crate) fn limits(&self) -> AdmissionLimits {
        self.limits
    }

    /// Refuses a turn while too much waits or is stored, of all tenants or of this one. If a measurement fails, the
    /// turn is admitted: the streams have limits of their own.
    pub(crate) async fn admit_turn(&self, bus: &Bus, tenant: &TenantId) -> Result<(), ApiError> {
        self.admit_waiting(bus, tenant).await?;
        self.admit_stored(bus, tenant).await
    }

    /// Refuses a new session while the tenant has too many that have not ended. If the index is not in memory, the
    /// session is admitted.
    pub(crate) fn admit_session(&self, index: &SessionIndex, session: &SessionId) -> Result<(), ApiError> {
        let Some(open) = index.open_count() else { return Ok(()) };
        let mut recent_starts = lock(&self.recent_starts);
        recent_starts.retain(|session, at| at.elapsed() < RECENT_START_AGE_MAX && !index.contains(session));
        let max = self.limits.sessions;
        if open + recent_starts.len() >= max && !recent_starts.contains_key(session) {
            let message = format!(
                "the tenant has {} sessions that have not ended, at most {max} are allowed (edge.tenant_sessions_max): \
                 end some with session.stop",
                open + recent_starts.len()
            );
            return Err(ApiError::new(ErrorCode::Overloaded, message).with_retry_after(RETRY_AFTER));
        }
        if recent_starts.len() < RECENT_STARTS_MAX {
            recent_starts.insert(session.clone(), Instant::now());
        }
        Ok(())
    }

    /// Whether a session was started here a moment ago, and the index may not show it yet.
    pub(crate) fn has_started(&self, session: &SessionId) -> bool {
        lock(&self.recent_starts).contains_key(session)
    }

    async fn admit_waiting(&self, bus: &Bus, tenant: &TenantId) -> Result<(), ApiError> {
        let known = *lock(&self.load);
        let load = match known {
            Some(known) if known.at.elapsed() < LOAD_AGE_MAX => known,
            Some(_) | None => {
                let Ok(load) = self.measure_load(bus, tenant).await else { return Ok(()) };
                *lock(&self.load) = Some(load);
                load
            }
        };
        let QueueLoad { all, tenant: own, turns, tool_calls, .. } = load;
        let what = if all >= self.limits.all {
            format!("{all} model calls wait for a gateway already")
        } else if own >= self.limits.tenant {
            format!("{own} model calls of tenant {tenant} wait for a gateway already, which is its limit")
        } else if turns >= self.limits.turns {
            let max = self.limits.turns;
            format!("{turns} turns of tenant {tenant} wait already, at most {max} may (edge.tenant_waiting_turns_max)")
        } else if tool_calls >= self.limits.tool_calls {
            let max = self.limits.tool_calls;
            format!(
                "{tool_calls} tool calls of tenant {tenant} are open, at most {max} may (edge.tenant_tool_calls_max)"
            )
        } else {
            return Ok(());
        };
        let message = format!("{what}; accepted turns continue, try again later");
        Err(ApiError::new(ErrorCode::Overloaded, message).with_retry_after(RETRY_AFTER))
    }

    async fn admit_stored(&self, bus: &Bus, tenant: &TenantId) -> Result<(), ApiError> {
        let known = *lock(&self.stored);
        let stored = match known {
            Some(known) if Instant::now() < known.fresh_until => known,
            Some(_) | None => {
                let Ok(stored) = self.measure_stored(bus, tenant).await else { return Ok(()) };
                *lock(&self.stored) = Some(stored);
                stored
            }
        };
        let (bytes, max) = (stored.bytes, self.limits.stored_bytes);
        if bytes < max {
            return Ok(());
        }
        let message = format!(
            "tenant {tenant} has {bytes} bytes in the log and the archive, at most {max} are allowed \
             (edge.tenant_stored_bytes_max): stop sessions and let the archive expire, or raise the limit"
        );
        Err(ApiError::new(ErrorCode::Overloaded, message).with_retry_after(STORED_RETRY_AFTER))
    }

    async fn measure_load(&self, bus: &Bus, tenant: &TenantId) -> Result<QueueLoad, BusError> {
        // A turn may need no tool, so their queue being away limits nothing.
        let tools = async { Ok(self.count_tool_calls(bus, tenant).await.unwrap_or_default()) };
        let (models, inputs) = (bus.transport().depth(Queue::Model), bus.transport().depth(Queue::Inputs));
        let (depth, inputs, tool_calls) = tokio::try_join!(models, inputs, tools)?;
        let (at, all) = (Instant::now(), depth.waiting);
        let at_most = all + inputs.waiting + inputs.held;
        // To count for one tenant costs the server more, and no tenant can exceed its limit if all together do not.
        if all < self.limits.tenant && at_most < self.limits.turns {
            return Ok(QueueLoad { at, all, tenant: 0, turns: 0, tool_calls });
        }
        let own = bus.transport().count(Stream::Model, &subject::model_items_of(tenant)).await?;
        // The stream cannot tell waiting calls from held ones, so the tenant is assumed to have the same share of both.
        let own = scale(all, own, all + depth.held).min(all);
        if at_most < self.limits.turns {
            return Ok(QueueLoad { at, all, tenant: own, turns: 0, tool_calls });
        }
        let mut turns = own;
        for verb in [Verb::Start, Verb::SendUserMessage] {
            turns += bus.transport().count(Stream::Control, &subject::control_of(tenant, verb)).await?;
        }
        Ok(QueueLoad { at, all, tenant: own, turns, tool_calls })
    }

    /// The open tool calls of the tenant; 0 where all tenants together have fewer than one may have.
    async fn count_tool_calls(&self, bus: &Bus, tenant: &TenantId) -> Result<u64, BusError> {
        let Depth { waiting, held } = bus.transport().depth(Queue::Tool).await?;
        if waiting + held < self.limits.tool_calls {
            return Ok(0);
        }
        bus.transport().count(Stream::Tool, &subject::tool_items_of(tenant)).await
    }

    /// Estimates the bytes of the tenant: its share of the messages of each stream, of the stream's bytes. This is
    /// exact if the NATS account has one tenant. Objects count for the stream that refers to them.
    async fn measure_stored(&self, bus: &Bus, tenant: &TenantId) -> Result<StoredBytes, BusError> {
        let bus = bus.transport();
        let mut sizes = Vec::new();
        let rows = [
            (Stream::Log, Objects::Blobs, subject::log_of(tenant)),
            (Stream::Archive, Objects::Archive, subject::archive_of(tenant)),
        ];
        for (stream, store, filter) in rows {
            let size = bus.storage_size(Storage::Stream(stream)).await?;
            let objects = bus.storage_size(Storage::Objects(store)).await?;
            sizes.push((stream, filter, size.messages, size.bytes + objects.bytes));
        }
        let all = sizes.iter().map(|(.., bytes)| bytes).sum::<u64>();
        // As above: to count for one tenant costs the server more.
        if all < self.limits.stored_bytes {
            return Ok(StoredBytes { fresh_until: Instant::now() + STORED_AGE_MAX, bytes: 0 });
        }
        let mut bytes = 0;
        for (stream, filter, messages, of_all) in sizes {
            bytes += scale(of_all, bus.count(stream, &filter).await?, messages);
        }
        Ok(StoredBytes { fresh_until: Instant::now() + STORED_COUNT_AGE_MAX, bytes })
    }
}

/// Returns the share of an amount that `some` of `all` have.
fn scale(amount: u64, some: u64, all: u64) -> u64 {
    let part = u128::from(amount) * u128::from(some) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(amount)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
