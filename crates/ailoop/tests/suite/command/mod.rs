//! The `ailoop` command as its users run it: exit codes, streams, signals, and leftovers.

mod approvals;
mod chat;
mod configuration;
mod hostile;
mod mistakes;
mod other_users;
mod outages;
mod plans;
mod screens;
mod scripted_edge;
mod session_names;
mod stored;
mod terminal;
mod trust;
mod world;

use std::fs;
use std::process::{Command, Stdio};

use world::{World, exit_code, text};

#[test]
fn run_without_fleet_starts_one_and_prints_answer() {
    let world = World::new();
    let run = world.ailoop(&["run", "--agent", "e", "--model", "rehearsal", "survey"]).output().unwrap();
    assert_eq!(exit_code(&run), 0, "{}", text(&run.stderr));
    let (answer, stderr) = (text(&run.stdout), text(&run.stderr));
    assert!(answer.contains("survey.md"), "{answer}");
    for line in ["session ", "  step 1/10  ", "  list_files .  ", "✓ done  5 steps · "] {
        assert!(stderr.contains(line), "{line:?} is not in:\n{stderr}");
        assert!(!answer.contains(line), "{line:?} belongs to stderr");
    }
    assert!(fs::read_to_string(world.path(".ailoop/out/survey.md")).unwrap().contains("hello.rs"));
    world.wait_for_nats_end();
    assert!(!world.path(".ailoop/run.json").exists());
}

#[test]
fn run_that_stays_keeps_its_fleet_until_ctrl_c() {
    let world = World::new();
    let mut run = world.spawn(&["run", "--stay", "--model", "rehearsal", "survey"]);
    run.read_stderr_until("until Ctrl-C");
    let listed = world.output(&["sessions"]);
    assert!(exit_code(&listed) == 0 && text(&listed.stdout).contains("ended"), "{listed:?}");
    assert_eq!(run.end("INT"), Some(0));
    world.wait_for_nats_end();
}

