//! Errors as gRPC statuses.

use contract::{ErrorClass, ErrorCode};
use edge_core::api_error::ApiError;
use tonic::{Code, Status};

/// Trailer with the status of a response; a header if the response has no message.
const GRPC_STATUS_KEY: &str = "grpc-status";

/// Adds the stable code to errors that tonic reports itself: a message that is too long or damaged, or an unknown
/// method. Tonic reports such mistakes of a client as internal; the errors of the edge have a code already.
pub(crate) async fn add_error_code(mut response: axum::response::Response) -> axum::response::Response {
    let headers = response.headers_mut();
    if headers.contains_key(proto::ERROR_CODE) {
        return response;
    }
    let status = headers.get(GRPC_STATUS_KEY).map(|status| Code::from_bytes(status.as_bytes()));
    let (status, code) = match status {
        Some(Code::OutOfRange | Code::ResourceExhausted) => (Code::InvalidArgument, ErrorCode::TooLarge),
        Some(Code::Internal | Code::InvalidArgument) => (Code::InvalidArgument, ErrorCode::BadRequest),
        Some(Code::Unimplemented) => (Code::Unimplemented, ErrorCode::UnknownMethod),
        Some(
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unauthenticated,
        )
        | None => return response,
    };
    headers.insert(GRPC_STATUS_KEY, i32::from(status).into());
    if let Ok(code) = code.as_str().parse() {
        headers.insert(proto::ERROR_CODE, code);
    }
    response
}

/// Converts an error to a status with the stable code in its metadata.
pub(crate) fn to_status(error: &ApiError) -> Status {
    let mut status = Status::new(to_grpc_code(&error.code), error.message.clone());
    let metadata = status.metadata_mut();
    if let Ok(code) = error.code.as_str().parse() {
        metadata.insert(proto::ERROR_CODE, code);
    }
    if let Some(after) = error.retry_after {
        metadata.insert(proto::RETRY_AFTER_MS, u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into());
    }
    if let Some(seq) = error.seq {
        metadata.insert(proto::LAST_SEQ, seq.into());
    }
    status
}

fn to_grpc_code(code: &ErrorCode) -> Code {
    match code.class() {
        ErrorClass::Invalid | ErrorClass::TooLarge => Code::InvalidArgument,
        ErrorClass::Precondition | ErrorClass::Conflict => Code::FailedPrecondition,
        ErrorClass::Unauthenticated => Code::Unauthenticated,
        ErrorClass::Forbidden => Code::PermissionDenied,
        ErrorClass::NotFound => Code::NotFound,
        ErrorClass::UnknownMethod => Code::Unimplemented,
        ErrorClass::Exists => Code::AlreadyExists,
        ErrorClass::Gone => Code::OutOfRange,
        ErrorClass::Lost => Code::DataLoss,
        ErrorClass::Exhausted => Code::ResourceExhausted,
        ErrorClass::Unavailable | ErrorClass::Upstream => Code::Unavailable,
        ErrorClass::Internal => Code::Internal,
    }
}
