//! From a delivered message to an input of the loop: parsed once, at the border.

use bus::{Bus, BusError, Read, Stored};
use contract::command::{Answer, CommandMeta, Configure, ControlReason, Refusal, SendUserMessage, Start, Verb};
use contract::compose::{ComposeReply, ComposeRequest};
use contract::event::{InputKind, InputRef};
use contract::json::Size;
use contract::limits::{COMMAND_BYTES_MAX, JSON_VALUES_MAX, RESUME_BYTES_MAX};
use contract::model::{Message, ModelFailed, ModelFinished};
use contract::streams::Objects;
use contract::subject::{ControlSubject, SessionKey};
use contract::tool::{ASK_USER, DELEGATE, ExtendToolCall, ToolResult, ToolSpec};
use contract::{CommandId, ErrorCode, TenantId, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use session::{Body, ConfigureInput, Input, Recompose, RestoreError, StartInput, check};
use std::sync::Arc;
use std::time::Duration;

/// An input as it was sent: everything but what must be read for it.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) key: SessionKey,
    pub(crate) reference: InputRef,
    /// For client commands: their sequence in the control stream.
    pub(crate) control_seq: Option<u64>,
    /// For client commands: when the control stream took them, by the server's clock.
    pub(crate) control_at: Option<Timestamp>,
    /// The slot that the sender knew of: an older state is loaded first.
    pub(crate) hint: Option<u64>,
    /// The edge replica that waits for word.
    pub(crate) edge: Option<CommandId>,
    time: Option<Timestamp>,
    by: Option<String>,
    told: Option<u64>,
    pub(crate) traceparent: Option<String>,
    body: SentBody,
}

#[derive(Debug, Clone)]
enum SentBody {
    Start(Box<Start>),
    Configure(Box<Configure>),
    Ready(Body),
}

/// Why a message is no input.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// It never will be one.
    Malformed(String),
    /// Its body cannot be had now.
    Later(BusError),
}

impl Sent {
    /// A due timer.
    pub(crate) fn timer(key: SessionKey, number: u64) -> Option<Self> {
        let id = CommandId::new(&number.to_string()).ok()?;
        Some(Self {
            key,
            reference: InputRef { kind: InputKind::Timer, id },
            control_seq: None,
            control_at: None,
            hint: None,
            edge: None,
            time: None,
            by: None,
            told: None,
            traceparent: None,
            body: SentBody::Ready(Body::Timer),
        })
    }

    /// Reads a control message.
    pub(crate) async fn read(bus: &Bus, subject: ControlSubject, message: Stored) -> Result<Self, Unreadable> {
        let traceparent = bus::transport::header(&message.headers, contract::tool::header::TRACEPARENT);
        let traceparent = traceparent.map(str::to_owned);
        let (seq, stored_at) = (message.seq, message.stored_at);
        let body = match bus.load_body(Objects::Work, message.payload, stored_at).await {
            Ok(body) => body,
            Err(BusError::Malformed(why)) => return Err(Unreadable::Malformed(why)),
            Err(error) => return Err(Unreadable::Later(error)),
        };
        let ControlSubject { key, verb, id } = subject;
        if verb.is_client() {
            check_size(&body)?;
        }
        let mut sent = Self {
            key,
            reference: InputRef { kind: InputKind::Control(verb), id },
            control_seq: verb.is_client().then_some(seq),
            control_at: verb.is_client().then_some(stored_at),
            hint: None,
            edge: None,
            time: None,
            by: None,
            told: None,
            traceparent,
            body: SentBody::Ready(Body::Timer),
        };
        sent.body = match verb {
            Verb::Start => SentBody::Start(Box::new(sent.command::<Start>(&body)?)),
            Verb::SendUserMessage => SentBody::Ready(Body::Send(sent.command::<SendUserMessage>(&body)?)),
            Verb::Pause => SentBody::Ready(Body::Pause(sent.command::<ControlReason>(&body)?)),
            Verb::Resume => SentBody::Ready(Body::Resume(sent.command::<ControlReason>(&body)?)),
            Verb::Stop => SentBody::Ready(Body::Stop(sent.command::<ControlReason>(&body)?)),
            Verb::Answer => SentBody::Ready(Body::Answer(sent.command::<Answer>(&body)?)),
            Verb::ClearHistory => SentBody::Ready(Body::Clear(sent.command::<ControlReason>(&body)?)),
            Verb::Configure => SentBody::Configure(Box::new(sent.command::<Configure>(&body)?)),
            Verb::ProvideToolResult => {
                let result: ToolResult = parse(&body)?;
                sent.hint = Some(result.meta.slot);
                SentBody::Ready(Body::ToolResult(result))
            }
            Verb::ExtendToolCall => {
                let extension: ExtendToolCall = parse(&body)?;
                sent.hint = Some(extension.meta.slot);
                SentBody::Ready(Body::Extend(extension))
            }
            Verb::ModelFinished => {
                let finished: Box<ModelFinished> = parse(&body)?;
                sent.hint = Some(finished.meta.slot);
                sent.reference.id = id_of_run(sent.reference.id, &finished.run);
                SentBody::Ready(Body::ModelFinished(finished))
            }
            Verb::ModelFailed => {
                let failed: ModelFailed = parse(&body)?;
                sent.hint = Some(failed.meta.slot);
                sent.reference.id = id_of_run(sent.reference.id, &failed.run);
                SentBody::Ready(Body::ModelFailed(failed))
            }
        };
        Ok(sent)
    }

