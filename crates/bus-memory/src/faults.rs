//! Faults that a simulation injects into an operation: those of a replicated server, a network or a crash.

use std::time::Duration;

use bus::transport::{Ack, Read};

/// One operation of a client, before it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The name of the client, as given to [`crate::MemoryServer::client`].
    pub client: &'a str,
    /// The method that it calls.
    pub action: Action,
    /// The subject, filter, key or hash that it acts on; of a pull the queue.
    pub subject: &'a str,
}

/// The methods of [`bus::Transport`] that can fail.
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
    PauseDeliveries,
    Reset,
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

/// The fault that an operation gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation is performed as usual.
    None,
    /// The operation is performed this much later.
    Delay(Duration),
    /// The operation is performed, and answered this much later.
    Lag(Duration),
    /// A read from a replica shows the stream as it was this many changes ago; other operations are as usual.
    Stale(u64),
    /// The operation is performed, but its answer is lost: [`bus::BusError::Timeout`] after the request timeout.
    AckLost,
    /// The operation is not performed: [`bus::BusError::Unavailable`]. A message of core NATS is lost without an error.
    NotDone,
    /// The operation is not performed: [`bus::BusError::TooLarge`], as for a body that no message and no object may have.
    TooLarge,
    /// An append is answered with this error code (10071, 10164, 10158, 10077; 0 stands for `duplicate: true`), and
    /// is stored where it can be, or is not. Other operations are performed as usual.
    Doubtful {
        /// The error code of nats-server.
        code: u16,
        /// Whether the message is stored all the same.
        stored: bool,
    },
    /// The server restarts before the operation: every held item is delivered again.
    Redeliver,
    /// The client dies before or after the operation: neither this operation nor a later one of it ever returns.
    Crash {
        /// Whether the operation is performed first.
        done: bool,
    },
}

/// Decides which fault each operation gets.
pub trait Faults: Send + Sync + 'static {
    /// The fault for this operation; called once for each.
    fn decide(&self, op: Operation<'_>) -> Fault;
}

/// A server without faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoFaults;

impl Faults for NoFaults {
    fn decide(&self, _op: Operation<'_>) -> Fault {
        Fault::None
    }
}
