//! A user of sessions: a command that is not answered is repeated with its id at the next edge.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use ailoop_tests::client::{Control, TestClient};
use ailoop_tests::fleet::key;
use ailoop_tests::wait::PATIENCE;
use anyhow::{bail, ensure};
use bus::{Bus, Head, Read};
use contract::CallId;
use contract::commit::Phase;
use contract::streams::Queue;
use contract::subject::SessionKey;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::chaos::fixture::{EdgeUrls, StartedSessions};

/// Timeout of one edge, before the next one is tried.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Last commits of a session that does not end, and bytes of their events, in its report.
const COMMITS_SHOWN: usize = 4;
const EVENTS_SHOWN: usize = 600;
/// Pause between two attempts.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// A command of a user, with an id that is unique within the session.
#[derive(Debug, Clone, Copy)]
enum Command {
    Start { interactive: bool },
    Send,
    Stop,
}

impl Command {
    async fn send(self, edge: &str, session: &str) -> anyhow::Result<()> {
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

/// A client that runs sessions and follows them in the log.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) edges: EdgeUrls,
    pub(crate) starts: StartedSessions,
    pub(crate) bus: Bus,
}

impl User {
    /// Repeats a command until an edge accepts it.
    async fn send_until_accepted(&self, session: &str, command: Command) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let (mut last, mut edge) = (String::new(), 0);
        while Instant::now() < deadline {
            match timeout(ANSWER_MAX, command.send(&self.edges.get(edge), session)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => last = format!("{error:#}"),
                Err(_) => "no answer".clone_into(&mut last),
            }
            edge += 1;
            sleep(POLL_EVERY).await;
        }
        bail!("{command:?} to {session} was not accepted within {PATIENCE:?}: {last}")
    }

    /// Returns when a session is in this phase by its log, which is read without the fleet.
    async fn until(&self, session: &str, wanted: Phase) -> anyhow::Result<()> {
        let (key, deadline) = (key(session)?, Instant::now() + PATIENCE);
        loop {
            let head = timeout(ANSWER_MAX, self.bus.head(&key, Read::Leader)).await;
            if let Ok(Ok(Some(head))) = &head
                && head.meta.phase == wanted
            {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let waits = self.describe_waits(&key, head.ok().and_then(Result::ok).flatten().as_ref()).await;
                bail!("{session} is not {wanted:?} within {PATIENCE:?}: {waits}");
            }
            sleep(POLL_EVERY).await;
        }
    }

    /// Describes what a session waits for: its last commit, the holders of its open calls, and the queues.
    async fn describe_waits(&self, key: &SessionKey, head: Option<&Head>) -> String {
        let mut waits = vec![format!("{head:?}")];
        for open in head.iter().flat_map(|head| &head.meta.open) {
            let call = open.rsplit_once('.').and_then(|(call, _)| CallId::new(call).ok());
            if let Some(call) = call {
                waits.push(format!("{open} is held by {:?}", self.bus.call_holder(key, &call).await));
            }
        }
        let commits = self.bus.history(key, 0).await.unwrap_or_default();
        for (slot, commit) in commits.iter().rev().take(COMMITS_SHOWN).rev() {
            let events = format!("{:?}", commit.events);
            waits.push(format!(
                "slot {slot} at {}: {}",
                commit.meta.time,
                &events[..events.floor_char_boundary(EVENTS_SHOWN)]
            ));
        }
        for queue in [Queue::Model, Queue::Tool, Queue::Inputs] {
            waits.push(format!("{queue:?} {:?}", self.bus.transport().queue_state(queue).await));
        }
        waits.join("; ")
    }

    async fn start(&self, session: &str, interactive: bool) -> anyhow::Result<()> {
        self.starts.sent(session);
        self.send_until_accepted(session, Command::Start { interactive }).await?;
        self.starts.accepted(session);
        Ok(())
    }

    /// Runs a session of one turn to its end.
    pub(crate) async fn one_turn(&self, session: &str) -> anyhow::Result<()> {
        self.start(session, false).await?;
        self.until(session, Phase::Ended).await
    }

    /// Runs a session of two turns, then stops it.
    pub(crate) async fn two_turns(&self, session: &str) -> anyhow::Result<()> {
        self.start(session, true).await?;
        self.until(session, Phase::Idle).await?;
        self.send_until_accepted(session, Command::Send).await?;
        // The command is accepted before its turn begins, so the end of the turn is awaited in the log.
        self.until_turn_completed(session, 2).await?;
        self.send_until_accepted(session, Command::Stop).await?;
        self.until(session, Phase::Ended).await
    }

    async fn until_turn_completed(&self, session: &str, turns: usize) -> anyhow::Result<()> {
        let (key, deadline) = (key(session)?, Instant::now() + PATIENCE);
        loop {
            let commits = self.bus.history(&key, 0).await.unwrap_or_default();
            let events = commits.iter().flat_map(|(_, commit)| &commit.events);
            if events.filter(|event| matches!(event, contract::event::Event::TurnCompleted(_))).count() >= turns {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{session} does not complete turn {turns} within {PATIENCE:?}");
            sleep(POLL_EVERY).await;
        }
    }
}

/// The time from a fault to its repair, and the items that the faulty replica held.
#[derive(Debug, Clone)]
pub(crate) struct FaultWindow {
    pub(crate) from: SystemTime,
    pub(crate) to: SystemTime,
    pub(crate) held: BTreeSet<String>,
}
