//! The methods of the session API, the same for all protocols.

mod agents;
mod budgets;
mod caller;
mod catalogue;
mod describe;
mod history;
mod log;
mod pending;
mod queues;
mod reach;
mod sessions;
mod shared;
mod status;
mod tool_requests;
mod trace;

pub use caller::describe_caller;
pub use reach::ReachedSession;
pub use shared::SessionApi;
