//! Limits of the body of a request.

use axum::extract::{Extension, Request, State};
use edge_core::access::ApiCaller;
use edge_core::request_body;
use service::connections::ByteBudget;

use super::status::to_status;

/// Only requests to this service have one message each; those to reflection and health stay open.
const SESSIONS_PATH: &str = "/ailoop.v2.Sessions/";

/// Applies the limits to the body of a gRPC request, whose caller is known.
pub(crate) async fn limit_body(
    State(budget): State<ByteBudget>,
    caller: Option<Extension<ApiCaller>>,
    request: Request,
) -> Request {
    let Some(Extension(caller)) = caller.filter(|_| request.uri().path().starts_with(SESSIONS_PATH)) else {
        return request;
    };
    request.map(|body| request_body::limit(body, caller.pace, budget, |error| axum::Error::new(to_status(&error))))
}
