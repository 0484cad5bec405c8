//! The gRPC service `ailoop.v2.Sessions`: the same methods as JSON-RPC.

mod authentication;
mod body;
mod codec;
mod service;
mod status;
mod stream;

pub(crate) use authentication::authenticate;
pub(crate) use body::limit_body;
pub(crate) use service::serve;
pub(crate) use status::add_error_code;
