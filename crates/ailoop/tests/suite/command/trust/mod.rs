//! The configuration of a directory of somebody else.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::command::world::{World, exit_code, text};

/// Starts a program that leaves a file.
const HOSTILE: &str = "tool_host: {mcp: {docs: {command: sh, args: [-c, \"touch started; cat >/dev/null\"]}}}\n";
const WARNING: &str = "config is not used, since you do not trust it yet (ailoop.yaml: tool_host.mcp.docs.";

/// Runs the command as in a directory that nobody named.
fn output(world: &World, line: &[&str]) -> Output {
    let mut command = world.ailoop(line);
    command.env_remove("AILOOP_CONFIG").output().unwrap()
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
    command.env_remove("AILOOP_CONFIG").current_dir(world.path("below"));
    let listed = command.output().unwrap();
    assert_eq!(exit_code(&listed), 0, "{}", text(&listed.stderr));
    assert!(text(&listed.stdout).contains('s'), "{}", text(&listed.stdout));
}

#[test]
fn nats_server_of_a_foreign_directory_is_not_started() {
    let world = World::new();
    let planted = world.path(".tools/nats-server");
    std::fs::create_dir_all(planted.parent().unwrap()).unwrap();
    std::fs::write(&planted, "#!/bin/sh\n: >started\necho 'nats-server: v2.15.1'\n").unwrap();
    std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(world.path("below")).unwrap();
    for dir in [world.path("."), world.path("below")] {
        let mut command = world.ailoop(&["run", "--model", "rehearsal", "x"]);
        command.env_remove("AILOOP_NATS_SERVER").env("PATH", world.path("below")).current_dir(&dir);
        let refused = command.output().unwrap();
        let stderr = text(&refused.stderr);
        assert!(!world.path("started").exists() && !dir.join("started").exists(), "{stderr}");
        assert_eq!(exit_code(&refused), 1, "{stderr}");
        assert!(stderr.contains("error[nats_missing]") && stderr.contains("AILOOP_NATS_SERVER"), "{stderr}");
    }
}

const PROMPT: &str = "prompts/agents/eamonn_executioner.md";
const SECRET: &str = "a secret of the user";

fn link(target: impl AsRef<Path>, path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

#[test]
fn link_out_of_a_found_directory_is_refused_and_not_read() {
    let elsewhere = World::new();
    let secret = elsewhere.path("agents/eamonn_executioner.md");
    std::fs::create_dir_all(secret.parent().unwrap()).unwrap();
    std::fs::write(&secret, SECRET).unwrap();
    let agents = "agents: {e: {name: a secret of the user, prompt_file: default.md}}";
    std::fs::write(elsewhere.path("agents.yaml"), agents).unwrap();
    for (target, path, remedy) in [
        ("agents/eamonn_executioner.md", PROMPT, "AILOOP__COMPOSER__PROMPTS_DIR"),
        ("agents", "prompts/agents", "AILOOP__COMPOSER__PROMPTS_DIR"),
        ("", "prompts", "AILOOP__COMPOSER__PROMPTS_DIR"),
        ("agents/eamonn_executioner.md", "config/prompts/agents/eamonn_executioner.md", "AILOOP_CONFIG"),
        ("agents.yaml", "config/agents.yaml", "AILOOP_CONFIG"),
        ("", "config", "AILOOP_CONFIG"),
    ] {
        let world = World::new();
        link(elsewhere.path(target), &world.path(path));
        let refused = output(&world, &["prompt", "show", "--agent", "e"]);
        let (stdout, stderr) = (text(&refused.stdout), text(&refused.stderr));
        assert_eq!(exit_code(&refused), 1, "{path}: {stdout}{stderr}");
        assert!(!stdout.contains(SECRET) && !stderr.contains(SECRET), "{path}: {stdout}{stderr}");
        let says = stderr.contains("error[bad_config]") && stderr.contains(path) && stderr.contains(remedy);
        assert!(says, "{path}: {stderr}");
        // A directory that somebody names is read as it is.
        let mut named = world.ailoop(&["prompt", "show", "--agent", "e"]);
        let named = named.env(remedy, path.split('/').next().unwrap()).output().unwrap();
        assert_eq!(exit_code(&named), 0, "{path}: {}", text(&named.stderr));
    }
}

#[test]
fn link_within_a_found_directory_is_followed() {
    let world = World::new();
    link("../mine.txt", &world.path(PROMPT));
    std::fs::write(world.path("prompts/mine.txt"), "A prompt behind a link.").unwrap();
    let shown = output(&world, &["prompt", "show", "--agent", "e"]);
    assert_eq!(exit_code(&shown), 0, "{}", text(&shown.stderr));
    assert!(text(&shown.stdout).contains("A prompt behind a link."), "{}", text(&shown.stdout));
}

#[test]
fn prompt_that_is_too_long_or_no_regular_file_is_refused() {
    let world = World::new();
    link("/dev/null", &world.path(PROMPT));
    let show = || {
        let mut command = world.ailoop(&["prompt", "show", "--agent", "e"]);
        let shown = command.env("AILOOP__COMPOSER__PROMPTS_DIR", "prompts").output().unwrap();
        (exit_code(&shown), text(&shown.stderr))
    };
    let (exit, stderr) = show();
    assert!(exit == 1 && stderr.contains(PROMPT) && stderr.contains("no regular file"), "{exit} {stderr}");
    std::fs::remove_file(world.path(PROMPT)).unwrap();
    std::fs::File::create(world.path(PROMPT)).unwrap().set_len((16 << 20) + 1).unwrap();
    let (exit, stderr) = show();
    assert!(exit == 1 && stderr.contains(PROMPT) && stderr.contains("16777216 bytes"), "{exit} {stderr}");
}

#[test]
fn fleet_directory_of_somebody_else_is_refused_until_a_new_token_is_wanted() {
    let line = ["run", "--agent", "e", "--model", "rehearsal", "x"];
    let (attacker, world) = (World::new(), World::new());
    for of in [&attacker, &world] {
        let ran = of.output(&line);
        assert_eq!(exit_code(&ran), 0, "a new directory is used: {}", text(&ran.stderr));
        of.wait_for_nats_end();
    }
    // An archive keeps the modes of files, and their user is the one who unpacks it.
    std::fs::rename(world.path(".ailoop"), world.path("own")).unwrap();
    let copied = Command::new("cp").arg("-a").args([attacker.path(".ailoop"), world.path(".ailoop")]).status();
    assert!(copied.unwrap().success());
    let log = std::fs::read(world.path(".ailoop/nats/nats.log")).unwrap();
    for line in [&line[..], &["sessions"], &["up"]] {
        let refused = world.output(line);
        let stderr = text(&refused.stderr);
        assert_eq!(exit_code(&refused), 1, "{line:?}: {stderr}");
        assert!(stderr.contains("error[bad_config]: .ailoop was not made by you"), "{line:?}: {stderr}");
        assert!(stderr.contains("`ailoop up --new-token`"), "{line:?}: {stderr}");
    }
    assert!(std::fs::read(world.path(".ailoop/nats/nats.log")).unwrap() == log, "a nats-server was started");
    let known = std::fs::read(attacker.path(".ailoop/credentials.json")).unwrap();
    let fleet = world.start_fleet_with(&["--new-token"]).0;
    assert!(std::fs::read(world.path(".ailoop/credentials.json")).unwrap() != known);
    assert_eq!(fleet.end("TERM"), Some(0));
    let ran = world.output(&line);
    assert_eq!(exit_code(&ran), 0, "it belongs to the user now: {}", text(&ran.stderr));
    world.wait_for_nats_end();
}
