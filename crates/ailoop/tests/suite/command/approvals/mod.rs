//! Gates of a run without a terminal.

use std::time::{Duration, Instant};

use crate::command::world::{World, exit_code, text};

#[test]
fn approval_without_terminal_exits_with_4() {
    let world = World::new();
    world.require_approval_for_writes();
    let run = world.output(&["run", "--model", "rehearsal", "survey"]);
    let stderr = text(&run.stderr);
    assert_eq!(exit_code(&run), 4, "{stderr}");
    for part in ["error[approval_needed]: a call of write_file waits for approval", "--approve all, --approve none"] {
        assert!(stderr.contains(part), "{part:?} is not in:\n{stderr}");
    }
    assert!(!world.path(".ailoop/out/survey.md").exists());
    world.wait_for_nats_end();
}

#[test]
fn approval_by_policy_runs_or_denies_the_call() {
    let world = World::new();
    world.require_approval_for_writes();
    let denied = world.output(&["run", "--model", "rehearsal", "--approve", "none", "survey"]);
    assert!(text(&denied.stderr).contains("denied  by "), "{}", text(&denied.stderr));
    assert!(!world.path(".ailoop/out/survey.md").exists());
    let approved = world.output(&["run", "--model", "rehearsal", "--approve", "all", "survey"]);
    assert_eq!(exit_code(&approved), 0, "{}", text(&approved.stderr));
    assert!(world.path(".ailoop/out/survey.md").exists());
}

#[test]
fn timeout_at_approval_is_wall_clock() {
    let world = World::new();
    world.require_approval_for_writes();
    let fleet = world.start_fleet();
    let began = Instant::now();
    let run = world.output(&["run", "--approve", "wait", "--timeout", "3", "survey"]);
    assert_eq!(exit_code(&run), 124, "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("no end within --timeout"), "{}", text(&run.stderr));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(fleet.end("TERM"), Some(0));
}
