//! A fake loop: it commits commands one by one, and any events that a test wants in a log.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use async_trait::async_trait;
use bus::{Bus, Delivery, Handler, Hold, RpcServer, Settle, Worker};
use contract::command::{Answer, CommandAck, CommandMeta, Refusal, SendUserMessage, Start, Verb};
use contract::commit::{Commit, CommitMeta, FOLD, VERSION};
use contract::compose::{AgentsReply, ComposeReply, ComposeRequest, Composed, KnownAgent, KnownModel};
use contract::event::{Event, GateKind, InputKind, InputRef, StatusChanged, TurnStarted};
use contract::limits::SLOTS_PER_PAGE;
use contract::settings::{ModelSettings, ToolFilter};
use contract::streams::{Objects, Queue};
use contract::subject::{self, SessionKey};
use contract::{AgentId, ErrorCode, Json, Timestamp};
use futures::FutureExt;
use session::Session;
use tokio::sync::Mutex;

use super::asking::{after_answer, reply_with_approval};
use super::events::{
    ask, closing, gate_closed, reply_with_calls, session_ended, session_started, turn_cancelled, turn_with_reply,
    user_message,
};

/// Mode of the delivery of live events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LiveDelivery {
    Normal,
    Lost,
    /// All events arrive twice, the first time in reverse order.
    Reordered,
}

/// Handles the commands of all sessions, and answers for the composer.
pub(crate) struct FakeLoop {
    inner: Arc<Inner>,
    _worker: Worker,
    _composer: [RpcServer; 2],
}

struct Inner {
    bus: Bus,
    sessions: Mutex<HashMap<SessionKey, Session>>,
    live: AtomicU8,
    mode: AtomicU8,
    senders: Mutex<Vec<String>>,
    allowed_agents: Mutex<Vec<Option<BTreeSet<AgentId>>>>,
    reply: Mutex<Option<String>>,
    calls: AtomicBool,
    asks: Mutex<Option<GateKind>>,
    approvals: AtomicBool,
    held: AtomicUsize,
}

impl FakeLoop {
    pub(crate) async fn start(bus: Bus) -> Self {
        let inner = Arc::new(Inner {
            bus: bus.clone(),
            sessions: Mutex::default(),
            live: AtomicU8::new(LiveDelivery::Normal as u8),
            mode: AtomicU8::new(0),
            senders: Mutex::default(),
            allowed_agents: Mutex::default(),
            reply: Mutex::default(),
            calls: AtomicBool::new(false),
            asks: Mutex::default(),
            approvals: AtomicBool::new(false),
            held: AtomicUsize::new(0),
        });
        let composer = bus.serve_compose(|request| async move { compose(&request) }.boxed()).await.unwrap();
        let agents = bus.serve_agents(|_| list_agents()).await.unwrap();
        let worker = Worker::start(bus, Queue::Inputs, 1, Arc::new(InputHandler(inner.clone())));
        Self { inner, _worker: worker, _composer: [composer, agents] }
    }

    /// Sets how live events are delivered from now on.
    pub(crate) fn set_live_delivery(&self, live: LiveDelivery) {
        self.inner.live.store(live as u8, Ordering::SeqCst);
    }

    /// From now on commands are committed, but not acknowledged to the edge.
    pub(crate) fn drop_acks(&self) {
        self.inner.mode.store(1, Ordering::SeqCst);
    }

    /// From now on commands stay in their stream.
    pub(crate) fn pause(&self) {
        self.inner.mode.store(2, Ordering::SeqCst);
    }

    /// Counts the commands that came while the loop paused.
    pub(crate) fn held_commands(&self) -> usize {
        self.inner.held.load(Ordering::SeqCst)
    }

    /// From now on commands are handled and acknowledged again.
    pub(crate) fn resume(&self) {
        self.inner.mode.store(0, Ordering::SeqCst);
    }

    /// From now on each message of a user has a turn with this reply; with an empty one, the turn fails.
    pub(crate) async fn reply_with(&self, text: &str) {
        *self.inner.reply.lock().await = Some(text.to_owned());
    }

