//! The session of a thread before a run.

use contract::client_tool::OpenClientCall;
use contract::commit::{OpenGate, Phase};
use contract::{CallId, ErrorCode};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::turn;

use super::interrupt::Interrupt;
use super::reply::Waiting;

/// The session of a thread before the run.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) session: ReachedSession,
    pub(super) seq: u64,
    pub(super) is_running: bool,
    pub(super) gates: Vec<OpenGate>,
    pub(super) client_calls: Vec<OpenClientCall>,
}

impl Thread {
    /// Loads the session that the next run of a thread meets; none if the thread has none yet.
    pub(super) async fn find(api: &SessionApi, caller: &ApiCaller, thread_id: &str) -> Result<Option<Self>, ApiError> {
        let Some(session) = turn::find_named(api, caller, thread_id).await? else { return Ok(None) };
        let thread = match api.load_session(&session).await {
            Ok(state) => Self {
                session,
                seq: state.seq(),
                is_running: state.phase() == Phase::Running,
                gates: state.gates(),
                client_calls: state.client_calls(),
            },
            // Its start is stored, and has no commit yet.
            Err(error) if error.code == ErrorCode::UnknownSession => {
                Self { session, seq: 0, is_running: true, gates: Vec::new(), client_calls: Vec::new() }
            }
            Err(error) => return Err(error),
        };
        Ok(Some(thread))
    }

    pub(super) fn is_open(&self, call: &CallId) -> bool {
        self.gates.iter().any(|gate| gate.gate == *call) || self.client_calls.iter().any(|open| open.call == *call)
    }

    /// Returns everything that waits in the session.
    pub(super) fn waiting(&self) -> Waiting {
        self.select(|_| true)
    }

    /// Returns the gates and calls that still wait after these answers, in the steps of the answered ones. Gates and
    /// calls of later steps are reported by their own events.
    pub(super) fn left_after(&self, answered: &[CallId]) -> Waiting {
        self.select(|call| !answered.contains(call) && answered.iter().any(|one| step_of(one) == step_of(call)))
    }

    fn select(&self, is_selected: impl Fn(&CallId) -> bool) -> Waiting {
        let gates = self.gates.iter().filter(|gate| is_selected(&gate.gate));
        let calls = self.client_calls.iter().map(|open| &open.call).filter(|call| is_selected(call));
        Waiting {
            gates: gates.map(|gate| (gate.gate.clone(), Interrupt::of_gate(self.session.id(), gate))).collect(),
            client_calls: calls.cloned().collect(),
        }
    }
}

/// The turn and the step of a tool call, as its id has them.
fn step_of(call: &CallId) -> &str {
    call.as_str().rsplit_once('-').map_or("", |(step, _)| step)
}
