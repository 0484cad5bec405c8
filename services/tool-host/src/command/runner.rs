//! The tool `run_command`: checks the arguments, and runs each command as a task that outlives its call only to be
//! killed.

use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::{Approval, Call, Effect, Reply, Tool, ToolError};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use contract::tool::ApprovalPolicy;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde::Deserialize;
use serde_json::{Value, json};
use service::tasks::Tasks;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::allowlist::Allowlist;
use super::config::{CommandConfig, OUTPUT_BYTES_MAX, TIMEOUT_MAX, setting};
use super::launch::Launcher;
use super::process_tree::{ProcessTree, ResourceCap};
use super::run::{CommandJob, CommandLimits, DRAIN_MAX, END_MAX, run};
use crate::error::HostError;
use crate::files::{access_error, parse_relative};

/// Bytes of standard input of a command.
const STDIN_BYTES_MAX: usize = 256 << 10;
/// Time of a call beyond its command: to kill it, to read its output, and to reply.
const GRACE: Duration =
    Duration::from_secs(2).saturating_add(END_MAX).saturating_add(DRAIN_MAX).saturating_add(DRAIN_MAX);

/// The arguments of `run_command`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandArguments {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Directory in which it runs, below the working directory.
    pub cwd: Option<String>,
    /// Standard input of the program.
    pub stdin: Option<String>,
    /// Timeout of the command in seconds.
    pub timeout: Option<u64>,
}

/// Runs the permitted commands for sessions.
#[derive(Clone)]
pub struct Commands(Arc<Inner>);

struct Inner {
    allow: Allowlist,
    root: Dir,
    launcher: Arc<Launcher>,
    limits: CommandLimits,
    timeout: Duration,
    tasks: Tasks,
}

impl Commands {
    /// Checks the configuration, and makes this process the parent of orphans of commands.
    pub fn new(config: &CommandConfig, tasks: Tasks) -> Result<Self, HostError> {
        if !(1..=TIMEOUT_MAX).contains(&config.timeout) {
            return Err(setting("timeout", format!("it is 1 to {TIMEOUT_MAX} seconds")));
        }
        if !(1..=OUTPUT_BYTES_MAX).contains(&config.output_bytes_max) {
            return Err(setting("output_bytes_max", format!("it is 1 to {OUTPUT_BYTES_MAX}")));
        }
        if config.processes_max == 0 || config.memory_bytes_max == 0 || config.cpu_seconds_max == 0 {
            return Err(setting("processes_max", "it, memory_bytes_max and cpu_seconds_max are at least 1"));
        }
        let root = Dir::open_ambient_dir(&config.cwd, ambient_authority()).map_err(|source| HostError::Directory {
            field: "command.cwd",
            path: config.cwd.clone(),
            source,
        })?;
        // Commands of the same user could read the environment and the memory of this process, with its passwords.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
            setting("allow", format!("this process cannot be hidden from commands (PR_SET_DUMPABLE): {error}"))
        })?;
        ProcessTree::become_subreaper()
            .map_err(|error| setting("allow", format!("orphans cannot be adopted here: {error}")))?;
        Ok(Self(Arc::new(Inner {
            allow: Allowlist::new(config)?,
            root,
            launcher: Arc::new(Launcher::new(config)?),
            limits: CommandLimits {
                cap: ResourceCap { processes: config.processes_max, memory_bytes: config.memory_bytes_max },
                output_bytes: config.output_bytes_max,
            },
            timeout: Duration::from_secs(config.timeout),
            tasks,
        })))
    }

    /// Runs a command, if it is permitted and `left` is enough. Errors are for the model, and mean that nothing ran.
    /// Dropping the future kills the command.
    pub async fn run(&self, arguments: &CommandArguments, left: Option<Duration>) -> Result<Value, ToolError> {
        let job = self.0.prepare_job(arguments, left)?;
        let (cancelled, inner) = (CancellationToken::new(), self.0.clone());
        let _dropped = cancelled.clone().drop_guard();
        let (sender, result) = oneshot::channel();
        // A task, so that a cancelled command is still killed in order.
        self.0.tasks.spawn("command", async move {
            let result = run(&inner.launcher, inner.limits, job, cancelled).await;
            let _receiver_gone = sender.send(result).is_err();
        });
        result.await.map_err(|_| ToolError::unknown("the command was ended from outside"))?
    }
}

impl Inner {
    fn prepare_job(&self, arguments: &CommandArguments, left: Option<Duration>) -> Result<CommandJob, ToolError> {
        let program = self.allow.resolve(&arguments.command)?;
        let stdin = arguments.stdin.clone().unwrap_or_default().into_bytes();
        if stdin.len() > STDIN_BYTES_MAX {
            return Err(ToolError::new(format!("over {STDIN_BYTES_MAX} bytes for stdin are refused: use a file")));
        }
        let wanted = arguments.timeout.map_or(self.timeout, Duration::from_secs).min(self.timeout);
        let timeout = left.map_or(wanted, |left| wanted.min(left.saturating_sub(GRACE)));
        if timeout.is_zero() {
            return Err(ToolError::new("there is no time left for the command; it was not started"));
        }
        let dir = self.dir(arguments.cwd.as_deref().unwrap_or_default())?;
        Ok(CommandJob { program, arguments: arguments.command.iter().skip(1).cloned().collect(), dir, stdin, timeout })
    }

    /// Opens a directory below the root; links must stay below it too.
    fn dir(&self, text: &str) -> Result<Dir, ToolError> {
        let path = parse_relative(text)?;
        let opened = if path.as_os_str().is_empty() { self.root.try_clone() } else { self.root.open_dir(&path) };
        opened.map_err(|error| access_error(text, &error))
    }
}

pub(super) fn tool(config: &CommandConfig, commands: Commands) -> Tool {
    let mut programs = commands.0.allow.programs();
    programs.dedup();
    let about = format!(
        "Runs a program and gives its exit code and output; no shell reads the command. Long output keeps its beginning and \
         its end. Whatever it started is ended with it. Programs that may be run: {}.",
        programs.join(", ")
    );
    Tool::new("run_command")
        .description(about)
        .effect(Effect::AtMostOnce)
        .approval(match config.approval {
            ApprovalPolicy::Never => Approval::Never,
            ApprovalPolicy::Always => Approval::Always,
        })
        .timeout(Duration::from_secs(config.timeout) + GRACE)
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "command": {"type": "array", "minItems": 1, "items": {"type": "string"}, "description":
                "The program by its name, then its arguments, one by one."},
            "cwd": {"type": "string", "description": "Where it runs, below the working directory. Default: there."},
            "stdin": {"type": "string", "description": "What it reads. Default: nothing."},
            "timeout": {"type": "integer", "minimum": 1, "description": format!(
                "Seconds until it is killed. Default and most: {}.", config.timeout)},
        }, "required": ["command"]}))
        .handler(move |call: Call| {
            let commands = commands.clone();
            async move { Ok::<_, ToolError>(Reply::from(commands.run(&call.arguments()?, call.time_left()).await?)) }
        })
}
