//! The in-memory server against the real one: the same operations, the same answers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ailoop_tests::nats::NatsServer;
use anyhow::ensure;
use bus::transport::{Ack, Appended, EXPECTED_LAST, ReadMany};
use bus::{Bus, BusError, Delivery, MemoryServer, Read, Stored};
use contract::Timestamp;
use contract::command::Verb;
use contract::ids::{CallAttempt, CallId};
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::{self, MailboxKey, SessionKey, Subject};
use contract::{AgentId, MailId};
use futures::TryStreamExt;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::world::{id, key, pull};

/// Sequences that are compared, each on new servers; half of them are about one queue alone.
const SEQUENCES: u64 = 32;
/// Sequences at the same time.
const AT_ONCE: usize = 4;
/// Operations of one sequence.
const OPERATIONS: usize = 60;

/// One operation; numbers choose among few subjects, so that they meet.
#[derive(Debug, Clone)]
enum Act {
    Append {
        at: Place,
        create: bool,
        body: u8,
    },
    /// Appends over what the leader shows, or over something else.
    Replace {
        at: Place,
        stale: bool,
        body: u8,
    },
    Last {
        at: Place,
        leader: bool,
    },
    LastMany {
        at: Place,
        whole: bool,
    },
    Purge {
        at: Place,
    },
    Pull {
        queue: Queue,
        max: usize,
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
}

/// A stream, a session and a number in it.
#[derive(Debug, Clone, Copy)]
struct Place {
    stream: Stream,
    session: u8,
    nth: u8,
}

fn mailbox(n: u8) -> MailboxKey {
    MailboxKey { tenant: session(n).tenant, agent: AgentId::new(&format!("a{n}")).unwrap() }
}

fn session(n: u8) -> SessionKey {
    key(&format!("s{n}")).unwrap()
}

impl Place {
    fn call(self) -> CallAttempt {
        CallAttempt { call: CallId::model(1, u32::from(self.nth)), attempt: 1 }
    }

    fn subject(self) -> Subject {
        let key = session(self.session);
        match self.stream {
            Stream::Control => subject::control(&key, Verb::Pause, &id(&format!("c{}", self.nth)).unwrap()),
            Stream::Log => subject::log_slot(&key, u64::from(self.nth) * 40),
            Stream::Model => subject::model_item(&key, &self.call()),
            Stream::Mail => subject::mail(&mailbox(self.session), &MailId::sent_by(&format!("c{}", self.nth))),
            Stream::Tool | Stream::Timer | Stream::Dead => {
                subject::dead(&key, subject::DeadKind::Control, &id(&format!("c{}", self.nth)).unwrap())
            }
        }
    }

    fn all(self) -> Subject {
        let key = session(self.session);
        match self.stream {
            Stream::Control => subject::control_inbox(&key),
            Stream::Log => subject::log_session(&key),
            Stream::Mail => subject::mailbox(&mailbox(self.session)),
            Stream::Model | Stream::Tool | Stream::Timer | Stream::Dead => self.subject(),
        }
    }

