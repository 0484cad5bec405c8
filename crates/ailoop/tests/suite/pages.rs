//! Compares the page of the command line with the help texts. `UPDATE_PAGES=1` writes them.

use std::path::Path;
use std::process::Command;

fn help(arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ailoop")).args(arguments.split(' ')).env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// Adds a command and all below it, each with a space at its end.
fn add_commands(path: &str, command: &clap::Command, all: &mut Vec<String>) {
    all.push(path.to_owned());
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        add_commands(&format!("{path}{} ", sub.get_name()), sub, all);
    }
}

#[test]
fn cli_page_shows_help_of_every_command() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let mut wanted = Vec::new();
    add_commands("", &ailoop::help::command(), &mut wanted);
    let section = |command: &str| {
        let text = help(&format!("{command}--help"));
        format!(
            "## ailoop{}{}\n\n```text\n$ ailoop {command}--help\n{text}\n```\n",
            separator(command),
            command.trim_end()
        )
    };
    if std::env::var_os("UPDATE_PAGES").is_some() {
        let head = text.split("\n## ailoop\n").next().unwrap().to_owned();
        let sections: Vec<String> = wanted.iter().map(|command| section(command)).collect();
        text = format!("{head}\n{}", sections.join("\n"));
        std::fs::write(&path, &text).unwrap();
    }
    for command in &wanted {
        assert!(
            text.contains(&section(command)),
            "docs/reference/cli.md differs from `ailoop {command}--help`; UPDATE_PAGES=1 writes it"
        );
    }
}

fn separator(command: &str) -> &'static str {
    if command.is_empty() { "" } else { " " }
}
