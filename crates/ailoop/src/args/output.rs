//! Output format of a command.

use clap::{Args, ValueEnum};

/// Output format of a command.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// The format of the output
    #[arg(long = "output", short = 'o', value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Table)]
    pub format: OutputFormat,
    /// Print JSON: the same as `--output json`
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

/// A format of output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people, cut to the width of the terminal
    #[default]
    Table,
    /// As table, with everything, however wide it is
    Wide,
    /// One line of JSON for each entry, or for the whole result
    Json,
}

impl OutputArgs {
    /// Whether a program reads the output.
    pub fn is_json(&self) -> bool {
        self.json || self.format == OutputFormat::Json
    }

    /// Whether nothing is cut.
    pub fn is_wide(&self) -> bool {
        self.format == OutputFormat::Wide
    }
}
