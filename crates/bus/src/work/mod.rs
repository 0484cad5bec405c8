//! Work items and the worker that takes them: it pulls as many as it can take, shares its permits among tenants and
//! tools, keeps held items alive, settles each item in one place, and hands back the rest when it stops.

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
