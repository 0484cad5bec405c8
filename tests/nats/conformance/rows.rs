//! Where the two parted once, or may be thought to: small sequences that are played on both for ever.

use std::time::Duration;

use bus::transport::Ack;
use contract::streams::{Queue, Stream};

use super::acts::{Act, Door, Place};

const DRIVE: Queue = Queue::Inputs;
const LOOK: Act = Act::Depth { queue: DRIVE };

/// Stores an input of a session.
fn put(session: u8, nth: u8) -> Act {
    Act::Append { at: Place { stream: Stream::Control, session, nth }, create: false, body: nth }
}

/// Removes every input of a session.
fn purge(session: u8) -> Act {
    Act::Purge { at: Place { stream: Stream::Control, session, nth: 0 } }
}

fn pull(max: usize) -> Act {
    Act::Pull { queue: DRIVE, max }
}

/// Takes what comes by its ack wait.
fn wait(max: usize) -> Act {
    Act::Await { queue: DRIVE, max }
}

fn done(nth: usize) -> Act {
    Act::Settle { nth, ack: Ack::Done }
}

fn back(nth: usize) -> Act {
    Act::Settle { nth, ack: Ack::Retry(Duration::ZERO) }
}

/// Every row by its name.
pub(super) fn rows() -> Vec<(&'static str, Vec<Act>)> {
    [queue(), others()].concat()
}

/// Deliveries, hand-backs and purges.
fn queue() -> Vec<(&'static str, Vec<Act>)> {
    vec![
        ("who is silent loses its item", vec![put(0, 0), pull(1), pull(1), wait(1), LOOK]),
        (
            "who handed an item back may still say that it is done",
            vec![put(0, 0), pull(1), back(0), LOOK, Act::Late { nth: 0 }, LOOK, pull(1)],
        ),
        (
            "after a purge, what was handed back before it waits for its ack wait",
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

/// What is stored and read.
fn others() -> Vec<(&'static str, Vec<Act>)> {
    let too_large = [Door::Stream, Door::Key, Door::NewKey, Door::Object];
    let timer = |number, past| Act::Timer { session: 0, number, past };
    let log = |nth| Place { stream: Stream::Log, session: 0, nth };
    vec![
        (
            "what is too large is refused in the same words",
            too_large.into_iter().map(|door| Act::TooLarge { door }).collect(),
        ),
        (
            "a deleted key is free, once",
            vec![
                Act::Put { key: 0, value: 1 },
                Act::Create { key: 0, value: 2 },
                Act::Delete { key: 0 },
                Act::Get { key: 0 },
                Act::List,
                Act::Create { key: 0, value: 3 },
                Act::Create { key: 0, value: 4 },
                Act::Get { key: 0 },
            ],
        ),
        (
            "an older setting of a timer is passed over, and one that is due takes the place of another that is",
            vec![
                timer(5, false),
                timer(4, true),
                Act::Pull { queue: Queue::Timers, max: 1 },
                timer(6, true),
                Act::Pull { queue: Queue::Timers, max: 1 },
                timer(7, true),
                Act::Pull { queue: Queue::Timers, max: 1 },
                done(0),
                done(0),
                Act::Depth { queue: Queue::Timers },
            ],
        ),
        (
            "a slot has one writer, also after a purge",
            vec![
                Act::Append { at: log(0), create: true, body: 1 },
                Act::Append { at: log(0), create: true, body: 2 },
                Act::Append { at: log(0), create: false, body: 3 },
                Act::Replace { at: log(0), stale: true, body: 4 },
                Act::Replace { at: log(0), stale: false, body: 5 },
                Act::LastMany { at: log(0), whole: true },
                Act::Purge { at: log(0) },
                Act::Append { at: log(0), create: true, body: 6 },
                Act::Last { at: log(0), leader: false },
            ],
        ),
    ]
}
