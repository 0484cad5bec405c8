//! Commands that read where no fleet runs: the store of the last fleet of the directory.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::command::world::{Running, World, exit_code, text, wait_until};

const NOTE: &str = "no fleet runs: reading the store in ";

/// A directory in which a fleet ran, and has ended with its session.
fn world_with_session() -> World {
    let world = World::new();
    let run = world.output(&["run", "--session", "notes", "--agent", "e", "--model", "rehearsal", "survey"]);
    assert_eq!(exit_code(&run), 0, "{}", text(&run.stderr));
    world.wait_for_nats_end();
    world
}

fn ok(world: &World, line: &[&str]) -> (String, String) {
    let output = world.output(line);
    assert_eq!(exit_code(&output), 0, "{line:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn reading_command_without_fleet_reads_the_store() {
    let world = world_with_session();
    for (line, expected) in [
        (&["sessions"][..], "notes"),
        (&["transcript", "notes"], "- `list_files`"),
        (&["watch", "--last", "--no-follow", "--json"], "turn.completed"),
        (&["describe", "notes"], "waits for the next message of its user"),
        (&["trace", "notes"], "invoke_agent"),
        (&["decisions", "notes"], "go on"),
        (&["replay", "notes"], "session_started message.user_processed"),
        (&["stats"], "rehearsal"),
        (&["export", "notes"], "\"session_id\":\"notes\""),
    ] {
        let (stdout, stderr) = ok(&world, line);
        assert!(stdout.contains(expected), "{line:?}: {stdout}");
        assert!(stderr.contains(&format!("{NOTE}.ailoop/nats\n")) && !stdout.contains(NOTE), "{line:?}: {stderr}");
        // The command has waited for the end of its server.
        assert!(!world.is_nats_running(), "{line:?}");
        assert!(!world.path(".ailoop/run.json").exists(), "{line:?}");
    }
    for line in [&["sessions", "-o", "json"][..], &["stats", "--json"], &["describe", "notes", "-o", "json"]] {
        let (stdout, _) = ok(&world, line);
        assert!(!stdout.is_empty());
        for line in stdout.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
    let followed = ok(&world, &["watch", "notes", "--no-follow"]).1;
    assert!(followed.contains("> survey") && followed.contains("\u{2713} done"), "{followed}");
}

#[test]
fn store_of_a_directory_above_is_read() {
    let world = world_with_session();
    let below = world.path("a/b");
    fs::create_dir_all(&below).unwrap();
    let output = world.ailoop(&["sessions"]).current_dir(&below).output().unwrap();
    assert!(exit_code(&output) == 0 && text(&output.stdout).contains("notes"), "{}", text(&output.stderr));
    let store = world.path(".ailoop/nats").canonicalize().unwrap();
    assert!(text(&output.stderr).contains(&format!("{NOTE}{}", store.display())), "{}", text(&output.stderr));
    assert!(!below.join(".ailoop").exists());
}

#[test]
fn command_that_changes_something_starts_nothing() {
    let world = world_with_session();
    let log = fs::read_to_string(world.path(".ailoop/nats/nats.log")).unwrap();
    for line in [&["send", "notes", "x"][..], &["stop", "notes"], &["watch", "notes"], &["tools"]] {
        let output = world.output(line);
        assert_eq!(exit_code(&output), 3, "{line:?}");
        assert!(text(&output.stderr).contains("no fleet runs in this directory"), "{}", text(&output.stderr));
    }
    assert_eq!(fs::read_to_string(world.path(".ailoop/nats/nats.log")).unwrap(), log, "a nats-server was started");
}

#[test]
fn session_that_was_working_does_not_go_on_while_it_is_read() {
    let world = World::new();
    let fleet = world.start_fleet();
    ok(&world, &["run", "x"]);
    let begun = world.ailoop(&["run", "--session", "s", "x"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut begun = Running::new(begun.unwrap());
    begun.read_stderr_until("step 1/");
    assert_eq!(fleet.end("KILL"), None);
    begun.end("KILL");
    world.wait_for_nats_end();

    let commits = || {
        let exported = ok(&world, &["export", "s"]).0;
        // The header has the time of the export.
        exported.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = commits();
    let listed = ok(&world, &["sessions", "-o", "json"]).0;
    let sessions: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let phases: BTreeSet<&str> = sessions.iter().filter_map(|session| session["phase"].as_str()).collect();
    assert_eq!(phases, BTreeSet::from(["ended", "running"]));
    for session in &sessions {
        let line = ["describe", session["session_id"].as_str().unwrap(), "-o", "json"];
        let description: Value = serde_json::from_str(&ok(&world, &line).0).unwrap();
        assert_eq!(description["phase"], session["phase"]);
        // The queue of the model or of a tool, and that of an orchestrator: nobody pulls from them.
        let pullers: Vec<&Value> = description["queues"].as_array().unwrap().iter().map(|q| &q["pullers"]).collect();
        assert!(!pullers.is_empty() && pullers.iter().all(|pullers| **pullers == 0), "{description}");
    }
    assert_eq!(commits(), before);
    let next = world.start_fleet();
    wait_until("the next fleet goes on with it", || ok(&world, &["sessions"]).0.contains("idle"));
    assert_eq!(next.end("TERM"), Some(0));
}

#[test]
fn store_of_a_running_fleet_is_read_by_its_edge() {
    let world = World::new();
    let fleet = world.start_fleet();
    ok(&world, &["run", "--session", "notes", "x"]);
    let server = world.nats_pid();
    for line in [&["sessions"][..], &["export", "notes"]] {
        let (stdout, stderr) = ok(&world, line);
        assert!(stdout.contains("notes") && !stderr.contains(NOTE), "{line:?}: {stderr}");
    }
    assert_eq!(world.nats_pid(), server);
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn commands_that_read_at_the_same_time_wait_for_each_other() {
    let world = world_with_session();
    let spawn = |_| world.ailoop(&["sessions"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let commands: Vec<_> = (0..3).map(spawn).collect();
    for command in commands {
        let output: Output = command.wait_with_output().unwrap();
        assert!(exit_code(&output) == 0 && text(&output.stdout).contains("notes"), "{}", text(&output.stderr));
    }
}

#[test]
fn store_that_another_server_uses_is_left_alone() {
    let world = world_with_session();
    let store = world.path(".ailoop/nats").canonicalize().unwrap();
    // A process that looks like the server of a fleet that was killed together with its guard.
    let mut other = Command::new("sh");
    other.args(["-c", "read -r line"]).arg(store.join("nats.conf")).stdin(Stdio::piped());
    let mut other = other.spawn().unwrap();
    fs::write(store.join("nats.pid"), other.id().to_string()).unwrap();
    let log = fs::read_to_string(store.join("nats.log")).unwrap();
    let output = world.output(&["sessions"]);
    assert!(exit_code(&output) == 1 && text(&output.stderr).contains("error[not_now]"), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(store.join("nats.log")).unwrap(), log, "a second nats-server was started");
    assert_eq!(other.try_wait().unwrap(), None, "the other server was ended");
    other.stdin.take().unwrap().write_all(b"end\n").unwrap();
    other.wait().unwrap();
    assert!(ok(&world, &["sessions"]).0.contains("notes"));
}
