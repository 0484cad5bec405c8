//! Lays out one block of Markdown as lines.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::table::format_table;
use super::wrap::wrap;
use crate::printable::strip_unprintable;
use crate::terminal::{Style, StyledLine, StyledSpan};

/// Widest line of running text, since longer lines are hard to read. Tables and code use the whole width.
const TEXT_COLUMNS_MAX: usize = 100;
/// Deepest nesting of lists and quotes that is indented.
const DEPTH_MAX: usize = 8;

/// Options for the layout of Markdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkdownLayout {
    /// Columns of a line.
    pub columns: usize,
    /// Whether styles show emphasis and code; else their marks stay.
    pub has_styles: bool,
}

impl MarkdownLayout {
    /// Formats a block of Markdown.
    pub(super) fn format_block(self, markdown: &str) -> Vec<StyledLine> {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
        // Tabs would take columns that nobody counts.
        let text = strip_unprintable(&markdown.replace('\t', "    "));
        let mut formatter = BlockFormatter::new(self);
        for event in Parser::new_ext(&text, options) {
            formatter.handle(event);
        }
        formatter.end_paragraph();
        formatter.lines
    }

    /// Formats the line at the beginning or the end of fenced code; with styles, nothing is shown.
    pub(super) fn format_fence(self, fence: &str) -> Option<StyledLine> {
        (!self.has_styles).then(|| vec![StyledSpan::new(Style::Plain, strip_unprintable(fence.trim()))])
    }

    /// Formats a line of fenced code. It is not wrapped, so that it can be copied.
    pub(super) fn format_code_line(self, line: &str) -> StyledLine {
        let text = strip_unprintable(&line.replace('\t', "    "));
        if self.has_styles {
            vec![StyledSpan::new(Style::Code, format!("  {text}"))]
        } else {
            vec![StyledSpan::new(Style::Plain, text)]
        }
    }
}

/// A list or quote around the current paragraph.
#[derive(Debug)]
enum Container {
    List { next: Option<u64> },
    Item { marker: String, is_marker_shown: bool },
    Quote,
}

#[derive(Debug)]
struct BlockFormatter {
    layout: MarkdownLayout,
    lines: Vec<StyledLine>,
    containers: Vec<Container>,
    /// The current paragraph, heading or cell.
    inline: StyledLine,
    styles: Vec<Style>,
    /// Rows of the current table.
    rows: Vec<Vec<StyledLine>>,
    /// Addresses of the links around the current text.
    links: Vec<String>,
    code: Option<String>,
}

