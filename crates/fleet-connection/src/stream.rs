//! The notifications of one session, over reconnects.

use ailoop_client::{Watch, WatchItem};
use terminal::failure::CommandFailure;

use crate::client::EdgeClient;

/// Stream of the notifications of one session from a `seq` on; each event comes once.
#[derive(Debug)]
pub struct SessionStream {
    client: EdgeClient,
    watch: Watch,
}

impl SessionStream {
    /// Makes a stream, which connects at the first [`Self::next`].
    pub fn new(client: EdgeClient, session: &str, from_seq: u64, with_chunks: bool) -> Self {
        let watch = client.client().session(session).watch(from_seq, with_chunks).with_probes();
        Self { client, watch }
    }

    /// Returns the next item, or none after the end of the session. It is safe to drop the future: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<WatchItem>, CommandFailure> {
        self.watch.next().await.map_err(|error| self.client.failure_of(&error))
    }
}
