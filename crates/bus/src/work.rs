//! Work items and the worker that takes them: pulls what it has room for, shares its places out among tenants and
//! tools, keeps what it holds alive, settles each item in one place, and hands back the rest when it goes.

mod backlog;
mod handler;
mod hold;
mod item;
mod last_ack;
mod publish;
mod run;
mod settle;
mod share;
mod store_again;
mod wait_queue;
mod worker;

pub use handler::{Handler, Settle};
pub use publish::Publication;
pub(crate) use publish::call_of;
pub use worker::Worker;
