//! `run_command`: runs programs that the configuration names, within limits, and kills everything that they started.
//!
//! It needs Linux: limits and processes are handled through its interfaces.

#[cfg(target_os = "linux")]
mod allowlist;
mod config;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod namespace;
#[cfg(target_os = "linux")]
mod process_tree;
#[cfg(target_os = "linux")]
mod procfs;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod runner;

use ailoop_tool::Tool;
use service::tasks::Tasks;

pub use config::{AllowedArguments, AllowedProgram, CommandConfig, CommandUser};
#[cfg(target_os = "linux")]
pub use runner::{CommandArguments, Commands};

use super::error::HostError;

/// Builds `run_command`; `tasks` kill what commands leave behind.
#[cfg(target_os = "linux")]
pub(super) fn tools(config: &CommandConfig, tasks: &Tasks) -> Result<Vec<Tool>, HostError> {
    Ok(vec![runner::tool(config, Commands::new(config, tasks.clone())?)])
}

/// Refuses the configuration, since commands need Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn tools(_config: &CommandConfig, _tasks: &Tasks) -> Result<Vec<Tool>, HostError> {
    Err(config::setting("allow", "commands are run on Linux only"))
}
