//! The rows at the bottom of the terminal that a chat redraws, below the lines that stay. Pure.
//!
//! Lines that stay are printed once, so that they are in the terminal's own scrollback. Only the rows of the region are
//! redrawn.

use std::fmt::Write as _;

use terminal::columns::{clip, width};
use terminal::{BEGIN_FRAME, END_FRAME, Output, Style, clip_line, format_output, line_width};

/// The size of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenSize {
    /// Columns of a row.
    pub columns: usize,
    pub(crate) rows: usize,
}

/// Content of the region: one output for each row.
#[derive(Debug, Default)]
pub struct Region {
    /// Rows from top to bottom.
    pub rows: Vec<Output>,
    /// Row and column of the cursor.
    pub cursor: (usize, usize),
}

/// The terminal, as far as the next frame must know what is drawn.
#[derive(Debug)]
pub struct Screen {
    size: ScreenSize,
    has_styles: bool,
    /// Columns of each drawn row.
    drawn: Vec<usize>,
    cursor_row: usize,
}

impl Screen {
    /// Makes a screen on which nothing is drawn.
    pub fn new(size: ScreenSize, has_styles: bool) -> Self {
        Self { size, has_styles, drawn: Vec::new(), cursor_row: 0 }
    }

    /// Returns the size of the terminal.
    pub fn size(&self) -> ScreenSize {
        self.size
    }

    /// Sets the size of the terminal.
    pub fn resize(&mut self, size: ScreenSize) {
        self.size = size;
    }

    /// Makes the frame that prints lines above the region and draws the region again.
    pub fn frame(&mut self, outputs: &[Output], region: &Region) -> String {
        let mut frame = BEGIN_FRAME.to_owned();
        // A narrower terminal has wrapped the rows above the cursor.
        let columns = self.size.columns.max(1);
        let up: usize = self.drawn.iter().take(self.cursor_row).map(|width| width.div_ceil(columns).max(1)).sum();
        if up > 0 {
            let _ = write!(frame, "\x1b[{up}A");
        }
        frame.push_str("\r\x1b[J");
        let columns = Some(self.size.columns);
        for line in outputs.iter().flat_map(|output| format_output(output, self.has_styles, columns)) {
            frame.push_str(&line);
            frame.push_str("\r\n");
        }
        self.draw(&mut frame, region);
        frame.push_str(END_FRAME);
        frame
    }

    fn draw(&mut self, frame: &mut String, region: &Region) {
        // The last column stays free, since terminals differ in where the cursor is after it.
        let columns = self.size.columns.saturating_sub(1).max(1);
        let rows_max = self.size.rows.saturating_sub(1).max(1);
        // The cursor is always visible, else the last rows.
        let skipped = region.rows.len().saturating_sub(rows_max).min(region.cursor.0);
        let end = (skipped + rows_max).min(region.rows.len());
        let shown = region.rows.get(skipped..end).unwrap_or_default();
        self.drawn.clear();
        for (index, row) in shown.iter().enumerate() {
            if index > 0 {
                frame.push_str("\r\n");
            }
            let row = clip_row(row, columns);
            self.drawn.push(row_width(&row));
            frame.push_str(&format_output(&row, self.has_styles, None).concat());
        }
        self.cursor_row = region.cursor.0.saturating_sub(skipped).min(shown.len().saturating_sub(1));
        let up = shown.len().saturating_sub(1 + self.cursor_row);
        if up > 0 {
            let _ = write!(frame, "\x1b[{up}A");
        }
        frame.push('\r');
        if region.cursor.1 > 0 {
            let _ = write!(frame, "\x1b[{}C", region.cursor.1.min(columns));
        }
    }
}

/// Cuts a row to a number of columns.
fn clip_row(row: &Output, columns: usize) -> Output {
    match row {
        Output::Data(text) => Output::Note(Style::Plain, clip(text.trim_end(), columns)),
        Output::Note(style, text) => Output::Note(*style, clip(text, columns)),
        Output::Line(line) => Output::Line(clip_line(line, columns)),
    }
}

