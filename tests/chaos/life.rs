//! Sessions as their users live them: whatever is not answered is said again under its id, at the next edge.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use ailoop_tests::client::{Control, TestClient};
use ailoop_tests::fleet::key;
use anyhow::{bail, ensure};
use bus::{Bus, Read};
use contract::commit::Phase;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::chaos::stage::{Doors, Starts};

/// How long an answer of an edge is awaited before the next edge is asked.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How long a session may take to get anywhere, whatever happens meanwhile.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// What a user says, each under an id of its own.
#[derive(Debug, Clone, Copy)]
enum Word {
    Start { interactive: bool },
    Send,
    Stop,
}

impl Word {
    async fn say(self, edge: &str, session: &str) -> anyhow::Result<()> {
        let client = TestClient::connect(edge).await?;
        match self {
            Self::Start { interactive } => {
                let options = json!({"interactive": interactive});
                client.begin_as(session, "begin", &format!("Go, {session}"), &options).await
            }
            Self::Send => client.send_as(session, "more", &format!("Thanks, {session}"), "queue").await,
            Self::Stop => client.control_as(session, "end", Control::Stop).await,
        }
        .map(drop)
    }
}

/// Who talks to a fleet.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) doors: Doors,
    pub(crate) starts: Starts,
    pub(crate) bus: Bus,
}

impl User {
    /// Says something until it was heard.
    async fn insist(&self, session: &str, word: Word) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let (mut told, mut edge) = (String::new(), 0);
        while Instant::now() < deadline {
            match timeout(ANSWER_MAX, word.say(&self.doors.get(edge), session)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => told = format!("{error:#}"),
                Err(_) => "no answer".clone_into(&mut told),
            }
            edge += 1;
            sleep(LOOK).await;
        }
        bail!("{word:?} to {session} is not heard: {told}")
    }

    /// Returns when a session is in this phase. Whoever serves the log is asked, not the fleet.
    async fn until(&self, session: &str, wanted: Phase) -> anyhow::Result<()> {
        let (key, deadline) = (key(session)?, Instant::now() + PATIENCE);
        loop {
            let head = timeout(ANSWER_MAX, self.bus.head(&key, Read::Leader)).await;
            if let Ok(Ok(Some(head))) = &head
                && head.meta.phase == wanted
            {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{session} does not become {wanted:?}: {head:?}");
            sleep(LOOK).await;
        }
    }

    async fn start(&self, session: &str, interactive: bool) -> anyhow::Result<()> {
        self.starts.sent(session);
        self.insist(session, Word::Start { interactive }).await?;
        self.starts.accepted(session);
        Ok(())
    }

    /// A session of one turn.
    pub(crate) async fn one_turn(&self, session: &str) -> anyhow::Result<()> {
        self.start(session, false).await?;
        self.until(session, Phase::Ended).await
    }

    /// A session of two turns that is stopped in the end.
    pub(crate) async fn two_turns(&self, session: &str) -> anyhow::Result<()> {
        self.start(session, true).await?;
        self.until(session, Phase::Idle).await?;
        self.insist(session, Word::Send).await?;
        // Its turn may not have begun when this is heard: what it made of the message tells.
        self.until_said(session, 2).await?;
        self.insist(session, Word::Stop).await?;
        self.until(session, Phase::Ended).await
    }

    async fn until_said(&self, session: &str, turns: usize) -> anyhow::Result<()> {
        let (key, deadline) = (key(session)?, Instant::now() + PATIENCE);
        loop {
            let commits = self.bus.history(&key, 0).await.unwrap_or_default();
            let events = commits.iter().flat_map(|(_, commit)| &commit.events);
            if events.filter(|event| matches!(event, contract::event::Event::TurnCompleted(_))).count() >= turns {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{session} does not end turn {turns}");
            sleep(LOOK).await;
        }
    }
}

/// A time in which something was broken, and the items that those held who were struck.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) from: SystemTime,
    pub(crate) to: SystemTime,
    pub(crate) held: BTreeSet<String>,
}
