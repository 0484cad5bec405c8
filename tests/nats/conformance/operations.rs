//! The operations that are applied to both servers, and random sequences of them.

use std::time::Duration;

use bus::transport::Ack;
use contract::command::Verb;
use contract::ids::{CallAttempt, CallId, ToolName};
use contract::streams::{Queue, Stream};
use contract::subject::{self, MailboxKey, SessionKey, Subject};
use contract::{AgentId, MailId};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::nats::world::{id, key};

/// One operation; numbers choose among few subjects, so that they meet.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Append {
        at: ItemPosition,
        create: bool,
        body: u8,
    },
    /// Appends over what the leader shows, or over something else.
    Replace {
        at: ItemPosition,
        stale: bool,
        body: u8,
    },
    Last {
        at: ItemPosition,
        leader: bool,
    },
    LastMany {
        at: ItemPosition,
        whole: bool,
    },
    Count {
        at: ItemPosition,
        whole: bool,
    },
    Purge {
        at: ItemPosition,
    },
    /// Takes what can be had now.
    Pull {
        queue: Queue,
        max: usize,
    },
    /// Takes so many, also what comes by an ack wait only.
    Await {
        queue: Queue,
        max: usize,
    },
    Depth {
        queue: Queue,
    },
    /// Delivers everything that is stored again.
    Reset {
        queue: Queue,
    },
    Settle {
        nth: usize,
        ack: Ack,
    },
    /// Done, says one who had handed the item back before.
    Late {
        nth: usize,
    },
    Put {
        key: u8,
        value: u8,
    },
    Create {
        key: u8,
        value: u8,
    },
    Get {
        key: u8,
    },
    /// Over the entry that is there, or over another revision of it.
    Update {
        key: u8,
        value: u8,
        stale: bool,
    },
    Delete {
        key: u8,
    },
    List,
    Store {
        name: u8,
    },
    Fetch {
        name: u8,
    },
    Timer {
        session: u8,
        number: u64,
        past: bool,
    },
    Cancel {
        session: u8,
    },
    /// One byte more than is let in.
    TooLarge {
        door: BodyTarget,
    },
}

impl Operation {
    /// Returns the name under which it is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Append { .. } => "append",
            Self::Replace { .. } => "replace",
            Self::Last { .. } => "last",
            Self::LastMany { .. } => "last_many",
            Self::Count { .. } => "count",
            Self::Purge { .. } => "purge",
            Self::Pull { .. } | Self::Await { .. } => "pull",
            Self::Depth { .. } => "depth",
            Self::Reset { .. } => "reset",
            Self::Settle { ack: Ack::Done, .. } => "done",
            Self::Settle { ack: Ack::Progress, .. } => "progress",
            Self::Settle { ack: Ack::Retry(_), .. } => "retry",
            Self::Late { .. } => "late_done",
            Self::Put { .. } => "kv_put",
            Self::Create { .. } => "kv_create",
            Self::Get { .. } => "kv_get",
            Self::Update { .. } => "kv_update",
            Self::Delete { .. } => "kv_delete",
            Self::List => "kv_list",
            Self::Store { .. } => "put_object",
            Self::Fetch { .. } => "get_object",
            Self::Timer { .. } => "set_timer",
            Self::Cancel { .. } => "cancel_timer",
            Self::TooLarge { .. } => "too_large",
        }
    }
}

/// Target to which a body is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum BodyTarget {
    Stream,
    Key,
    NewKey,
    Object,
}

/// A stream, a session and a number in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemPosition {
    pub(super) stream: Stream,
    pub(super) session: u8,
    pub(super) nth: u8,
}

pub(super) fn session(n: u8) -> SessionKey {
    key(&format!("s{n}")).unwrap()
}

fn mailbox(n: u8) -> MailboxKey {
    MailboxKey { tenant: session(n).tenant, agent: AgentId::new(&format!("a{n}")).unwrap() }
}

impl ItemPosition {
    fn call(self) -> CallAttempt {
        CallAttempt { call: CallId::model(1, u32::from(self.nth)), attempt: 1 }
    }

    pub(super) fn subject(self) -> Subject {
        let key = session(self.session);
        match self.stream {
            Stream::Control => subject::control(&key, Verb::Pause, &id(&format!("c{}", self.nth)).unwrap()),
            Stream::Log => subject::log_slot(&key, u64::from(self.nth) * 40),
            Stream::Model => subject::model_item(&key, &self.call()),
            Stream::Tool => subject::tool_item(&key, &ToolName::new("w").unwrap(), &self.call()),
            Stream::Mail => subject::mail(&mailbox(self.session), &MailId::sent_by(&format!("c{}", self.nth))),
            Stream::Timer => subject::timer_due(&key),
            Stream::Archive => subject::archive_page(&key, u64::from(self.nth)),
            Stream::Dead => subject::dead(&key, subject::DeadKind::Control, &id(&format!("c{}", self.nth)).unwrap()),
        }
    }

