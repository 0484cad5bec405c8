//! The command line, as clap reads it.

mod approvals;
mod config;
mod dead;
mod fleet;
mod history;
mod mail;
mod models;
mod run;
mod session;
mod target;
mod tools;
mod values;

use clap::{Parser, Subcommand};

pub use approvals::{ApprovalsArgs, ApprovalsCommand, ApproveArgs, DenyArgs, GateArgs, ReplyArgs};
pub use config::{
    AgentArgs, ConfigCommand, PatternsCommand, PatternsSuggestArgs, PatternsTestArgs, PromptCommand, PromptShowArgs,
    SchemaArgs,
};
pub use dead::{DeadArgs, DeadCommand, DeadListArgs};
pub use fleet::{Files, QueuesArgs, RepairArgs, UpArgs};
pub use history::{DecisionsArgs, ExportArgs, ImportArgs, ReplayArgs, StatsArgs};
pub use mail::{MailArgs, MailCloseArgs, MailCommand, MailReplyArgs, MailSendArgs};
pub use models::{ModelsArgs, ProbeArgs};
pub use run::{ApproveArg, RunArgs, SessionSettings};
pub use session::{
    ConfigureArgs, ControlArgs, ForkArgs, ModeArg, PhaseArg, SendArgs, SessionsArgs, TranscriptArgs, WatchArgs,
};
pub use target::{FleetTarget, NatsTarget};
pub use tools::{ToolsArgs, ToolsCommand, ToolsDescribeArgs, ToolsTryArgs, ToolsVerifyArgs, ToolsWatchArgs};

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
#[command(name = "ailoop", version, about, after_help = EXITS, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole fleet in this process, next to a nats-server of its own
    Up(UpArgs),
    /// Run one prompt to its end and print the answer
    Run(RunArgs),
    /// List the sessions, newest first
    Sessions(SessionsArgs),
    /// Show a session from its beginning, and follow it to its end
    Watch(WatchArgs),
    /// Print what was said and done in a session
    Transcript(TranscriptArgs),
    /// Send a message to a session
    Send(SendArgs),
    /// Open no new call in a session until it is resumed
    Pause(ControlArgs),
    /// Go on after a pause
    Resume(ControlArgs),
    /// Cancel what is in flight and end a session
    Stop(ControlArgs),
    /// Begin a session with the transcript of another one, as far as it is given; the other one stays as it is
    Fork(ForkArgs),
    /// Change settings of a session that runs: model, features, limits
    Configure(ConfigureArgs),
    /// Fold a session's whole log again: its slots, its state after one of them, and whether both agree
    Replay(ReplayArgs),
    /// Write a session to a file, a line for each commit, from the archive and the log; asks NATS itself
    Export(ExportArgs),
    /// Take in a session from a file that `ailoop export` wrote; writes to NATS itself
    Import(ImportArgs),
    /// List every decision of a session about going on: what made it, and why
    Decisions(DecisionsArgs),
    /// Count how turns went, by agent and model
    Stats(StatsArgs),
    /// List what waits for a person; approve, deny or answer it
    #[command(args_conflicts_with_subcommands = true)]
    Approvals(ApprovalsArgs),
    /// List the mails of agents to people; write to an agent, answer it
    #[command(args_conflicts_with_subcommands = true)]
    Mail(MailArgs),
    /// List the models of models.yaml: what they can do, what they cost, and whether their keys are there
    Models(ModelsArgs),
    /// Ask a live model what it can do, and print its entry for models.yaml
    ProbeModel(ProbeArgs),
    /// List the tools that are announced; describe, try, watch and verify them
    Tools(ToolsArgs),
    /// Show what waits in the fleet
    Queues(QueuesArgs),
    /// Perform again what sessions are owed, after the server lost something
    Repair(RepairArgs),
    /// Look at what failed for good, send commands among it again, throw it away
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Try what an agent's patterns and signals make of a reply
    #[command(subcommand)]
    Patterns(PatternsCommand),
    /// Look at the configuration of this directory
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at composed prompts
    #[command(subcommand)]
    Prompt(PromptCommand),
    /// Print the completion script of a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Make and verify the streams, as the one NATS user that may; services only verify
    Bootstrap {
        /// Change settings that drifted
        #[arg(long)]
        fix: bool,
    },
    /// Print nats-server's users and what each of them may do
    #[command(hide = true)]
    NatsConfig,
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
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_negative_port_is_no_flag() {
        let cli = Cli::try_parse_from(["ailoop", "up", "--nats-port", "-1"]).unwrap();
        assert!(matches!(cli.command, Command::Up(UpArgs { nats_port: -1, .. })));
    }
}
