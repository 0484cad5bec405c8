//! Performs the calls of local tools and answers gates, while a turn is followed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::Semaphore;

use crate::error::{ClientError, ErrorKind};
use crate::event::{EventContent, GateRequest, LocalCall, SessionEvent};
use crate::gate::{GateDecision, GateHandler, GateRef};
use crate::local_tool::{LocalTool, ToolEffect};
use crate::session_context::SessionContext;

/// Calls and decisions of one turn that run at the same time. Further ones wait.
const RUNNING_MAX: usize = 32;
const UNCERTAIN: &str = "The client was restarted, and may have performed this call before. Its outcome is unknown: find \
                         out what happened before you call again.";

/// Tools and gate handler that a program brings to a session.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    pub(crate) tools: Vec<LocalTool>,
    pub(crate) on_gate: Option<GateHandler>,
}

impl Handlers {
    /// Decides about each gate by this function.
    pub(crate) fn set_gate_handler<F, Fut>(&mut self, decide: F)
    where
        F: Fn(GateRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<GateDecision>> + Send + 'static,
    {
        self.on_gate = Some(Arc::new(move |gate| Box::pin(decide(gate))));
    }
}

/// Answers the calls and gates that wait for the client. Each answer carries the id of its call or gate, so it counts
/// once.
pub(crate) struct Responder {
    context: Arc<SessionContext>,
    handlers: Handlers,
    answers: FuturesUnordered<BoxFuture<'static, Result<(), ClientError>>>,
    running: HashMap<String, AbortHandle>,
    permits: Arc<Semaphore>,
    /// Events up to here happened before this program took up the session: of these, only `open` is answered.
    old_seq: u64,
    open: HashSet<String>,
}

impl Responder {
    pub(crate) fn new(context: Arc<SessionContext>, handlers: Handlers) -> Self {
        Self {
            context,
            handlers,
            answers: FuturesUnordered::new(),
            running: HashMap::new(),
            permits: Arc::new(Semaphore::new(RUNNING_MAX)),
            old_seq: 0,
            open: HashSet::new(),
        }
    }

    /// Finds the calls and gates that were open when this program took up the session, at a `seq` that was read before.
    pub(crate) async fn skip_answered(&mut self, info: &proto::SessionSummary) -> Result<(), ClientError> {
        self.old_seq = info.seq;
        self.open = info.client_calls.iter().map(|call| call.call.clone()).collect();
        if self.handlers.on_gate.is_some() {
            self.open.extend(self.context.gates().await?.into_iter().map(|gate| gate.gate));
        }
        Ok(())
    }

    /// Takes an event: begins what it asks for, and drops what has ended.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
    pub(crate) fn push(&mut self, event: &SessionEvent) {
        let is_old = event.seq.is_some_and(|seq| seq <= self.old_seq);
        match &event.content {
            EventContent::CallWaiting(call) => {
                let tool = self.handlers.tools.iter().find(|tool| tool.name == call.tool).cloned();
                if let Some(tool) = tool
                    && (!is_old || self.open.contains(&call.call))
                {
                    let answer = perform(self.context.clone(), tool, call.clone(), is_old);
                    self.begin(call_key(&call.call), answer);
                }
            }
            EventContent::GateOpened(gate) => {
                if let Some(on_gate) = self.handlers.on_gate.clone()
                    && (!is_old || self.open.contains(&gate.gate))
                {
                    let answer = decide(self.context.clone(), on_gate, gate.clone());
                    self.begin(gate_key(&gate.gate), answer);
                }
            }
            EventContent::CallCompleted(call) => self.end(&call_key(&call.call)),
            EventContent::GateClosed(gate) => self.end(&gate_key(&gate.gate)),
            _ => {}
        }
    }

    /// Runs the answers, and returns the first failure of one. It is safe to drop the future.
    pub(crate) async fn next_failure(&mut self) -> ClientError {
        while let Some(answer) = self.answers.next().await {
            match answer {
                Ok(()) => {}
                // Another answer counts, or the call has ended meanwhile.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {}
                Err(error) => return error,
            }
        }
        std::future::pending().await
    }

    /// Begins an answer, which returns whether there was one.
    fn begin(&mut self, id: String, answer: impl Future<Output = Result<bool, ClientError>> + Send + 'static) {
        // Another turn of this program may perform it.
        let Some(claim) = self.context.claims.claim(&id) else { return };
        let (handle, registration) = AbortHandle::new_pair();
        self.running.insert(id, handle);
        let permits = self.permits.clone();
        let answer = async move {
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await;
            if answer.await? {
                claim.finish();
            }
            Ok(())
        };
        self.answers.push(Abortable::new(answer, registration).map(|ended| ended.unwrap_or(Ok(()))).boxed());
    }

    fn end(&mut self, id: &str) {
        self.context.claims.finish(id);
        if let Some(handle) = self.running.remove(id) {
            handle.abort();
        }
    }
}

// A gate about a call has the id of the call.
fn call_key(id: &str) -> String {
    format!("call {id}")
}

fn gate_key(id: &str) -> String {
    format!("gate {id}")
}

async fn perform(
    context: Arc<SessionContext>,
    tool: LocalTool,
    call: LocalCall,
    is_old: bool,
) -> Result<bool, ClientError> {
    let answer = if is_old && tool.effect == ToolEffect::AtMostOnce {
        Err(UNCERTAIN.to_owned())
    } else {
        tool.perform(call.arguments).await
    };
    context.answer_call(&call.call, answer).await.map(|_| true)
}

async fn decide(context: Arc<SessionContext>, on_gate: GateHandler, gate: GateRequest) -> Result<bool, ClientError> {
    let key = GateRef::from(&gate);
    match on_gate(gate).await {
        Some(decision) => context.answer(key, decision).await.map(|_| true),
        None => Ok(false),
    }
}
