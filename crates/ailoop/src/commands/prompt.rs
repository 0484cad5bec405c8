//! `ailoop prompt`: shows composed prompts, without a fleet.

use contract::command::Features;

use super::output::finish;
use crate::args::{PromptCommand, PromptShowArgs};
use crate::compose::{compose_agent, read_catalog};
use crate::failure::{CommandFailure, Exit};
use crate::terminal::{Style, Terminal};

pub(super) fn run(command: &PromptCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        PromptCommand::Show(args) => show_prompt(args, terminal),
    }
}

fn show_prompt(args: &PromptShowArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let catalog = read_catalog()?;
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

/// Returns the lines that only one of two texts has, with `-` or `+` before them. Common lines are left out, since features
/// add and remove whole blocks of a prompt.
fn diff_lines(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    // Length of the longest common subsequence from each pair of lines on.
    let mut common = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for (i, old) in before.iter().enumerate().rev() {
        for (j, new) in after.iter().enumerate().rev() {
            common[i][j] = if old == new { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, String::new());
    let mut line = |sign: char, text: &str| out.extend([sign.to_string().as_str(), text, "\n"]);
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || (i < before.len() && common[i + 1][j] >= common[i][j + 1]) {
            line('-', before[i]);
            i += 1;
        } else {
            line('+', after[j]);
            j += 1;
        }
    }
    out
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