fn row_width(row: &Output) -> usize {
    match row {
        Output::Data(text) | Output::Note(_, text) => width(text),
        Output::Line(line) => line_width(line),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use super::*;

    fn region(rows: &[&str], cursor: (usize, usize)) -> Region {
        Region { rows: rows.iter().map(|row| note(row)).collect(), cursor }
    }

    fn note(text: &str) -> Output {
        Output::Note(Style::Faint, text.to_owned())
    }

    /// Returns the text that a terminal shows after frames, without empty rows at the end.
    fn shown(terminal: &vt100::Parser) -> String {
        terminal.screen().contents().trim_end().to_owned()
    }

    fn terminal(size: ScreenSize) -> (vt100::Parser, Screen) {
        let nonzero = |number: usize| NonZero::new(u16::try_from(number).unwrap()).unwrap();
        let (rows, columns) = (nonzero(size.rows), nonzero(size.columns));
        (vt100::Parser::new(rows, columns, 100), Screen::new(size, true))
    }

    #[test]
    fn lines_stay_above_the_region() {
        let (mut terminal, mut screen) = terminal(ScreenSize { columns: 20, rows: 8 });
        terminal.process(screen.frame(&[], &region(&["status", "> ab"], (1, 4))).as_bytes());
        assert_eq!((shown(&terminal).as_str(), terminal.screen().cursor_position()), ("status\n> ab", (1, 4)));
        let long = "a line that is wrapped at words";
        terminal
            .process(screen.frame(&[note("one"), note(long)], &region(&["now", "> abc", "tab"], (1, 5))).as_bytes());
        assert_eq!(shown(&terminal), "one\na line that is\n  wrapped at words\nnow\n> abc\ntab",);
        assert_eq!(terminal.screen().cursor_position(), (4, 5));
        terminal.process(screen.frame(&[note("two")], &Region::default()).as_bytes());
        assert!(shown(&terminal).ends_with("\ntwo"), "{}", shown(&terminal));
    }

    #[test]
    fn region_larger_than_the_terminal_keeps_the_cursor_visible() {
        let (mut terminal, mut screen) = terminal(ScreenSize { columns: 10, rows: 4 });
        let rows = ["a", "b", "c", "d", "e", "f"];
        terminal.process(screen.frame(&[], &region(&rows, (5, 1))).as_bytes());
        assert_eq!(shown(&terminal), "d\ne\nf");
        terminal.process(screen.frame(&[note("x")], &region(&rows, (1, 0))).as_bytes());
        assert!(shown(&terminal).contains("b\nc\nd"), "{}", shown(&terminal));
    }

    #[test]
    fn rows_are_cut_to_the_width_and_stay_one_row() {
        let (mut terminal, mut screen) = terminal(ScreenSize { columns: 10, rows: 4 });
        for _ in 0..3 {
            terminal.process(screen.frame(&[], &region(&["a status of many columns", "> "], (1, 2))).as_bytes());
        }
        assert_eq!(shown(&terminal), "a status…\n>");
    }

    #[test]
    fn hostile_text_moves_nothing() {
        let (mut terminal, mut screen) = terminal(ScreenSize { columns: 30, rows: 6 });
        let hostile = "x\u{1b}[2J\u{1b}]52;c;eA==\u{7}\u{1b}]0;title\u{7}\r\u{9b}5Ay\u{202e}";
        terminal.process(screen.frame(&[note("kept")], &region(&[hostile], (0, 0))).as_bytes());
        let again = screen.frame(&[note(hostile)], &region(&["> "], (0, 2)));
        terminal.process(again.as_bytes());
        assert_eq!(shown(&terminal), "kept\nx[2J]52;c;eA==]0;title5Ay\n>");
    }
}
