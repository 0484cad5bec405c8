//! `ailoop bootstrap`: creates the streams once, so that services need no permission to do so.

use bus::NatsConfig;
use configuration::Settings;
use contract::CellName;
use service::common::CommonSettings;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::cell_table::{cell_table, find_cell};
use super::fleet_location::with_bus;
use crate::output::finish;

pub(super) async fn ensure_streams(
    fix: bool,
    cell: Option<&CellName>,
    terminal: &Terminal,
) -> Result<Exit, CommandFailure> {
    let table = cell_table()?;
    let chosen = |name: &CellName| cell.is_none_or(|cell| cell == name);
    if let Some(cell) = cell {
        find_cell(&table, cell)?;
    }
    if table.cells().is_empty() {
        return ensure(fix, &CommonSettings::read(&Settings::read(None)?)?.nats, terminal).await;
    }
    let mut exit = Exit::Done;
    for config in table.cells().iter().filter(|config| chosen(&config.name)) {
        terminal.note(Style::Plain, &format!("cell {}", config.name));
        exit = ensure(fix, &config.nats, terminal).await.map_err(|failure| failure.in_cell(&config.name))?;
    }
    Ok(exit)
}

async fn ensure(fix: bool, nats: &NatsConfig, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    with_bus(nats, async |bus| {
        let ensured = if fix { bus.repair().await } else { bus.ensure().await };
        ensured.map_err(|error| CommandFailure::from(error).at(nats.shown_url()))
    })
    .await?;
    Ok(finish(terminal.print_data("every stream, consumer and bucket is there\n")))
}
