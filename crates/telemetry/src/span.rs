//! The spans of all services. One span per piece of work; never one per chunk, and never message contents.

use opentelemetry::KeyValue;
use tracing::Span;
use tracing::field::Empty;

use crate::names::{TARGET, attr, span as name};

/// A client's request at the edge: `{method}`.
pub fn edge_request(method: &str, session: Option<&str>) -> Span {
    tracing::debug_span!(
        target: TARGET, "edge", otel.name = method, otel.kind = "server", otel.status_code = Empty,
        { attr::RPC_SYSTEM } = "jsonrpc", { attr::RPC_METHOD } = method, { attr::CONVERSATION } = session,
        { attr::ERROR } = Empty,
    )
}

/// A step of a session: `invoke_agent {agent}`.
pub fn step(session: &str, turn: u32, step: u32, agent: &str) -> Span {
    tracing::debug_span!(
        target: TARGET, "step", otel.name = two(name::INVOKE_AGENT, agent), otel.status_code = Empty,
        { attr::OPERATION } = name::INVOKE_AGENT, { attr::AGENT } = agent, { attr::CONVERSATION } = session,
        { attr::TURN } = turn, { attr::STEP } = step, { attr::STOP_REASON } = Empty, { attr::ERROR } = Empty,
    )
}

/// A turn that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    /// The `traceparent` that was committed when it began; the span's parent.
    pub traceparent: &'a str,
    /// Id of the session, without its tenant.
    pub session: &'a str,
    /// Its number, from 1.
    pub number: u32,
    /// Key of the agent in `agents.yaml`.
    pub agent: &'a str,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Why the turn or call ended.
    pub stop_reason: &'a str,
}

/// Sends the span of a whole turn, `turn {agent}`. It is made when the turn ends, from the times in the log, since a
/// turn outlives the processes that take part in it.
pub fn turn(what: &Turn<'_>) {
    let Turn { traceparent, session, number, agent, started_ms, ended_ms, stop_reason } = *what;
    let name = two(name::TURN, agent);
    let attributes = vec![
        KeyValue::new(attr::AGENT, agent.to_owned()),
        KeyValue::new(attr::CONVERSATION, session.to_owned()),
        KeyValue::new(attr::TURN, i64::from(number)),
        KeyValue::new(attr::STOP_REASON, stop_reason.to_owned()),
    ];
    crate::trace::send(traceparent, name, (started_ms, ended_ms), attributes);
}

/// The decision about a reply: `continuation.decide`; [`decided`] fills it in.
pub fn decide() -> Span {
    tracing::debug_span!(
        target: TARGET, "decide", otel.name = name::DECIDE, { attr::STATUS } = Empty, { attr::SOURCE } = Empty,
        { attr::ITERATION } = Empty, { attr::MAX_ITERATIONS } = Empty, { attr::CONTINUES } = Empty,
    )
}

/// What was decided about a reply.
#[derive(Debug, Clone, Copy)]
pub struct Decided<'a> {
    /// The signal's status, or `UNKNOWN`.
    pub status: &'a str,
    /// What made the decision.
    pub source: &'a str,
    /// The step's number within its turn.
    pub iteration: u32,
    /// Steps that the turn may have.
    pub max_iterations: u32,
    /// Whether another step follows.
    pub continues: bool,
}

/// Fills in a span of [`decide`].
pub fn decided(span: &Span, what: Decided<'_>) {
    span.record(attr::STATUS, what.status)
        .record(attr::SOURCE, what.source)
        .record(attr::ITERATION, what.iteration)
        .record(attr::MAX_ITERATIONS, what.max_iterations)
        .record(attr::CONTINUES, what.continues);
}

