//! The gRPC service `ailoop.v1.Sessions`: the same methods as JSON-RPC.

mod authentication;
mod body;
mod replies;
mod requests;
mod service;
mod status;
mod stream;

use contract::ErrorCode;
use contract::command::ControlReason;
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::commands::CommandVerb;
use edge_core::params::UnvalidatedCommand;
use edge_core::{invoke, request_trace};
use session_api::Method;
use tonic::{Request, Response, Status};

pub(crate) use authentication::authenticate;
pub(crate) use body::limit_body;
use replies::wait_for_command;
pub(crate) use status::add_error_code;
use status::to_status;

/// Serves the gRPC methods with the [`SessionApi`].
#[derive(Debug, Clone)]
pub(crate) struct GrpcService {
    api: SessionApi,
}

impl GrpcService {
    pub(crate) fn new(api: SessionApi) -> Self {
        Self { api }
    }

    /// Runs a method under its span, and turns its error into a status.
    async fn call<M, T>(
        &self,
        method: Method,
        session: &str,
        request: &Request<M>,
        call: impl AsyncFnOnce(&SessionApi, &ApiCaller) -> Result<T, ApiError>,
    ) -> Result<Response<T>, Status> {
        self.run(method, session, request, async |api, caller, _| call(api, caller).await).await
    }

    /// As [`GrpcService::call`], for a method that reads the session which the request names.
    async fn read<M, T>(
        &self,
        method: Method,
        session: &str,
        request: &Request<M>,
        read: impl AsyncFnOnce(&SessionApi, &ApiCaller, &ReachedSession) -> Result<T, ApiError>,
    ) -> Result<Response<T>, Status> {
        let run =
            async |api: &SessionApi, caller: &ApiCaller, reached| read(api, caller, &invoke::named(reached)?).await;
        self.run(method, session, request, run).await
    }

    /// Sends a command that has nothing but a reason.
    async fn control(
        &self,
        method: Method,
        verb: CommandVerb<ControlReason>,
        request: &Request<proto::ControlRequest>,
    ) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(method, &message.session_id, request, async |api, caller| {
            let body = ControlReason { reason: Some(message.reason.clone()).filter(|reason| !reason.is_empty()) };
            let command = UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, body)?;
            wait_for_command(api.submit(caller, verb, command).await?).await
        })
        .await
    }

    async fn run<M, T>(
        &self,
        method: Method,
        session: &str,
        request: &Request<M>,
        call: impl AsyncFnOnce(&SessionApi, &ApiCaller, Option<ReachedSession>) -> Result<T, ApiError>,
    ) -> Result<Response<T>, Status> {
        let client = request.metadata().get("traceparent").and_then(|value| value.to_str().ok()?.parse().ok());
        let session = Some(session).filter(|session| !session.is_empty());
        let outcome = request_trace::run(method.name(), session, client, async {
            let unknown = || {
                ApiError::new(
                    ErrorCode::Unauthorized,
                    "the request is not authenticated: send `authorization: Bearer <API key, access token or edge.token>`",
                )
            };
            let caller = request.extensions().get::<ApiCaller>().ok_or_else(unknown)?;
            let reached = self.api.authorize(caller, method, session).await?;
            call(&self.api, caller, reached).await
        })
        .await;
        outcome.map(Response::new).map_err(|error| to_status(&error))
    }
}
