//! `ailoop move`.

use clap::Args;
use contract::CellName;

const EXAMPLES: &str = "\
Examples:
  ailoop move 01a2143f --to eu-2";

/// Arguments of `ailoop move`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct MoveArgs {
    /// The id of the session
    pub session: String,
    /// The cell that will have the session, by its name in `edge.cells`
    #[arg(long, value_name = "CELL")]
    pub to: CellName,
    /// The tenant of the session
    #[arg(long, default_value = "default")]
    pub tenant: String,
}
