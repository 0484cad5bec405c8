//! Outages while a command waits: of the fleet, its nats-server, and the command itself.

use crate::command::world::{World, exit_code, text, wait_until};

#[test]
fn killed_fleet_during_run_next_fleet_continues() {
    let world = World::new();
    let fleet = world.start_fleet();
    let mut run = world.spawn(&["run", "--session", "s", "x"]);
    run.read_stderr_until("session s");
    assert_eq!(fleet.end("KILL"), None);
    run.read_stderr_until("ailoop watch s");
    world.wait_for_nats_end();
    // The next fleet has other ports, which its run file names.
    let next = world.start_fleet();
    run.read_stderr_until("✓ done");
    assert_eq!(run.wait(), Some(0));
    assert_eq!(next.end("TERM"), Some(0));
}

#[test]
fn killed_nats_server_of_up_is_restarted_and_session_goes_on() {
    let world = World::new();
    let fleet = world.start_fleet();
    let mut run = world.spawn(&["run", "--session", "s", "x"]);
    run.read_stderr_until("session s");
    world.signal_nats("KILL");
    run.read_stderr_until("✓ done");
    assert_eq!(run.wait(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0), "it never ended by itself");
    world.wait_for_nats_end();
}

#[test]
fn killed_nats_server_of_own_fleet_is_restarted() {
    let world = World::new();
    let mut run = world.spawn(&["run", "--model", "rehearsal", "x"]);
    run.read_stderr_until("session ");
    world.signal_nats("KILL");
    run.read_stderr_until("✓ done");
    assert_eq!(run.wait(), Some(0));
    world.wait_for_nats_end();
}

#[test]
fn frozen_nats_server_run_reports_outage_and_recovery() {
    let world = World::new();
    let fleet = world.start_fleet();
    let mut run = world.spawn(&["run", "--session", "s", "x"]);
    run.read_stderr_until("session s");
    world.signal_nats("STOP");
    run.read_stderr_until("s for the fleet. To come back later:\n  ailoop watch s");
    world.signal_nats("CONT");
    run.read_stderr_until("the fleet answers again");
    run.read_stderr_until("✓ done");
    assert_eq!(run.wait(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn interrupted_named_session_of_own_fleet_is_continued() {
    let world = World::new();
    let mut run = world.spawn(&["run", "--session", "own", "--model", "rehearsal", "x"]);
    run.read_stderr_until("session own");
    let (exit, stderr) = run.end_with_stderr("INT");
    assert_eq!(exit, Some(130), "{stderr}");
    assert!(stderr.contains("the session own is kept"), "{stderr}");
    world.wait_for_nats_end();

    let again = world.output(&["run", "--session", "own", "again"]);
    assert_eq!(exit_code(&again), 0, "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("✓ done"), "{}", text(&again.stderr));
}

#[test]
fn fleet_directory_is_ignored_by_git() {
    let world = World::new();
    let fleet = world.start_fleet();
    wait_until("the file is there", || {
        std::fs::read_to_string(world.path(".ailoop/.gitignore")).is_ok_and(|text| text == "*\n")
    });
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn address_of_the_sdks_alone_finds_no_fleet_and_names_the_other_variable() {
    let world = World::new();
    let sessions = |variables: &[(&str, &str)]| {
        let mut command = world.ailoop(&["sessions"]);
        // No context of this machine is found.
        command.env("XDG_CONFIG_HOME", world.path("none")).envs(variables.iter().copied());
        let output = command.output().unwrap();
        (exit_code(&output), text(&output.stderr))
    };
    let (code, error) = sessions(&[("AILOOP_URL", "http://127.0.0.1:7070")]);
    assert_eq!(code, 3, "{error}");
    for part in ["no fleet runs in this directory", "AILOOP_URL is http://127.0.0.1:7070", "set AILOOP_GRPC_URL"] {
        assert!(error.contains(part), "{error}");
    }
    let (_, error) = sessions(&[]);
    assert!(error.contains("name one with --url, AILOOP_GRPC_URL") && !error.contains("AILOOP_URL is"), "{error}");
    // The address of gRPC counts, whatever the other variable says.
    let fleet = world.start_fleet();
    let run_file = std::fs::read_to_string(world.path(".ailoop/run.json")).unwrap();
    let run_file: serde_json::Value = serde_json::from_str(&run_file).unwrap();
    let (address, token) = (run_file["grpc"].as_str().unwrap(), run_file["token"].as_str().unwrap());
    let elsewhere = World::new();
    let mut command = elsewhere.ailoop(&["sessions"]);
    command.env("AILOOP_GRPC_URL", address).env("AILOOP_TOKEN", token);
    let output = command.env("AILOOP_URL", "http://127.0.0.1:1").output().unwrap();
    assert_eq!(exit_code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn run_with_the_address_of_the_sdks_alone_says_that_it_starts_a_fleet() {
    let world = World::new();
    let mut command = world.ailoop(&["run", "--model", "rehearsal", "x"]);
    command.env("XDG_CONFIG_HOME", world.path("none")).env("AILOOP_URL", "http://127.0.0.1:7070");
    let output = command.output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(exit_code(&output), 0, "{error}");
    assert!(error.contains("starts its own; AILOOP_URL is http://127.0.0.1:7070"), "{error}");
}
