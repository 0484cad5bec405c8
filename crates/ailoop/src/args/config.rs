//! Commands about the configuration of a directory: `config`, `prompt` and `patterns`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::target::FleetTarget;
use crate::schemas::ConfigFile;

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
    pub target: FleetTarget,
}
