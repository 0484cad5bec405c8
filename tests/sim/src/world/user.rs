//! The user: commands at random times, settings, and answers to gates.

use contract::client_tool::{AnswerToolCall, ClientOutcome, ClientTool};
use contract::command::{
    Answer, AnswerDecision, Configure, ContinuationOverride, ControlReason, MessageMode, SendUserMessage, Start, Verb,
};
use contract::compose::Composed;
use contract::event::{GateKind, GateOpened, InputKind, InputRef};
use contract::model::Content;
use contract::settings::{
    AgentSettings, ContinuationSettings, LimitAction, Limits, ModelSettings, OnError, Prune, ToolFilter,
};
use contract::tool::EffectClass;
use contract::{AgentId, CommandId, Json, Timestamp};
use session::{Body, ConfigureInput, Input, StartInput};

use crate::planted_bug::PlantedBug;
use crate::replies::CLIENT_TOOL;
use crate::world::catalogue::CATALOGUE;
use crate::world::state::{Action, World};

impl World {
    /// Schedules the commands of the user.
    pub(super) fn script(&mut self) {
        let interactive = self.rng.chance(70);
        let mut time = 0;
        let start = self.start(interactive);
        self.command(Verb::Start, start, time);
        let span = [50, 2_000, 60_000][usize::try_from(self.rng.below(3)).unwrap_or(0)];
        for _ in 0..2 + self.rng.below(24) {
            time += self.rng.below(span);
            let reason = ControlReason::default();
            let (verb, body) = match self.rng.below(100) {
                0..45 => {
                    let mode = *self.rng.pick(&[MessageMode::Steer, MessageMode::Queue, MessageMode::Interrupt]);
                    let content = Content::Text(format!("message {}", self.inputs.len()));
                    (Verb::SendUserMessage, Body::Send(SendUserMessage::new(content, mode)))
                }
                45..58 => (Verb::Pause, Body::Pause(reason)),
                58..84 => (Verb::Resume, Body::Resume(reason)),
                84..86 => (Verb::Stop, Body::Stop(reason)),
                86..89 => (Verb::Configure, self.configure()),
                89..91 => (Verb::ClearHistory, Body::Clear(reason)),
                91..92 => (Verb::CancelTurn, Body::CancelTurn(reason)),
                92..94 => (Verb::Start, self.start(true)),
                94..96 => {
                    let index = self.rng.index(self.inputs.len() as u64);
                    self.at(time, Action::Repeat(index));
                    continue;
                }
                96..97 => (Verb::Answer, self.blind_answer("c1-1-1", b"{\"a\":1}")),
                97..98 => {
                    let call = contract::CallId::tool(1, 1, 1);
                    let answer = self.client_answer(&call);
                    (Verb::AnswerToolCall, Body::AnswerToolCall(answer))
                }
                _ => (Verb::Answer, self.blind_answer("limit-1-1", b"max_iterations")),
            };
            self.command(verb, body, time);
        }
    }

    /// Settings of a model, often with too small a context window.
    pub(super) fn model(&mut self) -> ModelSettings {
        let context_window = self.rng.chance(50).then(|| 600 + self.rng.below(600));
        ModelSettings { id: "sim".to_owned(), context_window, max_output: Some(100), ..ModelSettings::default() }
    }

    pub(super) fn configure(&mut self) -> Body {
        let continuation = ContinuationOverride {
            max_iterations: self.rng.chance(30).then_some(self.max_iterations),
            enabled: self.rng.chance(30).then(|| self.rng.chance(80)),
            timeout: self.rng.chance(30).then(|| 30 + self.rng.below(240)),
            on_error: self.rng.chance(50).then_some(OnError::Ask),
            prune: self.rng.chance(50).then_some(Prune::Summarise),
            ..ContinuationOverride::default()
        };
        let client_tools = self.rng.chance(30).then(|| self.client_tools());
        let configure = Configure { continuation: Some(continuation), client_tools, ..Configure::default() };
        Body::Configure(Box::new(ConfigureInput { configure, composed: None }))
    }