    fn command<T: DeserializeOwned>(&mut self, body: &[u8]) -> Result<T, Unreadable> {
        // The body's own fields are strict; `meta` stands beside them, so it is taken out first.
        let mut fields: serde_json::Map<String, serde_json::Value> = parse(body)?;
        let meta = fields.remove("meta").unwrap_or_default();
        let meta = CommandMeta::deserialize(meta).map_err(|error| Unreadable::Malformed(format!("meta: {error}")))?;
        self.time = Some(meta.time);
        self.by = meta.by;
        self.edge = meta.edge;
        self.told = meta.told;
        T::deserialize(serde_json::Value::Object(fields)).map_err(|error| Unreadable::Malformed(error.to_string()))
    }

    /// Whether a client sent it.
    pub(crate) fn is_client(&self) -> bool {
        self.control_seq.is_some()
    }

    /// The trace of a turn that this command begins: the client's, else ours, else an id of its own, so that a turn can
    /// be named in logs also where nothing is traced.
    fn trace(&self) -> String {
        let given = self.traceparent.clone().or_else(telemetry::trace::current);
        given.unwrap_or_else(|| {
            let (trace, span) = (uuid::Uuid::now_v7().simple(), uuid::Uuid::now_v7().simple().to_string());
            format!("00-{trace}-{}-00", &span[16..])
        })
    }

    /// The same, without claiming anything about commands before it.
    pub(crate) fn alone(mut self) -> Self {
        (self.control_seq, self.control_at) = (None, None);
        self
    }

    /// Whether several of its kind may share a commit: results that wait together are folded together.
    pub(crate) fn may_share(&self) -> bool {
        matches!(self.body, SentBody::Ready(Body::ToolResult(_)))
    }

