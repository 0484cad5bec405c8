//! Configuration of `run_command`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use configuration::{Secret, schema};
use contract::tool::ApprovalPolicy;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connect::Login;
use crate::error::HostError;

/// Greatest timeout of a command in seconds; a call ends after an hour in any case.
pub(super) const TIMEOUT_MAX: u64 = 3_500;
/// Greatest number of bytes that are kept of each output: a result has both.
pub(super) const OUTPUT_BYTES_MAX: usize = 24 << 10;

/// Commands that may be run, their directory, and their limits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "command")]
pub struct CommandConfig {
    /// The programs that may be run; an empty list allows none.
    pub allow: Vec<AllowedProgram>,
    /// Working directory of commands; a call may choose a directory below it.
    pub cwd: PathBuf,
    /// Directories in which programs are searched, in this order; also the `PATH` of commands.
    #[serde(default = "path_default")]
    pub path: Vec<PathBuf>,
    /// The environment of commands, which inherit nothing else.
    #[serde(default)]
    pub env: BTreeMap<String, Secret>,
    /// Variables of this process that commands see too.
    #[serde(default)]
    pub env_from: Vec<String>,
    /// User that runs the commands; required where this process is root.
    pub user: Option<CommandUser>,
    /// Whether each command has a PID namespace, so that the kernel ends all that it started at once. Default: where
    /// this process is root and the system permits it.
    pub pid_namespace: Option<bool>,
    /// Whether a person is asked before each command.
    #[serde(default)]
    #[schemars(schema_with = "schema::words_or_none::<ApprovalPolicy>")]
    pub approval: ApprovalPolicy,
    /// Seconds that a command may take.
    #[serde(default = "timeout_default")]
    #[schemars(range(min = 1, max = TIMEOUT_MAX))]
    pub timeout: u64,
    /// Bytes of each output that are kept: its beginning and its end.
    #[serde(default = "output_default")]
    #[schemars(range(min = 1, max = OUTPUT_BYTES_MAX))]
    pub output_bytes_max: usize,
    /// Bytes of memory of all processes of a command together.
    #[serde(default = "memory_default")]
    #[schemars(range(min = 1))]
    pub memory_bytes_max: u64,
    /// Processes of a command.
    #[serde(default = "processes_default")]
    #[schemars(range(min = 1))]
    pub processes_max: usize,
    /// Seconds of processor time of each process.
    #[serde(default = "cpu_default")]
    #[schemars(range(min = 1))]
    pub cpu_seconds_max: u64,
    /// Bytes of each file that a command writes.
    #[serde(default = "file_default")]
    pub file_bytes_max: u64,
    /// The NATS user of this tool, where users have permissions.
    pub login: Option<Login>,
}

/// A user of the machine that has nothing but commands to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "command_user")]
pub struct CommandUser {
    /// Numeric id of the user.
    pub uid: u32,
    /// Numeric id of its group.
    pub gid: u32,
}

/// A program that may be run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "allowed")]
pub enum AllowedProgram {
    /// A program with any arguments.
    AnyArguments(String),
    /// A program with restricted arguments.
    MatchingArguments(AllowedArguments),
}

/// A program and its permitted arguments.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "allowed_arguments")]
pub struct AllowedArguments {
    /// Name of the program, without a directory.
    pub program: String,
    /// Regular expressions: each argument must be matched by one of them, as a whole.
    pub args: Vec<String>,
}

fn path_default() -> Vec<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).into()
}

fn timeout_default() -> u64 {
    60
}

fn output_default() -> usize {
    OUTPUT_BYTES_MAX
}

fn memory_default() -> u64 {
    1 << 30
}

fn processes_default() -> usize {
    64
}

fn cpu_default() -> u64 {
    60
}

fn file_default() -> u64 {
    256 << 20
}

pub(super) fn setting(field: &str, message: impl Into<String>) -> HostError {
    HostError::Setting { field: format!("command.{field}"), message: message.into() }
}
