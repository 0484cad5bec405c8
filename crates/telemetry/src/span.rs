//! The live spans of services: what only the process knows that does the work. Never one per chunk, and never message
//! contents. Spans of turns and calls follow from the log: see the package `session-trace`.

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

/// One request to a provider of models; [`replied`] or [`failed`] fills it in.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// Id of the session, without its tenant.
    pub session: &'a str,
    /// Id of the call.
    pub call: &'a str,
    /// Number of the attempt of the call, from 1.
    pub attempt: u32,
    /// Number of the delivery of the attempt, from 1.
    pub delivery: u64,
    /// Number of the request of the delivery, from 1.
    pub number: u32,
    /// Key of the provider in `models.yaml`.
    pub provider: &'a str,
    /// The provider's name for the model.
    pub model: &'a str,
}

/// Opens the span of one request: `POST`.
pub fn model_request(what: ModelRequest<'_>) -> Span {
    let ModelRequest { session, call, attempt, delivery, number, provider, model } = what;
    tracing::debug_span!(
        target: TARGET, "model_request", otel.name = name::REQUEST, otel.kind = "client", otel.status_code = Empty,
        { attr::HTTP_METHOD } = "POST", { attr::RESEND_COUNT } = whole(number.saturating_sub(1)),
        { attr::CONVERSATION } = session, { attr::CALL } = call, { attr::ATTEMPT } = whole(attempt),
        { attr::DELIVERY } = whole(delivery), { attr::MODEL } = model, { attr::PROVIDER } = provider,
        { attr::FIRST_CHUNK } = Empty, { attr::CHUNKS } = Empty, { attr::ERROR } = Empty,
    )
}

/// Fills in a span of [`model_request`]: seconds to the first chunk, and the chunks that were published.
pub fn replied(span: &Span, first_chunk: Option<f64>, chunks: u64) {
    span.record(attr::FIRST_CHUNK, first_chunk).record(attr::CHUNKS, whole(chunks));
}

/// One delivery of a tool call to an executor: `call {tool}`; [`outcome`] fills it in.
pub fn tool_delivery(session: &str, call: &str, attempt: u32, delivery: u64, tool: &str) -> Span {
    tracing::debug_span!(
        target: TARGET, "tool_delivery", otel.name = two(name::CALL, tool), otel.status_code = Empty,
        { attr::CONVERSATION } = session, { attr::TOOL } = tool, { attr::TOOL_CALL } = call,
        { attr::ATTEMPT } = whole(attempt), { attr::DELIVERY } = whole(delivery), { attr::OUTCOME } = Empty,
        { attr::ERROR } = Empty,
    )
}

/// Fills in a span of [`tool_delivery`].
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
        .record(attr::PROMPT_BYTES, whole(bytes as u64))
        .record(attr::PROMPT_COMPONENTS, whole(components as u64));
}

/// Marks any of these spans as failed, with a stable code.
pub fn failed(span: &Span, code: &str) {
    span.record("otel.status_code", "ERROR").record(attr::ERROR, code);
}

/// A whole number as spans carry it: an unsigned one would be exported as a text.
fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// `<operation> <name>`, formatted only where a span is really made: the macro evaluates a field's value lazily.
fn two(operation: &str, name: &str) -> String {
    format!("{operation} {name}")
}
