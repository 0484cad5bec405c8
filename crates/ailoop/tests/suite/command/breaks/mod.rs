//! What dies while a command waits: the fleet, its nats-server, the command itself.

use crate::command::world::{World, code, text, until};

#[test]
fn killed_fleet_during_run_client_waits_and_goes_on_with_the_next_fleet() {
    let world = World::new();
    let fleet = world.up();
    let mut run = world.begin(&["run", "--session", "s", "x"]);
    run.stderr_until("session s");
    assert_eq!(fleet.end("KILL"), None);
    run.stderr_until("ailoop watch s");
    world.nats_has_ended();
    // On other ports: the directory tells where.
    let next = world.up();
    run.stderr_until("✓ done");
    assert_eq!(run.exit(), Some(0));
    assert_eq!(next.end("TERM"), Some(0));
}

#[test]
fn killed_nats_server_of_up_is_started_again_and_the_session_goes_on() {
    let world = World::new();
    let fleet = world.up();
    let mut run = world.begin(&["run", "--session", "s", "x"]);
    run.stderr_until("session s");
    world.signal_nats("KILL");
    run.stderr_until("✓ done");
    assert_eq!(run.exit(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0), "it never ended by itself");
    world.nats_has_ended();
}

#[test]
fn killed_nats_server_of_an_own_fleet_is_started_again() {
    let world = World::new();
    let mut run = world.begin(&["run", "--model", "rehearsal", "x"]);
    run.stderr_until("session ");
    world.signal_nats("KILL");
    run.stderr_until("✓ done");
    assert_eq!(run.exit(), Some(0));
    world.nats_has_ended();
}

#[test]
fn frozen_nats_server_client_says_what_it_waits_for() {
    let world = World::new();
    let fleet = world.up();
    let mut run = world.begin(&["run", "--session", "s", "x"]);
    run.stderr_until("session s");
    world.signal_nats("STOP");
    run.stderr_until("s for the fleet. To come back later: ailoop watch s");
    world.signal_nats("CONT");
    run.stderr_until("the fleet answers again");
    run.stderr_until("✓ done");
    assert_eq!(run.exit(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn interrupted_named_session_of_an_own_fleet_is_kept_and_continued() {
    let world = World::new();
    let mut run = world.begin(&["run", "--session", "own", "--model", "rehearsal", "x"]);
    run.stderr_until("session own");
    let (exit, chatter) = run.end_with_stderr("INT");
    assert_eq!(exit, Some(130), "{chatter}");
    assert!(chatter.contains("the session own is kept"), "{chatter}");
    world.nats_has_ended();

    let again = world.output(&["run", "--session", "own", "again"]);
    assert_eq!(code(&again), 0, "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("✓ done"), "{}", text(&again.stderr));
}

#[test]
fn directory_of_a_fleet_is_ignored_by_git() {
    let world = World::new();
    let fleet = world.up();
    until("the file is there", || {
        std::fs::read_to_string(world.path(".ailoop/.gitignore")).is_ok_and(|text| text == "*\n")
    });
    assert_eq!(fleet.end("TERM"), Some(0));
}