    fn read_from(self) -> Stream {
        match self.stream {
            Stream::Tool | Stream::Timer | Stream::Dead => Stream::Dead,
            Stream::Control | Stream::Log | Stream::Model | Stream::Mail => self.stream,
        }
    }
}

fn places() -> impl Strategy<Value = Place> {
    let streams = [Stream::Control, Stream::Control, Stream::Log, Stream::Model, Stream::Mail, Stream::Dead];
    let stream = prop::sample::select(streams.to_vec());
    (stream, 0..2_u8, 0..4_u8).prop_map(|(stream, session, nth)| Place { stream, session, nth })
}

/// One queue with few subjects, much pulled, and either handed back or purged. Not both: after a purge nats-server may
/// pass over a hand-back of what was held before, and lets its ack wait pass instead.
fn queue_acts(purged: bool) -> impl Strategy<Value = Act> {
    let at = || (0..2_u8, 0..4_u8).prop_map(|(session, nth)| Place { stream: Stream::Control, session, nth });
    let acks = [Ack::Done, Ack::Progress, Ack::Retry(Duration::ZERO), Ack::Retry(Duration::ZERO)];
    let ack = prop::sample::select(acks[..if purged { 2 } else { 4 }].to_vec());
    let late = (0..8_usize).prop_map(|nth| Act::Late { nth });
    let purge = at().prop_map(|at| Act::Purge { at });
    prop_oneof![
        6 => (at(), any::<u8>()).prop_map(|(at, body)| Act::Append { at, create: false, body }),
        1 => at().prop_map(|at| Act::LastMany { at, whole: true }),
        3 => (1..4_usize).prop_map(|max| Act::Pull { queue: Queue::Drive, max }),
        5 => (0..8_usize, ack).prop_map(|(nth, ack)| Act::Settle { nth, ack }),
        1 => if purged { purge.boxed() } else { late.boxed() },
    ]
}

fn acts() -> impl Strategy<Value = Act> {
    let queue = prop::sample::select(vec![Queue::Drive, Queue::Drive, Queue::Model, Queue::Due]);
    let ack = prop::sample::select(vec![Ack::Done, Ack::Done, Ack::Progress, Ack::Retry(Duration::ZERO)]);
    prop_oneof![
        8 => (places(), any::<bool>(), any::<u8>()).prop_map(|(at, create, body)| Act::Append { at, create, body }),
        2 => (places(), any::<bool>(), any::<u8>()).prop_map(|(at, stale, body)| Act::Replace { at, stale, body }),
        3 => (places(), any::<bool>()).prop_map(|(at, leader)| Act::Last { at, leader }),
        3 => (places(), any::<bool>()).prop_map(|(at, whole)| Act::LastMany { at, whole }),
        1 => places().prop_map(|at| Act::Purge { at }),
        3 => (queue, 1..3_usize).prop_map(|(queue, max)| Act::Pull { queue, max }),
        4 => (0..8_usize, ack).prop_map(|(nth, ack)| Act::Settle { nth, ack }),
        1 => (0..3_u8, any::<u8>()).prop_map(|(key, value)| Act::Put { key, value }),
        1 => (0..3_u8, any::<u8>()).prop_map(|(key, value)| Act::Create { key, value }),
        1 => (0..3_u8).prop_map(|key| Act::Get { key }),
        1 => (0..3_u8).prop_map(|key| Act::Delete { key }),
        1 => Just(Act::List),
        1 => (0..2_u8).prop_map(|name| Act::Store { name }),
        1 => (0..2_u8).prop_map(|name| Act::Fetch { name }),
        1 => (0..2_u8, 1..9_u64, any::<bool>()).prop_map(|(session, number, past)| Act::Timer { session, number, past }),
        1 => (0..2_u8).prop_map(|session| Act::Cancel { session }),
    ]
}

/// One of the two servers, and what its client holds.
struct Side {
    bus: Bus,
    held: Vec<Delivery>,
    handed_back: Vec<Delivery>,
    /// The real server, asked without our bus between.
    raw: Option<async_nats::Client>,
}

impl Side {
    /// Waits until the consumer has dealt with what was told about an item: it deals with acks in turn and answers this one.
    async fn settled(&self, delivery: &Delivery) -> Result<(), BusError> {
        let Some(raw) = &self.raw else { return Ok(()) };
        let asked = raw.request(delivery.ack.clone(), "+WPI".into()).await;
        asked.map(drop).map_err(|error| BusError::Unavailable(error.to_string()))
    }

