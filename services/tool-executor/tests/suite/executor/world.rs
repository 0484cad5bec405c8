//! Fixture for an executor: the in-memory bus, the log of a session, and simulated tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::transport::Headers;
use bus::{Bus, CoreMessage, Inbox, Stored, SubscriptionEvent};
use bus_memory::{ClientLifecycle, MemoryServer};
use bytes::Bytes;
use contract::command::Verb;
use contract::commit::{Commit, CommitMeta, Phase};
use contract::ids::CallAttempt;
use contract::model::ItemMeta;
use contract::subject::{self, SessionKey, Subject};
use contract::tool::{EffectClass, ExtendToolCall, Outcome, ToolItem, ToolResult, header};
use contract::{CallId, Json, SessionId, TenantId, Timestamp, ToolName};
use futures::StreamExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tool_executor::{Clock, Executor, ExecutorConfig};

/// Longer than any step of a test, in the clock of the test.
pub(crate) const LONG: Duration = Duration::from_mins(10);

struct ServerClock(MemoryServer);

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

pub(crate) struct World {
    pub(crate) server: MemoryServer,
    pub(crate) bus: Bus,
    pub(crate) key: SessionKey,
    slot: u64,
}

/// A simulated tool: its calls and its cancels.
pub(crate) struct Tool {
    bus: Bus,
    calls: bus::Subscription,
    cancels: bus::Subscription,
}

/// Headers and body of the answer to a probe.
pub(crate) type ProbeAnswer = (&'static [(&'static str, &'static str)], &'static [u8]);

/// Answers queries about calls while it lives, and counts them.
pub(crate) struct QueryCounter {
    count: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl QueryCounter {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

pub(crate) fn call() -> CallAttempt {
    CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 }
}

fn name() -> ToolName {
    ToolName::new("act").unwrap()
}

impl World {
    /// Starts with a running session whose first call is open.
    pub(crate) async fn new() -> Self {
        Self::on(MemoryServer::new()).await
    }

    /// The same on a given server.
    pub(crate) async fn on(server: MemoryServer) -> Self {
        Self::of_tenant(server, TenantId::default().as_str()).await
    }

    /// The same for a given tenant.
    pub(crate) async fn of_tenant(server: MemoryServer, tenant: &str) -> Self {
        let key = SessionKey { tenant: TenantId::new(tenant).unwrap(), session: SessionId::new("s1").unwrap() };
        let mut world = Self { bus: server.bus(), server, key, slot: 0 };
        world.commit(Phase::Running, &[&call().to_string()]).await;
        world
    }

    pub(crate) fn executor(&self, name: &str) -> (Executor, ClientLifecycle) {
        self.executor_with_clock(name, Arc::new(ServerClock(self.server.clone())))
    }

    /// The same with a given clock.
    pub(crate) fn executor_with_clock(&self, name: &str, clock: Arc<dyn Clock>) -> (Executor, ClientLifecycle) {
        let (bus, life) = self.server.client(name);
        (Executor::with_clock(ExecutorConfig::default(), bus, clock), life)
    }

    /// Appends the session's next commit.
    pub(crate) async fn commit(&mut self, phase: Phase, open: &[&str]) {
        let meta = CommitMeta {
            v: 1,
            commit: format!("commit-{}", self.slot),
            fold: 1,
            phase,
            open: open.iter().map(|call| (*call).to_owned()).collect(),
            control_seq: 0,
            prev: String::new(),
            timers: 0,
            seq: 0,
            time: self.server.now(),
            trace_id: String::new(),
            archived: None,
            log_start: None,
            moved: None,
        };
        let (commit, id) =
            (Commit { meta, snapshot: None, transcript: None, events: Vec::new() }, format!("commit-{}", self.slot));
        let body = Bytes::from(serde_json::to_vec(&commit).unwrap());
        self.bus.commit(&self.key, self.slot, &id, body).await.unwrap();
        self.slot += 1;
    }

