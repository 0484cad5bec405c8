//! What a simulation may do to an operation: what a replicated server, a network or a crash could do as well.

use std::time::Duration;

use crate::transport::{Ack, Read};

/// One operation of a client, before it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    /// The client's name.
    pub client: &'a str,
    /// What it does.
    pub action: Action,
    /// The subject, filter, key or hash that it does it to; of a pull the queue.
    pub subject: &'a str,
}

/// What a client does: the methods of [`crate::Transport`] that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum Action {
    Publish,
    Reply,
    Request,
    RequestMany,
    Subscribe,
    Append,
    Last(Read),
    LastMany,
    Purge,
    Delete,
    Pull,
    Ack(Ack),
    KvPut,
    KvCreate,
    KvGet,
    KvUpdate,
    KvDelete,
    KvList,
    PutObject,
    GetObject,
    DeleteObject,
    Ping,
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing unusual.
    None,
    /// It is done this much later.
    Delay(Duration),
    /// It is done, and answered this much later.
    Lag(Duration),
    /// A read from a replica shows the stream as it was this many changes ago; other operations are as usual.
    Stale(u64),
    /// It is done, but the answer never comes: [`crate::BusError::Timeout`] after the request time-out.
    AckLost,
    /// It is not done: [`crate::BusError::Unavailable`]. What is published on core NATS is lost without a word.
    NotDone,
    /// An append is answered with this error code (10071, 10164, 10158, 10077; 0 stands for `duplicate: true`), and
    /// was stored, if it could be, or was not. Other operations are as usual.
    Doubtful {
        /// As the server calls it.
        code: u16,
        /// Whether it is done all the same.
        stored: bool,
    },
    /// Before it is done, every held item comes again, as after a restart of the server.
    Redeliver,
    /// The client dies before or after it is done: neither this operation nor any later one of it ever returns.
    Crash {
        /// Whether it is done.
        done: bool,
    },
}

/// Decides what happens to each operation.
pub trait Faults: Send + Sync + 'static {
    /// Asked once for each operation.
    fn on(&self, op: Op<'_>) -> Fault;
}

/// The faults of a server that has none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faultless;

impl Faults for Faultless {
    fn on(&self, _op: Op<'_>) -> Fault {
        Fault::None
    }
}
