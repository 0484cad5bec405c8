//! `ailoop version`: prints what this binary was built from.

use terminal::Terminal;
use terminal::failure::Exit;

use crate::args::VersionArgs;
use crate::output::finish;
use crate::version;

pub(super) fn print_version(args: VersionArgs, terminal: &Terminal) -> Exit {
    let printed = if args.json {
        terminal.print_json(&format!("{}\n", version::to_json()))
    } else {
        terminal.print_data(&version::describe())
    };
    finish(printed)
}