    pub(crate) fn item(&self, effect: EffectClass) -> ToolItem {
        ToolItem {
            meta: ItemMeta {
                v: 1,
                slot: self.slot - 1,
                turn: 1,
                step: 1,
                call: call().call,
                attempt: 1,
                deadline: self.server.now().after(Duration::from_mins(1)),
                agent: "e".to_owned(),
            },
            tool: name(),
            arguments: Json::parse(r#"{"n":1}"#).unwrap(),
            effect,
            max_output: 1_000,
            timeout_ms: 60_000,
            session_started: None,
            opened_by: String::new(),
            opened_at: None,
        }
    }

    pub(crate) async fn publish(&self, item: &ToolItem) {
        self.bus.publish_tool_item(&self.key, item, bus::work::Publication::First).await.unwrap();
    }

    pub(crate) async fn tool(&self) -> Tool {
        let bus = self.server.bus();
        let tenant = &self.key.tenant;
        let calls = bus.listen(&subject::tool(tenant, &name()), Some(subject::TOOL_QUEUE)).await.unwrap();
        let cancels = bus.listen(&subject::tool_cancel(tenant, &name()), None).await.unwrap();
        Tool { bus, calls, cancels }
    }

    /// A replica of the tool that reports whether it runs a call: `1`, `0`, or nothing.
    pub(crate) fn replica(&self, running: &'static str) -> QueryCounter {
        self.answer_queries(subject::service_info(&name()), running)
    }

    /// The same of a replica that is pinged as this instance.
    pub(crate) fn named_replica(&self, instance: &str, running: &'static str) -> QueryCounter {
        self.answer_queries(subject::service_ping(instance).unwrap(), running)
    }

    fn answer_queries(&self, subject: Subject, running: &'static str) -> QueryCounter {
        let (bus, received, mut task) = (self.server.bus(), Arc::<AtomicUsize>::default(), JoinSet::new());
        let count = received.clone();
        task.spawn(async move {
            let mut queries = bus.listen(&subject, None).await.unwrap();
            while let Some(query) = queries.next().await {
                let SubscriptionEvent::Message(query) = query else { continue };
                if query.header(header::CALL).is_some() {
                    received.fetch_add(1, Ordering::Relaxed);
                    let header = (!running.is_empty()).then(|| (header::RUNNING.to_owned(), running.to_owned()));
                    let headers = header.into_iter().collect();
                    bus.transport().reply(query.reply.as_deref().unwrap(), headers, Bytes::new()).await.unwrap();
                }
            }
        });
        QueryCounter { count, _task: task }
    }

    /// Answers each probe of the tool with the next of these answers, and repeats the last one.
    pub(crate) fn probe(&self, answers: &'static [ProbeAnswer]) -> QueryCounter {
        let (bus, tenant, received) = (self.server.bus(), self.key.tenant.clone(), Arc::<AtomicUsize>::default());
        let (mut task, count) = (JoinSet::new(), received.clone());
        task.spawn(async move {
            let mut probes = bus.listen(&subject::tool_probe(&tenant, &name()), None).await.unwrap();
            while let Some(probe) = probes.next().await {
                let SubscriptionEvent::Message(probe) = probe else { continue };
                assert!(probe.header(header::CALL).is_some() && !probe.payload.is_empty());
                let number = received.fetch_add(1, Ordering::Relaxed);
                let (headers, body) = answers[number.min(answers.len() - 1)];
                let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
                let reply = probe.reply.as_deref().unwrap();
                bus.transport().reply(reply, headers, Bytes::from_static(body)).await.unwrap();
            }
        });
        QueryCounter { count, _task: task }
    }

    /// Waits for the result of the call.
    pub(crate) async fn result(&self) -> ToolResult {
        let stored = self.wait_for(async || match self.bus.inbox(&self.key).await.unwrap() {
            Inbox::Messages(messages) => messages.into_iter().next(),
            Inbox::TooMany => panic!("too many"),
        });
        let stored = stored.await;
        let result: ToolResult = serde_json::from_slice(&stored.payload).unwrap();
        // An unknown outcome has an id of its own, so that a later result still counts.
        let known = !matches!(result.outcome, Outcome::Unknown | Outcome::Timeout);
        let id = if known { "c1-1-1-1" } else { "c1-1-1-1-unknown" };
        assert_eq!(stored.subject, format!("ai_loop.control.provide_tool_result.default.s1.{id}"));
        result
    }

    /// Reads the results among the pending inputs.
    pub(crate) async fn results(&self) -> Vec<ToolResult> {
        let inputs = self.pending_inputs(Verb::ProvideToolResult).await;
        inputs.iter().map(|stored| serde_json::from_slice(&stored.payload).unwrap()).collect()
    }

    /// Reads the requested deadlines, in order.
    pub(crate) async fn extensions(&self) -> Vec<Timestamp> {
        let mut inputs = self.pending_inputs(Verb::ExtendToolCall).await;
        inputs.sort_by_key(|stored| stored.seq);
        let deadline = |stored: &Stored| serde_json::from_slice::<ExtendToolCall>(&stored.payload).unwrap().deadline;
        inputs.iter().map(deadline).collect()
    }

    async fn pending_inputs(&self, verb: Verb) -> Vec<Stored> {
        let Inbox::Messages(messages) = self.bus.inbox(&self.key).await.unwrap() else { panic!("too many") };
        messages.into_iter().filter(|stored| stored.subject.contains(verb.as_str())).collect()
    }

    pub(crate) async fn has_result(&self) -> bool {
        match self.bus.inbox(&self.key).await.unwrap() {
            Inbox::Messages(messages) => !messages.is_empty(),
            Inbox::TooMany => true,
        }
    }

    /// Waits until the item is acknowledged.
    pub(crate) async fn wait_until_settled(&self) {
        self.wait_for(async || self.is_settled().await.then_some(())).await;
    }

    pub(crate) async fn is_settled(&self) -> bool {
        let item = subject::tool_item(&self.key, &name(), &call());
        let last = self.bus.transport().last(contract::streams::Stream::Tool, &item, bus::Read::Leader).await;
        last.unwrap().is_none()
    }

    /// Polls, in the test's clock, until there is an answer.
    pub(crate) async fn wait_for<T>(&self, ask: impl AsyncFn() -> Option<T>) -> T {
        let end = Instant::now() + LONG;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(Instant::now() < end, "nothing in {LONG:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Tool {
    pub(crate) async fn next_call(&mut self) -> CoreMessage {
        next(&mut self.calls).await
    }

    /// Whether no call comes for a long time.
    pub(crate) async fn has_no_call(&mut self) -> bool {
        timeout(LONG, next_message(&mut self.calls)).await.is_err()
    }

    pub(crate) async fn next_cancel(&mut self) -> CoreMessage {
        next(&mut self.cancels).await
    }

    pub(crate) async fn answer(&self, request: &CoreMessage, headers: &[(&str, &str)], body: &[u8]) {
        let headers: Headers = headers.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let to = request.reply.as_deref().unwrap();
        self.bus.transport().reply(to, headers, Bytes::copy_from_slice(body)).await.unwrap();
    }
}

async fn next(subscription: &mut bus::Subscription) -> CoreMessage {
    timeout(LONG, next_message(subscription)).await.expect("nothing was heard")
}

/// Waits for the next message, and skips gaps.
async fn next_message(subscription: &mut bus::Subscription) -> CoreMessage {
    loop {
        match subscription.next().await.expect("the subscription ended") {
            SubscriptionEvent::Message(message) => return message,
            SubscriptionEvent::Gap => {}
        }
    }
}
