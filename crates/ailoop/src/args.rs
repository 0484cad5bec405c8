//! The command line, as clap reads it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use contract::mail::PEOPLE;

use crate::schemas::ConfigFile;

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

/// Whose settings.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// The agent, by key or first name [default: the default agent]
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The model, as in models.yaml, or provider/model [default: the agent's]
    #[arg(long, short)]
    pub model: Option<String>,
    /// For which tenant of agents.yaml
    #[arg(long, default_value = "default")]
    pub tenant: String,
}

/// `ailoop patterns`
#[derive(Debug, Clone, Subcommand)]
pub enum PatternsCommand {
    /// Say whether the loop would go on after a reply, what decided it and why; needs no fleet
    Test(PatternsTestArgs),
    /// Propose patterns from replies after which a user had to ask to go on; applies none
    Suggest(PatternsSuggestArgs),
}

/// `ailoop patterns test`
#[derive(Debug, Clone, Args)]
pub struct PatternsTestArgs {
    /// The reply's text
    pub text: Option<String>,
    /// Whose patterns.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// Replies, one JSON string or object per line: `text`, and `continues` for the decision that is wanted
    #[arg(long, conflicts_with = "text", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
}

/// `ailoop patterns suggest`
#[derive(Debug, Clone, Args)]
pub struct PatternsSuggestArgs {
    /// Whose replies; the newest 200 sessions are read.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop configure`
#[derive(Debug, Clone, Args)]
pub struct ConfigureArgs {
    /// The session
    pub session: String,
    /// The agent that goes on with the session: a key of agents.yaml, or the first word of its name
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The model of the calls that open from now on
    #[arg(long, short)]
    pub model: Option<String>,
    /// Steps of a turn
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<u32>,
    /// Time of a turn, such as 90, 90s or 5m
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// What it says of itself from now on.
    #[command(flatten)]
    pub settings: SessionSettings,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop transcript`
#[derive(Debug, Clone, Args)]
pub struct TranscriptArgs {
    /// The session
    pub session: String,
    /// Print results of tools, too
    #[arg(long)]
    pub results: bool,
    /// Print one line of JSON for each turn
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop replay`
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// The session
    pub session: String,
    /// Print the state after this slot
    #[arg(long, value_name = "SLOT")]
    pub at: Option<u64>,
    /// Print everything as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop export`
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// The session
    pub session: String,
    /// Write to this file, which is whole where it is there; else to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Whose session it is
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// The address of NATS, such as <nats://127.0.0.1:4222>; else .ailoop/run.json tells, else the configuration
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
}

/// `ailoop import`
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// The file
    pub file: PathBuf,
    /// The address of NATS, such as <nats://127.0.0.1:4222>; else .ailoop/run.json tells, else the configuration
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
}

/// `ailoop decisions`
#[derive(Debug, Clone, Args)]
pub struct DecisionsArgs {
    /// The session
    pub session: String,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop stats`
#[derive(Debug, Clone, Args)]
pub struct StatsArgs {
    /// Only sessions that began at or after this instant, such as 2026-01-15T10:30:45Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop queues`
#[derive(Debug, Clone, Args)]
pub struct QueuesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop repair`
#[derive(Debug, Clone, Args)]
pub struct RepairArgs {
    /// The sessions; without any, all that have not ended
    #[arg(value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Print JSON, a line for each session
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop dead`
#[derive(Debug, Clone, Subcommand)]
pub enum DeadCommand {
    /// List dead letters, the oldest first
    List(DeadListArgs),
    /// Print one with its contents, as JSON
    Show(DeadArgs),
    /// Send a client's command once more, under a new id, and remove the letter
    Retry(DeadArgs),
    /// Throw one away
    Drop(DeadArgs),
}

/// `ailoop dead list`
#[derive(Debug, Clone, Args)]
pub struct DeadListArgs {
    /// Only those of this session
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop dead show`, `retry` and `drop`
#[derive(Debug, Clone, Args)]
pub struct DeadArgs {
    /// Which one, as the list shows it
    #[arg(value_name = "SESSION/KIND/ID")]
    pub letter: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop config`
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Look for mistakes in ailoop.yaml, agents.yaml, models.yaml, prompts and the environment, and show each in its place
    Check,
    /// Print what a session of an agent would begin with: settings, model and parts of the prompt
    Explain(AgentArgs),
    /// Print the JSON Schema of a configuration file, for editors
    Schema(SchemaArgs),
}

/// `ailoop models`
#[derive(Debug, Clone, Args)]
pub struct ModelsArgs {
    /// A model's id, or `<provider>/<its name for a model>`; all of models.yaml where none is given
    pub model: Option<String>,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
}

/// `ailoop probe-model`
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// A model's id, or `<provider>/<its name for a model>`
    pub model: String,
    /// The id that its entry gets; the model as it was asked for where none is given
    #[arg(long)]
    pub id: Option<String>,
    /// Write the entry into models.yaml, in the place of one that is there; its prices and fallbacks go with that
    #[arg(long)]
    pub write: bool,
}

