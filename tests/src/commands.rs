//! Commands that are repeated with the same id until they are answered, and their outcome.

use std::time::Duration;

use anyhow::ensure;
use bus::{Bus, Read};
use contract::commit::Phase;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::client::TestClient;
use crate::fleet::key;
use crate::wait::PATIENCE;

/// Timeout of one attempt: longer than an edge waits for the commit of a command that it has stored. A stored command
/// is not sent again, since a second copy would hide that the first one was lost.
const TRY_MAX: Duration = Duration::from_secs(40);
/// Timeout of one read of the log.
const READ_MAX: Duration = Duration::from_secs(8);
/// Pause between two attempts.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Error codes that a retry does not change.
const FINAL: [&str; 8] = [
    "unknown_session",
    "session_ended",
    "session_exists",
    "stale_command",
    "bad_request",
    "too_large",
    "not_now",
    "too_many_waiting",
];

/// The outcome of a command.
#[derive(Debug, Clone)]
pub struct CommandOutcome {
    /// Id of the session that got the command.
    pub session: String,
    /// Command id, unique within the session.
    pub id: String,
    /// Response of the edge to the command.
    pub response: Response,
}

/// The response to a command.
#[derive(Debug, Clone)]
pub enum Response {
    /// The edge confirmed the commit, or that the command is stored.
    Accepted,
    /// An error that a retry does not change, beginning with its code.
    Refused(String),
    /// No final response within [`PATIENCE`]; the last error.
    None(String),
}

/// Sends commands to sessions of a fleet.
pub struct Sessions {
    edge: String,
    bus: Bus,
}

impl Sessions {
    /// Commands go to the edge at this URL; `bus` reads the logs.
    pub fn new(edge: String, bus: Bus) -> Self {
        Self { edge, bus }
    }

    /// Begins an interactive session; the prompt begins with `kind`.
    pub async fn start(&self, session: &str, kind: &str) -> CommandOutcome {
        self.start_with(session, kind, &json!({})).await
    }

    /// As [`Sessions::start`], with further fields of `session.start`.
    pub async fn start_with(&self, session: &str, kind: &str, options: &Value) -> CommandOutcome {
        let mut options = options.clone();
        options["interactive"] = true.into();
        let text = format!("{kind} {session}-begin");
        self.send_until_answered(session, "begin", async |client: TestClient| {
            client.begin_as(session, "begin", &text, &options).await.map(drop)
        })
        .await
    }

    /// Sends a message that begins with `kind`.
    pub async fn send(&self, session: &str, id: &str, kind: &str) -> CommandOutcome {
        let text = format!("{kind} {session}-{id}");
        self.send_until_answered(session, id, async |client: TestClient| {
            client.send_as(session, id, &text, "queue").await.map(drop)
        })
        .await
    }

    async fn send_until_answered(
        &self,
        session: &str,
        id: &str,
        send: impl AsyncFn(TestClient) -> anyhow::Result<()>,
    ) -> CommandOutcome {
        let outcome = |response| CommandOutcome { session: session.to_owned(), id: id.to_owned(), response };
        let (deadline, mut last) = (Instant::now() + PATIENCE, String::new());
        while Instant::now() < deadline {
            let attempt = async { send(TestClient::connect(&self.edge).await?).await };
            match timeout(TRY_MAX, attempt).await {
                Ok(Ok(())) => return outcome(Response::Accepted),
                Ok(Err(error)) => {
                    last = format!("{error:#}");
                    if FINAL.iter().any(|code| last.starts_with(code)) {
                        return outcome(Response::Refused(last));
                    }
                }
                Err(_) => "no answer".clone_into(&mut last),
            }
            sleep(RETRY_EVERY).await;
        }
        outcome(Response::None(last))
    }

    /// Returns when a session is idle or has ended.
    pub async fn wait_for_rest(&self, session: &str) -> anyhow::Result<()> {
        let (key, deadline) = (key(session)?, Instant::now() + PATIENCE);
        loop {
            let head = timeout(READ_MAX, self.bus.head(&key, Read::Leader)).await;
            if let Ok(Ok(Some(head))) = &head
                && matches!(head.meta.phase, Phase::Idle | Phase::Ended)
            {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{session} is not idle after {PATIENCE:?}: {head:?}");
            sleep(RETRY_EVERY).await;
        }
    }
}