    /// From now on each message of a user is answered with a call of the client's tool `weather` first.
    pub(crate) fn call_client_first(&self) {
        self.inner.calls.store(true, Ordering::SeqCst);
    }

    /// From now on each message of a user opens a gate first, and the turn goes on after its answer.
    pub(crate) async fn ask_first(&self, kind: GateKind) {
        *self.inner.asks.lock().await = Some(kind);
    }

    /// From now on each message of a user is answered with a call that needs an approval first.
    pub(crate) fn ask_approval_first(&self) {
        self.inner.approvals.store(true, Ordering::SeqCst);
    }

    /// Returns who sent the commands that were handled, in their order.
    pub(crate) async fn senders(&self) -> Vec<String> {
        self.inner.senders.lock().await.clone()
    }

    /// Returns the agents that the senders of these commands may use, in the same order.
    pub(crate) async fn allowed_agents(&self) -> Vec<Option<BTreeSet<AgentId>>> {
        self.inner.allowed_agents.lock().await.clone()
    }

    /// Commits events and publishes the public ones.
    pub(crate) async fn commit(&self, key: &SessionKey, events: Vec<Event>) {
        self.inner.commit(key, events).await;
    }

    /// Commits the start of a session and so many messages, one commit each.
    pub(crate) async fn fill_log(&self, key: &SessionKey, messages: u32) {
        self.commit(key, vec![session_started("a")]).await;
        for number in 1..=messages {
            self.commit(key, vec![user_message(&format!("m{number}"), &format!("text {number}"))]).await;
        }
    }
}

struct InputHandler(Arc<Inner>);

#[async_trait]
impl Handler for InputHandler {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        if self.0.mode.load(Ordering::SeqCst) == 2 {
            self.0.held.fetch_add(1, Ordering::SeqCst);
        }
        while self.0.mode.load(Ordering::SeqCst) == 2 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        self.0.handle(delivery).await;
        Settle::Done
    }
}

