//! `ailoop models` and `ailoop probe-model`.

use clap::Args;

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