/// One try of a model call: `chat {model}`; [`replied`] or [`failed`] fills it in.
pub fn chat(session: &str, call: &str, attempt: &str, model: &str, provider: &str) -> Span {
    tracing::debug_span!(
        target: TARGET, "chat", otel.name = two(name::CHAT, model), otel.kind = "client",
        otel.status_code = Empty, { attr::OPERATION } = name::CHAT, { attr::CONVERSATION } = session,
        { attr::CALL } = call, { attr::ATTEMPT } = attempt, { attr::MODEL } = model, { attr::PROVIDER } = provider,
        { attr::RESPONSE_MODEL } = Empty, { attr::FINISH_REASON } = Empty, { attr::FIRST_CHUNK } = Empty,
        { attr::INPUT_TOKENS } = Empty, { attr::OUTPUT_TOKENS } = Empty, { attr::CACHED_TOKENS } = Empty,
        { attr::REASONING_TOKENS } = Empty, { attr::CHUNKS } = Empty, { attr::COST } = Empty,
        { attr::ERROR } = Empty,
    )
}

/// What came of a model call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Replied<'a> {
    /// The model that answered, in the provider's words.
    pub model: &'a str,
    /// Why the reply ended.
    pub finish_reason: &'a str,
    /// Seconds to the first chunk, where there was one.
    pub first_chunk: Option<f64>,
    /// Chunks that were published.
    pub chunks: u64,
    /// Tokens of the request.
    pub input: u64,
    /// Tokens of the reply.
    pub output: u64,
    /// Of the input, those that the provider had cached.
    pub cached: u64,
    /// Of the output, those of reasoning.
    pub reasoning: u64,
    /// Cost of the call in US dollars.
    pub cost_usd: f64,
}

/// Fills in a span of [`chat`].
pub fn replied(span: &Span, what: &Replied<'_>) {
    span.record(attr::RESPONSE_MODEL, what.model)
        .record(attr::FINISH_REASON, what.finish_reason)
        .record(attr::FIRST_CHUNK, what.first_chunk)
        .record(attr::CHUNKS, what.chunks)
        .record(attr::INPUT_TOKENS, what.input)
        .record(attr::OUTPUT_TOKENS, what.output)
        .record(attr::CACHED_TOKENS, what.cached)
        .record(attr::REASONING_TOKENS, what.reasoning)
        .record(attr::COST, what.cost_usd);
}

/// One try of a tool call: `execute_tool {tool}`; [`outcome`] fills it in.
pub fn execute_tool(session: &str, call: &str, attempt: &str, tool: &str) -> Span {
    tracing::debug_span!(
        target: TARGET, "execute_tool", otel.name = two(name::EXECUTE_TOOL, tool), otel.status_code = Empty,
        { attr::OPERATION } = name::EXECUTE_TOOL, { attr::CONVERSATION } = session, { attr::TOOL } = tool,
        { attr::TOOL_CALL } = call, { attr::ATTEMPT } = attempt, { attr::OUTCOME } = Empty,
        { attr::ERROR } = Empty,
    )
}

/// Fills in a span of [`execute_tool`].
pub fn outcome(span: &Span, outcome: &str) {
    span.record(attr::OUTCOME, outcome);
}

/// The composition of an agent's prompt: `compose {agent}`; [`composed`] fills it in.
pub fn compose(agent: &str) -> Span {
    tracing::debug_span!(
        target: TARGET, "compose", otel.name = two(name::COMPOSE, agent), otel.status_code = Empty,
        { attr::PROMPT } = agent, { attr::PROMPT_VERSION } = Empty, { attr::PROMPT_BYTES } = Empty,
        { attr::PROMPT_COMPONENTS } = Empty, { attr::ERROR } = Empty,
    )
}

/// Fills in a span of [`compose`].
pub fn composed(span: &Span, fingerprint: &str, bytes: usize, components: usize) {
    span.record(attr::PROMPT_VERSION, fingerprint)
        .record(attr::PROMPT_BYTES, bytes as u64)
        .record(attr::PROMPT_COMPONENTS, components as u64);
}

/// Marks any of these spans as failed, with a stable code.
pub fn failed(span: &Span, code: &str) {
    span.record("otel.status_code", "ERROR").record(attr::ERROR, code);
}

/// `<operation> <name>`, formatted only where a span is really made: the macro evaluates a field's value lazily.
fn two(operation: &str, name: &str) -> String {
    format!("{operation} {name}")
}
