//! The cells that commands address which use NATS directly.

use bus::{Bus, NatsConfig, Read};
use contract::subject::SessionKey;
use contract::{CellName, ErrorCode, TenantId};
use edge::{CellConfig, CellTable};
use store_admin::move_session::CellBus;
use terminal::failure::CommandFailure;

use super::cell_table::{cell_table, find_cell};
use super::fleet_location::nats_config;
use crate::args::NatsArgs;

/// The cells of a tenant that can be reached, and the failures of the others.
pub(super) struct ReachedCells {
    pub(super) cells: Vec<CellBus>,
    pub(super) failures: Vec<(CellName, CommandFailure)>,
}

/// Connects to every cell that the tenant of a session uses.
pub(super) async fn connect_all(table: &CellTable, key: &SessionKey) -> Result<ReachedCells, CommandFailure> {
    let mut reached = ReachedCells { cells: Vec::new(), failures: Vec::new() };
    for name in table.rank(key) {
        let config = find_cell(table, name)?;
        match Bus::connect(&config.nats).await {
            Ok(bus) => reached.cells.push(CellBus { name: name.clone(), bus }),
            Err(error) => {
                let failure = CommandFailure::from(error).at(config.nats.shown_url()).in_cell(name);
                reached.failures.push((name.clone(), failure));
            }
        }
    }
    Ok(reached)
}

/// Returns how to reach NATS in the cell that has a session, unless the arguments say where NATS is.
pub(super) async fn nats_of_session(args: &NatsArgs, key: &SessionKey) -> Result<NatsConfig, CommandFailure> {
    let table = cell_table()?;
    if args.nats.is_some() || args.cell.is_some() || table.cells().len() < 2 {
        return nats_config(args);
    }
    let mut missing: Option<CommandFailure> = None;
    for name in table.rank(key) {
        let config = find_cell(&table, name)?;
        match has_session(config, key).await {
            Ok(true) => return Ok(config.nats.clone()),
            Ok(false) => {}
            Err(failure) => missing = missing.or(Some(failure.in_cell(name))),
        }
    }
    let unknown = || CommandFailure::new(ErrorCode::UnknownSession, format!("there is no session {}", key.session));
    Err(missing.unwrap_or_else(unknown))
}

/// Returns how to reach NATS in each cell that a tenant uses, unless the arguments say where NATS is.
pub(super) fn nats_of_tenant(args: &NatsArgs, tenant: &TenantId) -> Result<Vec<NatsConfig>, CommandFailure> {
    let table = cell_table()?;
    if args.nats.is_some() || args.cell.is_some() || table.cells().len() < 2 {
        return Ok(vec![nats_config(args)?]);
    }
    table.cells_of(tenant).into_iter().map(|name| Ok(find_cell(&table, name)?.nats.clone())).collect()
}

/// Whether the log of a cell has a session, and not only a pointer to another cell.
async fn has_session(config: &CellConfig, key: &SessionKey) -> Result<bool, CommandFailure> {
    let at = |error: bus::BusError| CommandFailure::from(error).at(config.nats.shown_url());
    let bus = Bus::connect(&config.nats).await.map_err(at)?;
    let head = bus.head(key, Read::Leader).await;
    bus.close().await;
    Ok(head.map_err(at)?.is_some_and(|head| head.meta.moved.is_none()))
}
