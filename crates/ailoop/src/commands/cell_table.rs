//! The table of cells of the configuration: the same as that of the edge.

use configuration::Settings;
use contract::{CellName, Coded as _, ErrorCode};
use edge::{CellConfig, CellTable, EdgeConfig};

use crate::failure::CommandFailure;

/// Reads the table of the configuration. It is empty if there is none.
pub(super) fn cell_table() -> Result<CellTable, CommandFailure> {
    let config: EdgeConfig = Settings::read(None)?.section("edge")?;
    config.cell_table().map_err(|error| CommandFailure::new(error.code(), error.to_string()))
}

/// Finds a cell of the table by its name.
pub(super) fn find_cell<'a>(table: &'a CellTable, name: &CellName) -> Result<&'a CellConfig, CommandFailure> {
    table.find(name).ok_or_else(|| {
        let names: Vec<&str> = table.names().map(CellName::as_str).collect();
        let message = format!("there is no cell {name}; edge.cells has [{}]", names.join(", "));
        CommandFailure::usage(ErrorCode::BadRequest, message)
    })
}
