//! `ailoop budgets`: what the tenant and its agents have spent, and of how much.

use contract::budget::BudgetStatus;
use fleet_connection::client::{SessionsApi, read_answer};
use proto::{ListBudgetsRequest, ResetBudgetRequest};
use serde_json::json;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::table::{Table, TableColumn};
use terminal::{Style, Terminal};

use super::fleet_location::connect;
use crate::args::{BudgetResetArgs, BudgetsArgs, BudgetsCommand};
use crate::output::{finish, json_lines, print_table};

pub(super) async fn run(args: &BudgetsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match &args.command {
        None => list(args, terminal).await,
        Some(BudgetsCommand::Reset(args)) => reset(args, terminal).await,
    }
}

async fn list(args: &BudgetsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let reply = client.call(ListBudgetsRequest {}, SessionsApi::list_budgets).await?;
    let budgets: Vec<BudgetStatus> = reply.budgets.iter().map(read_answer).collect::<Result<_, _>>()?;
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&json_lines(budgets.iter().map(|budget| json!(budget))))));
    }
    if budgets.is_empty() {
        terminal.note(Style::Plain, "models.yaml has no budget of this tenant, or none that was used");
        return Ok(Exit::Done);
    }
    Ok(finish(print_table(&to_table(&budgets), &args.output, terminal)))
}

async fn reset(args: &BudgetResetArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    client.call(ResetBudgetRequest { budget: args.budget.clone() }, SessionsApi::reset_budget).await?;
    terminal.note(Style::Good, &format!("budget {} begins again with nothing spent", args.budget));
    Ok(Exit::Done)
}

fn to_table(budgets: &[BudgetStatus]) -> Table {
    let row = |budget: &BudgetStatus| {
        let usd = budget.usd_max.map_or_else(String::new, |max| format!("{:.4} of {max}", budget.usd_spent));
        let count = format::count;
        let tokens = budget
            .tokens_max
            .map_or_else(String::new, |max| format!("{} of {}", count(budget.tokens_spent), count(max)));
        let reserved = if budget.running == 0 {
            String::new()
        } else {
            let calls = format::plural(budget.running, "call");
            format!("${:.4} and {} tokens by {calls}", budget.usd_reserved, count(budget.tokens_reserved))
        };
        let spent = format!("{:.0} %", budget.spent_ratio() * 100.0);
        vec![budget.budget.clone(), spent, usd, tokens, reserved, budget.ends.to_string()]
    };
    Table::new(&[
        TableColumn::name("BUDGET"),
        TableColumn::number("SPENT"),
        TableColumn::name("USD"),
        TableColumn::name("TOKENS").optional(1),
        TableColumn::text("RESERVED").optional(3),
        TableColumn::name("ENDS").optional(2),
    ])
    .with_rows(budgets.iter().map(row))
}
