//! `ailoop move`. It uses NATS directly, like `ailoop export`: no client of the edge may write commits.

use contract::ErrorCode;
use contract::subject::SessionKey;
use loop_orchestrator::{Clock as _, SystemClock};
use store_admin::move_session::{self, MoveOutcome};
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::cell_table::{cell_table, find_cell};
use super::cells::{ReachedCells, connect_all};
use super::session_reference::parse_whole_id;
use crate::args::MoveArgs;
use crate::compose::parse_tenant;
use crate::output::finish;

pub(super) async fn move_session(args: &MoveArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let key = SessionKey { tenant: parse_tenant(&args.tenant)?, session: parse_whole_id(&args.session)? };
    let table = cell_table()?;
    find_cell(&table, &args.to)?;
    let ReachedCells { cells, mut failures } = connect_all(&table, &key).await?;
    if let Some(at) = failures.iter().position(|(name, _)| *name == args.to) {
        return Err(failures.swap_remove(at).1);
    }
    for (name, _) in &failures {
        terminal.note(Style::Warn, &format!("cell {name} cannot be reached: the session is looked for in the others"));
    }
    let moved = Box::pin(move_session::move_session(&cells, &key, &args.to, &|| SystemClock.now())).await;
    for cell in &cells {
        cell.bus.close().await;
    }
    let moved = match (moved, failures.into_iter().next()) {
        // It may be in the cell that cannot be reached.
        (Err(failure), Some((_, missing))) if *failure.code() == ErrorCode::UnknownSession => return Err(missing),
        (moved, _) => moved?,
    };
    let text = match moved {
        MoveOutcome::Moved { from } => format!("{}\tmoved from {from} to {}\n", key.session, args.to),
        MoveOutcome::WasThere => format!("{}\tis in {}\n", key.session, args.to),
    };
    Ok(finish(terminal.print_data(&text)))
}
