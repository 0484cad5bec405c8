//! The inbox of a session: its commands that are stored and not handled yet.

use std::time::Duration;

use bus::{Bus, BusError, Inbox};
use contract::backoff::Backoff;
use contract::command::Verb;
use contract::subject::{self, SessionKey};

/// Backoff for checking whether a start that waits is handled.
pub(crate) const START_CHECK_BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// Commands in a session's inbox that are not handled yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InboxLoad {
    pub(crate) commands: usize,
    pub(crate) has_start: bool,
}

/// Counts the commands of a session that wait.
pub(crate) async fn load_inbox(bus: &Bus, key: &SessionKey) -> Result<InboxLoad, BusError> {
    let messages = match bus.inbox(key).await? {
        Inbox::Messages(messages) => messages,
        Inbox::TooMany => return Ok(InboxLoad { commands: usize::MAX, has_start: true }),
    };
    let mut inbox = InboxLoad::default();
    for verb in messages.iter().filter_map(|stored| subject::parse_control(&stored.subject)).map(|control| control.verb)
    {
        inbox.commands += usize::from(verb.is_client());
        inbox.has_start |= verb == Verb::Start;
    }
    Ok(inbox)
}

/// Whether the start of a session is stored and not handled yet.
pub(crate) async fn is_start_waiting(bus: &Bus, key: &SessionKey) -> Result<bool, BusError> {
    Ok(load_inbox(bus, key).await?.has_start)
}