#[test]
fn gate_of_own_fleet_is_answered_from_another_terminal() {
    let world = World::new();
    world.require_approval_for_writes();
    let line = ["run", "--session", "s", "--model", "rehearsal", "--approve", "wait", "survey"];
    let spawned = world.ailoop(&line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut run = world::Running::new(spawned.unwrap());
    run.read_stderr_until("waits for approval");
    let gates = text(&world.output(&["approvals", "--json"]).stdout);
    let gate: serde_json::Value = serde_json::from_str(&gates).unwrap();
    // The fleet ends with its session, so it accepts no other session.
    let other = world.output(&["run", "--model", "rehearsal", "x"]);
    assert!(exit_code(&other) == 1 && text(&other.stderr).contains("error[not_now]"), "{}", text(&other.stderr));
    let answered = world.output(&["approvals", "approve", "s", gate["gate"].as_str().unwrap()]);
    assert_eq!(exit_code(&answered), 0, "{}", text(&answered.stderr));
    run.read_stderr_until("✓ done");
    assert!(world.path(".ailoop/out/survey.md").exists());
    world::wait_until("the file says so no more", || !world.path(".ailoop/run.json").exists());
}

#[test]
fn run_with_json_prints_events_as_lines() {
    let world = World::new();
    let run = world.ailoop(&["run", "--json", "--model", "rehearsal", "x"]).output().unwrap();
    assert_eq!(exit_code(&run), 0, "{}", text(&run.stderr));
    let events: Vec<serde_json::Value> =
        text(&run.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "a hole in seq");
    assert_eq!(events.first().unwrap()["topic"], "session_started");
    assert_eq!(events.last().unwrap()["topic"], "session_ended");
    assert!(events.iter().any(|event| event["topic"] == "message.ai_chunk_received"));
}

#[test]
fn run_limit_reached_exits_with_124() {
    let world = World::new();
    let line = ["run", "--agent", "e", "--model", "rehearsal", "--max-iterations", "2", "x"];
    let run = world.ailoop(&line).output().unwrap();
    assert_eq!(exit_code(&run), 124, "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("stopped at the limit of iterations  2 steps"), "{}", text(&run.stderr));
}

#[test]
fn invalid_command_line_starts_nothing() {
    let world = World::new();
    let long = "x".repeat((1 << 20) + 1);
    for (line, stdin, exit, error) in [
        (&["run", ""][..], "", 2, "error[empty_message]"),
        (&["run", "-"], " \n", 2, "error[empty_message]"),
        (&["run", "-"], long.as_str(), 2, "error[too_large]"),
        (&["run", "--session", "a.b", "x"], "", 2, "error[bad_request]"),
        (&["run", "--root", "nowhere", "x"], "", 2, "error[bad_request]"),
        (&["up", "--model", "rehearsel"], "", 1, "did you mean \"rehearsal\"?"),
        (&["run", "--timeout", "soon", "x"], "", 2, "90s"),
        (&["fly"], "", 2, "unrecognized subcommand"),
        (&["sessions"], "", 3, "error[unavailable]"),
        (&["watch", "s", "--url", "http://127.0.0.1:9"], "", 3, "error[unavailable]"),
    ] {
        let output = world.with_stdin(line, stdin);
        assert_eq!(exit_code(&output), exit, "{line:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(error), "{line:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{line:?} prints data");
    }
    assert!(!world.path(".ailoop").exists());
}

#[test]
fn running_fleet_serves_every_command() {
    let world = World::new();
    let fleet = world.start_fleet();
    let ok = |line: &[&str]| {
        let output = world.ailoop(line).output().unwrap();
        assert_eq!(exit_code(&output), 0, "{line:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(ok(&["tools"]).contains("list_files"));
    ok(&["mail", "send", "eamonn", "Begin with plan 2.", "--subject", "The plans"]);
    let waits: serde_json::Value = serde_json::from_str(&ok(&["mail", "--mailbox", "eamonn", "--json"])).unwrap();
    assert_eq!((&waits["from"], &waits["text"]), (&"user".into(), &"Begin with plan 2.".into()));
    let forged = world.output(&["mail", "reply", waits["id"].as_str().unwrap(), "I do.", "--mailbox", "e"]);
    let stderr = text(&forged.stderr);
    assert!(exit_code(&forged) == 1 && stderr.contains("error[bad_request]: e is an agent's mailbox: "), "{stderr}");
    ok(&["mail", "send", "user", "Shall I begin?", "--subject", "The plans", "--mailbox", "anna"]);
    let question = ok(&["mail"]);
    assert!(question.contains("from anna, "), "{question}");
    ok(&["mail", "reply", question.split_whitespace().next().unwrap(), "Do so."]);
    let answer = ok(&["mail", "--mailbox", "anna"]);
    assert!(answer.contains("from user, ") && answer.contains("\n  Re: The plans\n    Do so.\n"), "{answer}");
    ok(&["mail", "close", answer.split_whitespace().next().unwrap(), "--mailbox", "anna"]);
    assert_eq!((ok(&["mail"]), ok(&["mail", "--mailbox", "anna"])), (String::new(), String::new()));
    ok(&["run", "--session", "notes", "first"]);
    assert!(ok(&["run", "--session", "notes", "second"]).contains("second"), "the answer of the second turn only");
    assert!(ok(&["sessions", "--phase", "idle"]).contains("notes"));
    let unknown = world.output(&["configure", "notes", "--feature", "mailbx"]);
    assert_eq!(exit_code(&unknown), 1, "{}", text(&unknown.stderr));
    let stderr = text(&unknown.stderr);
    assert!(stderr.contains("error[unknown_feature]") && stderr.contains("did you mean \"mailbox\"?"), "{stderr}");
    let read = ok(&["transcript", "notes"]);
    assert!(
        read.contains("\n\nfirst\n") && read.contains("- `list_files`") && read.contains("Turn 2 ended: completed.")
    );
    assert!(read.lines().any(|line| line == "Turn 2 ended: completed."), "{read}");
    assert!(!read.contains("system") && ok(&["transcript", "notes", "--json"]).lines().count() == 2, "{read}");
    ok(&["configure", "notes", "--feature", "mailbox"]);
    ok(&["pause", "notes"]);
    ok(&["resume", "notes"]);
    ok(&["stop", "notes"]);
    let watched = ok(&["watch", "notes", "--json"]);
    assert!(watched.lines().last().unwrap().contains("session_ended"), "{watched}");

    assert_eq!(ok(&["fork", "notes", "--as", "copy"]), "copy\n");
    let third = ok(&["run", "--session", "copy", "third"]);
    assert!(third.contains("The survey is done"), "a fork of a session that ended goes on: {third}");

    let used = world.ailoop(&["tools", "try", "delegate"]).output().unwrap();
    assert!(text(&used.stderr).contains("the loop performs it"), "{}", text(&used.stderr));
    let keyed = world.ailoop(&["run", "x"]).env("OPENAI_API_KEY", "x").output().unwrap();
    assert!(text(&keyed.stderr).contains("OPENAI_API_KEY is set here, but the fleet"), "{}", text(&keyed.stderr));
    for (line, exit, error) in [
        (&["up"][..], 1, "error[not_now]"),
        (&["run", "--root", ".", "x"], 2, "--root and --out belong to the fleet"),
        (&["run", "--session", "notes", "x"], 1, "error[session_ended]"),
        (&["run", "--agent", "nobody", "x"], 1, "error[unknown_agent]"),
        (&["run", "--agent", "Paula", "x"], 1, "did you mean patricia?"),
        (&["run", "--model", "nothing", "x"], 1, "error[unknown_model]"),
        (&["replay", "notes", "--at", "9999"], 1, "there is no slot 9999: the log of session notes ends with slot "),
        (
            &["fork", "notes", "--at", "9999", "--as", "other"],
            1,
            "there is no slot 9999: the log of session notes ends with slot ",
        ),
        (&["send", "nosuch", "x"], 1, "error[unknown_session]"),
        (&["watch", "nosuch"], 1, "error[unknown_session]"),
    ] {
        let output = world.ailoop(line).output().unwrap();
        assert_eq!(exit_code(&output), exit, "{line:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(error), "{line:?}: {}", text(&output.stderr));
    }
    assert_eq!(fleet.end("TERM"), Some(0));
    world.wait_for_nats_end();
    assert!(!world.path(".ailoop/run.json").exists());
}

#[test]
fn interrupted_run_session_goes_on_in_running_fleet() {
    let world = World::new();
    let fleet = world.start_fleet();
    let watching = world.ailoop(&["run", "--session", "s", "x"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut watching = world::Running::new(watching.unwrap());
    watching.read_stderr_until("session s");
    let (exit, stderr) = watching.end_with_stderr("INT");
    assert_eq!(exit, Some(130), "{stderr}");
    assert!(stderr.contains("ailoop watch s"), "{stderr}");
    world::wait_until("the session goes on to its end", || text(&world.output(&["sessions"]).stdout).contains("idle"));
    assert_eq!(fleet.end("INT"), Some(0));
}

#[test]
fn interrupted_run_of_own_fleet_stops_session() {
    let world = World::new();
    let run = world.ailoop(&["run", "--model", "rehearsal", "x"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut run = world::Running::new(run.unwrap());
    run.read_stderr_until("session ");
    let (exit, stderr) = run.end_with_stderr("INT");
    assert_eq!(exit, Some(130), "{stderr}");
    assert!(stderr.contains("stopping the session") && stderr.contains("session stopped"), "{stderr}");
    world.wait_for_nats_end();
}

#[test]
fn killed_fleet_leaves_no_server_and_next_fleet_continues_sessions() {
    let world = World::new();
    let fleet = world.start_fleet();
    let begun = world.ailoop(&["run", "--session", "s", "x"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut begun = world::Running::new(begun.unwrap());
    begun.read_stderr_until("session s");
    assert_eq!(fleet.end("KILL"), None);
    world.wait_for_nats_end();
    begun.end("KILL");

    let next = world.start_fleet();
    world::wait_until("the session is taken up to its end", || {
        text(&world.output(&["sessions"]).stdout).contains("idle")
    });
    assert_eq!(next.end("TERM"), Some(0));
}

#[test]
fn completion_script_is_printed() {
    let world = World::new();
    let bash = world.ailoop(&["completion", "bash"]).output().unwrap();
    assert_eq!(exit_code(&bash), 0);
    assert!(text(&bash.stdout).contains("_ailoop"));
}

#[test]
fn names_of_the_fleet_are_completed() {
    let world = World::new();
    let complete = |words: &[&str]| {
        let mut command = world.ailoop(&[&["--", "ailoop"], words].concat());
        let index = words.len().to_string();
        command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index).env("_CLAP_COMPLETE_COMP_TYPE", "9");
        let output = command.env("_CLAP_IFS", "\n").output().unwrap();
        assert_eq!(exit_code(&output), 0, "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(complete(&["watch", "no"]), "", "no fleet runs, so there is no name and no error");
    let fleet = world.start_fleet();
    assert_eq!(exit_code(&world.output(&["run", "--session", "notes", "x"])), 0);
    assert!(complete(&["watch", "no"]).lines().any(|line| line == "notes"));
    assert!(complete(&["run", "--agent", ""]).lines().any(|line| line == "e"));
    assert!(complete(&["run", "--model", "rehe"]).lines().any(|line| line == "rehearsal"));
    assert!(complete(&["tools", "describe", "list_f"]).lines().any(|line| line == "list_files"));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn manual_pages_are_written() {
    let world = World::new();
    let page = world.output(&["man"]);
    assert!(text(&page.stdout).contains(".TH ailoop 1"), "{}", text(&page.stderr));
    assert_eq!(exit_code(&world.output(&["man", "--dir", "pages"])), 0);
    assert!(fs::read_to_string(world.path("pages/ailoop-run.1")).unwrap().contains("ailoop run"));
}

#[test]
fn version_names_the_commit_that_is_checked_out() {
    let world = World::new();
    let output = world.ailoop(&["version", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["fold"]["writes"], contract::commit::FOLD);
    let commit = json["commit"].as_str();
    let short = commit.map_or("unknown commit", |commit| &commit[..8]);
    let line = text(&world.ailoop(&["--version"]).output().unwrap().stdout);
    assert!(line.starts_with(&format!("ailoop {} ({short}", env!("CARGO_PKG_VERSION"))), "{line}");
    assert_eq!(line.contains("-dirty"), commit.is_some_and(|commit| commit.ends_with("-dirty")), "{line}");

    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    // In a source archive, or in an image build, the environment of the build names the commit.
    if let (Ok(git), None) = (git, option_env!("AILOOP_COMMIT"))
        && git.status.success()
    {
        assert_eq!(commit.map(|commit| commit.trim_end_matches("-dirty")), Some(text(&git.stdout).trim()));
    }
}
