//! Runs one service alone, as its own binary does, so that one image can be any of them.

use contract::ErrorCode;

use crate::failure::{CommandFailure, Exit};

/// The exit of a service that ran to its end.
pub(super) fn to_exit(result: anyhow::Result<()>) -> Result<Exit, CommandFailure> {
    result.map(|()| Exit::Done).map_err(|error| {
        let code = error.chain().find_map(error_code).unwrap_or(ErrorCode::Internal);
        CommandFailure::new(code, format!("{error:#}"))
    })
}

fn error_code(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorCode> {
    let config = cause.downcast_ref::<configuration::ConfigError>().map(configuration::ConfigError::code);
    let bus = cause.downcast_ref::<bus::BusError>().map(bus::BusError::code);
    let edge = cause.downcast_ref::<edge::EdgeStartError>().map(edge::EdgeStartError::code);
    let host = cause.downcast_ref::<tool_host::HostError>().map(tool_host::HostError::code);
    config.or(bus).or(edge).or(host)
}
