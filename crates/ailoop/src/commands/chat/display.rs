//! Display and input of a chat: a redrawn region at a terminal, else plain lines.

use session_view::chat::input::{KeyInput, LineInput, UserInput};
use session_view::chat::screen::{Region, Screen};
use session_view::chat::slash_command::CompletionValues;
use terminal::failure::CommandFailure;
use terminal::{Layout, Output, ReplyFormat, StdoutClosed, Style, StyledLine, Terminal};

use crate::commands::live_display::PREVIEW_ROWS_MAX;

/// Rows of completions and of waiting messages.
const HINT_ROWS_MAX: usize = 8;
const LABEL: &str = "› ";

/// Output of the chat: a redrawn region or plain lines.
#[derive(Debug)]
pub(super) struct Display<'a> {
    terminal: &'a Terminal,
    mode: DisplayMode,
}

#[derive(Debug)]
enum DisplayMode {
    Redrawn { input: Box<KeyInput>, screen: Screen },
    Lines(LineInput),
}

/// Content of the region above the typed text.
#[derive(Debug, Default)]
pub(super) struct RegionContent {
    pub(super) preview: Vec<StyledLine>,
    /// The plan of the turn.
    pub(super) plan: Vec<(Style, String)>,
    /// Messages that the model has not read yet.
    pub(super) pending: Vec<String>,
    pub(super) status: String,
    pub(super) status_style: Option<Style>,
    /// Label of the typed text, if it is no message.
    pub(super) label: Option<&'static str>,
}

impl<'a> Display<'a> {
    pub(super) fn open(terminal: &'a Terminal) -> Result<Self, CommandFailure> {
        let mode = if terminal.can_redraw() {
            let input = Box::new(KeyInput::open()?);
            let screen = Screen::new(input.size(), terminal.has_styles());
            // If stdout is closed, the first frame fails, too.
            let _closed = Terminal::print_frame(KeyInput::begin());
            DisplayMode::Redrawn { input, screen }
        } else {
            DisplayMode::Lines(LineInput::open())
        };
        Ok(Self { terminal, mode })
    }

    /// Whether the region is redrawn.
    pub(super) fn is_redrawn(&self) -> bool {
        matches!(self.mode, DisplayMode::Redrawn { .. })
    }

    pub(super) fn layout(&self) -> Layout {
        match &self.mode {
            DisplayMode::Redrawn { screen, .. } => Layout {
                columns: screen.size().columns,
                reply: ReplyFormat::Markdown { has_styles: self.terminal.has_styles() },
            },
            DisplayMode::Lines(_) => self.terminal.layout(),
        }
    }

    pub(super) async fn next_input(&mut self, values: &CompletionValues) -> UserInput {
        match &mut self.mode {
            DisplayMode::Redrawn { input, .. } => input.next(values).await,
            DisplayMode::Lines(input) => input.next().await,
        }
    }

    /// Replaces the typed text; where nothing can be edited, the text is printed.
    pub(super) fn prefill(&mut self, text: &str) {
        match &mut self.mode {
            DisplayMode::Redrawn { input, .. } => input.prefill(text),
            DisplayMode::Lines(_) => self.terminal.note(Style::Plain, text),
        }
    }

    /// Forgets the typed text; returns whether there was one.
    pub(super) fn clear_input(&mut self) -> bool {
        match &mut self.mode {
            DisplayMode::Redrawn { input, .. } => input.clear(),
            DisplayMode::Lines(_) => false,
        }
    }

    /// Prints lines, and shows the region below them.
    pub(super) fn show(&mut self, outputs: &[Output], content: &RegionContent) -> Result<(), StdoutClosed> {
        match &mut self.mode {
            DisplayMode::Redrawn { input, screen } => {
                screen.resize(input.size());
                let region = make_region(input, content);
                Terminal::print_frame(&screen.frame(outputs, &region))
            }
            DisplayMode::Lines(_) => self.terminal.print_outputs(outputs),
        }
    }

    /// Removes the region, and prints the last lines.
    pub(super) fn close(&mut self, outputs: &[Output]) {
        // Nobody reads a stdout that is closed.
        let _closed = match &mut self.mode {
            DisplayMode::Redrawn { screen, .. } => {
                let frame = screen.frame(outputs, &Region::default());
                Terminal::print_frame(&format!("{frame}{}", KeyInput::end()))
            }
            DisplayMode::Lines(_) => self.terminal.print_outputs(outputs),
        };
    }
}

fn make_region(input: &KeyInput, content: &RegionContent) -> Region {
    let skipped = content.preview.len().saturating_sub(PREVIEW_ROWS_MAX);
    let mut rows: Vec<Output> = content.preview.iter().skip(skipped).cloned().map(Output::Line).collect();
    let note = |style: Style, text: String| Output::Note(style, text);
    rows.extend(content.plan.iter().map(|(style, line)| note(*style, line.clone())));
    let waiting = content.pending.iter().take(HINT_ROWS_MAX);
    rows.extend(waiting.map(|text| note(Style::Faint, format!("  waits: {text}"))));
    rows.push(note(content.status_style.unwrap_or(Style::Faint), content.status.clone()));
    let view = input.view(content.label.unwrap_or(LABEL));
    let cursor = (rows.len() + view.cursor_row, view.cursor_column);
    rows.extend(view.rows.into_iter().map(|row| note(Style::Plain, row)));
    let candidates = input.candidates();
    rows.extend(candidates.iter().take(HINT_ROWS_MAX).map(|text| note(Style::Faint, format!("  {text}"))));
    if candidates.len() > HINT_ROWS_MAX {
        rows.push(note(Style::Faint, format!("  and {} more", candidates.len() - HINT_ROWS_MAX)));
    }
    Region { rows, cursor }
}