    /// Everything of its session.
    pub(super) fn all(self) -> Subject {
        let key = session(self.session);
        match self.stream {
            Stream::Control => subject::control_inbox(&key),
            Stream::Log => subject::log_session(&key),
            Stream::Mail => subject::mailbox(&mailbox(self.session)),
            Stream::Dead => subject::dead_of_session(&key),
            Stream::Archive => subject::archive_session(&key),
            Stream::Model | Stream::Tool | Stream::Timer => self.subject(),
        }
    }
}

fn places() -> impl Strategy<Value = ItemPosition> {
    let streams =
        [Stream::Control, Stream::Control, Stream::Log, Stream::Model, Stream::Tool, Stream::Mail, Stream::Dead];
    let stream = prop::sample::select(streams.to_vec());
    (stream, 0..2_u8, 0..4_u8).prop_map(|(stream, session, nth)| ItemPosition { stream, session, nth })
}

fn queues() -> impl Strategy<Value = Queue> {
    prop::sample::select(vec![Queue::Inputs, Queue::Inputs, Queue::Model, Queue::Tool, Queue::Timers])
}

/// Operations on one queue with few subjects: mostly pulls, returns and purges.
fn queue_operations(purged: u32) -> impl Strategy<Value = Operation> {
    let at = || (0..2_u8, 0..4_u8).prop_map(|(session, nth)| ItemPosition { stream: Stream::Control, session, nth });
    let acks = [Ack::Done, Ack::Progress, Ack::Retry(Duration::ZERO), Ack::Retry(Duration::ZERO)];
    prop_oneof![
        24 => (at(), any::<u8>()).prop_map(|(at, body)| Operation::Append { at, create: false, body }),
        4 => at().prop_map(|at| Operation::LastMany { at, whole: true }),
        12 => (1..4_usize).prop_map(|max| Operation::Pull { queue: Queue::Inputs, max }),
        4 => Just(Operation::Depth { queue: Queue::Inputs }),
        20 => (0..8_usize, prop::sample::select(acks.to_vec())).prop_map(|(nth, ack)| Operation::Settle { nth, ack }),
        4 => (0..8_usize).prop_map(|nth| Operation::Late { nth }),
        purged => at().prop_map(|at| Operation::Purge { at }),
    ]
}

fn any_operations() -> impl Strategy<Value = Operation> {
    let ack = prop::sample::select(vec![Ack::Done, Ack::Done, Ack::Progress, Ack::Retry(Duration::ZERO)]);
    prop_oneof![
        8 => (places(), any::<bool>(), any::<u8>()).prop_map(|(at, create, body)| Operation::Append { at, create, body }),
        2 => (places(), any::<bool>(), any::<u8>()).prop_map(|(at, stale, body)| Operation::Replace { at, stale, body }),
        3 => (places(), any::<bool>()).prop_map(|(at, leader)| Operation::Last { at, leader }),
        3 => (places(), any::<bool>()).prop_map(|(at, whole)| Operation::LastMany { at, whole }),
        1 => (places(), any::<bool>()).prop_map(|(at, whole)| Operation::Count { at, whole }),
        1 => places().prop_map(|at| Operation::Purge { at }),
        3 => (queues(), 1..3_usize).prop_map(|(queue, max)| Operation::Pull { queue, max }),
        1 => queues().prop_map(|queue| Operation::Depth { queue }),
        4 => (0..8_usize, ack).prop_map(|(nth, ack)| Operation::Settle { nth, ack }),
        1 => (0..3_u8, any::<u8>()).prop_map(|(key, value)| Operation::Put { key, value }),
        1 => (0..3_u8, any::<u8>()).prop_map(|(key, value)| Operation::Create { key, value }),
        1 => (0..3_u8).prop_map(|key| Operation::Get { key }),
        1 => (0..3_u8, any::<u8>(), any::<bool>()).prop_map(|(key, value, stale)| Operation::Update { key, value, stale }),
        1 => (0..3_u8).prop_map(|key| Operation::Delete { key }),
        1 => Just(Operation::List),
        1 => (0..2_u8).prop_map(|name| Operation::Store { name }),
        1 => (0..2_u8).prop_map(|name| Operation::Fetch { name }),
        1 => (0..2_u8, 1..9_u64, any::<bool>()).prop_map(|(session, number, past)| Operation::Timer { session, number, past }),
        1 => (0..2_u8).prop_map(|session| Operation::Cancel { session }),
    ]
}

/// The sequence of a seed; half of them are about one queue alone.
pub(super) fn sequence(seed: u64, length: usize) -> anyhow::Result<Vec<Operation>> {
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let each = match seed % 4 {
        0 | 1 => any_operations().boxed(),
        2 => queue_operations(4).boxed(),
        _ => queue_operations(1).boxed(),
    };
    let tree = prop::collection::vec(each, length).new_tree(&mut runner).map_err(|e| anyhow::anyhow!("{e}"))?;
    Ok(tree.current())
}