impl Inner {
    async fn handle(&self, delivery: &Delivery) {
        let control = subject::parse_control(&delivery.subject).unwrap();
        let (key, verb, id) = (control.key, control.verb, control.id);
        let body = self.bus.open(Objects::Work, delivery.payload.clone()).await.unwrap();
        let input = InputRef { kind: InputKind::Control(verb), id: id.clone() };
        let CommandMeta { edge, by, agents, .. } = serde_json::from_slice::<CommandEnvelope>(&body).unwrap().meta;
        self.allowed_agents.lock().await.push(agents);
        self.senders.lock().await.extend(by);
        let (is_handled, is_started, has_gate, running) = {
            let sessions = self.sessions.lock().await;
            let session = sessions.get(&key);
            let running = session
                .map(Session::summary)
                .filter(|found| found.phase == contract::commit::Phase::Running)
                .map(|found| found.turn);
            let has = |holds: fn(&Session) -> bool| session.is_some_and(holds);
            let is_handled = session.is_some_and(|session| session.handled(&input).is_some());
            (is_handled, has(|session| session.seq() > 0), has(|session| !session.gates().is_empty()), running)
        };
        if is_handled {
            return;
        }
        // A gate about a call that nobody announced is not in the state.
        let asks = *self.asks.lock().await;
        let has_call_gate = has_gate && !self.approvals.load(Ordering::SeqCst);
        let takes_answer = has_call_gate || matches!(asks, Some(GateKind::Approval | GateKind::Question));
        let refuse = |code| Some(Refusal { code, message: "no".to_owned() });
        let answer = (verb == Verb::Answer).then(|| read_fields::<Answer>(&body));
        let has_approvals = self.approvals.load(Ordering::SeqCst);
        let is_gate_open = has_approvals && self.is_gate_open(&key, answer.as_ref()).await;
        let (refused, mut events) = match verb {
            Verb::Start if is_started => (refuse(ErrorCode::SessionExists), vec![]),
            Verb::Start => {
                let start: Start = read_fields(&body);
                let agent = start.agent.map_or("a".to_owned(), |agent| agent.to_string());
                let mut events = vec![session_started(&agent)];
                events.extend(start.prompt.map(|prompt| user_message(id.as_str(), &prompt.text())));
                (None, events)
            }
            Verb::SendUserMessage => {
                let send: SendUserMessage = read_fields(&body);
                (None, vec![user_message(id.as_str(), &send.content.text())])
            }
            Verb::Pause => (None, vec![Event::StatusPaused(StatusChanged::default())]),
            Verb::Resume => (refuse(ErrorCode::NotNow), vec![]),
            Verb::Answer if is_gate_open => (None, vec![]),
            Verb::Answer if takes_answer => (None, vec![gate_closed(&read_fields(&body))]),
            Verb::Answer => (refuse(ErrorCode::GateClosed), vec![]),
            Verb::AnswerToolCall if self.calls.load(Ordering::SeqCst) => (None, vec![]),
            Verb::AnswerToolCall => (refuse(ErrorCode::UnknownCall), vec![]),
            Verb::Stop => (None, vec![session_ended()]),
            Verb::CancelTurn => (None, running.map(turn_cancelled).into_iter().collect()),
            Verb::ClearHistory
            | Verb::Configure
            | Verb::ProvideToolResult
            | Verb::ExtendToolCall
            | Verb::ModelFinished
            | Verb::ModelFailed => (None, vec![]),
        };
        let control_seq = Some(delivery.seq);
        let first = closing(input, control_seq, refused.clone());
        events.insert(0, first);
        let has_message = events.iter().any(|event| matches!(event, Event::UserProcessed(_)));
        let (mut turn, runs) = {
            let sessions = self.sessions.lock().await;
            let summary = sessions.get(&key).map(Session::summary);
            summary.map_or((0, false), |summary| (summary.turn, summary.phase == contract::commit::Phase::Running))
        };
        // A message to a running turn waits.
        if has_message && !runs {
            turn += 1;
            let messages = vec![id.clone()];
            events.push(Event::TurnStarted(TurnStarted { turn, traceparent: None, messages, premature: false }));
        }
        let begun = contract::commit::turn_of(&events, &id);
        let (slot, seq) = self.commit(&key, events).await;
        let answered = answer.as_ref().filter(|_| is_gate_open);
        let is_answer = verb == Verb::AnswerToolCall || verb == Verb::Answer && takes_answer;
        let events = self.follow(turn, has_message, is_answer, answered).await;
        for event in events {
            self.commit(&key, vec![event]).await;
        }
        let mode = self.mode.load(Ordering::SeqCst);
        if let Some(edge) = edge
            && mode == 0
        {
            let SessionKey { tenant, session } = key;
            let ack = CommandAck { verb, id, tenant, session, slot, seq, turn: begun, refused };
            self.bus.publish_done(&edge, &ack).await.unwrap();
        }
    }

    /// Returns the events that follow from a command, by what the test has set.
    async fn follow(&self, turn: u32, has_message: bool, is_answer: bool, answered: Option<&Answer>) -> Vec<Event> {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        let Some(text) = &*self.reply.lock().await else { return Vec::new() };
        if has_message && is_set(&self.approvals) {
            return reply_with_approval(turn);
        }
        if let Some(answer) = answered {
            return after_answer(answer).into_iter().chain(turn_with_reply(turn, text)).collect();
        }
        if let (true, Some(kind)) = (has_message, *self.asks.lock().await) {
            return ask(turn, kind);
        }
        if has_message && is_set(&self.calls) {
            return reply_with_calls(turn);
        }
        if has_message || is_answer { turn_with_reply(turn, text) } else { Vec::new() }
    }

    /// Whether an answer is for a gate that is open, and for its arguments.
    async fn is_gate_open(&self, key: &SessionKey, answer: Option<&Answer>) -> bool {
        let sessions = self.sessions.lock().await;
        let gates = sessions.get(key).map(Session::gates).unwrap_or_default();
        let is_answered = |answer: &Answer| {
            gates.iter().any(|g| g.gate == answer.gate && g.arguments_sha256 == answer.arguments_sha256)
        };
        answer.is_some_and(is_answered)
    }

