//! Descriptions of tools, as they come over the NATS services protocol, and their JSON Schemas.
//!
//! Tools describe themselves, and models write the arguments: neither may stop a process. A schema is measured before
//! it is compiled, arguments are measured against it before they are validated, and both fail with an error that names
//! cost and limit. Large arguments are validated on a few threads, and a call waits for that with a timeout.

mod checker;
mod cost;
mod description;
mod schema;

pub use checker::Checker;
pub use description::{TEXT_BYTES_MAX, ToolDescription, parse_service_info};
pub use schema::{ArgumentsError, Schema, measure};
