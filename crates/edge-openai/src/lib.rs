//! The API of OpenAI, where a model is an agent: models and chat completions, below `/openai/v1`.

mod agents;
mod chat;
mod chat_reply;
mod chat_request;
mod client;
mod errors;
mod function;
mod models;
mod responses;

use axum::Router;
use axum::routing::{get, post};
use edge_core::client_request::HttpState;

/// Builds the routes below `/openai/v1`.
pub fn routes(state: HttpState) -> Router {
    Router::new()
        .route("/openai/v1/models", get(models::list))
        .route("/openai/v1/models/{model}", get(models::show))
        .route("/openai/v1/chat/completions", post(chat::complete))
        .merge(agents::routes())
        .merge(responses::routes())
        .route("/openai/v1/{*path}", axum::routing::any(errors::unknown_path))
        .with_state(state)
}
