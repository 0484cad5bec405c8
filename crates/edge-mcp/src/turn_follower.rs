//! A call that waits for its turn: it reports progress, asks persons, and ends with the answer.

use contract::event::GateOpened;
use contract::{CallId, ErrorCode, SessionId};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::turn::{BegunTurn, RequestIdentity, TurnPart, TurnStream};
use rmcp::model::{
    CallToolResponse, InputRequest, InputRequests, InputRequiredResult, ProgressToken, RequestId, ServerJsonRpcMessage,
    ServerRequest,
};
use rmcp::{Peer, RoleServer};
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::elicitation::{self, CallState, Dismissals};
use super::progress::Progress;
use super::results;

/// The way to the client beside the result of its request.
#[derive(Debug, Clone)]
pub(super) struct ClientOutlet(pub(super) mpsc::Sender<ServerJsonRpcMessage>);

/// Delivery of forms to the persons who use a client.
#[derive(Debug, Clone)]
pub(super) enum FormDelivery {
    /// The client shows no forms, or its caller may not answer gates.
    Never,
    /// The call returns the forms, and the client repeats it with the answers (2026-07-28).
    Result,
    /// A request on the stream of the call (before 2026-07-28).
    Request(mpsc::Sender<ServerJsonRpcMessage>),
}

/// A call of a tool, with what it carries.
#[derive(Debug)]
pub(super) struct McpCall {
    pub(super) api: SessionApi,
    pub(super) caller: ApiCaller,
    pub(super) identity: RequestIdentity,
    pub(super) forms: FormDelivery,
    pub(super) progress: Option<(Peer<RoleServer>, ProgressToken)>,
    /// Cancelled when the client is gone, or has cancelled the call.
    pub(super) cancelled: CancellationToken,
    pub(super) dismissals: Dismissals,
}

impl McpCall {
    /// Waits for the end of a turn, or until it waits for a person whom the client does not ask.
    pub(super) async fn follow(&self, begun: BegunTurn) -> Result<CallToolResponse, ApiError> {
        let reached = self.api.reach(&self.caller, &begun.session_id).await?;
        let session = begun.session_id.clone();
        let mut dismissals = self.dismissals.subscribe();
        let mut progress = Progress::new(self.progress.clone());
        let mut turn = TurnStream::open(&self.api, &self.caller, &begun, progress.is_wanted()).await?;
        progress.begin(&session).await;
        let (mut last_step, mut text) = (0, String::new());
        loop {
            let part = tokio::select! {
                part = next_part(&mut turn, &mut progress) => part?,
                () = wait_for_dismissal(&mut dismissals, &session) => return self.return_gates(&reached).await,
                () = self.cancelled.cancelled() => {
                    return Err(ApiError::new(ErrorCode::Unavailable, "the call was cancelled; the session goes on"));
                }
            };
            match part {
                TurnPart::Text { step, delta } => {
                    if step != last_step {
                        (last_step, text) = (step, String::new());
                    }
                    text.push_str(&delta);
                    progress.add_text(step, &delta).await;
                }
                TurnPart::ReplyEnd { .. } => progress.end_reply().await,
                TurnPart::Call(call) => progress.add_call(call.tool.as_str()).await,
                TurnPart::GateOpened(gate) => {
                    if let Some(response) = self.ask(&reached, &gate).await? {
                        return Ok(response);
                    }
                }
                TurnPart::End(end) => return Ok(results::of_turn(&session, &end, text).into()),
                TurnPart::Reasoning { .. }
                | TurnPart::Result(_)
                | TurnPart::ClientCall(_)
                | TurnPart::GateClosed(_) => {}
            }
        }
    }

    /// Asks a person, or returns what the call ends with. A gate of an event that is read again may be closed.
    async fn ask(&self, reached: &ReachedSession, gate: &GateOpened) -> Result<Option<CallToolResponse>, ApiError> {
        let (state, session) = (self.api.load_session(reached).await?, reached.id());
        let gates = state.gates();
        let Some(opened) = gates.iter().find(|open| open.gate == gate.gate) else { return Ok(None) };
        let agent = state.summary().agent;
        let without_form = || Ok(Some(results::of_gates(session, &gates).into()));
        match &self.forms {
            FormDelivery::Never => without_form(),
            FormDelivery::Request(outlet) => {
                let Some(form) = elicitation::to_form(&agent, opened) else { return without_form() };
                let id: RequestId = elicitation::to_request_id(session, &opened.gate);
                // A client that is gone is noticed by the call.
                let _ = outlet.send(ServerJsonRpcMessage::request(ServerRequest::ElicitRequest(form), id)).await;
                Ok(None)
            }
            FormDelivery::Result => {
                let forms = gates.iter().map(|open| Some((open.gate.to_string(), elicitation::to_form(&agent, open)?)));
                let Some(forms) = forms.collect::<Option<Vec<_>>>() else { return without_form() };
                let requests: InputRequests =
                    forms.into_iter().map(|(gate, form)| (gate, InputRequest::Elicitation(form))).collect();
                let state = CallState::new(&self.caller, session.clone(), state.seq());
                Ok(Some(InputRequiredResult::new(Some(requests), Some(state.to_text())).into()))
            }
        }
    }

    async fn return_gates(&self, session: &ReachedSession) -> Result<CallToolResponse, ApiError> {
        let gates = self.api.load_session(session).await?.gates();
        Ok(results::of_gates(session.id(), &gates).into())
    }
}

/// Waits for the next part; a client that must not be kept in silence gets notifications meanwhile.
async fn next_part(turn: &mut TurnStream, progress: &mut Progress) -> Result<TurnPart, ApiError> {
    let next = turn.next();
    let mut next = std::pin::pin!(next);
    loop {
        tokio::select! {
            part = &mut next => return part,
            () = progress.wait_for_silence() => {}
        }
        progress.repeat().await;
    }
}

async fn wait_for_dismissal(dismissals: &mut broadcast::Receiver<(SessionId, CallId)>, session: &SessionId) {
    loop {
        match dismissals.recv().await {
            Ok((dismissed, _)) if dismissed == *session => return,
            // The person may answer elsewhere.
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
