//! An in-memory server, a composer with a fixed reply, orchestrators, and a session to send commands to.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::rpc::RpcServer;
use bus::{Bus, Read, Stored, Subscription, SubscriptionEvent};
use bus_memory::{Fault, Faults, MemoryServer, Operation};
use contract::command::{Command, CommandMeta, ControlReason, Refusal, SendUserMessage, Start, Verb};
use contract::commit::{Commit, CommitMeta, FOLD, Phase, VERSION};
use contract::compose::{ComposeReply, Composed};
use contract::event::{Event, InputIgnored, InputKind, InputRef, Topic};
use contract::ids::{AgentId, CallAttempt, CallId, CommandId, SessionId, TenantId};
use contract::limits::HANDLED_IDS_MAX;
use contract::model::Content;
use contract::settings::{AgentSettings, ContinuationSettings, ModelSettings, ToolFilter};
use contract::streams::Stream;
use contract::subject::{self, SessionKey, Subject};
use contract::{ErrorCode, Timestamp};
use futures::{FutureExt, StreamExt};
use loop_orchestrator::{Clock, Orchestrator, OrchestratorConfig};
use serde::Serialize;
use tokio::time::Instant;

/// Longest virtual time to wait for a condition.
const CONDITION_TIMEOUT: Duration = Duration::from_mins(10);

/// The session of each test.
pub(crate) fn key() -> SessionKey {
    SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() }
}

/// Subject of the first model call of the session.
pub(crate) fn first_model_call() -> Subject {
    subject::model_item(&key(), &CallAttempt { call: CallId::model(1, 1), attempt: 1 })
}

/// Fault rule that a test can replace at any time.
#[derive(Clone, Default)]
pub(crate) struct FaultSwitch(Arc<Mutex<Option<FaultRule>>>);

/// Decides the fault of an operation.
type FaultRule = fn(&Operation<'_>) -> Fault;

impl FaultSwitch {
    pub(crate) fn set(&self, fault: Option<FaultRule>) {
        *self.0.lock().unwrap() = fault;
    }
}

impl Faults for FaultSwitch {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let fault = *self.0.lock().unwrap();
        fault.map_or(Fault::None, |fault| fault(&op))
    }
}

/// A clock that is `ahead` of the server's.
pub(crate) struct ServerClock {
    pub(crate) server: MemoryServer,
    pub(crate) ahead: Duration,
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        self.server.now().after(self.ahead)
    }
}

pub(crate) struct World {
    pub(crate) server: MemoryServer,
    pub(crate) bus: Bus,
    pub(crate) faults: FaultSwitch,
    commands_sent: u64,
    _composer: RpcServer,
}

impl World {
    pub(crate) async fn new() -> Self {
        let faults = FaultSwitch::default();
        let server = MemoryServer::with_faults(Arc::new(faults.clone()));
        let bus = server.client("test").0;
        let answer = || std::future::ready(ComposeReply::Composed(Box::new(composed()))).boxed();
        let composer = bus.serve_compose(move |_| answer()).await.unwrap();
        Self { server, bus, faults, commands_sent: 0, _composer: composer }
    }

    /// A replica whose clock is that of the server.
    pub(crate) async fn orchestrator(&self) -> Orchestrator {
        self.orchestrator_ahead(Duration::ZERO).await
    }

    /// A replica whose clock is ahead of the server's.
    pub(crate) async fn orchestrator_ahead(&self, ahead: Duration) -> Orchestrator {
        let clock = Arc::new(ServerClock { server: self.server.clone(), ahead });
        Orchestrator::with_clock(OrchestratorConfig::default(), self.server.bus(), clock).await.unwrap()
    }

    /// Gives the session a log in which it has handled so many inputs that it forgets one with each further input.
    pub(crate) async fn forget_inputs(&self) {
        let refused = |number: usize| {
            let input = InputRef { kind: InputKind::Timer, id: CommandId::new(&number.to_string()).unwrap() };
            let refusal = Refusal { code: ErrorCode::UnknownSession, message: "no such session".to_owned() };
            Event::InputIgnored(InputIgnored {
                input,
                control_seq: None,
                control_at: None,
                refusal,
                usage: None,
                call: None,
                late: None,
                parent_command_number: None,
                parent: None,
            })
        };
        let meta = CommitMeta {
            v: VERSION,
            commit: "earlier".to_owned(),
            prev: String::new(),
            fold: FOLD,
            phase: Phase::Ended,
            open: Vec::new(),
            control_seq: 0,
            timers: 0,
            seq: 1,
            time: self.server.now(),
            trace_id: String::new(),
            archived: None,
            log_start: None,
            moved: None,
        };
        let events = (1_000_000..1_000_000 + HANDLED_IDS_MAX).map(refused).collect();
        let body = serde_json::to_vec(&Commit { meta, snapshot: None, transcript: None, events }).unwrap();
        self.bus.commit(&key(), 0, "earlier", body.into()).await.unwrap();
    }

    /// Sends a command without waiting for it; returns its id.
    pub(crate) async fn send<T: Serialize>(&mut self, verb: Verb, body: T) -> CommandId {
        self.send_as(verb, CommandMeta::new(self.server.now()), body).await
    }

