//! Pulling from a durable consumer.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{StatusCode, Subscriber};
use contract::Timestamp;
use contract::streams::Queue;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{NatsTransport, ServerClock, Uptime};
use super::header_map::headers_of;
use super::seen_seqs::SeenSeqs;
use crate::transport::Transport;
use crate::{BusError, Delivery, Headers};

/// Interval of the heartbeats of a pull.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Time for which the server's clock is extrapolated from one answer.
const CLOCK_FOR: Duration = Duration::from_mins(1);
/// Timeout of the request for the server's time. It is far below the wait after which an item counts as possibly held.
const CLOCK_ANSWER_MAX: Duration = Duration::from_millis(200);
/// Time for which this host's clock is used if the server did not answer.
const HOST_CLOCK_FOR: Duration = Duration::from_secs(2);
/// Longest wait after the end of a pull for the status message that ends it.
const END_LATE_MAX: Duration = Duration::from_secs(2);

struct Pull {
    answers: Subscriber,
    gaps: broadcast::Receiver<()>,
    clock: ServerClock,
    uptime: Uptime,
    seen_seqs: Arc<SeenSeqs>,
    queue: Queue,
    /// The connection over which the pull was begun: another one ends it.
    generation: u64,
    stop: CancellationToken,
    left: usize,
    silence_max: Duration,
    /// Deadline of the status that ends the pull.
    ends: Instant,
}

impl NatsTransport {
    pub(super) async fn js_pull(
        &self,
        queue: Queue,
        max: usize,
        wait: Duration,
        stop: CancellationToken,
    ) -> Result<BoxStream<'static, Result<Delivery, BusError>>, BusError> {
        let heartbeat = HEARTBEAT.min(wait / 3);
        let body = serde_json::json!({
            "batch": max,
            "expires": u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX),
            "idle_heartbeat": u64::try_from(heartbeat.as_nanos()).unwrap_or(u64::MAX),
        });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", queue.stream().name(), queue.durable());
        // Subscribed before the request: a connection that breaks ends the pull.
        let gaps = self.gaps.subscribe();
        // Without a connection the request would reach the next server, and its items a pull of the connection before.
        let generation = self.generation();
        let clock = self.server_clock(queue, generation).await;
        if stop.is_cancelled() {
            return Ok(futures::stream::empty().boxed());
        }
        self.require_connection(generation)?;
        let answers = self.ask_many(&subject, Headers::new(), crate::json::encode(&body)?).await?;
        let silence_max = heartbeat * 2 + Duration::from_secs(1);
        let ends = Instant::now() + wait + END_LATE_MAX;
        let uptime = self.uptime.clone();
        let seen_seqs = self.seen_seqs.clone();
        let left = max;
        let pull = Pull { answers, gaps, clock, uptime, seen_seqs, queue, generation, stop, left, silence_max, ends };
        Ok(futures::stream::unfold(Some(pull), |pull| async {
            let mut pull = pull?;
            match pull.next().await? {
                Ok(delivery) => Some((Ok(delivery), Some(pull))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed())
    }

    /// The clock of the server: how long an item waited must not depend on the clock of this host. The server is asked
    /// once a minute and for each connection; where it does not answer at once, the clock of this host does for a while.
    async fn server_clock(&self, queue: Queue, generation: u64) -> ServerClock {
        let at = Instant::now();
        let known = *self.server_clock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.filter(|known| known.generation == generation && at < known.until) {
            return known;
        }
        let here = Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let (time, until) = match timeout(CLOCK_ANSWER_MAX, self.time_at(queue.stream())).await {
            Ok(Ok(time)) => (time, at + CLOCK_FOR),
            Ok(Err(_)) | Err(_) => (here, at + HOST_CLOCK_FOR),
        };
        let clock = ServerClock { time, at, until, generation };
        *self.server_clock.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
        clock
    }
}

impl Pull {
    /// The next item. After a stop the pull is read to its end and not unsubscribed: async-nats 0.51 forgets a drained
    /// subscription before the server has read its UNSUB, and with it the items that the server sends until then.
    async fn next(&mut self) -> Option<Result<Delivery, BusError>> {
        while self.left > 0 {
            let silent_at = self.ends.min(Instant::now() + self.silence_max);
            let answer = tokio::select! {
                biased;
                answer = self.answers.next() => answer,
                _ = self.gaps.recv() => return Some(Err(BusError::Unavailable("the connection broke".to_owned()))),
                () = sleep_until(silent_at) => {
                    let silent = || Err(BusError::Unavailable("nats-server sends no heartbeats".to_owned()));
                    return (!self.stop.is_cancelled()).then(silent);
                }
            }?;
            match answer.status {
                None => {
                    self.left -= 1;
                    let delivery = delivery(answer, self.clock, self.uptime.elapsed(), self.generation);
                    if let Ok(delivery) = &delivery {
                        self.seen_seqs.note(self.queue.stream(), delivery.seq);
                    }
                    return Some(delivery);
                }
                // A heartbeat.
                Some(status) if status == StatusCode::IDLE_HEARTBEAT => {}
                Some(status) => return ended(status, answer.description),
            }
        }
        None
    }
}

/// The error of a status that ends a pull; none for its regular end.
fn ended(status: StatusCode, description: Option<String>) -> Option<Result<Delivery, BusError>> {
    let why = description.unwrap_or_default();
    match status.as_u16() {
        404 | 408 => None,
        409 if why.contains("Batch Completed") => None,
        _ => Some(Err(BusError::Unavailable(format!("pull ended: {status} {why}")))),
    }
}

fn delivery(
    message: async_nats::Message,
    clock: ServerClock,
    connected_for: Duration,
    generation: u64,
) -> Result<Delivery, BusError> {
    let ack = message.reply.map(async_nats::Subject::into_string).unwrap_or_default();
    let (delivered, seq, stored_at) =
        read_ack(&ack).ok_or_else(|| BusError::Malformed(format!("{ack:?} is no address for acks")))?;
    Ok(Delivery {
        subject: message.subject.into_string(),
        seq,
        delivered,
        stored_at,
        waited: clock.now().since(stored_at),
        connected_for,
        generation,
        headers: headers_of(message.headers.as_ref()),
        payload: message.payload,
        ack,
    })
}

/// `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<nanoseconds>.<pending>`, on some servers with
/// a domain and an account before the stream.
fn read_ack(ack: &str) -> Option<(u64, u64, Timestamp)> {
    let tokens: Vec<&str> = ack.split('.').collect();
    let from = if tokens.len() >= 11 { 4 } else { 2 };
    let number = |n: usize| tokens.get(from + n).and_then(|token| token.parse::<u64>().ok());
    Some((number(2)?, number(3)?, Timestamp::from_millis(number(5)? / 1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_address_in_either_form_is_parsed() {
        let at = Timestamp::from_millis(1_700_000_000_123);
        let short = "$JS.ACK.S.c.3.77.9.1700000000123456789.0";
        let long = "$JS.ACK._.hash.S.c.3.77.9.1700000000123456789.0.rnd";
        assert_eq!(read_ack(short), Some((3, 77, at)));
        assert_eq!(read_ack(long), Some((3, 77, at)));
        assert_eq!(read_ack("_INBOX.x"), None);
    }
}
