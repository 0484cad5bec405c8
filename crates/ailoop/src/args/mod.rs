//! The command line, as clap reads it.

mod acp;
mod api_key;
mod approvals;
mod backup;
mod budgets;
mod chat;
mod config;
mod context;
mod dead;
mod drop_history;
mod erase;
mod filter;
mod fleet;
mod history;
mod mail;
mod models;
mod move_session;
mod nats_auth;
mod operate;
mod output;
mod run;
mod session;
mod session_ref;
mod target;
mod tools;
mod values;
mod version;

use clap::{Parser, Subcommand};

pub use acp::AcpArgs;
pub use api_key::{ApiKeyCommand, ApiKeyNewArgs, ScopeArg};
pub use approvals::{ApprovalsArgs, ApprovalsCommand, ApproveArgs, DenyArgs, GateArgs, ReplyArgs};
pub use backup::{BackupArgs, RestoreArgs};
pub use budgets::{BudgetResetArgs, BudgetsArgs, BudgetsCommand};
pub use chat::ChatArgs;
pub use config::{
    AgentArgs, CheckArgs, ConfigCommand, ExplainArgs, InitArgs, PatternsCommand, PatternsSuggestArgs, PatternsTestArgs,
    PromptCommand, PromptShowArgs, SchemaArgs, TrustArgs,
};
pub use context::{ContextCommand, ContextSetArgs};
pub use dead::{DeadArgs, DeadCommand, DeadListArgs, DeadSelection};
pub use drop_history::DropHistoryArgs;
pub use erase::{SessionsCommand, SessionsRmArgs};
pub use filter::{PhaseArg, SessionFilter};
pub use fleet::{Files, QueuesArgs, RepairArgs, UpArgs};
pub use history::{DecisionsArgs, ExportArgs, ImportArgs, ReplayArgs, StatsArgs, TRACE_URL, TraceArgs};
pub use mail::{MailArgs, MailCloseArgs, MailCommand, MailReplyArgs, MailSendArgs};
pub use models::{ModelsArgs, ProbeArgs};
pub use move_session::MoveArgs;
pub use nats_auth::{
    NatsAuthCommand, NatsAuthInitArgs, NatsAuthKeys, NatsAuthServerArgs, NatsAuthUpdateArgs, NatsUserAddArgs,
    NatsUserCommand, NatsUserListArgs, NatsUserRevokeArgs,
};
pub use operate::{DescribeArgs, DoctorArgs, StatusArgs, TopArgs};
pub use output::{OutputArgs, OutputFormat};
pub use run::{ApproveArg, RunArgs, SessionSettings};
pub use session::{ConfigureArgs, ControlArgs, ForkArgs, ModeArg, SendArgs, SessionsArgs, TranscriptArgs, WatchArgs};
pub use session_ref::SessionRef;
pub use target::{FleetTarget, NatsArgs, NatsTarget};
pub use tools::{
    ToolsArgs, ToolsCommand, ToolsDescribeArgs, ToolsNewArgs, ToolsTryArgs, ToolsVerifyArgs, ToolsWatchArgs,
};
pub(crate) use values::api_name;
pub use version::{ManArgs, VersionArgs};

const EXITS: &str = "\
Exit codes:
  0    done
  1    failed: the session ended with an error, or the fleet refused
  2    the command line cannot be used
  3    the fleet or NATS cannot be reached
  4    a person must answer, and there is no terminal to ask at (see --approve)
  124  a limit was reached: iterations, the turn's time, or --timeout
  130  interrupted";

