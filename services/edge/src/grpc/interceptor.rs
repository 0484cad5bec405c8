//! Authentication of gRPC requests.

use std::sync::Arc;

use contract::ErrorCode;
use service::connections::Connection;
use tonic::{Request, Status};

use super::status::to_status;
use crate::api_error::ApiError;
use crate::authentication::{Authenticator, CredentialHeader, Credentials};
use crate::fair_queue::Flow;

/// Bytes that an idle connection takes, as measured by `tests/suite/idle_memory.rs`, with a margin.
const CONNECTION_BYTES: usize = 40 << 10;

/// Authenticates each request, and adds the [`ApiCaller`] to it.
#[derive(Debug, Clone)]
pub(crate) struct AuthInterceptor(pub(crate) Arc<Authenticator>);

impl tonic::service::Interceptor for AuthInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let missing = || to_status(&ApiError::new(ErrorCode::Internal, "the request has no connection"));
        let connection = request.extensions().get::<Arc<Connection>>().cloned().ok_or_else(missing)?;
        let headers = request.metadata().clone().into_headers();
        let header = |name: &str| CredentialHeader::from_values(headers.get_all(name));
        let credentials = Credentials {
            authorization: header("authorization"),
            origin: header("origin"),
            host: CredentialHeader::Absent,
            flow: Flow { address: connection.address(), connection: connection.id() },
        };
        let caller = self.0.authenticate(credentials).map_err(|error| to_status(&error))?;
        if let Err(refusal) = connection.accept(CONNECTION_BYTES) {
            telemetry::metric::connection_closed("grpc", "limit");
            return Err(to_status(&ApiError::new(ErrorCode::Overloaded, refusal.to_string())));
        }
        request.extensions_mut().insert(caller);
        Ok(request)
    }
}
