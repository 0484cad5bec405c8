//! What clients send, repeated under the same id until somebody answers, and what comes of it.

use std::time::Duration;

use anyhow::ensure;
use bus::{Bus, Read};
use contract::commit::Phase;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::client::Client;
use crate::fleet::key;

/// How long one try may take: longer than an edge waits for the commit of a command that it has stored. A command that was
/// stored is not sent again, since a second copy would hide that the first one was swallowed.
const TRY_MAX: Duration = Duration::from_secs(40);
/// How long a command is repeated that was not stored.
const RETRY_MAX: Duration = Duration::from_mins(1);
/// How long a turn may take.
const REST_MAX: Duration = Duration::from_mins(1);
/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(8);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Refusals that no repetition changes.
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

/// What came of a command.
#[derive(Debug, Clone)]
pub struct CommandOutcome {
    /// The session's id.
    pub session: String,
    /// The command's id.
    pub id: String,
    /// What it was answered.
    pub response: Response,
}

/// What a client was answered.
#[derive(Debug, Clone)]
pub enum Response {
    /// Its commit or its place in the stream was confirmed.
    Accepted,
    /// A refusal, beginning with its code.
    Refused(String),
    /// No answer that says anything, until the test gave up.
    None(String),
}

/// The sessions of a fleet.
pub struct Sessions {
    edge: String,
    bus: Bus,
}

impl Sessions {
    /// Those that are reached at an edge; `bus` reads their logs.
    pub fn new(edge: String, bus: Bus) -> Self {
        Self { edge, bus }
    }

    /// Begins an interactive session.
    pub async fn start(&self, session: &str, kind: &str) -> CommandOutcome {
        self.start_with(session, kind, &json!({})).await
    }

    /// As [`Sessions::start`], with further fields of `session.start`.
    pub async fn start_with(&self, session: &str, kind: &str, options: &Value) -> CommandOutcome {
        let mut options = options.clone();
        options["interactive"] = true.into();
        let text = format!("{kind} {session}-begin");
        self.send_until_answered(session, "begin", async |client: Client| {
            client.begin_as(session, "begin", &text, &options).await.map(drop)
        })
        .await
    }

    /// Sends a message.
    pub async fn send(&self, session: &str, id: &str, kind: &str) -> CommandOutcome {
        let text = format!("{kind} {session}-{id}");
        self.send_until_answered(session, id, async |client: Client| {
            client.send_as(session, id, &text, "queue").await.map(drop)
        })
        .await
    }

    async fn send_until_answered(
        &self,
        session: &str,
        id: &str,
        send: impl AsyncFn(Client) -> anyhow::Result<()>,
    ) -> CommandOutcome {
        let outcome = |response| CommandOutcome { session: session.to_owned(), id: id.to_owned(), response };
        let (deadline, mut last) = (Instant::now() + RETRY_MAX, String::new());
        while Instant::now() < deadline {
            let attempt = async { send(Client::connect(&self.edge).await?).await };
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
            sleep(LOOK_EVERY).await;
        }
        outcome(Response::None(last))
    }

    /// Returns when a session is in no turn.
    pub async fn wait_for_rest(&self, session: &str) -> anyhow::Result<()> {
        let (key, deadline) = (key(session)?, Instant::now() + REST_MAX);
        loop {
            let head = timeout(LOOK_MAX, self.bus.head(&key, Read::Leader)).await;
            if let Ok(Ok(Some(head))) = &head
                && matches!(head.meta.phase, Phase::Idle | Phase::Ended)
            {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{session} does not come to rest: {head:?}");
            sleep(LOOK_EVERY).await;
        }
    }
}
