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

pub(crate) use agents::{AgentDescription, ReplyDecision};
pub(crate) use caller::CallerInfo;
pub(crate) use catalogue::AgentInfo;
pub(crate) use history::TranscriptPage;
pub(crate) use pending::{Pending, PendingList};
pub(crate) use queues::QueueDepth;
pub(crate) use reach::ReachedSession;
pub(crate) use sessions::{SessionPage, SessionStats};
pub(crate) use shared::SessionApi;
