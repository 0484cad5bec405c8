//! `ailoop chat` at a terminal of its own, whose screen is compared, and with stdin that is no terminal.

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::Child;
use std::sync::{Arc, Mutex};

use pty_process::Size;
use pty_process::blocking::{Command, Pty};

use crate::command::world::{World, exit_code, text, wait_until};

const ROWS: NonZero<u16> = NonZero::new(30).unwrap();
/// Rows of scrollback that the terminal keeps.
const SCROLLBACK_ROWS: usize = 1_000;

/// A command at a terminal.
struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Everything that was written to the terminal.
    raw: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn spawn(world: &World, line: &[&str], columns: u16, variables: &[(&str, &str)]) -> Self {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(ROWS.get(), columns)).unwrap();
        let wanted = world.ailoop(line);
        let mut command = Command::new(wanted.get_program()).args(wanted.get_args());
        command = command.current_dir(wanted.get_current_dir().unwrap());
        for (name, value) in wanted.get_envs() {
            command = match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command = command
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env("XDG_STATE_HOME", world.path(".ailoop/state"));
        for (name, value) in variables {
            command = command.env(name, value);
        }
        let child = command.spawn(pts).unwrap();
        let pty = Arc::new(pty);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, NonZero::new(columns).unwrap(), SCROLLBACK_ROWS)));
        let raw = Arc::new(Mutex::new(Vec::new()));
        let (from, to, bytes) = (pty.clone(), screen.clone(), raw.clone());
        // It ends when the command has closed the terminal.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = (&*from).read(&mut buffer) {
                to.lock().unwrap().process(&buffer[..length]);
                bytes.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Self { pty, child, screen, raw }
    }

    fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// The rows of the scrollback and of the screen.
    fn shown(&self) -> String {
        let mut parser = self.screen.lock().unwrap();
        let screen = parser.screen_mut();
        screen.set_scrollback(SCROLLBACK_ROWS);
        let mut rows = Vec::new();
        let hidden = screen.scrollback();
        for offset in (1..=hidden).rev() {
            screen.set_scrollback(offset);
            let (_, columns) = screen.size();
            rows.extend(screen.rows(0, columns.get()).next());
        }
        screen.set_scrollback(0);
        rows.push(screen.contents());
        rows.join("\n")
    }

    fn wait_for(&self, wanted: &str) {
        wait_until(&format!("{wanted:?} in:\n{}", self.shown()), || self.shown().contains(wanted));
    }

    fn end(mut self) -> Option<i32> {
        self.press("\u{4}");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// The id after `ailoop chat`.
fn session_of(shown: &str) -> String {
    shown.rsplit("ailoop chat ").next().unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn chat_streams_answers_and_is_found_again_by_the_beginning_of_its_id() {
    let world = World::new();
    let fleet = world.start_fleet();
    let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], 80, &[]);
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
    chat.wait_for("left; the session is kept");
    let session = session_of(&chat.shown());
    assert_eq!(chat.end(), Some(0));

    let again = Terminal::spawn(&world, &["chat", &session[..13]], 60, &[("NO_COLOR", "1")]);
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
            let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], columns, variables);
            chat.press("survey\r");
            chat.wait_for("\u{2713} done");
            chat.wait_for("ready \u{b7} ");
            let raw = String::from_utf8_lossy(&chat.raw.lock().unwrap()).into_owned();
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
    let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], 80, &[]);
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
    let chat = Terminal::spawn(&world, &["chat"], 80, &[]);
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
    let chat = Terminal::spawn(&world, &["chat", "--agent", "e"], 100, &[]);
    chat.press("first\r");
    chat.wait_for("step 1/");
    assert_eq!(fleet.end("KILL"), None);
    chat.wait_for("To come back later: ailoop chat ");
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
    assert!(stderr.contains("tokens in, ") && stderr.contains("To come back: ailoop chat "), "{stderr}");
    assert!(!answer.contains('\u{1b}') && !stderr.contains('\u{1b}'));
    let session = session_of(&stderr);
    let read = world.output(&["transcript", &session[..13]]);
    assert!(text(&read.stdout).contains("You wrote: second"), "{}", text(&read.stderr));
    let last = world.with_stdin(&["chat", "--last"], "");
    assert_eq!(exit_code(&last), 0, "{}", text(&last.stderr));
    assert!(text(&last.stderr).contains(&format!("ailoop chat {session}")), "{}", text(&last.stderr));
    assert_eq!(fleet.end("TERM"), Some(0));
}
