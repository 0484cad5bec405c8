//! A2A 1.0 (Agent2Agent): a context is a session and a task is a turn. JSON-RPC on `/a2a`, HTTP+JSON below `/a2a/v1`, and
//! the cards of the agents.

mod answer;
mod card;
mod card_routes;
mod errors;
mod http_json;
mod json_rpc;
mod json_rpc_response;
mod list;
mod loaded_task;
mod message;
mod operation;
mod page_position;
mod path;
mod requests;
mod send;
mod task;
mod task_id;
mod task_stream;
#[cfg(test)]
mod task_tests;
mod version;

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};
use edge_core::client_request::{HttpState, for_pages};

use card_routes::{CardState, PublicAgents};

/// Builds the routes of both bindings and of the cards.
pub fn routes(state: HttpState, is_tls: bool) -> Router {
    let cards = CardState { http: state, is_tls, public_agents: Arc::new(PublicAgents::default()) };
    let documents = Router::new()
        .route("/.well-known/agent-card.json", get(card_routes::show))
        .route("/a2a/agents/{agent}/.well-known/agent-card.json", get(card_routes::show));
    for_pages(&cards.http, documents)
        .route("/a2a", post(json_rpc::handle))
        // Clients add a slash to the address of the card.
        .route("/a2a/", post(json_rpc::handle))
        .route("/a2a/v1/{*path}", any(http_json::handle))
        .with_state(cards)
}
