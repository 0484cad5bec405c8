//! How many copies of the log there are: of a single one every read is as fresh as the leader's, and a direct read costs
//! the server a fraction of a question to its API.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::Nats;

/// How long an answer is believed: somebody may give a running stream more copies.
const BELIEVED: Duration = Duration::from_secs(5);

/// What was found out, and when.
#[derive(Debug, Default)]
pub(super) struct ReplicaCount(Mutex<Option<(Instant, bool)>>);

#[derive(Deserialize)]
struct Info {
    config: Config,
}

#[derive(Deserialize)]
struct Config {
    num_replicas: u64,
}

impl ReplicaCount {
    /// Whether the stream has one copy; `false` also where nobody knows.
    pub(super) async fn is_one(&self, nats: &Nats, stream: &str) -> bool {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, is_one)) = known
            && asked.elapsed() < BELIEVED
        {
            return is_one;
        }
        let asked = Instant::now();
        let info = nats.js_request::<Info>(&format!("$JS.API.STREAM.INFO.{stream}"), None).await;
        let is_one = info.is_ok_and(|info| info.is_ok_and(|info| info.config.num_replicas == 1));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked, is_one));
        is_one
    }
}
