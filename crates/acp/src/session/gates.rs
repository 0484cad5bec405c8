//! Gates of the session: they are asked at the editor, and answered in the session.

use contract::ErrorCode;
use contract::event::{GateKind, GateOpened};
use fleet_connection::client::{SessionsApi, command_id};
use proto::AnswerGateRequest;
use terminal::failure::CommandFailure;

use super::super::gate::{PersonReply, Question, question_of, reply_of, typed_question};
use super::super::stop_reason;
use super::worker::{AskedGate, GateReply, SessionWorker};

impl SessionWorker {
    /// Asks the person at the editor about a gate.
    pub(super) async fn ask(&mut self, gate: &GateOpened) {
        let question = question_of(&self.session, gate, self.has_forms);
        let (method, params) = match question {
            Question::Request { method, params } => (method, params),
            Question::Typed { text } => return self.ask_for_prompt(gate, &text).await,
        };
        let Some((request, answer)) = self.peer.request(method, &params).await else {
            return self.point_elsewhere(gate, "too many questions are open").await;
        };
        self.asked.push(AskedGate { gate: gate.clone(), request });
        self.replies.push(Box::pin(async move { GateReply { request, answer: answer.await.ok() } }));
    }

    /// Shows a question that the next prompt answers. The prompt that waits is answered, so that there can be a next one.
    async fn ask_for_prompt(&mut self, gate: &GateOpened, text: &str) {
        self.show_text(text).await;
        self.typed_gate = Some(gate.clone());
        if let Some(prompt) = self.prompt.take_if(|prompt| prompt.has_begun) {
            self.peer.answer(&prompt.id, &Ok(stop_reason::waiting())).await;
        }
    }

    /// Says how to answer a gate that the editor cannot show.
    async fn point_elsewhere(&self, gate: &GateOpened, why: &str) {
        let (session, id) = (&self.session, &gate.gate);
        let text = format!(
            "\n\nA person must answer, and the editor cannot ask ({why}): `ailoop approvals show {session} {id}` shows \
             what waits."
        );
        self.show_text(&text).await;
    }

    /// Takes the request for a gate back that has its answer.
    pub(super) async fn withdraw(&mut self, gate: &str) {
        self.typed_gate.take_if(|typed| typed.gate.as_str() == gate);
        let Some(index) = self.asked.iter().position(|asked| asked.gate.gate.as_str() == gate) else { return };
        let asked = self.asked.remove(index);
        self.peer.cancel_request(asked.request).await;
    }

    /// Takes all requests for gates back.
    pub(super) async fn withdraw_all(&mut self) {
        self.typed_gate = None;
        for asked in std::mem::take(&mut self.asked) {
            self.peer.cancel_request(asked.request).await;
        }
    }

    /// Takes the answer of the editor. An answer after a cancel, or after that of somebody else, is dropped.
    pub(super) async fn take_reply(&mut self, reply: GateReply) {
        let Some(index) = self.asked.iter().position(|asked| asked.request == reply.request) else { return };
        let AskedGate { gate, .. } = self.asked.remove(index);
        let answer = match reply.answer {
            None => return,
            Some(Ok(result)) => reply_of(&gate, &result),
            Some(Err(why)) if gate.kind != GateKind::Question => return self.point_elsewhere(&gate, &why).await,
            Some(Err(_)) => PersonReply::Dismissed,
        };
        match answer {
            PersonReply::Answer(answer) => {
                if let Err(failure) = self.send_answer(*answer).await {
                    self.show_text(&format!("\n\nThe answer was not accepted: {}", failure.message())).await;
                }
            }
            // The gate stays open: the editor cancels the turn, or somebody else answers.
            PersonReply::Dismissed if gate.kind != GateKind::Question => {}
            PersonReply::Dismissed => {
                if let Question::Typed { text } = typed_question(&gate) {
                    self.ask_for_prompt(&gate, &text).await;
                }
            }
        }
    }

    /// Sends the answer to a gate; returns whether it counts. It does not if somebody else was faster.
    pub(super) async fn send_answer(&self, answer: AnswerGateRequest) -> Result<bool, CommandFailure> {
        let request = AnswerGateRequest { session_id: self.session.clone(), command_id: Some(command_id()), ..answer };
        match self.link.call(request, SessionsApi::answer_gate).await {
            Ok(_) => Ok(true),
            Err(failure) if *failure.code() == ErrorCode::GateClosed => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}