/// `ailoop config schema`
#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    /// Which file; without one an object that holds the schemas of all
    pub file: Option<ConfigFile>,
}

/// `ailoop prompt`
#[derive(Debug, Clone, Subcommand)]
pub enum PromptCommand {
    /// Print an agent's system prompt, without the tools, which only a fleet knows
    Show(PromptShowArgs),
}

/// `ailoop prompt show`
#[derive(Debug, Clone, Args)]
pub struct PromptShowArgs {
    /// Whose prompt.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// Switch a feature on; may be repeated
    #[arg(long, value_name = "FEATURE")]
    pub feature: Vec<String>,
    /// Switch a feature off; may be repeated
    #[arg(long, value_name = "FEATURE")]
    pub without: Vec<String>,
    /// Print only what the switches change
    #[arg(long)]
    pub diff: bool,
}

/// Where the fleet is.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// The edge's gRPC address, such as <http://127.0.0.1:7071>; else .ailoop/run.json of this directory tells
    #[arg(long, env = "AILOOP_URL")]
    pub url: Option<String>,
    /// The token that the edge asks for, where it asks
    #[arg(long, env = "AILOOP_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// What the tools of a fleet in this process may touch.
#[derive(Debug, Clone, Args)]
pub struct Files {
    /// The directory that the file tools read [default: .]
    #[arg(long)]
    pub root: Option<PathBuf>,
    /// The directory that the file tools write [default: .ailoop/out]
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// `ailoop up`
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Files of the tools.
    #[command(flatten)]
    pub files: Files,
    /// The model of agents that name none [default: see README]
    #[arg(long)]
    pub model: Option<String>,
    /// A nats-server that runs already, instead of a private one
    #[arg(long, value_name = "URL", env = "AILOOP_NATS_URL")]
    pub nats: Option<String>,
    /// The address that the edge listens on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<IpAddr>,
    /// Port for WebSocket and HTTP; 0 picks a free one [default: 7070]
    #[arg(long, value_name = "PORT")]
    pub ws_port: Option<u16>,
    /// Port for gRPC; 0 picks a free one [default: 7071]
    #[arg(long, value_name = "PORT")]
    pub grpc_port: Option<u16>,
    /// Port of the private nats-server; -1 picks a free one
    #[arg(long, default_value_t = -1, value_name = "PORT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..=65535))]
    pub nats_port: i32,
}

