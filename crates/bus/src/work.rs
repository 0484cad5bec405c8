//! Work items and the worker that takes them: pulls what it has room for, shares its places out among tenants and
//! tools, keeps what it holds alive, settles each item in one place, and hands back the rest when it goes.

mod backlog;
mod handler;
mod hold;
mod last_ack;
mod publish;
mod reset;
mod run;
mod settle;
mod share;
mod wait_queue;
mod worker;

pub use handler::{Handler, Settle};
pub use hold::Hold;
pub use publish::Publication;
pub(crate) use publish::call_of;
pub use reset::QueueReset;
pub use worker::Worker;
