//! Gates of a run without a terminal.

use crate::command::terminal::{Terminal, TerminalSettings};
use crate::command::world::{World, exit_code, text, wait_until};

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
    // The gate is open before the command with the timeout begins. Otherwise a slow machine might reach the session's
    // own limit before the gate.
    let mut asking = world.spawn(&["run", "--session", "s", "--approve", "wait", "survey"]);
    asking.read_stderr_until("waits for approval");
    let run = world.output(&["run", "--session", "s", "--approve", "wait", "--timeout", "1", "next"]);
    assert_eq!(exit_code(&run), 124, "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("no end within --timeout"), "{}", text(&run.stderr));
    assert_eq!(asking.end("INT"), Some(130));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn timeout_of_a_new_session_ends_it() {
    let world = World::new();
    world.require_approval_for_writes();
    let fleet = world.start_fleet();
    // The limit of the session or that of the command ends it: which one is first depends on the machine.
    let run = world.output(&["run", "--approve", "wait", "--timeout", "1", "survey"]);
    assert_eq!(exit_code(&run), 124, "{}", text(&run.stderr));
    wait_until("the session has ended", || text(&world.output(&["sessions"]).stdout).contains("ended"));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn approval_of_a_run_at_a_terminal_is_the_menu_of_the_chat() {
    let world = World::new();
    world.require_approval_for_writes();
    let fleet = world.start_fleet();
    let mut run = Terminal::spawn(&world, &["run", "survey"], &TerminalSettings::new(80));
    run.wait_for("5  no, and tell the model why\nchoice:");
    let shown = run.shown();
    assert!(shown.contains("path: survey.md") && !shown.contains("ailoop approvals"), "{shown}");
    // A choice is accepted once the question was readable for a moment.
    wait_until("the choice is accepted", || {
        run.press("5\n");
        std::thread::sleep(std::time::Duration::from_millis(200));
        run.shown().contains("why not:")
    });
    run.press("not now\n");
    run.wait_for("denied");
    assert_eq!(run.wait(), Some(0), "{}", run.shown());
    assert!(!world.path(".ailoop/out/survey.md").exists());
    assert_eq!(fleet.end("TERM"), Some(0));
}
