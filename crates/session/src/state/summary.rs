//! Summary of a state for the session index and clients.

use contract::client_tool::OpenClientCall;
use contract::commit::{OpenGate, SessionSummary};
use contract::event::GateKind;
use contract::limits::{CLIENT_CALL_SHOWN_BYTES, CLIENT_CALLS_SHOWN_MAX, GATE_SHOWN_BYTES, GATES_SHOWN_MAX};
use contract::text::{show, show_json};
use contract::tool::{arguments_sha256, sha256_hex};

use super::{Activity, CallStage, Lifecycle, Question, State};

impl State {
    pub(crate) fn summary(&self) -> SessionSummary {
        SessionSummary {
            session_id: self.key.session.clone(),
            tenant: self.key.tenant.clone(),
            phase: self.phase(),
            agent: self.setup.as_ref().map(|s| s.agent.id.to_string()).unwrap_or_default(),
            model: self.setup.as_ref().map(|s| s.model.id.clone()).unwrap_or_default(),
            title: show(&self.title).into_owned(),
            turn: self.turns,
            step: self.turn.as_ref().map_or(0, |turn| turn.step),
            seq: self.seq,
            started: self.started,
            updated: self.updated,
            spent: self.spent,
            spent_own: self.spent_own,
            stop_reason: self.last_stop,
            parent: self.setup.as_ref().and_then(|s| s.parent.as_ref()).map(|parent| parent.session_id.clone()),
            tally: self.tally.clone(),
            gates: self.open_gates(GATE_SHOWN_BYTES, GATES_SHOWN_MAX),
            client_calls: self.open_client_calls(CLIENT_CALL_SHOWN_BYTES, CLIENT_CALLS_SHOWN_MAX),
        }
    }

    /// Lists at most `most` open client calls, each with at most `shown_max` bytes of its arguments.
    pub(crate) fn open_client_calls(&self, shown_max: usize, most: usize) -> Vec<OpenClientCall> {
        let calls = self.turn.as_ref().map_or(&[][..], |turn| turn.calls());
        let open = calls.iter().filter(|state| state.waits_for_client()).filter_map(|state| match &state.stage {
            CallStage::Open { request, deadline, since, .. } => Some((state, request, *deadline, *since)),
            CallStage::Announced | CallStage::Pending(_) | CallStage::Gated { .. } | CallStage::Done(_) => None,
        });
        let shown = open.take(most).map(|(state, request, deadline, since)| {
            let text = request.arguments.get();
            let beginning = &text[..text.floor_char_boundary(shown_max)];
            OpenClientCall {
                call: state.call.clone(),
                tool: request.tool.clone(),
                arguments: beginning.to_owned(),
                shortened: beginning.len() < text.len(),
                since,
                deadline,
            }
        });
        shown.collect()
    }

    /// Lists at most `most` open gates, each with at most `shown_max` bytes of its arguments.
    pub(crate) fn open_gates(&self, shown_max: usize, most: usize) -> Vec<OpenGate> {
        let Some(turn) = self.turn.as_ref().filter(|_| self.life == Lifecycle::Alive) else { return Vec::new() };
        if let Activity::AwaitingUser { gate, question, expires } = &turn.activity {
            return vec![OpenGate {
                gate: gate.clone(),
                kind: match question {
                    Question::Limit(limit) => GateKind::Limit(*limit),
                    Question::Failed { kind } => GateKind::Error(*kind),
                },
                tool: None,
                arguments: String::new(),
                shortened: false,
                arguments_sha256: sha256_hex(question.word().as_bytes()),
                expires: *expires,
            }];
        }
        let gated = turn.calls().iter().filter_map(|state| match &state.stage {
            CallStage::Gated { request, expires, .. } => Some((state, request, *expires)),
            CallStage::Announced | CallStage::Pending(_) | CallStage::Open { .. } | CallStage::Done(_) => None,
        });
        let shown = gated.take(most).map(|(state, request, expires)| {
            // Calls of older logs have what cannot be seen in their arguments as it came.
            let text = show_json(request.arguments.get());
            let beginning = &text[..text.floor_char_boundary(shown_max)];
            OpenGate {
                gate: state.call.clone(),
                kind: if request.is_question() { GateKind::Question } else { GateKind::Approval },
                tool: Some(request.tool.clone()),
                arguments: beginning.to_owned(),
                shortened: beginning.len() < text.len(),
                arguments_sha256: arguments_sha256(&request.arguments),
                expires,
            }
        });
        shown.collect()
    }
}
