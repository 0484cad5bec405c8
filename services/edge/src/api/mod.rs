//! The methods of the session API, the same for all protocols.

mod agents;
mod budgets;
mod caller;
mod catalogue;
mod describe;
mod history;
mod pending;
mod queues;
mod reach;
mod sessions;
mod shared;
mod status;
mod tool_requests;
mod trace;

pub(crate) use caller::describe_caller;
pub(crate) use reach::ReachedSession;
pub(crate) use shared::SessionApi;
