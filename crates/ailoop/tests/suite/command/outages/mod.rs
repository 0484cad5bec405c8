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
    run.read_stderr_until("s for the fleet. To come back later: ailoop watch s");
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
