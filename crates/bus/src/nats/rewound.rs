//! Finds streams that were put back to an older state.

use std::time::Duration;

use contract::Timestamp;
use contract::streams::Stream;
use serde::Deserialize;

use super::connection::NatsTransport;
use super::refusal::Refusal;
use crate::BusError;
use crate::transport::StreamRewind;

/// Pause before a stream that seems to end too early is read again.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);

/// The part of a stream's info that is used here.
#[derive(Deserialize)]
struct Info {
    state: State,
    /// Time of the server when it answered.
    #[serde(default)]
    ts: Option<Timestamp>,
}

#[derive(Deserialize)]
struct State {
    last_seq: u64,
}

impl NatsTransport {
    async fn info(&self, stream: Stream) -> Result<Info, BusError> {
        let subject = format!("$JS.API.STREAM.INFO.{}", stream.name());
        self.js_request(&subject, None).await?.map_err(Refusal::into_error)
    }

    pub(super) async fn rewound_streams(&self) -> Result<Vec<StreamRewind>, BusError> {
        let mut rewound = Vec::new();
        for stream in Stream::ALL {
            let (highest, went_back) = self.seen_seqs.seen(*stream);
            if highest == 0 || !went_back && self.info(*stream).await?.state.last_seq >= highest {
                continue;
            }
            // A new leader may answer before it has applied everything.
            tokio::time::sleep(SECOND_LOOK_AFTER).await;
            let last = self.info(*stream).await?.state.last_seq;
            if went_back || last < highest {
                rewound.push(StreamRewind { stream: *stream, seen: highest, last });
            }
        }
        // Only now, when every stream has answered: what comes from here on counts from there.
        for StreamRewind { stream, last, .. } in &rewound {
            self.seen_seqs.rewind(*stream, *last);
        }
        Ok(rewound)
    }

    pub(super) async fn time_of_server(&self) -> Result<Timestamp, BusError> {
        let time = self.info(Stream::Log).await?.ts;
        time.ok_or_else(|| BusError::Malformed("nats-server sent no time".to_owned()))
    }
}
