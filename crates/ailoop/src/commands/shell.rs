//! `ailoop completion` and `ailoop man`: what a shell and `man` know of this command.

use clap::Command;
use clap_complete::Shell;
use clap_complete::env::Shells;
use contract::ErrorCode;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use crate::args::ManArgs;
use crate::help;
use crate::output::finish;

/// The variable by which a completion script asks this command for candidates.
const COMPLETION_VARIABLE: &str = "COMPLETE";

/// Prints the script with which a shell asks this command for candidates.
pub(super) fn print_completion(shell: Shell, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let failed = |why: String| CommandFailure::new(ErrorCode::Internal, format!("no completion for {shell}: {why}"));
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).ok_or_else(|| failed("it is unknown".to_owned()))?;
    let mut script = Vec::new();
    completer
        .write_registration(COMPLETION_VARIABLE, "ailoop", "ailoop", "ailoop", &mut script)
        .map_err(|error| failed(error.to_string()))?;
    Ok(finish(terminal.print_data(&String::from_utf8_lossy(&script))))
}

/// Prints the manual page of the command, or writes a page for each command to a directory.
pub(super) fn write_manual(args: &ManArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    // The groups of the help are a template for terminals.
    let command: Command = help::command().help_template("{about}");
    let failed = |error: std::io::Error| {
        CommandFailure::new(ErrorCode::BadConfig, format!("the manual pages cannot be written: {error}"))
    };
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(failed)?;
        return Ok(finish(terminal.print_data(&String::from_utf8_lossy(&page))));
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(command, dir).map_err(failed)?;
    terminal.note(Style::Good, &format!("wrote the manual pages to {}", dir.display()));
    Ok(Exit::Done)
}
