//! Parses a delivered message into an input of the loop, and reads what the loop needs to decide about it.

use std::collections::BTreeSet;

use bus::{Bus, BusError, Stored};
use contract::client_tool::AnswerToolCall;
use contract::command::{Answer, CommandMeta, Configure, ControlReason, SendUserMessage, Start, Verb};
use contract::compose::ComposeRequest;
use contract::event::{InputKind, InputRef};
use contract::json::Size;
use contract::limits::{API_KEY_AGENTS_MAX, COMMAND_BYTES_MAX, JSON_VALUES_MAX};
use contract::model::{ModelFailed, ModelFinished};
use contract::streams::Objects;
use contract::subject::{ControlSubject, SessionKey};
use contract::tool::{ExtendToolCall, ToolResult};
use contract::trace::TraceContext;
use contract::{AgentId, CommandId, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use session::{Body, ConfigureInput, Input, Recompose, check};

use crate::config::IdleTimes;
use crate::mark::{MarkClaim, StreamPosition};
use crate::start::{StartReads, compose, list_tools, resolve_start};

/// Values and names that the edge adds as `meta` to what a client sends.
const META_VALUES_MAX: usize = API_KEY_AGENTS_MAX + 16;

/// A delivered input, before the prompt and the tools that its decision needs are read.
#[derive(Debug, Clone)]
pub(crate) struct DeliveredInput {
    pub(crate) key: SessionKey,
    pub(crate) reference: InputRef,
    /// Position of a client command in the control stream.
    pub(crate) position: Option<StreamPosition>,
    /// Set where its commit may claim that the commands before it are handled.
    claim: Option<MarkClaim>,
    /// The latest slot that the sender knew. The state is loaded at least up to it.
    pub(crate) known_slot: Option<u64>,
    /// The edge replica that waits for the acknowledgement.
    pub(crate) edge: Option<CommandId>,
    time: Option<Timestamp>,
    by: Option<String>,
    agents: Option<BTreeSet<AgentId>>,
    parent_command_number: Option<u64>,
    /// The position in a trace that the message names.
    pub(crate) trace: Option<TraceContext>,
    body: DeliveredBody,
}

#[derive(Debug, Clone)]
enum DeliveredBody {
    Start(Box<Start>),
    Configure(Box<Configure>),
    Ready(Body),
}

impl DeliveredInput {
    /// An input of which only the identity is known.
    fn new(key: SessionKey, kind: InputKind, id: CommandId) -> Self {
        Self {
            key,
            reference: InputRef { kind, id },
            position: None,
            claim: None,
            known_slot: None,
            edge: None,
            time: None,
            by: None,
            agents: None,
            parent_command_number: None,
            trace: None,
            body: DeliveredBody::Ready(Body::Timer),
        }
    }

    /// The input of timer `number`, which is due. `None` if the number makes no id.
    pub(crate) fn timer(key: SessionKey, number: u64) -> Option<Self> {
        let id = CommandId::new(&number.to_string()).ok()?;
        Some(Self::new(key, InputKind::Timer, id))
    }

    /// Loads the body of a control message and parses it. After [`BusError::Malformed`] another read has the same
    /// result; after any other error a retry may load the body.
    pub(crate) async fn read(bus: &Bus, subject: ControlSubject, message: Stored) -> Result<Self, BusError> {
        let trace = bus::transport::header(&message.headers, contract::tool::header::TRACEPARENT);
        let trace = trace.and_then(|text| text.parse().ok());
        let (seq, stored_at) = (message.seq, message.stored_at);
        let body = bus.load_body(Objects::Work, message.payload, stored_at).await?;
        let ControlSubject { key, verb, id } = subject;
        if verb.is_client() {
            check_size(&body)?;
        }
        let position = verb.is_client().then_some(StreamPosition { seq, stored_at });
        let mut input = Self { position, trace, ..Self::new(key, InputKind::Control(verb), id) };
        input.body = match verb {
            Verb::Start => DeliveredBody::Start(Box::new(input.command::<Start>(&body)?)),
            Verb::SendUserMessage => DeliveredBody::Ready(Body::Send(input.command::<SendUserMessage>(&body)?)),
            Verb::Pause => DeliveredBody::Ready(Body::Pause(input.command::<ControlReason>(&body)?)),
            Verb::Resume => DeliveredBody::Ready(Body::Resume(input.command::<ControlReason>(&body)?)),
            Verb::Stop => DeliveredBody::Ready(Body::Stop(input.command::<ControlReason>(&body)?)),
            Verb::Answer => DeliveredBody::Ready(Body::Answer(input.command::<Answer>(&body)?)),
            Verb::AnswerToolCall => DeliveredBody::Ready(Body::AnswerToolCall(input.command::<AnswerToolCall>(&body)?)),
            Verb::CancelTurn => DeliveredBody::Ready(Body::CancelTurn(input.command::<ControlReason>(&body)?)),
            Verb::ClearHistory => DeliveredBody::Ready(Body::Clear(input.command::<ControlReason>(&body)?)),
            Verb::Configure => DeliveredBody::Configure(Box::new(input.command::<Configure>(&body)?)),
            Verb::ProvideToolResult => {
                let result: ToolResult = parse(&body)?;
                input.known_slot = Some(result.meta.slot);
                DeliveredBody::Ready(Body::ToolResult(result))
            }
            Verb::ExtendToolCall => {
                let extension: ExtendToolCall = parse(&body)?;
                input.known_slot = Some(extension.meta.slot);
                DeliveredBody::Ready(Body::Extend(extension))
            }
            Verb::ModelFinished => {
                let finished: Box<ModelFinished> = parse(&body)?;
                input.known_slot = Some(finished.meta.slot);
                input.reference.id = run_input_id(input.reference.id, &finished.run);
                DeliveredBody::Ready(Body::ModelFinished(finished))
            }
            Verb::ModelFailed => {
                let failed: ModelFailed = parse(&body)?;
                input.known_slot = Some(failed.meta.slot);
                input.reference.id = run_input_id(input.reference.id, &failed.run);
                DeliveredBody::Ready(Body::ModelFailed(failed))
            }
        };
        Ok(input)
    }

    fn command<T: DeserializeOwned>(&mut self, body: &[u8]) -> Result<T, BusError> {
        // The body's own fields are strict; `meta` stands beside them, so it is taken out first.
        let mut fields: serde_json::Map<String, serde_json::Value> = parse(body)?;
        let meta = fields.remove("meta").unwrap_or_default();
        let meta = CommandMeta::deserialize(meta).map_err(|error| BusError::Malformed(format!("meta: {error}")))?;
        self.time = Some(meta.time);
        self.by = meta.by;
        self.agents = meta.agents;
        self.edge = meta.edge;
        self.parent_command_number = meta.parent_command_number;
        T::deserialize(serde_json::Value::Object(fields)).map_err(|error| BusError::Malformed(error.to_string()))
    }

    /// Whether this is a command of a client.
    pub(crate) fn is_client(&self) -> bool {
        matches!(self.reference.kind, InputKind::Control(verb) if verb.is_client())
    }

    /// The trace of a turn that this command begins: the one that its sender names, else a new one, so that logs can
    /// name the turn also where nothing is traced.
    fn turn_traceparent(&self) -> String {
        self.trace.unwrap_or_else(|| telemetry::trace::begin(uuid::Uuid::now_v7().as_u128())).to_string()
    }

    /// Lets its commit claim that the commands before it are handled.
    pub(crate) fn in_order(mut self, claim: MarkClaim) -> Self {
        self.claim = Some(claim);
        self
    }

    /// The mark of its commit in this slot, if the commit may have one.
    fn mark(&self, slot: u64) -> Option<StreamPosition> {
        self.position.filter(|_| self.claim.is_some_and(|claim| claim.holds_in(slot)))
    }

    /// Whether one commit may contain several such inputs that wait at the same time.
    pub(crate) fn can_share_commit(&self) -> bool {
        matches!(self.body, DeliveredBody::Ready(Body::ToolResult(_)))
    }

    pub(crate) fn is_start(&self) -> bool {
        matches!(self.body, DeliveredBody::Start(_))
    }

    /// Reads what the decision needs: the composed prompt of a start, and the tools if a turn may begin.
    pub(crate) async fn resolve(
        &self,
        bus: &Bus,
        reads: &StartReads,
        session: &session::Session,
        times: IdleTimes,
    ) -> Result<Input, BusError> {
        let tenant = &self.key.tenant;
        let (body, tools) = match &self.body {
            DeliveredBody::Start(start) => {
                let (input, tools) = resolve_start(bus, reads, tenant, start, self.agents.as_ref()).await?;
                (Body::Start(Box::new(input)), Some(tools))
            }
            DeliveredBody::Configure(configure) => {
                let recompose = check::configure(configure).ok().and_then(|()| session.recomposes(configure));
                let (composed, known) = match recompose {
                    Some(Recompose { agent, model, features, continuation, ai_config, tools: only }) => {
                        let tools = list_tools(bus, reads, tenant).await?;
                        let agent = Some(agent);
                        let start =
                            Start { agent, model, features, ai_config, tools: only, continuation, ..Start::default() };
                        let named_features = configure.features.clone();
                        let request = ComposeRequest::of_start(tenant.clone(), &start, Vec::new());
                        let request = ComposeRequest { named_features, ..request };
                        (Some(compose(bus, reads, request, &tools).await?), Some(tools))
                    }
                    None => (None, None),
                };
                let configure = (**configure).clone();
                (Body::Configure(Box::new(ConfigureInput { configure, composed })), known)
            }
            DeliveredBody::Ready(body) => {
                let tools = if session.wants_tools(body) { Some(list_tools(bus, reads, tenant).await?) } else { None };
                (body.clone(), tools)
            }
        };
        let mark = self.mark(session.next_slot());
        Ok(Input {
            reference: self.reference.clone(),
            control_seq: mark.map(|mark| mark.seq),
            control_at: mark.map(|mark| mark.stored_at),
            sent: self.time,
            by: self.by.clone(),
            agents: self.agents.clone(),
            parent_command_number: self.parent_command_number,
            traceparent: self.is_client().then(|| self.turn_traceparent()),
            tools,
            archive_after: times.archive_after,
            compact_after: times.compact_after,
            body,
        })
    }
}

/// The id of the result of one run. Results of one attempt share a subject, so that a second one is not stored while
/// the first one waits. A result that arrives after the first one was handled is another input, whose costs are
/// counted.
fn run_input_id(id: CommandId, run: &str) -> CommandId {
    if run.is_empty() || id.as_str().ends_with(run) {
        return id;
    }
    CommandId::new(&format!("{id}-{run}")).unwrap_or(id)
}

/// Refuses a command that is too large before it is parsed, since a value takes far more memory than its text. The edge
/// checks the same, so only other senders get here.
fn check_size(body: &[u8]) -> Result<(), BusError> {
    let values = Size::of(body).values;
    if body.len() > COMMAND_BYTES_MAX {
        let why = format!("the command has {} bytes, at most {COMMAND_BYTES_MAX} are allowed", body.len());
        return Err(BusError::Malformed(why));
    }
    if values > JSON_VALUES_MAX + META_VALUES_MAX {
        let why = format!("the command holds {values} values and names, at most {JSON_VALUES_MAX} are allowed");
        return Err(BusError::Malformed(why));
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, BusError> {
    serde_json::from_slice(body).map_err(|error| BusError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it stands")]

    use bus_memory::MemoryServer;
    use bytes::Bytes;
    use contract::TenantId;
    use serde_json::json;

    use super::*;

    async fn read(id: &str, verb: Verb, run: &str) -> InputRef {
        let key = SessionKey { tenant: TenantId::default(), session: contract::SessionId::new("s").unwrap() };
        let meta = json!({"v": 1, "slot": 0, "call": "m1-1", "attempt": 1});
        let body = json!({"meta": meta, "kind": "overloaded", "run": run}).to_string();
        let message = Stored {
            seq: 1,
            stored_at: Timestamp::default(),
            generation: 1,
            subject: String::new(),
            headers: bus::Headers::default(),
            payload: Bytes::from(body),
        };
        let subject = ControlSubject { key, verb, id: CommandId::new(id).unwrap() };
        DeliveredInput::read(&MemoryServer::new().bus(), subject, message).await.unwrap().reference
    }

    #[tokio::test]
    async fn result_of_another_run_of_an_attempt_is_another_input() {
        for verb in [Verb::ModelFinished, Verb::ModelFailed] {
            let one = read("m1-1-1", verb, "a1").await;
            assert_ne!(one, read("m1-1-1", verb, "b2").await);
            assert_eq!(one, read("m1-1-1-a1", verb, "a1").await, "also under the id of its run");
            assert_eq!(read("m1-1-1", verb, "").await.id.as_str(), "m1-1-1", "of an older gateway");
        }
    }

    #[test]
    fn command_over_a_size_limit_is_refused_before_it_is_parsed() {
        let empty_messages =
            format!(r#"{{"messages":[{}]}}"#, vec![r#"{"role":"user","content":""}"#; 90_000].join(","));
        for (body, part) in [
            (empty_messages, "values and names, at most 32768"),
            (" ".repeat(COMMAND_BYTES_MAX + 1), "has 8388609 bytes, at most 8388608"),
        ] {
            let Err(BusError::Malformed(why)) = check_size(body.as_bytes()) else { panic!("accepted: {part}") };
            assert!(why.contains(part), "{why}");
        }
        assert!(check_size(br#"{"prompt":"hi"}"#).is_ok());
    }
}