    pub(super) fn start(&mut self, interactive: bool) -> Body {
        let is_unlimited = self.bug == PlantedBug::ForgetLimit;
        let continuation = ContinuationSettings {
            require_explicit_signal: self.rng.chance(50),
            max_iterations: if is_unlimited { 200 } else { self.max_iterations },
            timeout: 60 + self.rng.below(240),
            continuation_patterns: vec!["now I'll".to_owned()],
            termination_patterns: vec!["all done".to_owned()],
            limits: Limits {
                tool_calls: self.rng.chance(20).then_some(5),
                tokens: self.rng.chance(20).then_some(60),
                ..Limits::default()
            },
            on_limit: match (self.rng.chance(20), self.asks) {
                (_, true) => LimitAction::Ask,
                (true, false) => LimitAction::End,
                (false, false) => LimitAction::Answer,
            },
            on_error: *self.rng.pick(&[OnError::End, OnError::Ask, OnError::Fallback]),
            prune: *self.rng.pick(&[Prune::Drop, Prune::Summarise]),
            judge: self.rng.chance(50).then(|| "judge".to_owned()),
            ..ContinuationSettings::default()
        };
        let fallbacks = (0..self.rng.below(3)).map(|_| self.model()).collect();
        let agent = AgentId::new("e").unwrap_or_else(|_| unreachable!("a valid id"));
        let parallel = 1 + u32::try_from(self.rng.below(4)).unwrap_or(0);
        let composed = Composed {
            ai_config: None,
            streaming: contract::model::StreamingOverride::default(),
            fallbacks,
            prompt: "You are a simulation.".to_owned(),
            fingerprint: "f".to_owned(),
            components: Vec::new(),
            warnings: Vec::new(),
            agent: AgentSettings {
                id: agent,
                name: "E".to_owned(),
                continuation,
                tools: ToolFilter { allow: vec!["*".to_owned()], deny: Vec::new() },
                approvals: Vec::new(),
            },
            model: ModelSettings {
                id: "sim".to_owned(),
                multi_tool: parallel > 1,
                max_parallel_tools: parallel,
                ..self.model()
            },
        };
        let prompt = self.rng.chance(90).then(|| Content::Text(format!("message {}", self.inputs.len())));
        let start = Start { prompt, interactive, client_tools: self.client_tools(), ..Start::default() };
        Body::Start(Box::new(StartInput { start, history: Vec::new(), composed: Ok(Box::new(composed)) }))
    }

    /// The tools that the client brings, if it brings any.
    pub(super) fn client_tools(&mut self) -> Vec<ClientTool> {
        if self.rng.chance(20) {
            return Vec::new();
        }
        vec![ClientTool {
            name: contract::ToolName::new(CLIENT_TOOL).unwrap_or_else(|_| unreachable!("a valid id")),
            description: String::new(),
            parameters: Json::of(&serde_json::json!({"type": "object"})),
            effect: *self.rng.pick(&[EffectClass::Pure, EffectClass::AtMostOnce]),
            timeout_ms: Some(20_000),
            max_output: None,
        }]
    }

    /// An answer of a client to a call, which may not be open.
    pub(super) fn client_answer(&mut self, call: &contract::CallId) -> AnswerToolCall {
        let outcome = *self.rng.pick(&[ClientOutcome::Ok, ClientOutcome::Ok, ClientOutcome::Error]);
        AnswerToolCall { call: call.clone(), outcome, content: "clicked".to_owned() }
    }

    /// Performs a call as its client, which is dead, or answers, or answers twice; in time, or late.
    pub(super) fn perform_as_client(&mut self, call: &contract::CallId) {
        for _ in 0..*self.rng.pick(&[0, 1, 1, 1, 2]) {
            let answer = self.client_answer(call);
            let delay = self.rng.below(30_000);
            self.command(Verb::AnswerToolCall, Body::AnswerToolCall(answer), delay);
        }
    }

