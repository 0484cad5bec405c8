//! Questions to a person, where there is no terminal.

use std::time::{Duration, Instant};

use crate::command::world::{World, code, text};

#[test]
fn approval_without_a_terminal_fails_at_once_with_its_exit_code() {
    let world = World::new();
    world.ask_before_writing();
    let run = world.output(&["run", "--model", "rehearsal", "survey"]);
    let said = text(&run.stderr);
    assert_eq!(code(&run), 4, "{said}");
    for part in ["error[approval_needed]: a call of write_file waits for approval", "--approve all, --approve none"] {
        assert!(said.contains(part), "{part:?} is not in:\n{said}");
    }
    assert!(!world.path(".ailoop/out/survey.md").exists());
    world.nats_has_ended();
}

#[test]
fn approval_by_policy_runs_or_denies_the_call() {
    let world = World::new();
    world.ask_before_writing();
    let denied = world.output(&["run", "--model", "rehearsal", "--approve", "none", "survey"]);
    assert!(text(&denied.stderr).contains("denied  by "), "{}", text(&denied.stderr));
    assert!(!world.path(".ailoop/out/survey.md").exists());
    let approved = world.output(&["run", "--model", "rehearsal", "--approve", "all", "survey"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved.stderr));
    assert!(world.path(".ailoop/out/survey.md").exists());
}

#[test]
fn timeout_at_an_approval_holds_by_the_wall_clock() {
    let world = World::new();
    world.ask_before_writing();
    let fleet = world.up();
    let began = Instant::now();
    let run = world.output(&["run", "--approve", "wait", "--timeout", "3", "survey"]);
    assert_eq!(code(&run), 124, "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("no end within --timeout"), "{}", text(&run.stderr));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(fleet.end("TERM"), Some(0));
}
