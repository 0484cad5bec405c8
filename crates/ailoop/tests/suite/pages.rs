//! The page of the command line says what the command says of itself. `UPDATE_PAGES=1` writes what it shows anew.

use std::path::Path;
use std::process::Command;

fn help(arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ailoop")).args(arguments.split(' ')).env_clear().output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<&str> = said.trim_end().lines().map(str::trim_end).collect();
    said.join("\n")
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.split("Commands:\n").nth(1).unwrap_or_default().lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_help_is_on_its_page() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let mut wanted = vec![String::new()];
    for command in listed(&help("--help")) {
        wanted.push(format!("{command} "));
        wanted.extend(listed(&help(&format!("{command} --help"))).iter().map(|sub| format!("{command} {sub} ")));
    }
    let section = |command: &str| {
        let said = help(&format!("{command}--help"));
        format!("## ailoop{}{}\n\n```text\n$ ailoop {command}--help\n{said}\n```\n", pad(command), command.trim_end())
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
            "docs/reference/cli.md shows another `ailoop {command}--help`, or none; UPDATE_PAGES=1 writes it anew"
        );
    }
}

fn pad(command: &str) -> &'static str {
    if command.is_empty() { "" } else { " " }
}
