//! The client API, compiled from `ailoop/v1/ailoop.proto`.

#![allow(missing_docs, clippy::pedantic, reason = "generated code")]

tonic::include_proto!("ailoop.v1");

/// The compiled descriptors, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The metadata key that carries a stable error code.
pub const ERROR_CODE: &str = "ailoop-code";
