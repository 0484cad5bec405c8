//! Keys and lines of the person, and the terminal in raw mode.

use std::time::Instant;

use contract::ErrorCode;
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures::StreamExt as _;
use terminal::failure::CommandFailure;
use tokio::sync::mpsc;

use super::history::History;
use super::line_editor::{Edit, EditorView, LineEditor};
use super::screen::ScreenSize;
use super::slash_command::{CompletionValues, common_prefix, complete};
use crate::gate_prompt::{TypedLine, spawn_reader};

const BEGIN_PASTE_MODE: &str = "\x1b[?2004h";
const END_PASTE_MODE: &str = "\x1b[?2004l";
/// Columns and rows of a terminal that does not say its size.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// Input of the person at the terminal.
#[derive(Debug)]
pub enum UserInput {
    /// They sent a text.
    Line(TypedLine),
    /// They pressed Ctrl-C, which cancels the turn.
    Interrupt,
    /// They pressed Ctrl-D, or stdin has ended.
    End,
    /// The text, the cursor or the size changed.
    Changed,
}

/// Action that a key triggers.
#[derive(Debug, PartialEq, Eq)]
enum KeyAction {
    Edit(Edit),
    Enter,
    Previous,
    Next,
    Complete,
    Interrupt,
    End,
    Redraw,
}

/// Reads keys, and keeps the text that they edit.
#[derive(Debug)]
pub struct KeyInput {
    events: EventStream,
    editor: LineEditor,
    history: History,
    /// Possible completions of the typed text.
    candidates: Vec<String>,
    size: ScreenSize,
    _raw: RawMode,
}

/// Sets the terminal to raw mode, and back when it is dropped.
#[derive(Debug)]
struct RawMode;

impl RawMode {
    fn enable() -> std::io::Result<Self> {
        crossterm::terminal::enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone needs no mode.
        let _gone = crossterm::terminal::disable_raw_mode();
    }
}

impl KeyInput {
    /// Sets the terminal to raw mode.
    pub fn open() -> Result<Self, CommandFailure> {
        let raw = RawMode::enable().map_err(|error| {
            CommandFailure::new(ErrorCode::Internal, format!("the terminal cannot be set to raw mode: {error}"))
                .help("pass the messages on stdin, or set TERM=dumb")
        })?;
        Ok(Self {
            events: EventStream::new(),
            editor: LineEditor::default(),
            history: History::load(),
            candidates: Vec::new(),
            size: current_size(),
            _raw: raw,
        })
    }

    /// The text with which the terminal marks pasted text from now on.
    pub const fn begin() -> &'static str {
        BEGIN_PASTE_MODE
    }

    /// The text that ends [`Self::begin`].
    pub const fn end() -> &'static str {
        END_PASTE_MODE
    }

    /// Returns the size of the terminal.
    pub fn size(&self) -> ScreenSize {
        self.size
    }

    /// Returns the typed text as rows.
    pub fn view(&self, label: &str) -> EditorView {
        self.editor.view(label, self.size.columns)
    }

    /// Returns the completions of the typed text.
    pub fn candidates(&self) -> &[String] {
        &self.candidates
    }

    /// Replaces the typed text.
    pub fn prefill(&mut self, text: &str) {
        self.editor.set(text);
    }

    /// Waits for the next input. It is safe to drop the future: nothing is lost.
    pub async fn next(&mut self, values: &CompletionValues) -> UserInput {
        loop {
            let Some(event) = self.events.next().await else { return UserInput::End };
            let input = match event {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => self.press(key, values),
                Ok(Event::Paste(text)) => {
                    self.editor.apply(&Edit::Insert(text));
                    Some(UserInput::Changed)
                }
                Ok(Event::Resize(..)) => {
                    self.size = current_size();
                    Some(UserInput::Changed)
                }
                Ok(Event::Key(_) | Event::Mouse(_) | Event::FocusGained | Event::FocusLost) => None,
                Err(_gone) => Some(UserInput::End),
            };
            if let Some(input) = input {
                return input;
            }
        }
    }

    fn press(&mut self, key: KeyEvent, values: &CompletionValues) -> Option<UserInput> {
        let action = action_of(key)?;
        let candidates = std::mem::take(&mut self.candidates);
        match action {
            KeyAction::Edit(edit) => {
                self.editor.apply(&edit);
            }
            KeyAction::Enter if self.editor.is_continued() => {
                self.editor.apply(&Edit::Backspace);
                self.editor.apply(&Edit::Insert("\n".to_owned()));
            }
            KeyAction::Enter => {
                let text = self.editor.take();
                self.history.add(&text);
                return Some(UserInput::Line(TypedLine { text, at: Instant::now() }));
            }
            KeyAction::Previous if !self.editor.apply(&Edit::Up) => {
                if let Some(text) = self.history.previous(self.editor.text()) {
                    self.editor.set(text);
                }
            }
            KeyAction::Next if !self.editor.apply(&Edit::Down) => {
                if let Some(text) = self.history.next() {
                    self.editor.set(text);
                }
            }
            KeyAction::Complete => self.complete(values),
            KeyAction::Interrupt => {
                self.candidates = candidates;
                return Some(UserInput::Interrupt);
            }
            KeyAction::End if self.editor.is_empty() => return Some(UserInput::End),
            KeyAction::End => {
                self.editor.apply(&Edit::Delete);
            }
            KeyAction::Redraw | KeyAction::Previous | KeyAction::Next => {}
        }
        Some(UserInput::Changed)
    }

    /// Forgets the typed text; returns whether there was one.
    pub fn clear(&mut self) -> bool {
        self.candidates.clear();
        !self.editor.take().is_empty()
    }

    fn complete(&mut self, values: &CompletionValues) {
        let candidates = complete(self.editor.text(), values);
        let prefix = common_prefix(&candidates);
        if prefix.len() > self.editor.text().len() {
            self.editor.set(&prefix);
        }
        self.candidates = if candidates.len() > 1 { candidates } else { Vec::new() };
    }
}