/// `ailoop run`
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// What is asked; - reads it from stdin
    pub prompt: String,
    /// The agent, by key or first name
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The model, as in models.yaml, or provider/model
    #[arg(long, short)]
    pub model: Option<String>,
    /// Continue this session, or begin one of this name that can be continued
    #[arg(long, short, value_name = "ID")]
    pub session: Option<String>,
    /// Files of the tools.
    #[command(flatten)]
    pub files: Files,
    /// Longest time for the answer, questions to a person included, such as 90, 90s or 5m
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// Who answers when a person must approve something [default: you at the terminal; without one the command fails]
    #[arg(long, value_enum, value_name = "WHO")]
    pub approve: Option<ApproveArg>,
    /// Most steps for the answer
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub max_iterations: Option<u32>,
    /// What a new session says of itself.
    #[command(flatten)]
    pub settings: SessionSettings,
    /// Print every event as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// Settings of one session, over those of its agent and model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct SessionSettings {
    /// A parameter of requests to the model, such as temperature=0.2; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub param: Vec<(String, String)>,
    /// A value for {{{NAME}}} in prompts; may be repeated
    #[arg(long, value_name = "NAME=TEXT", value_parser = parse_pair)]
    pub prompt_param: Vec<(String, String)>,
    /// The prompt in the place of the agent's own
    #[arg(long, value_name = "TEXT")]
    pub system_prompt: Option<String>,
    /// What tools the model may call: auto, none, required or a tool's name; once for each step of a turn, from the first
    #[arg(long, value_name = "CHOICE")]
    pub tool_choice: Vec<String>,
    /// Switch a prompt feature on; may be repeated
    #[arg(long, value_name = "FEATURE")]
    pub feature: Vec<String>,
    /// Switch a prompt feature off; may be repeated
    #[arg(long, value_name = "FEATURE")]
    pub without: Vec<String>,
    /// Whether the loop goes on by itself: on, off, or the name of a template to go on by
    #[arg(long, value_name = "on|off|TEMPLATE")]
    pub continuation: Option<String>,
    /// Further continuation settings as a JSON object, such as {"limits": {"tokens": 50000}}
    #[arg(long, value_name = "JSON")]
    pub set: Option<String>,
}

/// A name and a value.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        Some(_) | None => Err("write it as NAME=VALUE".to_owned()),
    }
}

/// Who answers what a session asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApproveArg {
    /// Every tool call may run; questions, and asking for more at a limit, are declined
    All,
    /// Everything is declined
    None,
    /// Somebody else, by `ailoop approvals` in another terminal or by the API
    Wait,
}

/// `ailoop sessions`
#[derive(Debug, Clone, Args)]
pub struct SessionsArgs {
    /// Only those that are idle, running, paused or ended
    #[arg(long)]
    pub phase: Option<PhaseArg>,
    /// At most this many
    #[arg(long, default_value_t = 100)]
    pub limit: u32,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// A session's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PhaseArg {
    /// Waiting for the user.
    Idle,
    /// In a turn.
    Running,
    /// No new call starts.
    Paused,
    /// Over.
    Ended,
}

impl PhaseArg {
    /// As in the client API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

/// `ailoop watch`
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// The session
    pub session: String,
    /// Begin with this event's seq
    #[arg(long, default_value_t = 1, value_name = "SEQ")]
    pub from: u64,
    /// Print every event as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop send`
#[derive(Debug, Clone, Args)]
pub struct SendArgs {
    /// The session
    pub session: String,
    /// What is said; - reads it from stdin
    pub text: String,
    /// How it meets a running turn
    #[arg(long, value_enum, default_value_t = ModeArg::Steer)]
    pub mode: ModeArg,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// How a message meets a running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// The model reads it at the start of its next step
    Steer,
    /// It begins the next turn
    Queue,
    /// It cancels the model call in flight
    Interrupt,
}

impl ModeArg {
    /// As in the client API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Queue => "queue",
            Self::Interrupt => "interrupt",
        }
    }
}