    /// Sends a command with this head without waiting for it; returns its id.
    pub(crate) async fn send_as<T: Serialize>(&mut self, verb: Verb, meta: CommandMeta, body: T) -> CommandId {
        self.commands_sent += 1;
        let id = CommandId::new(&format!("u{}", self.commands_sent)).unwrap();
        self.store(verb, &id, meta, body).await;
        id
    }

    /// Sends a command under the id of an earlier one.
    pub(crate) async fn repeat<T: Serialize>(&self, verb: Verb, id: &CommandId, body: T) {
        self.store(verb, id, CommandMeta::new(self.server.now()), body).await;
    }

    async fn store<T: Serialize>(&self, verb: Verb, id: &CommandId, meta: CommandMeta, body: T) {
        let body = serde_json::to_vec(&Command { meta, body }).unwrap();
        self.bus.send_control(&key(), verb, id, body.into()).await.unwrap();
    }

    /// Starts an interactive session without a turn.
    pub(crate) async fn start(&mut self) {
        let id = self.send(Verb::Start, Start { interactive: true, ..Start::default() }).await;
        self.wait_until_handled(&id).await;
    }

    /// Sends a message and waits until it is in the log.
    pub(crate) async fn send_message(&mut self, text: &str) -> Event {
        let message = SendUserMessage::new(Content::from(text), contract::command::MessageMode::Queue);
        let id = self.send(Verb::SendUserMessage, message).await;
        self.wait_until_handled(&id).await
    }

    /// Sends a command that carries only a reason, and waits until it is in the log.
    pub(crate) async fn control(&mut self, verb: Verb) -> Event {
        let id = self.send(verb, ControlReason::default()).await;
        self.wait_until_handled(&id).await
    }

    /// Waits until an input is in the log, and returns the event that records it.
    pub(crate) async fn wait_until_handled(&self, id: &CommandId) -> Event {
        let deadline = Instant::now() + CONDITION_TIMEOUT;
        let mut checked_head = None;
        loop {
            let head = self.bus.head(&key(), Read::Leader).await.unwrap().map(|head| head.meta.commit);
            if head != checked_head {
                let events = self.log().await.into_iter().flat_map(|(_, commit)| commit.events);
                if let Some(event) =
                    events.into_iter().find(|event| event.closed_input().is_some_and(|input| input.id == *id))
                {
                    return event;
                }
                checked_head = head;
            }
            assert!(Instant::now() < deadline, "{id} is not in the log");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn log(&self) -> Vec<(u64, Commit)> {
        self.bus.history(&key(), 0).await.unwrap()
    }

    /// Waits until a stream holds a message of this subject.
    pub(crate) async fn wait_for_message(&self, stream: Stream, subject: &Subject) -> Stored {
        let deadline = Instant::now() + CONDITION_TIMEOUT;
        loop {
            if let Some(found) = self.bus.transport().last(stream, subject, Read::Leader).await.unwrap() {
                return found;
            }
            assert!(Instant::now() < deadline, "{subject} is not in {}", stream.name());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a stream holds no message of this subject.
    pub(crate) async fn wait_until_gone(&self, stream: Stream, subject: &Subject) {
        for _ in 0..6_000 {
            if self.bus.transport().last(stream, subject, Read::Leader).await.unwrap().is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{subject} is still in {}", stream.name());
    }

    /// Subscribes to the errors that viewers of the session receive.
    pub(crate) async fn errors(&self) -> Subscription {
        self.bus.transport().subscribe(&subject::event(&key(), Topic::Error), None).await.unwrap()
    }
}

/// Waits for the next error that viewers receive, and returns its code.
pub(crate) async fn next_code(errors: &mut Subscription) -> String {
    let message = loop {
        match tokio::time::timeout(CONDITION_TIMEOUT, errors.next()).await {
            Ok(Some(SubscriptionEvent::Message(message))) => break message,
            Ok(Some(SubscriptionEvent::Gap)) => {}
            Ok(None) | Err(_) => panic!("viewers received no error"),
        }
    };
    let envelope: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
    envelope["data"]["code"].as_str().unwrap().to_owned()
}

/// Shuts a replica down.
pub(crate) async fn drain(orchestrator: Orchestrator) {
    orchestrator.drain(Duration::from_secs(10)).await;
}

fn composed() -> Composed {
    Composed {
        ai_config: None,
        streaming: contract::model::StreamingOverride::default(),
        fallbacks: Vec::new(),
        prompt: "You are a test.".to_owned(),
        fingerprint: "f".to_owned(),
        components: Vec::new(),
        warnings: Vec::new(),
        agent: AgentSettings {
            id: AgentId::new("e").unwrap(),
            name: "E".to_owned(),
            continuation: ContinuationSettings::default(),
            tools: ToolFilter { allow: vec!["*".to_owned()], deny: Vec::new() },
            approvals: Vec::new(),
        },
        model: ModelSettings { id: "m".to_owned(), ..ModelSettings::default() },
    }
}