    /// Reads what the decision needs: the composed prompt of a start, the tools where a turn may begin.
    pub(crate) async fn complete(
        &self,
        bus: &Bus,
        session: &session::Session,
        archive_after: Duration,
    ) -> Result<Input, BusError> {
        let tenant = &self.key.tenant;
        let (body, tools) = match &self.body {
            SentBody::Start(start) => {
                let tools = tools(bus, tenant).await?;
                // What will be refused is not composed.
                let refused = |refusal| (Vec::new(), (**start).clone(), Err(refusal));
                let (history, start, composed) = match check::start(start) {
                    Err(refusal) => refused(refusal),
                    Ok(()) => match history(bus, tenant, start).await? {
                        Ok((history, whole)) => {
                            let named_features = start.features.clone();
                            let request = ComposeRequest::of_start(tenant.clone(), &whole, tools.clone());
                            let request = ComposeRequest { named_features, ..request };
                            let composed = compose(bus, request).await?;
                            (history, whole, composed)
                        }
                        Err(refusal) => refused(refusal),
                    },
                };
                (Body::Start(Box::new(StartInput { start, history, composed })), Some(tools))
            }
            SentBody::Configure(configure) => {
                let wanted = check::configure(configure).ok().and_then(|()| session.recomposes(configure));
                let (composed, known) = match wanted {
                    Some(Recompose { agent, model, features, continuation, ai_config, tools: only }) => {
                        let tools = tools(bus, tenant).await?;
                        let agent = Some(agent);
                        let start =
                            Start { agent, model, features, ai_config, tools: only, continuation, ..Start::default() };
                        let named_features = configure.features.clone();
                        let request = ComposeRequest::of_start(tenant.clone(), &start, tools.clone());
                        let request = ComposeRequest { named_features, ..request };
                        (Some(compose(bus, request).await?), Some(tools))
                    }
                    None => (None, None),
                };
                let configure = (**configure).clone();
                (Body::Configure(Box::new(ConfigureInput { configure, composed })), known)
            }
            SentBody::Ready(body) => {
                let tools = if session.wants_tools(body) { Some(tools(bus, tenant).await?) } else { None };
                (body.clone(), tools)
            }
        };
        Ok(Input {
            reference: self.reference.clone(),
            control_seq: self.control_seq,
            control_at: self.control_at,
            sent: self.time,
            by: self.by.clone(),
            told: self.told,
            traceparent: self.is_client().then(|| self.trace()),
            tools: tools.map(Arc::new),
            archive_after,
            body,
        })
    }
}

/// The id of one run's result. Results of one attempt share a subject, so that a second one is not stored while a first one
/// waits; a result that comes after the first one was handled is another input, of which the costs are taken.
fn id_of_run(id: CommandId, run: &str) -> CommandId {
    if run.is_empty() || id.as_str().ends_with(run) {
        return id;
    }
    CommandId::new(&format!("{id}-{run}")).unwrap_or(id)
}

/// The transcript of the session that a start resumes from, and the start with what it takes over from there.
async fn history(
    bus: &Bus,
    tenant: &TenantId,
    start: &Start,
) -> Result<Result<(Vec<Message>, Start), Refusal>, BusError> {
    let Some(from) = &start.resume_from else { return Ok(Ok((Vec::new(), start.clone()))) };
    let key = SessionKey { tenant: tenant.clone(), session: from.session_id.clone() };
    let refuse = |code, message| Ok(Err(Refusal { code, message }));
    if let Some(at) = from.at
        && let Some(head) = bus.head(&key, Read::Leader).await?
        && at > head.end()
    {
        let message =
            format!("there is no slot {at}: the log of session {} ends with slot {}", from.session_id, head.end());
        return refuse(ErrorCode::BadRequest, message);
    }
    let Some(commits) = bus.load_until(&key, from.at).await? else {
        if bus.head(&key, Read::Leader).await?.is_some() {
            let message = format!("what session {} was then is gone from the archive", from.session_id);
            return refuse(ErrorCode::Resync, message);
        }
        return refuse(ErrorCode::UnknownSession, format!("there is no session {} to resume from", from.session_id));
    };
    let older = match session::Session::restore(key, &commits) {
        Ok(older) => older,
        Err(RestoreError::Newer { .. }) => {
            let message = format!("session {} was written by a newer version; resume from it there", from.session_id);
            return refuse(ErrorCode::NotNow, message);
        }
        Err(error @ RestoreError::Snapshot(_)) => return Err(BusError::Malformed(error.to_string())),
    };
    let messages = older.export_transcript();
    let bytes: usize = messages.iter().map(|message| contract::Json::of(message).get().len()).sum();
    if bytes > RESUME_BYTES_MAX {
        let message = format!("the transcript has {bytes} bytes; at most {RESUME_BYTES_MAX} are taken over");
        return refuse(ErrorCode::TooLarge, message);
    }
    Ok(Ok((messages, older.continued_by(start.clone()))))
}

