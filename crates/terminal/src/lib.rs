//! Text for people at a terminal: styles, columns, tables, Markdown, and the failure of a command.
//!
//! This crate gets texts and error codes, and knows neither sessions nor fleets.
//!
//! # Layout
//!
//! - `terminal` is the only module that prints; [`failure`] has what it says when a command fails.
//! - [`markdown`] and [`table`] lay out; [`columns`], [`format`](mod@format) and [`printable`] treat single texts.
//! - [`text_argument`] reads a text from the command line and stdin.

pub mod columns;
pub mod failure;
pub mod format;
pub mod markdown;
pub mod printable;
pub mod table;
mod terminal;
pub mod text_argument;

pub use self::terminal::{
    BEGIN_FRAME, END_FRAME, Layout, Output, ReplyFormat, StdoutClosed, Style, StyledLine, StyledSpan, Terminal,
    clip_line, format_line, format_output, line_width,
};
