//! Sender of a request: it is authenticated before its handler runs, and refused in the error format of OpenAI.

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use edge_core::access::ApiCaller;
use edge_core::api_error::ApiError;
use edge_core::client_request::{HttpState, authenticate, read_body};
use edge_core::request_trace;
use edge_core::turn::{self, RequestIdentity};

use super::errors::to_response;

/// Names the session of a request.
pub(super) const SESSION_HEADER: &str = "x-ailoop-session";

/// A client whose credentials were accepted.
#[derive(Debug)]
pub(super) struct Client(pub(super) ApiCaller);

/// An error that is answered in the form of OpenAI.
#[derive(Debug)]
pub(super) struct OpenAiError(ApiError);

/// A request that begins or continues a turn, by a client that may do so.
#[derive(Debug)]
pub(super) struct TurnCall {
    pub(super) caller: ApiCaller,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) identity: RequestIdentity,
}

impl FromRequestParts<HttpState> for Client {
    type Rejection = OpenAiError;

    async fn from_request_parts(parts: &mut Parts, state: &HttpState) -> Result<Self, Self::Rejection> {
        Ok(Self(authenticate(state, parts).await?))
    }
}

impl From<ApiError> for OpenAiError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for OpenAiError {
    fn into_response(self) -> Response {
        to_response(&self.0)
    }
}

/// Runs a request that begins or continues a turn, under a span of this name: its client is authorized before its body is
/// read.
pub(super) async fn run_turn_request<F>(
    name: &'static str,
    state: &HttpState,
    request: Request,
    run: impl FnOnce(TurnCall) -> F,
) -> Result<Response, OpenAiError>
where
    F: Future<Output = Result<Response, ApiError>>,
{
    let (parts, body) = request.into_parts();
    let trace = request_trace::of_headers(&parts.headers);
    let answered = request_trace::run(name, None, trace, async {
        let caller = authenticate(state, &parts).await?;
        turn::authorize_turns(&state.api, &caller).await?;
        let body = read_body(state, body, &caller).await?;
        // The body does not say which session the header names.
        let session = parts.headers.get(SESSION_HEADER);
        let subject = format!("{} {} {session:?}", caller.name(), parts.uri.path());
        let identity = RequestIdentity::of_request(&state.api, &caller, &subject, &parts.headers, &body).await?;
        let call = TurnCall { caller, headers: parts.headers.clone(), body, identity: identity.clone() };
        identity.settle(run(call).await)
    });
    Ok(answered.await?)
}
