//! `ailoop chat` at a terminal of its own, whose screen is compared, and with stdin that is no terminal.

use crate::command::terminal::{Terminal, TerminalSettings};
use crate::command::world::{World, exit_code, text, wait_until};

/// The id after `ailoop chat`.
fn session_of(shown: &str) -> String {
    shown.rsplit("ailoop chat ").next().unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn chat_streams_answers_and_is_found_again_by_the_beginning_of_its_id() {
    let world = World::new();
    let fleet = world.start_fleet();
    let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], &TerminalSettings::new(80));
    chat.wait_for("ready");
    chat.press("survey\\\rthis directory\r");
    chat.wait_for("Ctrl-C cancels");
    chat.wait_for("\u{2713} done");
    chat.wait_for("ready \u{b7} ");
    let shown = chat.shown();
    assert_eq!(shown.matches("> survey").count(), 1, "{shown}");
    assert!(shown.contains("list_files .  1 file"), "{shown}");
    chat.press("/co\t\r");
    chat.wait_for("tokens in, ");
    chat.press("\u{4}");
    chat.wait_for("  ailoop chat ");
    let session = session_of(&chat.shown());
    assert_eq!(chat.end(), Some(0));

    let again = Terminal::spawn(
        &world,
        &["chat", &session[..13]],
        &TerminalSettings { variables: &[("NO_COLOR", "1")], ..TerminalSettings::new(60) },
    );
    again.wait_for("The survey is done");
    again.wait_for("ready \u{b7} ");
    again.press("\u{1b}[A");
    again.wait_for("\u{203a} /cost");
    again.press("\u{3}");
    assert_eq!(again.end(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn styles_are_off_with_no_color_and_rows_fit_the_terminal() {
    let world = World::new();
    let fleet = world.start_fleet();
    for columns in [60, 80, 200] {
        for no_color in [true, false] {
            let variables: &[(&str, &str)] = if no_color { &[("NO_COLOR", "1")] } else { &[] };
            let chat = Terminal::spawn(
                &world,
                &["chat", "--agent", "e"],
                &TerminalSettings { variables, ..TerminalSettings::new(columns) },
            );
            chat.press("survey\r");
            chat.wait_for("\u{2713} done");
            chat.wait_for("ready \u{b7} ");
            let raw = chat.raw();
            let has_styles = raw.contains("\u{1b}[2m") || raw.contains("\u{1b}[36m");
            assert_eq!(has_styles, !no_color, "{columns}");
            assert_eq!(chat.end(), Some(0));
        }
    }
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn interrupt_cancels_the_turn_and_the_session_goes_on() {
    let world = World::new();
    let fleet = world.start_fleet();
    let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], &TerminalSettings::new(80));
    chat.press("first\r");
    chat.wait_for("step 1/");
    chat.press("\u{3}");
    chat.wait_for("cancelling the turn");
    chat.wait_for("\u{203c} stopped");
    chat.press("second\r");
    chat.wait_for("> second");
    chat.wait_for("\u{2713} done");
    assert_eq!(chat.end(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn approval_is_a_menu_with_the_file_first() {
    let world = World::new();
    world.require_approval_for_writes();
    let fleet = world.start_fleet();
    let chat = Terminal::spawn(&world, &["chat"], &TerminalSettings::new(80));
    chat.press("survey\r");
    chat.wait_for("waits for your answer");
    let shown = chat.shown();
    let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text:?} is not in:\n{shown}"));
    assert!(at("The agent wants to run write_file:") < at("path: survey.md"), "{shown}");
    assert!(at("path: survey.md") < at("1  yes"), "{shown}");
    assert!(!world.path(".ailoop/out/survey.md").exists());
    // A choice is accepted once the question was readable for a moment.
    wait_until("the choice is accepted", || {
        if chat.shown().contains("type s to see all") && !chat.shown().contains("always in this chat \u{b7}") {
            chat.press("s\r");
        }
        chat.press("5\r");
        std::thread::sleep(std::time::Duration::from_millis(200));
        chat.shown().contains("why not: ")
    });
    chat.press("not now\r");
    chat.wait_for("denied");
    assert!(!world.path(".ailoop/out/survey.md").exists());
    chat.wait_for("ready \u{b7} ");
    assert_eq!(chat.end(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn killed_fleet_is_waited_for_and_the_chat_goes_on() {
    let world = World::new();
    let fleet = world.start_fleet();
    let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], &TerminalSettings::new(100));
    chat.press("first\r");
    chat.wait_for("step 1/");
    assert_eq!(fleet.end("KILL"), None);
    chat.wait_for("  ailoop chat ");
    world.wait_for_nats_end();
    let next = world.start_fleet();
    chat.wait_for("the fleet answers again");
    chat.wait_for("\u{2713} done");
    assert_eq!(chat.end(), Some(0));
    assert_eq!(next.end("TERM"), Some(0));
}

#[test]
fn lines_of_a_pipe_are_messages_one_after_the_other() {
    let world = World::new();
    let fleet = world.start_fleet();
    let output = world.with_stdin(&["chat", "--agent", "e"], "first\n/cost\nsecond\n");
    assert_eq!(exit_code(&output), 0, "{}", text(&output.stderr));
    let (answer, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(answer.contains("The survey is done") && answer.contains("You wrote: second"), "{answer}");
    assert_eq!(stderr.matches("\u{2713} done").count(), 2, "{stderr}");
    assert!(stderr.contains("tokens in, ") && stderr.contains("To come back:\n  ailoop chat "), "{stderr}");
    assert!(!answer.contains('\u{1b}') && !stderr.contains('\u{1b}'));
    let session = session_of(&stderr);
    let read = world.output(&["transcript", &session[..13]]);
    assert!(text(&read.stdout).contains("You wrote: second"), "{}", text(&read.stderr));
    let last = world.with_stdin(&["chat", "--last"], "");
    assert_eq!(exit_code(&last), 0, "{}", text(&last.stderr));
    assert!(text(&last.stderr).contains(&format!("ailoop chat {session}")), "{}", text(&last.stderr));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn message_typed_while_the_agent_works_is_read_in_the_same_turn() {
    let world = World::new();
    let fleet = world.start_fleet();
    let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], &TerminalSettings::new(80));
    chat.press("first\r");
    chat.wait_for("step 1/");
    chat.press("look at the tests, too\r");
    chat.wait_for("> look at the tests, too");
    chat.wait_for("\u{2713} done");
    chat.wait_for("ready \u{b7} ");
    let shown = chat.shown();
    assert_eq!(shown.matches("\u{2713} done").count(), 1, "{shown}");
    assert!(shown.find("> look at") < shown.find("\u{2713} done"), "{shown}");
    assert!(!shown.contains("waits: "), "{shown}");
    assert_eq!(chat.end(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn dumb_terminal_gets_lines_without_control_sequences() {
    let world = World::new();
    let fleet = world.start_fleet();
    let settings = TerminalSettings { variables: &[("TERM", "dumb")], ..TerminalSettings::new(80) };
    let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], &settings);
    chat.press("first\n");
    chat.wait_for("\u{2713} done");
    chat.press("/cost\n");
    chat.wait_for("tokens in, ");
    chat.press("\u{4}");
    chat.wait_for("To come back:\n  ailoop chat ");
    let raw = chat.raw();
    assert!(!raw.contains('\u{1b}'), "{raw:?}");
    assert_eq!(chat.end(), Some(0));
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn chat_without_fleet_starts_one_and_ends_it() {
    let world = World::new();
    let chat = Terminal::spawn(&world, &["chat", "--model", "rehearsal", "--agent", "e"], &TerminalSettings::new(100));
    chat.press("first\r");
    chat.wait_for("step 2/");
    // Leaving pauses the turn, which the next fleet must not go on with unseen.
    chat.press("\u{4}");
    chat.wait_for("left; the turn is paused. To come back:\n  ailoop chat ");
    let session = session_of(&chat.shown());
    assert_eq!(chat.end(), Some(0));
    world.wait_for_nats_end();
    assert!(!world.path(".ailoop/run.json").exists());

    let again = Terminal::spawn(&world, &["chat", &session], &TerminalSettings::new(100));
    again.wait_for("paused; /resume goes on");
    again.press("/resume\r");
    again.wait_for("\u{2713} done");
    assert_eq!(again.end(), Some(0));
    world.wait_for_nats_end();
}
