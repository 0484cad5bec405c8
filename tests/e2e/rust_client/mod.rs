//! The Rust crate for programs, `ailoop-client`, against fleets.

mod commands;
mod connection;
mod events;
mod tools_and_gates;

use ailoop_client::{AgentSession, Client, ClientError, SessionEvent, Turn};
use ailoop_tests::model::Gate;
use ailoop_tests::wait::soon;
use anyhow::Context;
use futures::StreamExt;

/// Reads the text of a turn until it ends with this. White space at the end of a chunk comes with the next one.
async fn read_until(turn: &mut Turn, read: &mut String, end: &str) -> anyhow::Result<()> {
    while !read.ends_with(end) {
        *read += &soon("a text", turn.next()).await?.with_context(|| format!("the turn ended after {read:?}"))??;
    }
    Ok(())
}

/// All events of a session that has ended or ends.
async fn all_events(client: &Client, session: &str) -> anyhow::Result<Vec<SessionEvent>> {
    let events = client.session(session).events(1).collect::<Vec<Result<SessionEvent, ClientError>>>();
    Ok(soon("the end of the session", events).await?.into_iter().collect::<Result<_, _>>()?)
}

/// Opens the gate when the fleet has accepted this many messages of a session.
async fn open_after_messages(session: &AgentSession, count: usize, gate: &Gate) -> anyhow::Result<()> {
    let mut events = session.events_without_chunks(1);
    let mut messages = 0;
    while messages < count {
        let event = soon("a message", events.next()).await?.context("the session ended")??;
        messages += usize::from(event.topic == "message.user_processed");
    }
    gate.open();
    Ok(())
}

/// The events of a topic.
fn of<'a>(events: &'a [SessionEvent], topic: &str) -> Vec<&'a SessionEvent> {
    events.iter().filter(|event| event.topic == topic).collect()
}