/// Every tool of the tenant, with those that the loop performs itself: nobody else serves them.
async fn tools(bus: &Bus, tenant: &TenantId) -> Result<Vec<ToolSpec>, BusError> {
    let mut tools = bus.tools(tenant).await?;
    tools.retain(|tool| ![DELEGATE, ASK_USER].contains(&tool.name.as_str()));
    tools.extend([session::delegate_spec(), session::ask_user_spec()]);
    Ok(tools)
}

async fn compose(
    bus: &Bus,
    request: ComposeRequest,
) -> Result<Result<Box<contract::compose::Composed>, Refusal>, BusError> {
    Ok(match bus.compose(&request).await? {
        ComposeReply::Composed(composed) if composed.ai_config.is_none() && request.ai_config.needs_composer() => {
            let why = "a prompt-composer of an older version answers, which does not know ai_config";
            return Err(BusError::Unavailable(why.to_owned()));
        }
        ComposeReply::Composed(composed) => Ok(composed),
        ComposeReply::Refused { code, message } => Err(Refusal { code, message }),
    })
}

/// Refuses a command before it is parsed: a value takes far more memory than its text. The edge sends none of these.
fn check_size(body: &[u8]) -> Result<(), Unreadable> {
    let values = Size::of(body).values;
    if body.len() > COMMAND_BYTES_MAX {
        let why = format!("the command has {} bytes, at most {COMMAND_BYTES_MAX} are taken", body.len());
        return Err(Unreadable::Malformed(why));
    }
    if values > JSON_VALUES_MAX {
        let why = format!("the command holds {values} values and names, at most {JSON_VALUES_MAX} are taken");
        return Err(Unreadable::Malformed(why));
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(body).map_err(|error| Unreadable::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it stands")]

    use bus::MemoryServer;
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    async fn read(id: &str, verb: Verb, run: &str) -> InputRef {
        let key = SessionKey { tenant: TenantId::default(), session: contract::SessionId::new("s").unwrap() };
        let meta = json!({"v": 1, "slot": 0, "call": "m1-1", "attempt": 1});
        let body = json!({"meta": meta, "kind": "overloaded", "run": run}).to_string();
        let message = Stored {
            seq: 1,
            stored_at: Timestamp::default(),
            subject: String::new(),
            headers: bus::Headers::default(),
            payload: Bytes::from(body),
        };
        let subject = ControlSubject { key, verb, id: CommandId::new(id).unwrap() };
        Sent::read(&MemoryServer::new().bus(), subject, message).await.unwrap().reference
    }

    #[tokio::test]
    async fn each_run_of_an_attempt_is_an_input_of_its_own() {
        for verb in [Verb::ModelFinished, Verb::ModelFailed] {
            let one = read("m1-1-1", verb, "a1").await;
            assert_ne!(one, read("m1-1-1", verb, "b2").await);
            assert_eq!(one, read("m1-1-1-a1", verb, "a1").await, "also under the id of its run");
            assert_eq!(read("m1-1-1", verb, "").await.id.as_str(), "m1-1-1", "of an older gateway");
        }
    }

    #[test]
    fn command_that_costs_too_much_is_refused_before_it_is_parsed() {
        let empty_messages =
            format!(r#"{{"messages":[{}]}}"#, vec![r#"{"role":"user","content":""}"#; 90_000].join(","));
        for (body, part) in [
            (empty_messages, "values and names, at most 32768"),
            (" ".repeat(COMMAND_BYTES_MAX + 1), "has 8388609 bytes, at most 8388608"),
        ] {
            let Err(Unreadable::Malformed(why)) = check_size(body.as_bytes()) else { panic!("taken: {part}") };
            assert!(why.contains(part), "{why}");
        }
        assert!(check_size(br#"{"prompt":"hi"}"#).is_ok());
    }
}
