//! `ailoop models` and `ailoop probe-model`.

use clap::Args;

use super::output::OutputArgs;

/// Arguments of `ailoop models`.
#[derive(Debug, Clone, Args)]
pub struct ModelsArgs {
    /// A model's id, or `<provider>/<its name for a model>` [default: all models of models.yaml]
    pub model: Option<String>,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `ailoop probe-model`.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// A model's id, or `<provider>/<its name for a model>`
    pub model: String,
    /// The id of the entry [default: the model as given]
    #[arg(long)]
    pub id: Option<String>,
    /// Write the entry into models.yaml; it replaces an existing entry with its prices and fallbacks
    #[arg(long)]
    pub write: bool,
}
