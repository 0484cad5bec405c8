//! `ailoop prompt`: shows composed prompts, without a fleet.

use contract::command::Features;
use similar::{ChangeTag, TextDiff};
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use crate::args::{PromptCommand, PromptShowArgs};
use crate::compose::{compose_agent, read_catalog};
use crate::output::finish;

pub(super) fn run(command: &PromptCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        PromptCommand::Show(args) => show_prompt(args, terminal),
    }
}

fn show_prompt(args: &PromptShowArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let catalog = read_catalog(terminal)?;
    let features = Features { enable: args.feature.clone(), disable: args.without.clone() };
    let composed = compose_agent(&catalog, &args.agent, features)?;
    for warning in &composed.warnings {
        terminal.note(Style::Warn, &format!("warning: {warning}"));
    }
    if !args.diff {
        let size = format!("{} bytes, fingerprint {}", composed.prompt.len(), composed.fingerprint);
        terminal.note(Style::Plain, &size);
        return Ok(finish(terminal.print_data(&format!("{}\n", composed.prompt.trim_end()))));
    }
    let default = compose_agent(&catalog, &args.agent, Features::default())?;
    Ok(finish(terminal.print_data(&diff_lines(&default.prompt, &composed.prompt))))
}

/// Returns the lines that only one of two texts has, with `-` or `+` before them. Common lines are left out, since
/// features add and remove whole blocks of a prompt.
fn diff_lines(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let diff = TextDiff::from_slices(&before, &after);
    let changes = diff.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    changes.flat_map(|change| [change.tag().to_string(), change.value().to_owned(), "\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_lines_two_texts_lines_of_one_side_are_returned() {
        assert_eq!(diff_lines("a\nb\nc", "a\nc\nd"), "-b\n+d\n");
        assert_eq!(diff_lines("a", "a"), "");
        assert_eq!(diff_lines("", "x\ny"), "+x\n+y\n");
    }
}
