//! The configuration of a directory of somebody else.

use std::process::Output;

use crate::command::world::{World, exit_code, text};

/// Starts a program that leaves a file.
const HOSTILE: &str = "tool_host: {mcp: {docs: {command: sh, args: [-c, \"touch started; cat >/dev/null\"]}}}\n";
const WARNING: &str = "config is not used, since you do not trust it yet (ailoop.yaml: tool_host.mcp.docs.";

/// Runs the command as in a directory that nobody named.
fn output(world: &World, line: &[&str]) -> Output {
    let mut command = world.ailoop(line);
    command.env_remove("AILOOP_CONFIG").env("XDG_CONFIG_HOME", world.path("user"));
    command.output().unwrap()
}

/// Runs a session, and returns stderr and whether the program of the configuration was started.
fn run(world: &World) -> (String, bool) {
    let ran = output(world, &["run", "--agent", "e", "--model", "rehearsal", "x"]);
    assert_eq!(exit_code(&ran), 0, "{}", text(&ran.stderr));
    let started = std::fs::remove_file(world.path("started")).is_ok();
    (text(&ran.stderr), started)
}

#[test]
fn foreign_configuration_starts_nothing_until_it_is_trusted() {
    let world = World::new();
    world.configure("ailoop.yaml", HOSTILE);
    let (stderr, started) = run(&world);
    assert!(!started, "{stderr}");
    assert_eq!(stderr.lines().filter(|line| line.contains("not trust")).count(), 1, "{stderr}");
    assert!(stderr.contains(WARNING) && stderr.contains("`ailoop config trust`"), "{stderr}");
    for line in [&["config", "explain"][..], &["config", "check"], &["doctor"], &["prompt", "show"]] {
        let shown = output(&world, line);
        let printed = text(&shown.stdout) + &text(&shown.stderr);
        let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("config is not used"), "{line:?}: {printed}");
    }
    let explained: serde_json::Value =
        serde_json::from_slice(&output(&world, &["config", "explain", "--json"]).stdout).unwrap();
    assert_eq!(explained["configuration"], "shipped");

    let trusted = output(&world, &["config", "trust"]);
    assert_eq!(exit_code(&trusted), 0, "{}", text(&trusted.stderr));
    assert!(text(&trusted.stderr).contains("ailoop.yaml: tool_host.mcp.docs.command"), "{}", text(&trusted.stderr));
    let (stderr, started) = run(&world);
    assert!(started && !stderr.contains("not used"), "{stderr}");
    assert!(text(&output(&world, &["config", "trust", "--list"]).stdout).ends_with("config\ttrusted\n"));
    let explained: serde_json::Value =
        serde_json::from_slice(&output(&world, &["config", "explain", "--json"]).stdout).unwrap();
    assert_eq!(explained["configuration"], "config");

    // Whatever changes there needs trust again.
    std::fs::create_dir_all(world.path("prompts/agents")).unwrap();
    std::fs::write(world.path("prompts/agents/eamonn_executioner.md"), "Another prompt.").unwrap();
    let (stderr, started) = run(&world);
    assert!(!started && stderr.contains(WARNING), "{stderr}");
    let prompt = text(&output(&world, &["prompt", "show", "--agent", "e"]).stdout);
    assert!(!prompt.contains("Another prompt."), "{prompt}");
    assert_eq!(exit_code(&output(&world, &["config", "trust"])), 0);
    let prompt = text(&output(&world, &["prompt", "show", "--agent", "e"]).stdout);
    assert!(prompt.contains("Another prompt."), "{prompt}");
    assert_eq!(exit_code(&output(&world, &["config", "trust", "--remove"])), 0);
    assert!(!run(&world).1);
    assert_eq!(text(&output(&world, &["config", "trust", "--list"]).stdout), "");
}

#[test]
fn named_or_harmless_configuration_needs_no_trust() {
    let world = World::new();
    world.configure("ailoop.yaml", HOSTILE);
    // `World::output` names the directory.
    let ran = world.output(&["run", "--agent", "e", "--model", "rehearsal", "x"]);
    assert_eq!(exit_code(&ran), 0, "{}", text(&ran.stderr));
    assert!(world.path("started").exists() && !text(&ran.stderr).contains("not used"), "{}", text(&ran.stderr));

    world.configure("ailoop.yaml", "drain_timeout: 3\n");
    world.configure("agents.yaml", "default_agent: u\nagents: {u: {name: Una, prompt_file: alice_assistant.md}}\n");
    let explained = output(&world, &["config", "explain", "--json"]);
    let stdout: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!((&stdout["agent"]["id"], &stdout["configuration"]), (&"u".into(), &"config".into()));
    assert_eq!(text(&explained.stderr), "");
}

#[test]
fn store_of_a_directory_above_is_read_without_its_untrusted_configuration() {
    let world = World::new();
    let ran = world.output(&["run", "--agent", "e", "--model", "rehearsal", "--session", "s", "x"]);
    assert_eq!(exit_code(&ran), 0, "{}", text(&ran.stderr));
    world.wait_for_nats_end();
    // With it, the edge would not start.
    world.configure("ailoop.yaml", "edge: {trace_url: nowhere}\n");
    std::fs::create_dir(world.path("below")).unwrap();
    let mut command = world.ailoop(&["sessions"]);
    command.env_remove("AILOOP_CONFIG").env("XDG_CONFIG_HOME", world.path("user")).current_dir(world.path("below"));
    let listed = command.output().unwrap();
    assert_eq!(exit_code(&listed), 0, "{}", text(&listed.stderr));
    assert!(text(&listed.stdout).contains('s'), "{}", text(&listed.stdout));
}
