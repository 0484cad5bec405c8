//! Pulling from a durable consumer.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{StatusCode, Subscriber};
use contract::Timestamp;
use contract::streams::Queue;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Nats;
use super::api::headers_of;
use super::connect::Connected;
use super::seen::SeenSeqs;
use crate::{BusError, Delivery, Headers};

/// How often the server shows that a pull still stands.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long after the end of a pull the server's word that it has ended is awaited.
const END_LATE_MAX: Duration = Duration::from_secs(2);

struct Pull {
    answers: Subscriber,
    gaps: broadcast::Receiver<()>,
    connected: Connected,
    seen: Arc<SeenSeqs>,
    queue: Queue,
    stop: CancellationToken,
    left: usize,
    silence_max: Duration,
    /// When the server has said that the pull has ended, at the latest.
    ends: Instant,
}

impl Nats {
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
        // Heard of from now on: a connection that breaks takes the pull with it.
        let gaps = self.gaps.subscribe();
        let answers = self.ask_many(&subject, Headers::new(), crate::log::encode(&body)?).await?;
        let silence_max = heartbeat * 2 + Duration::from_secs(1);
        let ends = Instant::now() + wait + END_LATE_MAX;
        let connected = self.connected.clone();
        let seen = self.seen.clone();
        let pull = Pull { answers, gaps, connected, seen, queue, stop, left: max, silence_max, ends };
        Ok(futures::stream::unfold(Some(pull), |pull| async {
            let mut pull = pull?;
            match pull.next().await? {
                Ok(delivery) => Some((Ok(delivery), Some(pull))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed())
    }
}

impl Pull {
    /// The next item. After a stop the pull is read to its end and not unsubscribed: async-nats 0.51 forgets a drained
    /// subscription before the server has read its UNSUB, and with it the items that the server sends until then.
    async fn next(&mut self) -> Option<Result<Delivery, BusError>> {
        while self.left > 0 {
            let silent_at = self.ends.min(Instant::now() + self.silence_max);
            let came = tokio::select! {
                biased;
                came = self.answers.next() => came,
                _ = self.gaps.recv() => return Some(Err(BusError::Unavailable("the connection broke".to_owned()))),
                () = sleep_until(silent_at) => {
                    let silent = || Err(BusError::Unavailable("the server is silent".to_owned()));
                    return (!self.stop.is_cancelled()).then(silent);
                }
            }?;
            match came.status {
                None => {
                    self.left -= 1;
                    let taken = delivery(came, self.connected.since());
                    if let Ok(delivery) = &taken {
                        self.seen.note(self.queue.stream(), delivery.seq);
                    }
                    return Some(taken);
                }
                // A heartbeat.
                Some(status) if status == StatusCode::IDLE_HEARTBEAT => {}
                Some(status) => return ended(status, came.description),
            }
        }
        None
    }
}

/// What a status that ends a pull means: nothing, where it came to its natural end.
fn ended(status: StatusCode, description: Option<String>) -> Option<Result<Delivery, BusError>> {
    let why = description.unwrap_or_default();
    match status.as_u16() {
        404 | 408 => None,
        409 if why.contains("Batch Completed") => None,
        _ => Some(Err(BusError::Unavailable(format!("pull ended: {status} {why}")))),
    }
}

fn delivery(message: async_nats::Message, connected_for: Duration) -> Result<Delivery, BusError> {
    let ack = message.reply.map(async_nats::Subject::into_string).unwrap_or_default();
    let (delivered, seq, stored_at) =
        read_ack(&ack).ok_or_else(|| BusError::Malformed(format!("{ack:?} is no address for acks")))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Delivery {
        subject: message.subject.into_string(),
        seq,
        delivered,
        stored_at,
        waited: Timestamp::default().after(now).since(stored_at),
        connected_for,
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
    fn both_forms_of_an_ack_address_are_read() {
        let at = Timestamp::from_millis(1_700_000_000_123);
        let short = "$JS.ACK.S.c.3.77.9.1700000000123456789.0";
        let long = "$JS.ACK._.hash.S.c.3.77.9.1700000000123456789.0.rnd";
        assert_eq!(read_ack(short), Some((3, 77, at)));
        assert_eq!(read_ack(long), Some((3, 77, at)));
        assert_eq!(read_ack("_INBOX.x"), None);
    }
}
