//! The help of the command: its commands in groups, and topics that are no commands.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};
use contract::ErrorCode;
use session_view::render::render_text;
use terminal::failure::{CommandFailure, Exit};
use terminal::{ReplyFormat, Terminal};

use crate::args::Cli;
use crate::output::finish;

/// The commands in the order of the help, by what they are for.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["up", "run", "chat", "init", "doctor"]),
    (
        "Sessions",
        &[
            "sessions",
            "watch",
            "transcript",
            "send",
            "approvals",
            "mail",
            "pause",
            "resume",
            "cancel",
            "stop",
            "fork",
            "configure",
        ],
    ),
    ("What happened", &["describe", "trace", "decisions", "replay", "stats", "budgets"]),
    ("Fleet", &["status", "top", "queues", "dead", "repair"]),
    ("Agents, models and tools", &["config", "prompt", "patterns", "models", "probe-model", "tools"]),
    ("Data", &["export", "import", "move", "backup", "restore"]),
    ("Access", &["context", "api-key", "nats-auth"]),
    ("Services", &["orchestrator", "gateway", "executor", "tool-host", "composer", "edge", "bootstrap", "acp"]),
    ("About", &["help", "completion", "man", "version"]),
];
/// Topics of `ailoop help`: name, what it is about, and text as Markdown.
const TOPICS: &[(&str, &str, &str)] = &[
    ("start", "the first session, with and without a model", include_str!("start.md")),
    ("continue", "how sessions are named, continued and followed", include_str!("continue.md")),
    ("scripts", "stdin, output, approvals and exit codes in scripts and CI", include_str!("scripts.md")),
    ("environment", "variables that the commands read", include_str!("environment.md")),
    ("files", "what is read and written, and where", include_str!("files.md")),
];

/// Returns the command line with its commands in groups.
pub fn command() -> Command {
    let command = Cli::command();
    let groups = format_groups(&command);
    let template = format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}{{after-help}}");
    command.help_template(template)
}

/// Prints the help of a command or a topic.
pub(crate) fn print_help(words: &[String], terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut command = command();
    command.build();
    if words.is_empty() {
        return Ok(finish(terminal.print_data(&command.render_help().to_string())));
    }
    if let [word] = words
        && let Some((.., text)) = TOPICS.iter().find(|(name, ..)| name == word)
    {
        let layout = terminal.layout();
        // A topic is read by people in a file, too.
        let reply = ReplyFormat::Markdown { has_styles: terminal.has_styles() };
        let outputs = render_text(terminal::Layout { reply, ..layout }, text);
        return Ok(finish(terminal.print_outputs(&outputs)));
    }
    let mut found = &mut command;
    for word in words {
        let Some(next) = found.find_subcommand_mut(word) else { return Err(unknown_topic(words)) };
        found = next;
    }
    Ok(finish(terminal.print_data(&found.render_long_help().to_string())))
}

fn unknown_topic(words: &[String]) -> CommandFailure {
    let topics: Vec<&str> = TOPICS.iter().map(|(name, ..)| *name).collect();
    let message = format!("there is no command or topic {:?}", words.join(" "));
    CommandFailure::usage(ErrorCode::BadRequest, message)
        .help(format!("`ailoop --help` lists the commands; the topics are {}", topics.join(", ")))
}

fn format_groups(command: &Command) -> String {
    let about = |name: &str| {
        let found = command.get_subcommands().find(|command| command.get_name() == name);
        found.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default()
    };
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter()).chain(TOPICS.iter().map(|(name, ..)| name));
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for name in *names {
            let _ = writeln!(text, "  {name:<width$}  {}", about(name));
        }
        text.push('\n');
    }
    text.push_str("Topics of `ailoop help`:\n");
    for (name, about, _) in TOPICS {
        let _ = writeln!(text, "  {name:<width$}  {about}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Cli::command();
        let known: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), known);
        assert_eq!(listed.len(), known.len(), "a command is in two groups");
    }

    #[test]
    fn lines_of_the_help_fit_100_columns() {
        let text = command().render_help().to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn topics_are_no_commands_and_name_commands_that_exist() {
        let command = command();
        let is_command = |name: &str| {
            command
                .get_subcommands()
                .any(|known| known.get_name() == name || known.get_all_aliases().any(|alias| alias == name))
        };
        for (name, _, text) in TOPICS {
            assert!(!is_command(name), "{name}");
            for named in text.split("ailoop ").skip(1) {
                let word: String = named.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                assert!(word.is_empty() || is_command(&word), "{name}: ailoop {word}");
            }
        }
    }
}
