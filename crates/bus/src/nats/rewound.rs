//! Finds streams that were put back to an older state.

use std::time::Duration;

use contract::Timestamp;
use contract::streams::Stream;

use super::connection::NatsTransport;
use crate::BusError;
use crate::transport::StreamRewind;

/// Pause before a stream that seems to end too early is read again.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);

impl NatsTransport {
    pub(super) async fn rewound_streams(&self) -> Result<Vec<StreamRewind>, BusError> {
        let mut rewound = Vec::new();
        for stream in Stream::ALL {
            let (highest, went_back_from) = self.seen_seqs.seen(*stream);
            if highest == 0 {
                continue;
            }
            let last = self.stream_info(stream.name(), None).await?.state.last_seq;
            if went_back_from == 0 && last >= highest {
                // What others have written counts as well: a stream may go back by less than what is written here.
                self.seen_seqs.note(*stream, last);
                continue;
            }
            // A new leader may answer before it has applied everything.
            tokio::time::sleep(SECOND_LOOK_AFTER).await;
            let last = self.stream_info(stream.name(), None).await?.state.last_seq;
            if went_back_from > 0 || last < highest {
                let seen = if went_back_from > 0 { went_back_from } else { highest };
                rewound.push(StreamRewind { stream: *stream, seen, last });
            }
        }
        // Only now, when every stream has answered: what comes from here on counts from there.
        for StreamRewind { stream, last, .. } in &rewound {
            self.seen_seqs.rewind(*stream, *last);
        }
        Ok(rewound)
    }

    pub(super) async fn time_of_server(&self) -> Result<Timestamp, BusError> {
        let time = self.stream_info(Stream::Log.name(), None).await?.ts;
        time.ok_or_else(|| BusError::Malformed("nats-server sent no time".to_owned()))
    }
}
