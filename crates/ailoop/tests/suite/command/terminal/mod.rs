//! A command at a terminal of its own, whose screen an emulator keeps.

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use pty_process::Size;
use pty_process::blocking::{Command, Pty};

use crate::command::world::{DEADLINE, POLL_INTERVAL, World};

/// Rows of the terminal.
const ROWS: u16 = 30;
/// Rows of scrollback that the terminal keeps.
const SCROLLBACK_ROWS: usize = 1_000;

/// Size and variables of a terminal.
#[derive(Debug, Clone)]
pub(crate) struct TerminalSettings<'a> {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
    /// Further variables of the command.
    pub(crate) variables: &'a [(&'a str, &'a str)],
}

impl TerminalSettings<'_> {
    /// A terminal with colours.
    pub(crate) const fn new(columns: u16) -> Self {
        Self { columns, rows: ROWS, variables: &[] }
    }
}

/// A command at a terminal.
pub(crate) struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Everything that was written to the terminal.
    raw: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    pub(crate) fn spawn(world: &World, line: &[&str], settings: &TerminalSettings<'_>) -> Self {
        let TerminalSettings { columns, rows, variables } = *settings;
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
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
        let size = |number: u16| NonZero::new(number).unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(size(rows), size(columns), SCROLLBACK_ROWS)));
        let raw = Arc::new(Mutex::new(Vec::new()));
        let (from, to, bytes) = (pty.clone(), screen.clone(), raw.clone());
        // It ends when the command has closed the terminal.
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = (&*from).read(&mut buffer) {
                // Whoever has the lock of the bytes sees a screen that shows all of them.
                let mut bytes = bytes.lock().unwrap();
                to.lock().unwrap().process(&buffer[..length]);
                bytes.extend_from_slice(&buffer[..length]);
            }
        });
        Self { pty, child, screen, raw, reader: Some(reader) }
    }

    /// Types keys at the terminal.
    pub(crate) fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Returns everything that was written to the terminal.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw.lock().unwrap()).into_owned()
    }

    /// Whether the command has switched to the alternate screen.
    pub(crate) fn is_other_screen(&self) -> bool {
        self.screen.lock().unwrap().screen().alternate_screen()
    }

    /// Returns the rows of the scrollback and of the screen.
    pub(crate) fn shown(&self) -> String {
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

    /// Returns the rows of the screen as the emulator shows them, one line each, when the current frame is complete.
    /// Styles are in braces, such as `{green done}`.
    pub(crate) fn snapshot(&self) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let raw = self.raw.lock().unwrap();
            if is_between_frames(&raw) {
                return self.styled_rows();
            }
            drop(raw);
            assert!(Instant::now() < deadline, "a frame has no end:\n{}", self.shown());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn styled_rows(&self) -> String {
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        let (rows, columns) = screen.size();
        let lines: Vec<String> = (0..rows.get()).map(|row| styled_row(screen, row, columns.get())).collect();
        lines.join("\n").trim_end().to_owned() + "\n"
    }

    pub(crate) fn wait_for(&self, wanted: &str) {
        let deadline = Instant::now() + DEADLINE;
        while !self.shown().contains(wanted) {
            assert!(Instant::now() < deadline, "never: {wanted:?} in:\n{}", self.shown());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the command has ended and everything it wrote is on the screen.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let exit = self.child.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        exit
    }

    /// Presses Ctrl-D and waits for the end.
    pub(crate) fn end(mut self) -> Option<i32> {
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

/// Whether every frame that began has ended.
fn is_between_frames(raw: &[u8]) -> bool {
    let last = |sequence: &[u8]| raw.windows(sequence.len()).rposition(|window| window == sequence);
    last(b"\x1b[?2026h") <= last(b"\x1b[?2026l")
}

/// Formats a row with its styles, without blanks at its end.
fn styled_row(screen: &vt100::Screen, row: u16, columns: u16) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column) else { continue };
        if cell.is_wide_continuation() {
            continue;
        }
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let style = style_of(cell);
        match parts.last_mut() {
            Some((last, part)) if *last == style => part.push_str(text),
            Some(_) | None => parts.push((style, text.to_owned())),
        }
    }
    let format = |(style, text): &(String, String)| {
        if style.is_empty() { text.clone() } else { format!("{{{style} {text}}}") }
    };
    parts.iter().map(format).collect::<String>().trim_end().to_owned()
}

/// Names the style of a cell; empty for plain text.
fn style_of(cell: &vt100::Cell) -> String {
    const COLOURS: [&str; 8] = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
    let mut names = Vec::new();
    for (is_set, name) in [
        (cell.bold(), "bold"),
        (cell.dim(), "faint"),
        (cell.italic(), "italic"),
        (cell.underline(), "underline"),
        (cell.inverse(), "inverse"),
    ] {
        if is_set {
            names.push(name.to_owned());
        }
    }
    for (colour, place) in [(cell.fgcolor(), ""), (cell.bgcolor(), "on ")] {
        match colour {
            vt100::Color::Default => {}
            vt100::Color::Idx(index) => {
                let name = COLOURS.get(usize::from(index)).map_or_else(|| index.to_string(), |name| (*name).to_owned());
                names.push(format!("{place}{name}"));
            }
            vt100::Color::Rgb(r, g, b) => names.push(format!("{place}#{r:02x}{g:02x}{b:02x}")),
        }
    }
    names.join(" ")
}