/// `ailoop pause`, `resume` and `stop`
#[derive(Debug, Clone, Args)]
pub struct ControlArgs {
    /// The session
    pub session: String,
    /// Why, for whoever watches the session; it stays in its log
    #[arg(long, default_value = "")]
    pub reason: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop fork`
#[derive(Debug, Clone, Args)]
pub struct ForkArgs {
    /// The session whose transcript is taken over
    pub session: String,
    /// The last slot of its log that counts [default: its end]
    #[arg(long, value_name = "SLOT")]
    pub at: Option<u64>,
    /// The new session's agent, by key or first name [default: that of the older session]
    #[arg(long, short)]
    pub agent: Option<String>,
    /// Its model, as in models.yaml, or provider/model
    #[arg(long, short)]
    pub model: Option<String>,
    /// What is asked in it; - reads it from stdin. Without, it waits for `ailoop send`
    #[arg(long, short)]
    pub prompt: Option<String>,
    /// Its name [default: one is made]
    #[arg(long = "as", value_name = "ID")]
    pub name: Option<String>,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop approvals`
#[derive(Debug, Clone, Args)]
pub struct ApprovalsArgs {
    /// What to do; lists where nothing is said.
    #[command(subcommand)]
    pub command: Option<ApprovalsCommand>,
    /// Only those of this session
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// What to do with what waits.
#[derive(Debug, Clone, Subcommand)]
pub enum ApprovalsCommand {
    /// Print everything about one, with all of its arguments
    Show(GateArgs),
    /// Let the call run, or the turn go on
    Approve(ApproveArgs),
    /// Refuse it; the model reads the note
    Deny(DenyArgs),
    /// Answer a question of `ask_user`
    Answer(ReplyArgs),
}

/// Which one.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// The session
    pub session: String,
    /// What waits, as the list shows it: what is answered is what was looked at
    pub gate: String,
    /// Act only on the arguments with this hash, or with one that begins so
    #[arg(long, value_name = "SHA256")]
    pub hash: Option<String>,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop approvals approve`
#[derive(Debug, Clone, Args)]
pub struct ApproveArgs {
    /// Which one.
    #[command(flatten)]
    pub gate: GateArgs,
    /// Run the call with these arguments instead: a JSON object, or @FILE
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// A note for the session's log
    #[arg(long, default_value = "")]
    pub note: String,
}

/// `ailoop approvals deny`
#[derive(Debug, Clone, Args)]
pub struct DenyArgs {
    /// Which one.
    #[command(flatten)]
    pub gate: GateArgs,
    /// Why; the model reads it
    #[arg(long, default_value = "")]
    pub note: String,
}

/// `ailoop approvals answer`
#[derive(Debug, Clone, Args)]
pub struct ReplyArgs {
    /// Which one.
    #[command(flatten)]
    pub gate: GateArgs,
    /// The answer; - reads it from stdin
    #[arg(long, short, value_name = "TEXT")]
    pub text: String,
}

/// `ailoop mail`
#[derive(Debug, Clone, Args)]
pub struct MailArgs {
    /// What to do; lists where nothing is said.
    #[command(subcommand)]
    pub command: Option<MailCommand>,
    /// Whose mails: an agent's key, or a name of your own
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// What to do with mails.
#[derive(Debug, Clone, Subcommand)]
pub enum MailCommand {
    /// Send a mail to an agent, which reads it when a session of it looks
    Send(MailSendArgs),
    /// Answer a mail and close it
    Reply(MailReplyArgs),
    /// Close a mail without an answer
    Close(MailCloseArgs),
}

/// `ailoop mail send`
#[derive(Debug, Clone, Args)]
pub struct MailSendArgs {
    /// An agent's key or first name
    pub to: String,
    /// What it says; - reads it from stdin
    pub text: String,
    /// What it is about
    #[arg(long, short)]
    pub subject: String,
    /// From which mailbox: answers come there
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop mail reply`
#[derive(Debug, Clone, Args)]
pub struct MailReplyArgs {
    /// The mail, as the list shows it
    pub id: String,
    /// The answer; - reads it from stdin
    pub text: String,
    /// In which mailbox the mail is
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop mail close`
#[derive(Debug, Clone, Args)]
pub struct MailCloseArgs {
    /// The mail, as the list shows it
    pub id: String,
    /// In which mailbox the mail is
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop tools`
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ToolsArgs {
    /// What to do with one of them.
    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop tools <command>`
#[derive(Debug, Clone, Subcommand)]
pub enum ToolsCommand {
    /// Show all that a tool says of itself, and what follows from it
    Describe(ToolsDescribeArgs),
    /// Call a tool as the fleet would, and print its result; asks NATS itself, past the loop and its approvals
    Try(ToolsTryArgs),
    /// Show tools as they come, change and go, and calls as they begin and end; asks NATS itself
    Watch(ToolsWatchArgs),
    /// Check that a tool keeps the protocol, in whatever language: calls it, and asks NATS itself
    Verify(ToolsVerifyArgs),
}

/// `ailoop tools describe`
#[derive(Debug, Clone, Args)]
pub struct ToolsDescribeArgs {
    /// The tool
    pub tool: String,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: Target,
}

/// `ailoop tools try`
#[derive(Debug, Clone, Args)]
pub struct ToolsTryArgs {
    /// The tool
    pub tool: String,
    /// Its arguments: a JSON object, @file to read one from a file, - from stdin
    #[arg(long, default_value = "{}", value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    pub args: String,
    /// Send arguments that do not fit the tool's schema, too
    #[arg(long)]
    pub unchecked: bool,
    /// How long its answer is waited for, such as 90, 90s or 5m [default: as the tool says]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// The agent that seems to call
    #[arg(long, short, default_value = "try")]
    pub agent: String,
    /// Whose tool, and where NATS is.
    #[command(flatten)]
    pub nats: NatsTarget,
}

/// `ailoop tools watch`
#[derive(Debug, Clone, Args)]
pub struct ToolsWatchArgs {
    /// Only this tool
    pub tool: Option<String>,
    /// Print lines of JSON
    #[arg(long)]
    pub json: bool,
    /// Whose tools, and where NATS is.
    #[command(flatten)]
    pub nats: NatsTarget,
}

/// `ailoop tools verify`
#[derive(Debug, Clone, Args)]
pub struct ToolsVerifyArgs {
    /// The tool
    pub tool: String,
    /// Arguments that ought to work, as `ailoop tools try` takes them; else some are made from the schema
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    pub args: Option<String>,
    /// Call a tool that takes effect without asking first
    #[arg(long, short)]
    pub yes: bool,
    /// How long an answer is waited for, such as 90, 90s or 5m [default: as the tool says, 30 s at most]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Whose tool, and where NATS is.
    #[command(flatten)]
    pub nats: NatsTarget,
}

/// Where NATS is, and whose subjects are meant.
#[derive(Debug, Clone, Args)]
pub struct NatsTarget {
    /// Whose tools
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// The address of NATS, such as <nats://127.0.0.1:4222>; else .ailoop/run.json tells, else the configuration
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
}

/// Reads `90`, `90s`, `5m` or `1h`; zero is refused.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 90, 90s, 5m or 1h");
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3_600),
        _ => None,
    };
    seconds.filter(|s| (1..=31_536_000).contains(s)).map(Duration::from_secs).ok_or_else(wrong)
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
    fn times_are_read() {
        for (text, seconds) in
            [("90", Some(90)), ("90s", Some(90)), ("5m", Some(300)), ("1h", Some(3_600)), ("0", None), ("", None)]
        {
            assert_eq!(parse_duration(text).ok(), seconds.map(Duration::from_secs), "{text}");
        }
        for wrong in ["m", "5 m", "-1", "1.5s", "5d", "99999999999999999999s", "9999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_negative_port_is_no_flag() {
        let cli = Cli::try_parse_from(["ailoop", "up", "--nats-port", "-1"]).unwrap();
        assert!(matches!(cli.command, Command::Up(UpArgs { nats_port: -1, .. })));
    }
}