impl BlockFormatter {
    fn new(layout: MarkdownLayout) -> Self {
        Self {
            layout,
            lines: Vec::new(),
            containers: Vec::new(),
            inline: StyledLine::new(),
            styles: Vec::new(),
            rows: Vec::new(),
            links: Vec::new(),
            code: None,
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.push(&text),
            },
            Event::Code(code) => {
                let text = if self.layout.has_styles { code.to_string() } else { format!("`{code}`") };
                self.push_styled(Style::Code, &text);
            }
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.push(&text);
            }
            Event::FootnoteReference(name) => self.push(&format!("[^{name}]")),
            Event::SoftBreak => self.push(" "),
            Event::HardBreak => self.push("\n"),
            Event::Rule => {
                self.end_paragraph();
                let columns = self.text_columns();
                self.emit(vec![vec![StyledSpan::new(Style::Faint, "─".repeat(columns))]]);
            }
            Event::TaskListMarker(is_done) => self.push(if is_done { "[x] " } else { "[ ] " }),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.separate(),
            Tag::Heading { level, .. } => {
                self.separate();
                self.styles.push(Style::Heading);
                if !self.layout.has_styles {
                    self.push(&format!("{} ", "#".repeat(level_number(level))));
                }
            }
            Tag::BlockQuote(_) => {
                self.end_paragraph();
                self.separate();
                self.containers.push(Container::Quote);
            }
            Tag::CodeBlock(kind) => {
                self.end_paragraph();
                self.separate();
                if let (CodeBlockKind::Fenced(info), false) = (kind, self.layout.has_styles) {
                    self.emit(vec![vec![StyledSpan::new(Style::Plain, format!("```{info}"))]]);
                }
                self.code = Some(String::new());
            }
            Tag::List(next) => {
                self.end_paragraph();
                if self.containers.is_empty() {
                    self.separate();
                }
                self.containers.push(Container::List { next });
            }
            Tag::Item => {
                let marker = match self.containers.last_mut() {
                    Some(Container::List { next: Some(number) }) => {
                        let marker = format!("{number}. ");
                        *number = number.saturating_add(1);
                        marker
                    }
                    Some(Container::List { next: None } | Container::Item { .. } | Container::Quote) | None => {
                        "- ".to_owned()
                    }
                };
                self.containers.push(Container::Item { marker, is_marker_shown: false });
            }
            Tag::Emphasis => self.start_style(Style::Emphasis, "*"),
            Tag::Strong => self.start_style(Style::Strong, "**"),
            Tag::Strikethrough => self.push("~~"),
            Tag::Link { dest_url, .. } => self.links.push(dest_url.to_string()),
            Tag::Image { dest_url, .. } => {
                self.links.push(dest_url.to_string());
                self.push("image: ");
            }
            Tag::Table(_) => {
                self.end_paragraph();
                self.separate();
                self.rows.clear();
            }
            Tag::TableHead => {
                self.rows.push(Vec::new());
                self.styles.push(Style::Strong);
            }
            Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_paragraph(),
            TagEnd::Heading(_) => {
                self.end_paragraph();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item => {
                self.end_paragraph();
                self.show_marker();
                self.containers.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::Emphasis => self.end_style("*"),
            TagEnd::Strong => self.end_style("**"),
            TagEnd::Strikethrough => self.push("~~"),
            TagEnd::Link | TagEnd::Image => {
                // The address is shown, since the text may name another one.
                let address = self.links.pop().unwrap_or_default();
                let shown: String = self.inline.iter().map(|span| span.text.as_str()).collect();
                if !address.is_empty() && !shown.ends_with(&address) {
                    self.push_styled(Style::Faint, &format!(" ({address})"));
                }
            }
            TagEnd::TableHead => {
                self.styles.pop();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => {
                let rows = std::mem::take(&mut self.rows);
                let columns = self.layout.columns.saturating_sub(self.indent());
                self.emit(format_table(&rows, columns));
            }
            _ => {}
        }
    }

    fn start_style(&mut self, style: Style, mark: &str) {
        self.styles.push(style);
        if !self.layout.has_styles {
            self.push(mark);
        }
    }

    fn end_style(&mut self, mark: &str) {
        if !self.layout.has_styles {
            self.push(mark);
        }
        self.styles.pop();
    }

    fn push(&mut self, text: &str) {
        let style = self.styles.last().copied().unwrap_or(Style::Plain);
        self.push_styled(style, text);
    }

    fn push_styled(&mut self, style: Style, text: &str) {
        match self.inline.last_mut() {
            Some(last) if last.style == style => last.text.push_str(text),
            Some(_) | None => self.inline.push(StyledSpan::new(style, text)),
        }
    }

    /// Adds an empty line between two blocks of one container.
    fn separate(&mut self) {
        let is_in_new_item = matches!(self.containers.last(), Some(Container::Item { is_marker_shown: false, .. }));
        let is_empty = self.lines.last().is_none_or(Vec::is_empty);
        if !is_empty && !is_in_new_item {
            self.lines.push(StyledLine::new());
        }
    }

    pub(super) fn end_paragraph(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        if inline.iter().all(|span| span.text.trim().is_empty()) {
            return;
        }
        let columns = self.text_columns();
        self.emit(wrap(&inline, columns));
    }

    fn end_code(&mut self) {
        let code = self.code.take().unwrap_or_default();
        let lines = code.lines().map(|line| self.layout.format_code_line(line)).collect();
        self.emit(lines);
        if !self.layout.has_styles {
            self.emit(vec![vec![StyledSpan::new(Style::Plain, "```")]]);
        }
    }

    /// Shows the marker of an item without text.
    fn show_marker(&mut self) {
        if matches!(self.containers.last(), Some(Container::Item { is_marker_shown: false, .. })) {
            self.emit(vec![StyledLine::new()]);
        }
    }

    /// Appends lines with the marks of the containers around them.
    fn emit(&mut self, lines: Vec<StyledLine>) {
        for line in lines {
            let mut prefixed = StyledLine::new();
            for container in self.containers.iter_mut().take(2 * DEPTH_MAX) {
                match container {
                    Container::List { .. } => {}
                    Container::Quote => prefixed.push(StyledSpan::new(Style::Faint, "│ ")),
                    Container::Item { marker, is_marker_shown } => {
                        let is_shown = std::mem::replace(is_marker_shown, true);
                        let text = if is_shown { " ".repeat(marker.len()) } else { marker.clone() };
                        prefixed.push(StyledSpan::new(Style::Plain, text));
                    }
                }
            }
            prefixed.extend(line);
            self.lines.push(prefixed);
        }
    }

    fn indent(&self) -> usize {
        let columns = |container: &Container| match container {
            Container::List { .. } => 0,
            Container::Item { marker, .. } => marker.len(),
            Container::Quote => 2,
        };
        self.containers.iter().take(2 * DEPTH_MAX).map(columns).sum()
    }

    fn text_columns(&self) -> usize {
        self.layout.columns.min(TEXT_COLUMNS_MAX).saturating_sub(self.indent()).max(1)
    }
}

const fn level_number(level: HeadingLevel) -> usize {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}