    /// An answer to a gate that may not be open.
    pub(super) fn blind_answer(&mut self, gate: &str, arguments: &[u8]) -> Body {
        let decision = *self.rng.pick(&[AnswerDecision::Approve, AnswerDecision::Deny]);
        let arguments_sha256 = contract::tool::sha256_hex(arguments);
        let gate = contract::CallId::new(gate).unwrap_or_else(|_| unreachable!("a valid id"));
        Body::Answer(Answer::new(gate, arguments_sha256, decision))
    }

    /// An answer to an open gate; sometimes one that does not fit it.
    pub(super) fn answer(&mut self, gate: &GateOpened) -> Answer {
        use AnswerDecision::{Answer as Reply, Approve, Deny};
        let decision = match gate.kind {
            GateKind::Question => *self.rng.pick(&[Reply, Reply, Reply, Deny, Approve]),
            GateKind::Approval => *self.rng.pick(&[Approve, Approve, Approve, Deny, Deny, Reply]),
            GateKind::Limit(_) | GateKind::Error(_) => *self.rng.pick(&[Approve, Deny]),
        };
        let sha256 = if self.rng.chance(3) { "0".repeat(64) } else { gate.arguments_sha256.clone() };
        let mut answer = Answer::new(gate.gate.clone(), sha256, decision);
        if decision == Reply {
            answer.content = Some("because".to_owned());
        }
        if decision == Approve && gate.kind == GateKind::Approval && self.rng.chance(30) {
            answer.arguments = Json::parse(r#"{"a":2}"#).ok();
        }
        answer
    }

    pub(super) fn command(&mut self, verb: Verb, body: Body, delay: u64) {
        self.control_seq += 1;
        let seq = self.control_seq;
        let id = format!("u{}", self.inputs.len());
        if let Body::AnswerToolCall(answer) = &body {
            self.oracle.record_client_answer(id.clone(), answer);
        }
        let index = self.input(InputKind::Control(verb), &id, Some(seq), body);
        self.waiting.insert(seq, index);
        let jitter = if self.fault(10) { self.rng.below(9_000) } else { 0 };
        self.at(delay + jitter, Action::Deliver(index));
    }

    /// Stores a command once more, with a later sequence. While the first one waits, the stream does not take it.
    pub(super) fn repeat(&mut self, index: usize) {
        let mut input = self.inputs[index].clone();
        if self.waiting.values().any(|waiting| self.inputs[*waiting].reference == input.reference) {
            return;
        }
        self.figures.rare.repeats += 1;
        self.control_seq += 1;
        input.control_seq = Some(self.control_seq);
        input.control_at = Some(Timestamp::from_millis(self.now));
        self.inputs.push(input);
        let index = self.inputs.len() - 1;
        self.waiting.insert(self.control_seq, index);
        self.at(0, Action::Deliver(index));
    }

    /// Stores an input and returns its index; an input with the same kind and id is stored once.
    pub(super) fn input(&mut self, kind: InputKind, id: &str, control_seq: Option<u64>, body: Body) -> usize {
        let id = CommandId::new(id).unwrap_or_else(|_| unreachable!("a valid id"));
        let reference = InputRef { kind, id };
        if let Some(index) = self.known.get(&reference) {
            return *index;
        }
        let input = self.new_input(reference.clone(), control_seq, body);
        self.inputs.push(input);
        let index = self.inputs.len() - 1;
        self.known.insert(reference, index);
        index
    }

    /// An input that arrives now, and is in no stream yet.
    pub(super) fn new_input(&self, reference: InputRef, control_seq: Option<u64>, body: Body) -> Input {
        Input {
            parent_command_number: None,
            reference,
            control_seq,
            control_at: control_seq.map(|_| Timestamp::from_millis(self.now)),
            sent: None,
            by: None,
            agents: None,
            traceparent: None,
            tools: Some(CATALOGUE.clone()),
            archive_after: contract::limits::ARCHIVE_AFTER,
            compact_after: self.compact_after,
            body,
        }
    }
}