/// AI agent loops over NATS JetStream.
#[derive(Debug, Parser)]
#[command(
    name = "ailoop",
    version = crate::version::TEXT,
    about,
    after_help = EXITS,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the whole fleet in this process, next to a nats-server of its own
    Up(UpArgs),
    /// Run one prompt to its end and print the answer
    Run(RunArgs),
    /// Talk with an agent, also while it works; leave and come back
    Chat(ChatArgs),
    /// Write a configuration with one agent to this directory
    Init(InitArgs),
    /// List the sessions, newest first; erase sessions
    #[command(args_conflicts_with_subcommands = true)]
    Sessions(SessionsArgs),
    /// Show a session from its beginning, and follow it to its end
    Watch(WatchArgs),
    /// Serve an editor by the Agent Client Protocol
    ///
    /// The editor starts this command, and talks with it over stdin and stdout.
    Acp(AcpArgs),
    /// Print the messages and tool calls of a session
    #[command(visible_aliases = ["history", "show"])]
    Transcript(TranscriptArgs),
    /// Send a message to a session
    Send(SendArgs),
    /// Pause a session: it starts no new call until it is resumed
    Pause(ControlArgs),
    /// Resume a session after a pause
    Resume(ControlArgs),
    /// End a session and cancel its running calls
    Stop(ControlArgs),
    /// Cancel the running turn of a session, which stays open for messages
    Cancel(ControlArgs),
    /// Begin a session with the transcript of another one, which stays unchanged
    Fork(ForkArgs),
    /// Change settings of an open session: model, features, limits
    Configure(ConfigureArgs),
    /// Check the stored state of a session against its log, and show its slots
    ///
    /// A slot is a place in the log of a session; `--at` prints the state after one of them.
    Replay(ReplayArgs),
    /// Show what a session waits for, who works on it, and what went wrong last
    Describe(DescribeArgs),
    /// Show what each turn of a session did, its time and its cost, as a tree of spans
    ///
    /// It is made from the log of the session, so no collector is needed.
    Trace(TraceArgs),
    /// Write a session to a file
    ///
    /// The file has one line for each commit, from the archive and the log. The command uses NATS directly.
    Export(ExportArgs),
    /// Import a session from a file that `ailoop export` wrote
    ///
    /// The command uses NATS directly.
    Import(ImportArgs),
    /// Move a session to another cell, while it rests
    ///
    /// The cells are those of `edge.cells`. A move that was interrupted is finished by the same command. The command uses
    /// NATS directly.
    Move(MoveArgs),
    /// Back up everything that the fleet stores to a directory, while it runs
    ///
    /// That is every stream, bucket and object store. The command uses NATS directly.
    Backup(BackupArgs),
    /// Restore a backup to a nats-server, before the fleet starts
    ///
    /// The command uses NATS directly.
    Restore(RestoreArgs),
    /// List why a session continued or ended after each reply
    Decisions(DecisionsArgs),
    /// Count how turns ended, by agent and model
    Stats(StatsArgs),
    /// List what waits for a person; approve, deny or answer it
    #[command(args_conflicts_with_subcommands = true)]
    Approvals(ApprovalsArgs),
    /// List the mails of agents to people; send and answer mails
    #[command(args_conflicts_with_subcommands = true)]
    Mail(MailArgs),
    /// List the models, their capabilities and prices, and whether their keys are set
    Models(ModelsArgs),
    /// Probe what a live model can do, and print its entry for models.yaml
    ProbeModel(ProbeArgs),
    /// List the known tools; describe, try, watch and verify them
    Tools(ToolsArgs),
    /// Check the fleet, and print what is wrong and what to do about it
    ///
    /// If no fleet runs, it checks whether one could start here: configuration, nats-server and model.
    Doctor(DoctorArgs),
    /// Show the processes of the fleet, its queues and what it stores
    Status(StatusArgs),
    /// Show the status of the fleet again and again, until Ctrl-C
    Top(TopArgs),
    /// List the budgets with what was spent and reserved; reset one
    #[command(args_conflicts_with_subcommands = true)]
    Budgets(BudgetsArgs),
    /// Show the queues of the fleet
    Queues(QueuesArgs),
    /// Repeat the outstanding effects of sessions, after the server lost messages
    Repair(RepairArgs),
    /// List, show, retry and delete dead letters
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Test how an agent's patterns and signals decide about a reply
    #[command(subcommand)]
    Patterns(PatternsCommand),
    /// Check and explain the configuration of this directory
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Name the fleets that you work with, and choose one
    #[command(subcommand)]
    Context(ContextCommand),
    /// Make API keys for the clients of an edge
    #[command(subcommand)]
    ApiKey(ApiKeyCommand),
    /// Show the composed prompts of agents
    #[command(subcommand)]
    Prompt(PromptCommand),
    /// Show the help of a command, or a topic such as `scripts`
    Help {
        /// A command with its subcommands, or a topic
        #[arg(value_name = "COMMAND|TOPIC")]
        words: Vec<String>,
    },
    /// Write the manual pages
    Man(ManArgs),
    /// Print the completion script of a shell
    ///
    /// It completes commands and options, and asks the fleet for sessions, agents, models, tools and gates. Load it
    /// with `source <(ailoop completion bash)`.
    Completion {
        /// The name of the shell
        shell: clap_complete::Shell,
    },
    /// Print version and commit of this binary, and which data it reads and writes
    Version(VersionArgs),
    /// Create and verify the streams
    ///
    /// The NATS users of services may only verify them.
    Bootstrap {
        /// Correct stream settings that have drifted
        #[arg(long)]
        fix: bool,
        /// Only this cell of `edge.cells` [default: all of them]
        #[arg(long, value_name = "CELL")]
        cell: Option<contract::CellName>,
    },
    /// Manage keys, users and permissions of nats-server
    #[command(subcommand)]
    NatsAuth(NatsAuthCommand),
    /// Run the loop-orchestrator alone, configured by file and environment
    Orchestrator,
    /// Run the model-gateway alone, configured by file and environment
    Gateway,
    /// Run the tool-executor alone, configured by file and environment
    Executor,
    /// Run the tool-host alone, configured by file and environment
    ToolHost,
    /// Run the prompt-composer alone, configured by file and environment
    Composer,
    /// Run the edge alone, configured by file and environment
    Edge,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn negative_port_is_parsed_as_a_value() {
        let cli = Cli::try_parse_from(["ailoop", "up", "--nats-port", "-1"]).unwrap();
        assert!(matches!(cli.command, CliCommand::Up(UpArgs { nats_port: -1, .. })));
    }
}
