//! Commands about the configuration of a directory: `config`, `prompt` and `patterns`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use config_check::ConfigFile;

use super::target::FleetTarget;

/// An agent, a model and a tenant.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// The agent, by key or first name [default: the default agent]
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The model, as in models.yaml, or provider/model [default: the agent's]
    #[arg(long, short)]
    pub model: Option<String>,
    /// The tenant, as in agents.yaml
    #[arg(long, default_value = "default")]
    pub tenant: String,
}

/// Arguments of `ailoop init`.
#[derive(Debug, Clone, Args)]
pub struct InitArgs {
    /// The name of the agent; its first word is its key
    #[arg(default_value = "Anna the Assistant")]
    pub name: String,
}

/// Subcommands of `ailoop config`.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Check ailoop.yaml, agents.yaml, models.yaml, prompts and the environment, and show each mistake with its place
    Check(CheckArgs),
    /// Print the model, the prompt components and every setting of an agent's new session, with its origin
    Explain(ExplainArgs),
    /// Print the JSON Schema of a configuration file, for editors
    Schema(SchemaArgs),
    /// Let ./config count, whose settings can start programs, use keys or send prompts elsewhere; it is not used before
    Trust(TrustArgs),
}

/// Arguments of `ailoop config trust`.
#[derive(Debug, Clone, Args)]
pub struct TrustArgs {
    /// The configuration directory to trust
    #[arg(default_value = "config", value_name = "DIR")]
    pub dir: PathBuf,
    /// Print the trusted directories
    #[arg(long, conflicts_with_all = ["remove", "dir"])]
    pub list: bool,
    /// Trust the directory no more
    #[arg(long)]
    pub remove: bool,
}

/// Arguments of `ailoop config check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Also ask a running fleet for its tools: agents may name no others
    #[arg(long)]
    pub fleet: bool,
    /// The fleet that is asked.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop config explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// The agent that is explained.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ailoop config schema`.
#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    /// The file; without one the schemas of all files are printed as one object
    pub file: Option<ConfigFile>,
}

/// Subcommands of `ailoop prompt`.
#[derive(Debug, Clone, Subcommand)]
pub enum PromptCommand {
    /// Print an agent's system prompt, without the tools, which only a fleet knows
    Show(PromptShowArgs),
}

/// Arguments of `ailoop prompt show`.
#[derive(Debug, Clone, Args)]
pub struct PromptShowArgs {
    /// The agent whose prompt is shown.
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

/// Subcommands of `ailoop patterns`.
#[derive(Debug, Clone, Subcommand)]
pub enum PatternsCommand {
    /// Show whether the loop would continue after a reply, and why; needs no fleet
    Test(PatternsTestArgs),
    /// Propose patterns from replies after which a user had to ask the agent to go on; applies none
    Suggest(PatternsSuggestArgs),
}

/// Arguments of `ailoop patterns test`.
#[derive(Debug, Clone, Args)]
pub struct PatternsTestArgs {
    /// The text of the reply
    pub text: Option<String>,
    /// The agent whose patterns are tested.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// A file of replies, one JSON string or object per line: `text`, and `continues` for the expected decision
    #[arg(long, conflicts_with = "text", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print one line of JSON for each entry
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ailoop patterns suggest`.
#[derive(Debug, Clone, Args)]
pub struct PatternsSuggestArgs {
    /// The agent whose replies are read, in its newest 200 sessions.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
