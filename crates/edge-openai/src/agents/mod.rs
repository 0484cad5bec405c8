//! The Agents API of OpenAI, in beta: sessions of agents, their events as they happen, and what they wait for.

mod catalogue;
mod create;
mod event_builder;
#[cfg(test)]
mod event_builder_tests;
mod history;
mod inputs;
mod items;
mod requests;
mod running_turn;
mod session_json;
mod sessions;
mod stream;
mod turn_json;

use axum::Router;
use axum::routing::{get, post};
use edge_core::client_request::HttpState;

/// Builds the routes of agents and their sessions.
pub(super) fn routes() -> Router<HttpState> {
    const SESSIONS: &str = "/openai/v1/agents/sessions";
    let below = |path: &str| format!("{SESSIONS}/{{session}}{path}");
    Router::new()
        .route("/openai/v1/agents", get(catalogue::list))
        .route("/openai/v1/agents/{agent}", get(catalogue::show))
        .route(SESSIONS, post(create::create).get(sessions::list))
        .route(&below(""), get(sessions::show).delete(sessions::end))
        .route(&below("/events"), get(stream::follow).post(inputs::take))
        .route(&below("/items"), get(history::list_items))
        .route(&below("/turns"), get(history::list_turns))
        .route(&below("/turns/{turn}"), get(history::show_turn))
        .route(&below("/turns/{turn}/items"), get(history::list_turn_items))
}
