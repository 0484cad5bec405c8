//! Short sequences in which the two servers differed once, or might be expected to.

use std::time::Duration;

use bus::transport::Ack;
use contract::streams::{Queue, Stream};

use super::operations::{BodyTarget, ItemPosition, Operation};

const DRIVE: Queue = Queue::Inputs;
const LOOK: Operation = Operation::Depth { queue: DRIVE };

/// Stores an input of a session.
fn put(session: u8, nth: u8) -> Operation {
    Operation::Append { at: ItemPosition { stream: Stream::Control, session, nth }, create: false, body: nth }
}

/// Removes every input of a session.
fn purge(session: u8) -> Operation {
    Operation::Purge { at: ItemPosition { stream: Stream::Control, session, nth: 0 } }
}

fn pull(max: usize) -> Operation {
    Operation::Pull { queue: DRIVE, max }
}

/// Takes what comes by its ack wait.
fn wait(max: usize) -> Operation {
    Operation::Await { queue: DRIVE, max }
}

fn done(nth: usize) -> Operation {
    Operation::Settle { nth, ack: Ack::Done }
}

fn back(nth: usize) -> Operation {
    Operation::Settle { nth, ack: Ack::Retry(Duration::ZERO) }
}

fn reset() -> Operation {
    Operation::Reset { queue: DRIVE }
}

/// Every row by its name.
pub(super) fn rows() -> Vec<(&'static str, Vec<Operation>)> {
    [queue(), others()].concat()
}

/// Deliveries, hand-backs and purges.
fn queue() -> Vec<(&'static str, Vec<Operation>)> {
    vec![
        (
            "a reset delivers what is stored as for the first time, held or returned, and nothing else",
            vec![put(0, 0), put(0, 1), put(1, 0), pull(2), done(0), back(1), reset(), LOOK, pull(3), LOOK],
        ),
        (
            "what a holder says after a reset counts for an item that was delivered again, and for no other",
            vec![put(0, 0), put(0, 1), pull(1), reset(), done(0), LOOK, pull(2), LOOK],
        ),
        ("a silent holder loses its item", vec![put(0, 0), pull(1), pull(1), wait(1), LOOK]),
        (
            "a returned item may still be acknowledged",
            vec![put(0, 0), pull(1), back(0), LOOK, Operation::Late { nth: 0 }, LOOK, pull(1)],
        ),
        (
            "after a purge, an item returned before it waits for its ack wait",
            vec![put(0, 0), put(1, 0), pull(1), back(0), purge(1), pull(1), LOOK, wait(1)],
        ),
        (
            "a hand-back is passed over where a purge removed what was delivered later",
            vec![put(0, 0), put(1, 0), put(1, 1), pull(3), purge(1), back(0), pull(1), LOOK, wait(1)],
        ),
        (
            "a hand-back counts where a purge removed only what was delivered before",
            vec![put(1, 0), put(1, 1), put(0, 0), pull(3), purge(1), back(2), pull(1), LOOK],
        ),
        (
            "with the floor above the first message, a purge of two leaves both among what is held",
            vec![
                put(0, 0),
                put(1, 0),
                put(1, 1),
                put(0, 1),
                pull(4),
                purge(1),
                done(3),
                LOOK,
                put(1, 2),
                put(1, 3),
                pull(2),
                purge(1),
                LOOK,
                pull(1),
            ],
        ),
        (
            "with the floor above the first message, a purge of one forgets it",
            vec![
                put(0, 0),
                put(1, 0),
                put(1, 1),
                put(0, 1),
                pull(4),
                purge(1),
                done(3),
                put(1, 2),
                pull(1),
                purge(1),
                LOOK,
            ],
        ),
        ("a purge of nothing forgets hand-backs too", vec![put(0, 0), pull(1), back(0), purge(1), pull(1), wait(1)]),
        (
            "a purged item's acknowledgement changes nothing",
            vec![put(0, 0), put(1, 0), put(1, 1), pull(3), purge(1), done(1), LOOK, put(1, 0), pull(1), LOOK],
        ),
    ]
}

/// Returns the sequences about storing and reading.
fn others() -> Vec<(&'static str, Vec<Operation>)> {
    let too_large = [BodyTarget::Stream, BodyTarget::Key, BodyTarget::NewKey, BodyTarget::Object];
    let timer = |number, past| Operation::Timer { session: 0, number, past };
    let log = |nth| ItemPosition { stream: Stream::Log, session: 0, nth };
    vec![
        (
            "what is too large is refused in the same words",
            too_large.into_iter().map(|door| Operation::TooLarge { door }).collect(),
        ),
        (
            "a deleted key is free, once",
            vec![
                Operation::Put { key: 0, value: 1 },
                Operation::Create { key: 0, value: 2 },
                Operation::Delete { key: 0 },
                Operation::Get { key: 0 },
                Operation::List,
                Operation::Create { key: 0, value: 3 },
                Operation::Create { key: 0, value: 4 },
                Operation::Get { key: 0 },
            ],
        ),
        (
            "an older setting of a timer is passed over, and one that is due takes the place of another that is",
            vec![
                timer(5, false),
                timer(4, true),
                Operation::Pull { queue: Queue::Timers, max: 1 },
                timer(6, true),
                Operation::Pull { queue: Queue::Timers, max: 1 },
                timer(7, true),
                Operation::Pull { queue: Queue::Timers, max: 1 },
                done(0),
                done(0),
                Operation::Depth { queue: Queue::Timers },
            ],
        ),
        (
            "a slot has one writer, also after a purge",
            vec![
                Operation::Append { at: log(0), create: true, body: 1 },
                Operation::Append { at: log(0), create: true, body: 2 },
                Operation::Append { at: log(0), create: false, body: 3 },
                Operation::Replace { at: log(0), stale: true, body: 4 },
                Operation::Replace { at: log(0), stale: false, body: 5 },
                Operation::LastMany { at: log(0), whole: true },
                Operation::Purge { at: log(0) },
                Operation::Append { at: log(0), create: true, body: 6 },
                Operation::Last { at: log(0), leader: false },
            ],
        ),
    ]
}
