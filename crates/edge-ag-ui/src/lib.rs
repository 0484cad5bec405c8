//! AG-UI 1.0, where an agent of ailoop drives a front end: a thread is a session, and a run is a turn or a part of one.

mod copilotkit;
mod errors;
#[cfg(test)]
mod event_order;
mod events;
mod history;
mod input;
mod interrupt;
mod names;
mod reply;
mod run;
mod snapshot;
mod step;
mod stream;
mod thread;
mod usage;

use axum::Router;
use axum::routing::{any, get, post};
use edge_core::client_request::HttpState;

/// Builds the routes below `/ag-ui`. Those with further parts are the ones that `CopilotKit` asks its runtime for.
pub fn routes(state: HttpState) -> Router {
    Router::new()
        .route("/ag-ui/{agent}", post(run::run))
        .route("/ag-ui/info", get(copilotkit::info))
        .route("/ag-ui/agent/{agent}/run", post(run::run))
        .route("/ag-ui/agent/{agent}/connect", post(copilotkit::connect))
        .route("/ag-ui/agent/{agent}/stop/{thread}", post(copilotkit::stop))
        .route("/ag-ui/{agent}/{*path}", any(errors::unknown_path))
        .with_state(state)
}
