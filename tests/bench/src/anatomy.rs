//! The messages of a step on the bus: all messages of some sessions, received by an additional subscriber.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::SelectAll;
use tokio::time::{sleep, timeout};

use crate::fixture::Fixture;
use crate::load;
use crate::model::STEPS;

/// Sessions that are listened to.
const SESSIONS: usize = 20;
/// Longest wait for the last acks.
const TAIL: Duration = Duration::from_millis(300);

/// Kind of work that a message is for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MessageKind {
    /// Stored in a stream and acknowledged by the server.
    Append,
    /// A request that the server answers: reads, acks of items, purges, pulls.
    Read,
    /// A request that another client answers.
    Ask,
    /// A message of core NATS without an answer.
    Tell,
}

impl MessageKind {
    pub(crate) const ALL: [Self; 4] = [Self::Append, Self::Read, Self::Ask, Self::Tell];
}

/// Messages of one class, per step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// Sender; empty if the message has no reply subject.
    pub(crate) from: String,
    pub(crate) kind: MessageKind,
    /// Number of these messages per step.
    pub(crate) per_step: f64,
    /// Bytes of one, without headers.
    pub(crate) bytes: f64,
}

/// All observed classes of messages.
#[derive(Debug)]
pub(crate) struct Anatomy(pub(crate) Vec<Class>);

/// Prefixes of subjects; the first one that fits counts.
const CLASSES: &[(&str, &str, MessageKind)] = &[
    ("ai_loop.control.model_f", "input: model finished", MessageKind::Append),
    ("ai_loop.control.provide_tool_result", "input: tool result", MessageKind::Append),
    ("ai_loop.control.", "input: client command", MessageKind::Append),
    ("ai_loop.log.", "commit", MessageKind::Append),
    ("ai_loop.model.call.", "work item: model", MessageKind::Append),
    ("ai_loop.tool.call.", "work item: tool", MessageKind::Append),
    ("ai_timer.", "timer set", MessageKind::Append),
    ("$KV.ai_loop_sessions.", "index line", MessageKind::Append),
    ("$KV.", "other key-value write", MessageKind::Append),
    ("$JS.API.DIRECT.GET.AI_LOOP_LOG", "log read, any replica", MessageKind::Read),
    ("$JS.API.STREAM.MSG.GET.AI_LOOP_LOG", "log read, leader", MessageKind::Read),
    ("$JS.API.DIRECT.GET.AI_LOOP_CONTROL", "inbox read", MessageKind::Read),
    ("$JS.API.DIRECT.GET.KV_ai_loop_tools", "catalogue read", MessageKind::Read),
    ("$JS.API.DIRECT.GET.", "other direct read", MessageKind::Read),
    ("$JS.API.CONSUMER.MSG.NEXT.", "pull", MessageKind::Read),
    ("$JS.API.STREAM.PURGE.", "purge", MessageKind::Read),
    ("$JS.API.CONSUMER.", "consumer made or removed", MessageKind::Read),
    ("$JS.API.", "other JetStream request", MessageKind::Read),
    ("$JS.ACK.", "ack of an item", MessageKind::Read),
    ("ai_tool.", "request to the tool", MessageKind::Ask),
    ("ai_rpc.prompt.", "request to the composer", MessageKind::Ask),
    ("ai_rpc.", "word to the edge", MessageKind::Tell),
    ("ai_loop.message.ai_chunk_received.", "chunk", MessageKind::Tell),
    ("ai_loop.tool_call.partial.", "partial tool call", MessageKind::Tell),
    ("ai_loop.", "event", MessageKind::Tell),
    ("", "other", MessageKind::Tell),
];

/// Subjects to subscribe to. Inboxes and liveness requests are left out: a subscriber hides that there are no
/// responders, and the fleet would wait for answers that never come.
const OBSERVED_SUBJECTS: &[&str] =
    &["ai_loop.>", "ai_timer.>", "ai_tool.>", "ai_rpc.prompt.>", "ai_rpc.done.>", "$KV.>", "$JS.API.>", "$JS.ACK.>"];

/// The class of messages that only the server counted: mostly liveness requests.
const UNOBSERVED_CLASS: &str = "round trip, view";

/// Observes the messages of sessions that run one after the other.
pub(crate) async fn listen(fixture: &Fixture) -> anyhow::Result<Anatomy> {
    load::some(fixture, 1).await?;
    let client = async_nats::ConnectOptions::new()
        .subscription_capacity(1 << 20)
        .connect(fixture.nats.url().split(',').collect::<Vec<_>>())
        .await?;
    let mut everything = SelectAll::new();
    for subject in OBSERVED_SUBJECTS {
        everything.push(client.subscribe(*subject).await?);
    }
    client.flush().await?;
    sleep(TAIL).await;
    let before = fixture.nats.traffic().await?;
    load::some(fixture, SESSIONS).await?;
    sleep(TAIL).await;
    let after = fixture.nats.traffic().await?;
    let mut observed: BTreeMap<(usize, String), (u32, usize)> = BTreeMap::new();
    while let Ok(Some(message)) = timeout(TAIL, everything.next()).await {
        let class = CLASSES.iter().position(|(prefix, ..)| message.subject.starts_with(prefix));
        let counted = observed.entry((class.unwrap_or(CLASSES.len() - 1), sender(&message))).or_default();
        counted.0 += 1;
        counted.1 += message.payload.len();
    }
    let steps = f64::from(u32::try_from(SESSIONS * STEPS)?);
    let mut classes = Vec::new();
    for ((class, from), (count, bytes)) in observed {
        let (_, name, kind) = CLASSES[class];
        let count = f64::from(count);
        let (per_step, bytes) = (count / steps, f64::from(u32::try_from(bytes)?) / count);
        classes.push(Class { name, from, kind, per_step, bytes });
    }
    let mut anatomy = Anatomy(classes);
    let counted = f64::from(u32::try_from(after.in_msgs - before.in_msgs)?) / steps;
    let observed = anatomy.0.iter().map(|class| class.per_step).sum::<f64>() + anatomy.per_step(MessageKind::Ask);
    let per_step = (counted - observed).max(0.0);
    anatomy.0.push(Class {
        name: UNOBSERVED_CLASS,
        from: String::new(),
        kind: MessageKind::Read,
        per_step,
        bytes: 0.0,
    });
    anatomy.0.sort_by_key(|class| class.kind);
    Ok(anatomy)
}

/// A service's connection carries its name, and so does the inbox for its answers: `_INBOX_<name>.…`.
fn sender(message: &async_nats::Message) -> String {
    let inbox = message.reply.as_deref().and_then(|reply| reply.strip_prefix("_INBOX_"));
    inbox.and_then(|inbox| inbox.split('.').next()).unwrap_or_default().to_owned()
}

impl Anatomy {
    /// Returns the number of messages of a kind per step.
    pub(crate) fn per_step(&self, kind: MessageKind) -> f64 {
        self.of(kind).map(|class| class.per_step).sum()
    }

    /// Mean bytes of one of a kind.
    pub(crate) fn bytes(&self, kind: MessageKind) -> f64 {
        let bytes: f64 = self.of(kind).map(|class| class.per_step * class.bytes).sum();
        bytes / self.per_step(kind).max(f64::MIN_POSITIVE)
    }

    fn of(&self, kind: MessageKind) -> impl Iterator<Item = &Class> {
        self.0.iter().filter(move |class| class.kind == kind)
    }
}
