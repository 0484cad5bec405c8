//! How far each stream was seen to reach, so that one that was put back to an older state is noticed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::Timestamp;
use contract::streams::Stream;
use serde::Deserialize;

use super::Nats;
use super::api::Refusal;
use crate::BusError;
use crate::transport::Rewound;

/// Pause before a stream that seems to end too early is looked at again.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);

/// The highest sequence that was seen in each stream, in the order of [`Stream::ALL`]; 0: none.
#[derive(Debug)]
pub(super) struct SeenSeqs(Vec<AtomicU64>);

impl Default for SeenSeqs {
    fn default() -> Self {
        Self(Stream::ALL.iter().map(|_| AtomicU64::new(0)).collect())
    }
}

/// The part of a stream's description that is looked at here.
#[derive(Deserialize)]
struct Info {
    state: State,
    /// The server's clock.
    #[serde(default)]
    ts: Option<Timestamp>,
}

#[derive(Deserialize)]
struct State {
    last_seq: u64,
}

impl SeenSeqs {
    /// Notes that the stream reaches at least to `seq`.
    pub(super) fn note(&self, stream: Stream, seq: u64) {
        if let Some(seen) = self.of(stream) {
            seen.fetch_max(seq, Ordering::Relaxed);
        }
    }

    /// As [`SeenSeqs::note`], for a stream by the server's name of it. Buckets and stores are not watched.
    pub(super) fn note_by_name(&self, name: &str, seq: u64) {
        if let Some(stream) = Stream::ALL.iter().find(|stream| stream.name() == name) {
            self.note(*stream, seq);
        }
    }

    fn of(&self, stream: Stream) -> Option<&AtomicU64> {
        Stream::ALL.iter().position(|each| *each == stream).and_then(|position| self.0.get(position))
    }
}

impl Nats {
    async fn info(&self, stream: Stream) -> Result<Info, BusError> {
        let subject = format!("$JS.API.STREAM.INFO.{}", stream.name());
        self.js_request(&subject, None).await?.map_err(Refusal::into_error)
    }

    pub(super) async fn rewound_streams(&self) -> Result<Vec<Rewound>, BusError> {
        let mut rewound = Vec::new();
        for stream in Stream::ALL {
            let highest = self.seen.of(*stream).map_or(0, |seen| seen.load(Ordering::Relaxed));
            if highest == 0 || self.info(*stream).await?.state.last_seq >= highest {
                continue;
            }
            // A new leader may answer before it has applied everything.
            tokio::time::sleep(SECOND_LOOK_AFTER).await;
            let last = self.info(*stream).await?.state.last_seq;
            if last < highest {
                rewound.push(Rewound { stream: *stream, seen: highest, last });
            }
        }
        // Only now, when every stream has answered: what comes from here on counts from there.
        for Rewound { stream, last, .. } in &rewound {
            if let Some(seen) = self.seen.of(*stream) {
                seen.store(*last, Ordering::Relaxed);
            }
        }
        Ok(rewound)
    }

    pub(super) async fn time_of_server(&self) -> Result<Timestamp, BusError> {
        let told = self.info(Stream::Log).await?.ts;
        told.ok_or_else(|| BusError::Malformed("nats-server does not say what time it is".to_owned()))
    }
}
