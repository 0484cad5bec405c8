//! One of the two servers: applies an operation and returns the answer, without what may differ (times, addresses).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use bus::transport::{Ack, Appended, EXPECTED_LAST, ReadMany};
use bus::{Bus, BusError, Delivery, Read, Stored};
use contract::Timestamp;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject;
use tokio::time::Instant;

use super::operations::{BodyTarget, ItemPosition, Operation, session};
use crate::nats::world::{eventually, pull};

/// Timeout for a message that the server must have: shorter than an ack wait.
const SURELY: Duration = Duration::from_secs(2);
/// Timeout for a message that the server must not have.
const MOMENT: Duration = Duration::from_millis(20);
/// Longer than the ack wait.
const ACK_WAIT_OVER: Duration = Duration::from_secs(9);

/// A server, and the items that its client holds.
pub(super) struct Server {
    bus: Bus,
    held: Vec<Delivery>,
    returned: Vec<Delivery>,
    /// A raw client of the real server.
    raw: Option<async_nats::Client>,
}

impl Server {
    pub(super) fn memory(bus: Bus) -> Self {
        Self { bus, held: Vec::new(), returned: Vec::new(), raw: None }
    }

    pub(super) fn real(bus: Bus, raw: async_nats::Client) -> Self {
        Self { bus, held: Vec::new(), returned: Vec::new(), raw: Some(raw) }
    }

    /// Applies one operation; the answer as text. A refusal is an answer; an unknown outcome is an error.
    pub(super) async fn operation(&mut self, operation: &Operation) -> anyhow::Result<String> {
        match self.try_apply(operation).await {
            Ok(answer) => Ok(answer),
            Err(error) => match error.downcast_ref::<BusError>() {
                Some(BusError::TooLarge { .. } | BusError::Full(_) | BusError::Malformed(_)) => Ok(error.to_string()),
                _ => Err(error.context(format!("{operation:?}"))),
            },
        }
    }

    /// Takes what the other server gave, and whatever else it gives at once. It is waited for what must be there, and
    /// only a moment for what must not: that would stay and come at a later pull.
    pub(super) async fn pull_like(&mut self, queue: Queue, max: usize, there: usize) -> anyhow::Result<String> {
        let (first, patience) = if there == max { (max, SURELY) } else { (max, MOMENT) };
        let mut pulled = pull(&self.bus, queue, first, patience).await?;
        if pulled.len() < there {
            pulled.extend(pull(&self.bus, queue, there - pulled.len(), SURELY).await?);
        }
        Ok(self.take(pulled))
    }

    /// Returns the depth of a queue, read again while it differs from that of the other server: a consumer learns of a
    /// message a moment after it is stored, and of the purge of a single message a moment after the purge.
    pub(super) async fn depth_like(&self, queue: Queue, other: &str) -> anyhow::Result<String> {
        let until = Instant::now() + SURELY;
        loop {
            let depth = format!("{:?}", self.bus.transport().depth(queue).await?);
            if depth == other || Instant::now() > until {
                return Ok(depth);
            }
            tokio::time::sleep(MOMENT).await;
        }
    }

    /// Takes what is there now, or comes until `wait` is over; also tells how much it was.
    pub(super) async fn pull(&mut self, queue: Queue, max: usize, wait: Duration) -> anyhow::Result<(String, usize)> {
        let pulled = pull(&self.bus, queue, max, wait).await?;
        let number = pulled.len();
        Ok((self.take(pulled), number))
    }

    /// Whether a purge would remove exactly one message, and that one was given to us.
    pub(super) async fn holds_alone(&self, at: ItemPosition) -> anyhow::Result<bool> {
        let ReadMany::Messages(found) = self.bus.transport().last_many(at.stream, &[at.all()]).await? else {
            return Ok(false);
        };
        let [found] = &found[..] else { return Ok(false) };
        let mut given = self.held.iter().chain(&self.returned);
        Ok(given.any(|delivery| delivery.subject == found.subject && delivery.seq == found.seq))
    }

