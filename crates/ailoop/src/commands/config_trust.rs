//! `ailoop config trust`: lets the configuration of a directory count that nobody named.

use std::path::Path;

use configuration::ConfigError;
use configuration::trust::{TrustStore, find_risks};
use contract::ErrorCode;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use crate::args::TrustArgs;
use crate::output::finish;

pub(super) fn trust_directory(args: &TrustArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let TrustArgs { dir, list, remove } = args;
    let mut store = TrustStore::read()?;
    if *list {
        let line =
            |(path, is_same): &(&str, bool)| format!("{path}\t{}\n", if *is_same { "trusted" } else { "changed" });
        return Ok(finish(terminal.print_data(&store.list().iter().map(line).collect::<String>())));
    }
    if *remove {
        let was_trusted = store.remove(dir)?;
        let text = if was_trusted { "is trusted no more" } else { "was not trusted" };
        return Ok(finish(terminal.print_data(&format!("{} {text}\n", dir.display()))));
    }
    check_directory(dir)?;
    let risks = find_risks(dir);
    for risk in &risks {
        terminal.note(Style::Plain, risk);
    }
    let path = store.add(dir)?;
    let settings = if risks.is_empty() { "none of its settings needs it" } else { "with the settings above" };
    Ok(finish(terminal.print_data(&format!("{path} is trusted, {settings}, until one of its files changes\n"))))
}

fn check_directory(dir: &Path) -> Result<(), CommandFailure> {
    if dir.is_dir() {
        return Ok(());
    }
    Err(CommandFailure::usage(ErrorCode::BadConfig, ConfigError::NoDirectory(dir.to_owned()).to_string())
        .help("run the command in the directory of the project, or name its configuration directory"))
}
