//! State of this replica for each tenant: its session index and its limits. The first request of a tenant loads it, and
//! it is dropped when the tenant is idle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::Bus;
use contract::commit::Phase;
use contract::limits::EDGE_TENANTS_MAX;
use contract::{SessionId, TenantId};
use service::tasks::Tasks;
use session_api::SessionNumbers;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admission::{AdmissionControl, AdmissionLimits};
use crate::session_index::SessionIndex;

/// Time for which the index of a tenant without requests stays in memory.
const IDLE_MAX: Duration = Duration::from_mins(10);

/// The state of one tenant on this replica. Its tasks end when it is forgotten.
#[derive(Debug)]
pub(crate) struct TenantState {
    pub(crate) index: SessionIndex,
    pub(crate) admission: AdmissionControl,
    _ending: DropGuard,
}

impl TenantState {
    /// Whether this replica knows nothing of a session. The loop decides whether there is one.
    pub(crate) fn seems_unused(&self, session: &SessionId) -> bool {
        self.index.lacks(session) && !self.admission.has_started(session)
    }

    /// Whether a session has started and has not ended, as far as this replica knows.
    pub(crate) fn seems_open(&self, session: &SessionId) -> bool {
        match self.index.phase(session) {
            Some(phase) => phase != Phase::Ended,
            None => self.admission.has_started(session),
        }
    }
}

/// The tenants that had requests lately, and the edge's own one.
#[derive(Debug)]
pub(crate) struct Tenants {
    bus: Bus,
    tasks: Tasks,
    limits: AdmissionLimits,
    own: TenantId,
    loaded: Mutex<HashMap<TenantId, LoadedTenant>>,
}

#[derive(Debug)]
struct LoadedTenant {
    state: Arc<TenantState>,
    used: Instant,
}

impl Tenants {
    /// Loads the edge's own tenant, which stays.
    pub(crate) fn start(bus: Bus, own: TenantId, limits: AdmissionLimits, tasks: Tasks) -> Self {
        let tenants = Self { bus, tasks, limits, own, loaded: Mutex::default() };
        tenants.get(&tenants.own);
        tenants
    }

    /// Returns the state of a tenant. Above [`EDGE_TENANTS_MAX`] tenants, the one that was idle longest is forgotten.
    pub(crate) fn get(&self, tenant: &TenantId) -> Arc<TenantState> {
        let (mut loaded, now) = (self.loaded.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if let Some(found) = loaded.get_mut(tenant) {
            found.used = now;
            return found.state.clone();
        }
        loaded.retain(|known, entry| *known == self.own || now.duration_since(entry.used) < IDLE_MAX);
        if loaded.len() >= EDGE_TENANTS_MAX {
            let others = loaded.iter().filter(|(known, _)| **known != self.own);
            if let Some(oldest) = others.min_by_key(|(_, entry)| entry.used).map(|(known, _)| known.clone()) {
                loaded.remove(&oldest);
            }
        }
        let state = Arc::new(self.load(tenant));
        loaded.insert(tenant.clone(), LoadedTenant { state: state.clone(), used: now });
        state
    }

    /// Counts the sessions of the tenants in memory; `None` while no index is.
    pub(crate) fn count_sessions(&self) -> Option<SessionNumbers> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = loaded.values().filter_map(|entry| entry.state.index.counts());
        counts.reduce(SessionNumbers::plus)
    }

    fn load(&self, tenant: &TenantId) -> TenantState {
        let ending = CancellationToken::new();
        let index = SessionIndex::start(self.bus.clone(), tenant.clone(), &self.tasks, ending.clone());
        TenantState { index, admission: AdmissionControl::new(self.limits), _ending: ending.drop_guard() }
    }
}