/// Returns the size of the terminal.
pub fn current_size() -> ScreenSize {
    let (columns, rows) = crossterm::terminal::size().unwrap_or(SIZE_DEFAULT);
    ScreenSize { columns: usize::from(columns).max(10), rows: usize::from(rows).max(3) }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
fn action_of(key: KeyEvent) -> Option<KeyAction> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_alt = key.modifiers.contains(KeyModifiers::ALT);
    let newline = || KeyAction::Edit(Edit::Insert("\n".to_owned()));
    let action = match key.code {
        KeyCode::Enter if is_alt || key.modifiers.contains(KeyModifiers::SHIFT) => newline(),
        KeyCode::Enter => KeyAction::Enter,
        KeyCode::Tab => KeyAction::Complete,
        KeyCode::Up => KeyAction::Previous,
        KeyCode::Down => KeyAction::Next,
        KeyCode::Left if is_control || is_alt => KeyAction::Edit(Edit::WordLeft),
        KeyCode::Right if is_control || is_alt => KeyAction::Edit(Edit::WordRight),
        KeyCode::Left => KeyAction::Edit(Edit::Left),
        KeyCode::Right => KeyAction::Edit(Edit::Right),
        KeyCode::Home => KeyAction::Edit(Edit::LineStart),
        KeyCode::End => KeyAction::Edit(Edit::LineEnd),
        KeyCode::Backspace if is_alt => KeyAction::Edit(Edit::DeleteWordBefore),
        KeyCode::Backspace => KeyAction::Edit(Edit::Backspace),
        KeyCode::Delete => KeyAction::Edit(Edit::Delete),
        KeyCode::Char(c) if is_control => match c {
            'c' => KeyAction::Interrupt,
            'd' => KeyAction::End,
            // Enter, if it was pressed before the terminal was in raw mode.
            'j' => KeyAction::Enter,
            'a' => KeyAction::Edit(Edit::LineStart),
            'e' => KeyAction::Edit(Edit::LineEnd),
            'b' => KeyAction::Edit(Edit::Left),
            'f' => KeyAction::Edit(Edit::Right),
            'h' => KeyAction::Edit(Edit::Backspace),
            'w' => KeyAction::Edit(Edit::DeleteWordBefore),
            'u' => KeyAction::Edit(Edit::DeleteToLineStart),
            'k' => KeyAction::Edit(Edit::DeleteToLineEnd),
            'p' => KeyAction::Previous,
            'n' => KeyAction::Next,
            'l' => KeyAction::Redraw,
            _ => return None,
        },
        KeyCode::Char('b') if is_alt => KeyAction::Edit(Edit::WordLeft),
        KeyCode::Char('f') if is_alt => KeyAction::Edit(Edit::WordRight),
        KeyCode::Char(_) if is_alt => return None,
        KeyCode::Char(c) => KeyAction::Edit(Edit::Insert(c.to_string())),
        _ => return None,
    };
    Some(action)
}

/// Reads lines where nothing can be redrawn.
#[derive(Debug)]
pub struct LineInput {
    lines: mpsc::Receiver<TypedLine>,
    has_ended: bool,
}

impl LineInput {
    /// Begins to read lines of stdin.
    pub fn open() -> Self {
        Self { lines: spawn_reader(), has_ended: false }
    }

    /// Waits for the next line. The end of stdin is returned once.
    pub async fn next(&mut self) -> UserInput {
        if self.has_ended {
            return std::future::pending().await;
        }
        if let Some(line) = self.lines.recv().await {
            return UserInput::Line(line);
        }
        self.has_ended = true;
        UserInput::End
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_usual_actions() {
        let check = |code: KeyCode, modifiers: KeyModifiers, expect: Option<KeyAction>| {
            assert_eq!(action_of(KeyEvent::new(code, modifiers)), expect, "{code:?} {modifiers:?}");
        };
        let insert = |text: &str| Some(KeyAction::Edit(Edit::Insert(text.to_owned())));
        check(KeyCode::Enter, KeyModifiers::NONE, Some(KeyAction::Enter));
        check(KeyCode::Enter, KeyModifiers::ALT, insert("\n"));
        check(KeyCode::Char('j'), KeyModifiers::CONTROL, Some(KeyAction::Enter));
        check(KeyCode::Char('Ä'), KeyModifiers::SHIFT, insert("Ä"));
        check(KeyCode::Char('c'), KeyModifiers::CONTROL, Some(KeyAction::Interrupt));
        check(KeyCode::Char('d'), KeyModifiers::CONTROL, Some(KeyAction::End));
        check(KeyCode::Char('x'), KeyModifiers::ALT, None);
        check(KeyCode::Esc, KeyModifiers::NONE, None);
    }
}
