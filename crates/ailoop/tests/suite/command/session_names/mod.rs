//! Selection of the session and the fleet of a command, and the output of a run.

use std::fs::File;
use std::process::Stdio;

use crate::command::world::{World, exit_code, text};

#[test]
fn last_is_the_newest_session_and_one_that_ended_goes_on_in_a_copy() {
    let world = World::new();
    let fleet = world.start_fleet();
    let ok = |line: &[&str]| {
        let output = world.output(line);
        assert_eq!(exit_code(&output), 0, "{line:?}: {}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let none = world.output(&["watch", "--last"]);
    assert!(exit_code(&none) == 1 && text(&none.stderr).contains("there is no session"), "{}", text(&none.stderr));
    ok(&["run", "--session", "older", "first"]);
    let (_, header) = ok(&["run", "--agent", "e", "second"]);
    let session = header.split_once("session ").unwrap().1.split_whitespace().next().unwrap();
    assert!(ok(&["watch", "-c", "--no-follow"]).1.contains("> second"));
    assert!(ok(&["history", "-c"]).0.contains("second"));
    assert!(ok(&["describe", "--last"]).0.contains(session));
    assert!(ok(&["trace", "-c"]).0.contains("invoke_agent"));
    let (answer, notes) = ok(&["run", "-c", "third"]);
    assert!(answer.contains("You wrote: third") || answer.contains("The survey is done"), "{answer}");
    assert!(notes.contains(&format!("session {session} has ended; this goes on in a copy of it")), "{notes}");
    // The copy stays open, so that the next one is a turn of the same session.
    let (_, notes) = ok(&["run", "-c", "fourth"]);
    assert!(!notes.contains("copy"), "{notes}");
    ok(&["send", "-c", "fifth"]);
    let followed = ok(&["watch", "older", "--no-follow"]).1;
    assert!(followed.contains("> first") && followed.contains("\u{2713} done"), "{followed}");
    for (line, error) in [
        (&["watch"][..], "required arguments"),
        (&["watch", "older", "--last"], "cannot be used with"),
        (&["send", "text"], "required arguments"),
        (&["pause", "--last", "--all"], "cannot be used with"),
    ] {
        let output = world.output(line);
        assert_eq!(exit_code(&output), 2, "{line:?}");
        assert!(text(&output.stderr).contains(error), "{line:?}: {}", text(&output.stderr));
    }
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn fleet_of_a_directory_above_is_found() {
    let world = World::new();
    let fleet = world.start_fleet();
    let below = world.path("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let output = world.ailoop(&["tools"]).current_dir(&below).output().unwrap();
    assert_eq!(exit_code(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("list_files"));
    assert!(!below.join(".ailoop").exists());
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn final_prints_nothing_but_the_answer() {
    let world = World::new();
    let run = world.output(&["run", "--final", "--agent", "e", "--model", "rehearsal", "survey"]);
    assert_eq!((exit_code(&run), text(&run.stderr).as_str()), (0, ""));
    let answer = text(&run.stdout);
    assert!(answer.starts_with("The survey is done"), "{answer}");
    let limit = world.output(&["run", "-q", "--agent", "e", "--model", "rehearsal", "--max-iterations", "2", "x"]);
    assert_eq!(exit_code(&limit), 124);
    assert!(text(&limit.stderr).starts_with("\u{203c} stopped at the limit of iterations"), "{}", text(&limit.stderr));
}

#[test]
fn file_on_stdin_is_appended_to_the_prompt() {
    let world = World::new();
    std::fs::write(world.path("log.txt"), "error: one\n").unwrap();
    let fleet = world.start_fleet();
    let from_file = Stdio::from(File::open(world.path("log.txt")).unwrap());
    let run = world.ailoop(&["run", "--session", "file", "explain"]).stdin(from_file).output().unwrap();
    assert_eq!(exit_code(&run), 0, "{}", text(&run.stderr));
    let piped = world.with_stdin(&["run", "--session", "pipe", "explain"], "error: two\n");
    assert_eq!(exit_code(&piped), 0, "{}", text(&piped.stderr));
    for (session, context) in [("file", "error: one"), ("pipe", "error: two")] {
        let read = text(&world.output(&["history", session]).stdout);
        assert!(read.contains(&format!("explain\n\n<stdin>\n{context}\n</stdin>")), "{read}");
    }
    assert_eq!(fleet.end("TERM"), Some(0));
}