    /// Does one thing; the answer as text, without what may differ (times, addresses).
    async fn act(&mut self, act: &Act) -> Result<String, BusError> {
        let bus = self.bus.transport();
        Ok(match act {
            Act::Append { at, create, body } => {
                show_append(bus.append(&at.subject(), *create, Vec::new(), vec![*body; 3].into()).await?)
            }
            Act::Replace { at, stale, body } => {
                let last = bus.last(at.read_from(), &at.subject(), Read::Leader).await?;
                let seq = last.map_or(0, |last| last.seq) + u64::from(*stale);
                let headers = vec![(EXPECTED_LAST.to_owned(), seq.to_string())];
                show_append(bus.append(&at.subject(), false, headers, vec![*body; 3].into()).await?)
            }
            Act::Last { at, leader } => {
                let read = if *leader { Read::Leader } else { Read::Any };
                let found = bus.last(at.read_from(), &at.all(), read).await?;
                found.map_or_else(|| "none".to_owned(), |found| show(&found))
            }
            Act::LastMany { at, whole } => {
                let filter = if *whole { at.all() } else { at.subject() };
                match bus.last_many(at.read_from(), &filter).await? {
                    ReadMany::Messages(found) => found.iter().map(show).collect::<Vec<_>>().join(" "),
                    ReadMany::TooMany => "too many".to_owned(),
                }
            }
            Act::Purge { at } => format!("purged {}", bus.purge(at.read_from(), &at.all()).await?),
            Act::Pull { queue, max } => {
                let pulled = pull(&self.bus, *queue, *max, Duration::from_millis(150)).await?;
                let shown = pulled.iter().map(|d| format!("{}#{}x{}={:?}", d.subject, d.seq, d.delivered, d.payload));
                let shown = shown.collect::<Vec<_>>().join(" ");
                self.held.extend(pulled);
                shown
            }
            Act::Settle { nth, ack } => {
                if self.held.is_empty() {
                    return Ok("nothing held".to_owned());
                }
                let nth = nth % self.held.len();
                let delivery = match ack {
                    Ack::Progress => self.held[nth].clone(),
                    Ack::Done | Ack::Retry(_) => self.held.remove(nth),
                };
                bus.ack(&delivery, *ack).await?;
                if let Ack::Retry(_) = ack {
                    self.handed_back.push(delivery.clone());
                }
                // What was told on this connection is with the server, then with the consumer.
                bus.ping().await?;
                self.settled(&delivery).await?;
                format!("{ack:?} {}#{}", delivery.subject, delivery.seq)
            }
            Act::Late { nth } => {
                let Some(nth) = nth.checked_rem(self.handed_back.len()) else { return Ok("nothing".to_owned()) };
                let delivery = self.handed_back.remove(nth);
                bus.ack(&delivery, Ack::Done).await?;
                bus.ping().await?;
                self.settled(&delivery).await?;
                format!("late {}#{}", delivery.subject, delivery.seq)
            }
            Act::Put { key, value } => {
                bus.kv_put(Bucket::Sessions, &format!("t.k{key}"), vec![*value].into()).await?;
                "put".to_owned()
            }
            Act::Create { key, value } => {
                format!("{}", bus.kv_create(Bucket::Sessions, &format!("t.k{key}"), vec![*value].into()).await?)
            }
            Act::Get { key } => format!("{:?}", bus.kv_get(Bucket::Sessions, &format!("t.k{key}")).await?),
            Act::Delete { key } => {
                bus.kv_delete(Bucket::Sessions, &format!("t.k{key}")).await?;
                "deleted".to_owned()
            }
            Act::List => format!("{:?}", bus.kv_list(Bucket::Sessions, "t.*").await?),
            Act::Store { name } => {
                bus.put_object(Objects::Work, &format!("o{name}"), vec![*name; 300_000].into()).await?;
                "stored".to_owned()
            }
            Act::Fetch { name } => {
                let found = bus.get_object(Objects::Work, &format!("o{name}")).await?;
                format!("{:?}", found.map(|body| (body.len(), body.first().copied())))
            }
            Act::Timer { session: n, number, past } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let later = Timestamp::default().after(now + Duration::from_hours(1));
                let at = if *past { Timestamp::from_millis(1) } else { later };
                self.bus.set_timer(&session(*n), *number, at).await?;
                // A timer whose time is past is due at once, but by the server's own hand.
                tokio::time::sleep(Duration::from_millis(if *past { 300 } else { 0 })).await;
                "set".to_owned()
            }
            Act::Cancel { session: n } => {
                self.bus.cancel_timer(&session(*n)).await?;
                "cancelled".to_owned()
            }
        })
    }
}

fn show_append(appended: Appended) -> String {
    match appended {
        Appended::Stored(seq) => format!("stored {seq}"),
        // Only the code is the same everywhere.
        Appended::Doubtful(why) => why.split(':').next().unwrap_or_default().to_owned(),
    }
}

fn show(stored: &Stored) -> String {
    format!("{}#{}={:?}", stored.subject, stored.seq, stored.payload)
}

impl Side {
    fn new(bus: Bus, raw: Option<async_nats::Client>) -> Self {
        Self { bus, held: Vec::new(), handed_back: Vec::new(), raw }
    }
}

/// Plays one sequence on both; the error tells where they part.
async fn compare(seed: u64) -> anyhow::Result<()> {
    let server = NatsServer::start().await?;
    let raw = async_nats::connect(server.url()).await?;
    let (mut real, mut twin) =
        (Side::new(server.ready().await?, Some(raw)), Side::new(MemoryServer::new().bus(), None));
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let each = match seed % 4 {
        0 | 1 => acts().boxed(),
        2 => queue_acts(true).boxed(),
        _ => queue_acts(false).boxed(),
    };
    let tree = prop::collection::vec(each, OPERATIONS).new_tree(&mut runner).map_err(|e| anyhow::anyhow!("{e}"))?;
    let mut told = Vec::new();
    for act in tree.current() {
        let (one, other) = (real.act(&act).await?, twin.act(&act).await?);
        told.push(format!("{act:?} -> {one}"));
        let told = || told.join("\n");
        ensure!(one == other, "seed {seed}:\n{}\nnats-server: {one}\ntwin: {other}", told());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_in_memory_server_does_what_the_real_one_does() -> anyhow::Result<()> {
    futures::stream::iter((0..SEQUENCES).map(anyhow::Ok)).try_for_each_concurrent(AT_ONCE, compare).await
}
