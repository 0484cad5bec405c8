//! The table of cells of the configuration: the same as that of the edge.

use configuration::Settings;
use contract::{CellName, ErrorCode};
use edge::{CellConfig, CellTable, EdgeConfig};
use terminal::failure::CommandFailure;

/// Reads the table of the configuration. It is empty if there is none.
pub(super) fn cell_table() -> Result<CellTable, CommandFailure> {
    let config: EdgeConfig = Settings::read(None)?.section("edge")?;
    Ok(config.cell_table()?)
}

/// Finds a cell of the table by its name.
pub(super) fn find_cell<'a>(table: &'a CellTable, name: &CellName) -> Result<&'a CellConfig, CommandFailure> {
    table.find(name).ok_or_else(|| {
        let names: Vec<&str> = table.names().map(CellName::as_str).collect();
        let message = format!("there is no cell {name}; edge.cells has [{}]", names.join(", "));
        CommandFailure::usage(ErrorCode::BadRequest, message)
    })
}
