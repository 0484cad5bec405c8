//! `ailoop budgets`.

use clap::{Args, Subcommand};

use super::output::OutputArgs;
use super::target::FleetTarget;

/// Arguments of `ailoop budgets`.
#[derive(Debug, Clone, Args)]
pub struct BudgetsArgs {
    /// The subcommand; without one the command lists.
    #[command(subcommand)]
    pub command: Option<BudgetsCommand>,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Subcommands of `ailoop budgets`.
#[derive(Debug, Clone, Subcommand)]
pub enum BudgetsCommand {
    /// Forget what was spent and reserved in a budget, so that its period begins again
    Reset(BudgetResetArgs),
}

/// Arguments of `ailoop budgets reset`.
#[derive(Debug, Clone, Args)]
pub struct BudgetResetArgs {
    /// The name of the budget, as in the list
    pub budget: String,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
