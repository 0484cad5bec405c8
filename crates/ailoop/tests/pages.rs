//! The page of the command line says what the command says of itself.

use std::path::Path;
use std::process::Command;

#[test]
fn every_help_is_on_its_page() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks: Vec<&str> = text.split("```text\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
    for block in &blocks {
        let (command, shown) = block.split_once('\n').unwrap();
        let arguments = command.strip_prefix("$ ailoop ").unwrap().split(' ');
        let output = Command::new(env!("CARGO_BIN_EXE_ailoop")).args(arguments).env_clear().output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let said: Vec<&str> = said.trim_end().lines().map(str::trim_end).collect();
        assert_eq!(said.join("\n"), shown, "docs/reference/cli.md shows another `{command}`");
    }
    let listed = blocks[0].split("Commands:\n").nth(1).unwrap().lines().take_while(|line| !line.is_empty());
    let commands = listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    for name in commands {
        assert!(text.contains(&format!("$ ailoop {name} --help\n")), "{name} is missing from docs/reference/cli.md");
    }
}
