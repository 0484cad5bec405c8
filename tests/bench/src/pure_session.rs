//! A session without I/O: inputs are decided and folded, effects are not performed.

use std::sync::Arc;

use anyhow::Context;
use contract::command::{Start, Verb};
use contract::compose::Composed;
use contract::event::{Event, InputKind, InputRef};
use contract::ids::CallId;
use contract::limits::{ARCHIVE_AFTER, COMPACT_AFTER};
use contract::model::{Content, FinishReason, ModelFinished, ResultMeta, ToolCall, Usage};
use contract::settings::{AgentSettings, ContinuationSettings, Limits, ModelSettings, ToolFilter};
use contract::subject::SessionKey;
use contract::tool::{ApprovalPolicy, EffectClass, Outcome, ToolResult, ToolSpec};
use contract::{AgentId, CommandId, Json, SessionId, TenantId, Timestamp, ToolName};
use session::{Body, Input, Session, StartInput};

/// The constant time of every event of the session.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// Description of a pure tool.
pub(crate) fn spec(name: &str) -> anyhow::Result<ToolSpec> {
    Ok(ToolSpec {
        name: ToolName::new(name)?,
        description: "Looks something up and says what it found.".to_owned(),
        parameters: Json::parse(r#"{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}"#)?,
        effect: EffectClass::Pure,
        approval: ApprovalPolicy::Never,
        timeout_ms: None,
        max_output: None,
        instructions: Some("Use it before you guess.".to_owned()),
        version: "1.0.0".to_owned(),
    })
}

/// A session in which time stands still.
pub(crate) struct PureSession {
    pub(crate) session: Session,
    tools: Arc<Vec<ToolSpec>>,
}

impl PureSession {
    /// Begins it; what came of that is returned too.
    pub(crate) fn begin() -> anyhow::Result<(Self, Vec<Event>)> {
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s")? };
        let mut pure_session = Self { session: Session::new(key), tools: Arc::new(vec![spec("look")?]) };
        let limits = Limits { repetition: 0, no_progress: 0, ..Limits::default() };
        let continuation = ContinuationSettings { max_iterations: 200, limits, ..ContinuationSettings::default() };
        let composed = Composed {
            ai_config: None,
            streaming: contract::model::StreamingOverride::default(),
            fallbacks: Vec::new(),
            prompt: "You are measured.".to_owned(),
            fingerprint: String::new(),
            components: Vec::new(),
            warnings: Vec::new(),
            agent: AgentSettings {
                id: AgentId::new("e")?,
                name: "E".to_owned(),
                continuation,
                tools: ToolFilter { allow: vec!["*".to_owned()], deny: Vec::new() },
                approvals: Vec::new(),
            },
            model: ModelSettings { multi_tool: true, max_parallel_tools: 4, ..ModelSettings::default() },
        };
        let start = Start { prompt: Some(Content::Text("Measure.".to_owned())), ..Start::default() };
        let body = Body::Start(Box::new(StartInput { start, history: Vec::new(), composed: Ok(Box::new(composed)) }));
        let begun = pure_session.fold(&pure_session.input(Verb::Start, "begin", body)?);
        Ok((pure_session, begun))
    }

    fn input(&self, verb: Verb, id: &str, body: Body) -> anyhow::Result<Input> {
        Ok(Input {
            parent_command_number: None,
            reference: InputRef { kind: InputKind::Control(verb), id: CommandId::new(id)? },
            control_seq: None,
            control_at: None,
            sent: None,
            by: None,
            agents: None,
            traceparent: None,
            tools: Some(self.tools.clone()),
            archive_after: ARCHIVE_AFTER,
            compact_after: COMPACT_AFTER,
            body,
        })
    }

    /// Decides about an input and folds what comes of it, which is returned.
    pub(crate) fn fold(&mut self, input: &Input) -> Vec<Event> {
        let decision = self.session.decide(NOW, std::slice::from_ref(input));
        self.session.fold(self.session.next_slot(), decision.at, &decision.events);
        decision.events
    }

    /// The reply to the open model call.
    pub(crate) fn reply(&self, text: &str, calls: bool) -> anyhow::Result<Input> {
        let open = self.session.open_calls();
        let call = open.first().and_then(|call| call.strip_suffix(".1")).context("no call is open")?;
        let tool_calls = if calls { vec![ToolCall::new("x", "look", r#"{"query":"a"}"#)] } else { Vec::new() };
        let finished = ModelFinished {
            meta: ResultMeta { v: 1, slot: 0, call: CallId::new(call)?, attempt: 1, opened_by: String::new() },
            text: text.to_owned(),
            reasoning: String::new(),
            tool_calls,
            finish_reason: FinishReason::Stop,
            raw_finish_reason: String::new(),
            usage: Usage::default(),
            cost_usd: 0.0,
            provider: String::new(),
            model: String::new(),
            latency_ms: 1,
            replay: None,
            run: String::new(),
        };
        self.input(Verb::ModelFinished, &format!("{call}-1"), Body::ModelFinished(Box::new(finished)))
    }

    pub(crate) fn result(&self, content: &str) -> anyhow::Result<Input> {
        let open = self.session.open_calls();
        let call = open.first().and_then(|call| call.strip_suffix(".1")).context("no call is open")?;
        let result = ToolResult {
            whole: None,
            used: None,
            meta: ResultMeta { v: 1, slot: 0, call: CallId::new(call)?, attempt: 1, opened_by: String::new() },
            outcome: Outcome::Ok,
            content: content.to_owned(),
            code: None,
            duration_ms: 1,
        };
        self.input(Verb::ProvideToolResult, &format!("{call}-1"), Body::ToolResult(result))
    }
}