    async fn commit(&self, key: &SessionKey, events: Vec<Event>) -> (u64, u64) {
        let mut sessions = self.sessions.lock().await;
        let session = sessions.entry(key.clone()).or_insert_with(|| Session::new(key.clone()));
        let (slot, seq) = (session.next_slot(), session.seq() + 1);
        let time = Timestamp::from_millis(1_700_000_000_000 + slot);
        let begins_page = slot.is_multiple_of(SLOTS_PER_PAGE) && slot > 0;
        let (snapshot, transcript) = begins_page.then(|| session.snapshot_and_part(false)).unzip();
        session.fold(slot, time, &events);
        let meta = CommitMeta {
            v: VERSION,
            commit: format!("c{slot}"),
            fold: FOLD,
            phase: session.phase(),
            open: session.open_calls(),
            control_seq: session.control_seq(),
            prev: String::new(),
            timers: 0,
            seq,
            time,
            trace_id: String::new(),
            archived: session.archived(),
            log_start: session.log_start(),
            moved: None,
        };
        let commit = Commit { meta, snapshot, transcript, events };
        let body = serde_json::to_vec(&commit).unwrap();
        self.bus.commit(key, slot, &format!("c{slot}"), body.into()).await.unwrap();
        self.bus.advance_summary(&session.summary(), None).await.unwrap();
        self.publish(key, slot, &commit).await;
        (slot, session.seq())
    }

    async fn publish(&self, key: &SessionKey, slot: u64, commit: &Commit) {
        let events = commit.envelopes(key, slot);
        let live = self.live.load(Ordering::SeqCst);
        let published: Vec<_> = if live == LiveDelivery::Normal as u8 {
            events
        } else if live == LiveDelivery::Lost as u8 {
            Vec::new()
        } else {
            events.iter().rev().chain(&events).cloned().collect()
        };
        for (topic, mut envelope) in published {
            if envelope.data.get().len() > contract::limits::INLINE_BYTES_MAX {
                envelope.data = Json::of(&serde_json::json!({"$blob": "0".repeat(64), "bytes": 1}));
            }
            self.bus.publish_event(key, topic, &envelope).await.unwrap();
        }
    }
}

/// Reads the fields of a command beside its `meta`.
fn read_fields<T: serde::de::DeserializeOwned>(body: &[u8]) -> T {
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body).unwrap();
    fields.remove("meta");
    serde_json::from_value(serde_json::Value::Object(fields)).unwrap()
}

#[derive(serde::Deserialize)]
struct CommandEnvelope {
    meta: CommandMeta,
}

fn list_agents() -> AgentsReply {
    let agent = KnownAgent {
        id: AgentId::new("e").unwrap(),
        name: "Eamonn the Executioner".to_owned(),
        aliases: vec![AgentId::new("eamonn").unwrap()],
        tools: ToolFilter { allow: vec!["*".to_owned()], deny: Vec::new() },
        model: None,
        is_default: true,
    };
    let settings =
        ModelSettings { id: "rehearsal".to_owned(), context_window: Some(8_192), ..ModelSettings::default() };
    let model = KnownModel {
        settings,
        provider: "rehearsal".to_owned(),
        is_default: true,
        upstream: "rehearsal".to_owned(),
        requests_per_minute: Some(60),
        tokens_per_minute: None,
    };
    AgentsReply { agents: vec![agent], models: vec![model] }
}

fn compose(request: &ComposeRequest) -> ComposeReply {
    let known: HashSet<&str> = ["a", "e"].into();
    if let Some(agent) = &request.agent
        && !known.contains(agent.as_str())
    {
        let message = format!("there is no agent {agent}");
        return ComposeReply::Refused { code: ErrorCode::UnknownAgent, message };
    }
    if request.model.as_deref().is_some_and(|model| model != "rehearsal") {
        return ComposeReply::Refused { code: ErrorCode::UnknownModel, message: "no such model".to_owned() };
    }
    let agent = request.agent.as_ref().map_or("a", AgentId::as_str);
    let Event::SessionStarted(started) = session_started(agent) else { unreachable!() };
    ComposeReply::Composed(Box::new(Composed {
        ai_config: None,
        streaming: contract::model::StreamingOverride::default(),
        fallbacks: Vec::new(),
        prompt: started.prompt,
        fingerprint: started.fingerprint,
        components: Vec::new(),
        warnings: Vec::new(),
        agent: started.agent,
        model: started.model,
    }))
}
