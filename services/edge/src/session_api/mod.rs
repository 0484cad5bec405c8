//! The methods of the client API, the same for both protocols.

mod api;
mod budgets;
mod catalogue;
mod client_calls;
mod describe;
mod gates;
mod history;
mod queues;
mod sessions;
mod status;
mod trace;

pub(crate) use api::SessionApi;
pub(crate) use catalogue::AgentInfo;
pub(crate) use client_calls::PendingClientCall;
pub(crate) use gates::PendingGate;
pub(crate) use history::TranscriptPage;
pub(crate) use queues::QueueDepth;
pub(crate) use sessions::SessionPage;
