//! `ailoop init` and `ailoop tools new`: write files to begin with.

use std::path::{Path, PathBuf};

use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use crate::args::{InitArgs, ToolsNewArgs};
use crate::scaffold::{write_configuration, write_python_tool};

pub(super) fn write_project(args: &InitArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    note_written(&write_configuration(Path::new(""), &args.name)?, terminal);
    terminal.note(Style::Plain, "next: change the prompt, then\n  ailoop config check\n  ailoop chat");
    Ok(Exit::Done)
}

pub(super) fn write_tool(args: &ToolsNewArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let name = &args.python;
    note_written(&write_python_tool(Path::new(""), name)?, terminal);
    terminal.note(
        Style::Plain,
        &format!(
            "next: pip install \"<ailoop>/sdk/python[tools]\", where <ailoop> is a clone of its repository, then\n  \
             python {name}.py\n  ailoop tools verify {name}"
        ),
    );
    Ok(Exit::Done)
}

fn note_written(files: &[PathBuf], terminal: &Terminal) {
    for file in files {
        terminal.note(Style::Good, &format!("wrote {}", file.display()));
    }
}
