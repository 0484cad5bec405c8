//! Responses and conversations of OpenAI. A response is a turn, or the part of a turn until it waits for the client.

mod begin;
mod builder;
#[cfg(test)]
mod builder_tests;
mod conversations;
mod create;
mod ids;
mod input;
pub(super) mod items;
pub(super) mod question;
mod references;
mod request;
mod retrieve;
mod stored;
mod stream;

use axum::Router;
use axum::routing::{get, post};
use edge_core::client_request::HttpState;

/// Builds the routes of responses and conversations.
pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route("/openai/v1/responses", post(create::create))
        .route("/openai/v1/responses/{id}", get(retrieve::show).delete(retrieve::refuse_delete))
        .route("/openai/v1/responses/{id}/cancel", post(retrieve::cancel))
        .route("/openai/v1/responses/{id}/input_items", get(retrieve::list_input_items))
        .route("/openai/v1/conversations", post(conversations::create))
        .route(
            "/openai/v1/conversations/{id}",
            get(conversations::show).post(conversations::show).delete(conversations::end),
        )
        .route("/openai/v1/conversations/{id}/items", get(conversations::list_items).post(conversations::refuse_items))
}
