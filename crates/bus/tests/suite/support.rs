//! One session in a log of the in-memory server.

use std::sync::atomic::{AtomicUsize, Ordering};

use bus::Bus;
use bus::transport::ReadMany;
use bus_memory::{Action, Fault, Faults, Operation};
use bytes::Bytes;
use contract::command::Verb;
use contract::ids::{CommandId, SessionId, TenantId};
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::Stream;
use contract::subject::{self, SessionKey};

pub(crate) const PAGE: u64 = SLOTS_PER_PAGE;

pub(crate) fn key() -> SessionKey {
    SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() }
}

/// Sends a command to the session.
pub(crate) async fn send(bus: &Bus, name: &str) {
    bus.send_control(&key(), Verb::Pause, &CommandId::new(name).unwrap(), Bytes::from_static(b"{}")).await.unwrap();
}

/// The slots that are in the log itself.
pub(crate) async fn in_log(bus: &Bus) -> Vec<u64> {
    let found = bus.transport().last_many(Stream::Log, &[subject::log_session(&key())]).await.unwrap();
    let ReadMany::Messages(found) = found else { panic!("too many") };
    found.iter().map(|stored| subject::parse_log(&stored.subject).unwrap().slot).collect()
}

/// Counts the reads of messages.
#[derive(Default)]
pub(crate) struct Reads(pub(crate) AtomicUsize);

impl Faults for Reads {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if matches!(op.action, Action::Last(_) | Action::LastMany) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Fault::None
    }
}