    /// Sends in-progress acks for all held items, also for returned ones: a return may have been ignored.
    pub(super) async fn touch(&self) -> anyhow::Result<()> {
        let known: BTreeMap<_, _> = self.held.iter().chain(&self.returned).map(|d| ((&d.subject, d.seq), d)).collect();
        for delivery in known.into_values() {
            self.bus.transport().ack(delivery, Ack::Progress).await?;
        }
        Ok(self.bus.ping().await?)
    }

    fn take(&mut self, pulled: Vec<Delivery>) -> String {
        let shown = pulled.iter().map(|d| format!("{}#{}x{}={:?}", d.subject, d.seq, d.delivered, d.payload));
        let shown = shown.collect::<Vec<_>>().join(" ");
        self.held.extend(pulled);
        shown
    }

    /// Waits until the consumer has processed the earlier acks of an item: acks are processed in order, and this one is
    /// answered.
    async fn settled(&self, delivery: &Delivery) -> anyhow::Result<()> {
        // A round trip to the server, then one to the consumer.
        self.bus.ping().await?;
        if let Some(raw) = &self.raw {
            raw.request(delivery.ack.clone(), "+WPI".into()).await?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each operation")]
    async fn try_apply(&mut self, operation: &Operation) -> anyhow::Result<String> {
        let bus = self.bus.transport();
        Ok(match operation {
            Operation::Append { at, create, body } => {
                show_append(bus.append(&at.subject(), *create, Vec::new(), vec![*body; 3].into()).await?)
            }
            Operation::Replace { at, stale, body } => {
                let last = bus.last(at.stream, &at.subject(), Read::Leader).await?;
                let seq = last.map_or(0, |last| last.seq) + u64::from(*stale);
                let headers = vec![(EXPECTED_LAST.to_owned(), seq.to_string())];
                show_append(bus.append(&at.subject(), false, headers, vec![*body; 3].into()).await?)
            }
            Operation::Last { at, leader } => {
                let read = if *leader { Read::Leader } else { Read::Any };
                let found = bus.last(at.stream, &at.all(), read).await?;
                found.map_or_else(|| "none".to_owned(), |found| show(&found))
            }
            Operation::Count { at, whole } => {
                let filter = if *whole { at.all() } else { at.subject() };
                bus.count(at.stream, &filter).await?.to_string()
            }
            Operation::LastMany { at, whole } => {
                let filter = if *whole { at.all() } else { at.subject() };
                match bus.last_many(at.stream, std::slice::from_ref(&filter)).await? {
                    ReadMany::Messages(found) => found.iter().map(show).collect::<Vec<_>>().join(" "),
                    ReadMany::TooMany => "too many".to_owned(),
                }
            }
            Operation::Purge { at } => format!("purged {}", bus.purge(at.stream, &at.all()).await?),
            Operation::Pull { queue, max } => self.pull(*queue, *max, Duration::ZERO).await?.0,
            Operation::Await { queue, max } => self.pull(*queue, *max, ACK_WAIT_OVER).await?.0,
            Operation::Depth { queue } => format!("{:?}", bus.depth(*queue).await?),
            Operation::Reset { queue } => format!("{:?}", bus.reset(*queue).await?),
            Operation::Settle { nth, ack } => {
                let Some(nth) = nth.checked_rem(self.held.len()) else { return Ok("nothing held".to_owned()) };
                let delivery = match ack {
                    Ack::Progress => self.held[nth].clone(),
                    Ack::Done | Ack::Retry(_) => self.held.remove(nth),
                };
                bus.ack(&delivery, *ack).await?;
                if let Ack::Retry(_) = ack {
                    self.returned.push(delivery.clone());
                }
                self.settled(&delivery).await?;
                format!("{ack:?} {}#{}", delivery.subject, delivery.seq)
            }
            Operation::Late { nth } => {
                let Some(nth) = nth.checked_rem(self.returned.len()) else { return Ok("nothing".to_owned()) };
                let delivery = self.returned.remove(nth);
                bus.ack(&delivery, Ack::Done).await?;
                self.settled(&delivery).await?;
                format!("late {}#{}", delivery.subject, delivery.seq)
            }
            Operation::Put { key, value } => {
                bus.kv_put(Bucket::Sessions, &format!("t.k{key}"), vec![*value].into(), None).await?;
                "put".to_owned()
            }
            Operation::Create { key, value } => {
                let key = format!("t.k{key}");
                format!("{}", bus.kv_create(Bucket::Sessions, &key, vec![*value].into(), None).await?.is_some())
            }
            Operation::Get { key } => format!("{:?}", bus.kv_get(Bucket::Sessions, &format!("t.k{key}")).await?),
            Operation::Update { key, value, stale } => {
                let key = format!("t.k{key}");
                let found = bus.kv_entry(Bucket::Sessions, &key).await?;
                // Where there is none, any revision but 0 is a wrong one.
                let revision = found.as_ref().map_or(1 << 40, |(revision, _)| *revision) - u64::from(*stale);
                let updated = bus.kv_update(Bucket::Sessions, &key, vec![*value].into(), revision, None).await?;
                format!("{:?} {}", found.map(|(_, value)| value), updated.is_some())
            }
            Operation::Delete { key } => {
                bus.kv_delete(Bucket::Sessions, &format!("t.k{key}")).await?;
                "deleted".to_owned()
            }
            Operation::List => format!("{:?}", bus.kv_list(Bucket::Sessions, "t.*").await?),
            Operation::Store { name } => {
                bus.put_object(Objects::Work, &format!("o{name}"), vec![*name; 300_000].into()).await?;
                "stored".to_owned()
            }
            Operation::Fetch { name } => {
                let found = bus.get_object(Objects::Work, &format!("o{name}")).await?;
                format!("{:?}", found.map(|body| (body.len(), body.first().copied())))
            }
            Operation::Timer { session, number, past } => {
                self.set_timer(*session, *number, *past).await?;
                "set".to_owned()
            }
            Operation::Cancel { session: n } => {
                self.bus.cancel_timer(&session(*n)).await?;
                "cancelled".to_owned()
            }
            Operation::TooLarge { door } => {
                let bytes = |bytes: usize| bytes::Bytes::from(vec![b'x'; bytes + 1]);
                let (message, object) = (bytes(1 << 20), bytes(64 << 20));
                match door {
                    BodyTarget::Stream => {
                        let at = ItemPosition { stream: Stream::Log, session: 0, nth: 0 };
                        drop(bus.append(&at.subject(), true, Vec::new(), message).await?);
                    }
                    BodyTarget::Key => bus.kv_put(Bucket::Sessions, "t.large", message, None).await?,
                    BodyTarget::NewKey => drop(bus.kv_create(Bucket::Sessions, "t.large", message, None).await?),
                    BodyTarget::Object => bus.put_object(Objects::Work, "large", object).await?,
                }
                "let in".to_owned()
            }
        })
    }

    /// Sets a timer, in an hour or due at once. That one is due by the server's own hand, so it is waited for.
    async fn set_timer(&self, n: u8, number: u64, past: bool) -> anyhow::Result<()> {
        let (transport, at) = (self.bus.transport(), subject::timer_set(&session(n)));
        let set = async || transport.last(Stream::Timer, &at, Read::Leader).await.map(|set| set.map(|set| set.seq));
        let before = set().await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let later = Timestamp::default().after(now + Duration::from_hours(1));
        self.bus.set_timer(&session(n), number, if past { Timestamp::from_millis(1) } else { later }).await?;
        if !past {
            return Ok(());
        }
        // Where a later number was set, that one stays.
        eventually("a timer is due", async || set().await.is_ok_and(|set| set.is_none() || set == before))
            .await
            .context("a timer whose time is past")
    }
}

fn show_append(appended: Appended) -> String {
    match appended {
        Appended::Stored(seq) => format!("stored {seq}"),
        // Only the code is the same everywhere.
        Appended::Doubtful(doubt) => doubt.to_string().split(':').next().unwrap_or_default().to_owned(),
    }
}

fn show(stored: &Stored) -> String {
    format!("{}#{}={:?}", stored.subject, stored.seq, stored.payload)
}
