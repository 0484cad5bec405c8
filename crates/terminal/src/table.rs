//! Tables that fit the terminal. Pure.

use crate::columns::{clip, width};
use crate::printable::one_line;
use crate::terminal::{Style, StyledLine, StyledSpan};

/// Columns between two cells.
const GAP: &str = "  ";
/// Fewest columns of a text that is cut.
const TEXT_COLUMNS_MIN: usize = 12;
/// Columns of a text in a file or a pipe.
const TEXT_COLUMNS_MAX: usize = 60;

/// Layout of a column in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnKind {
    /// A name that is never cut.
    Name,
    /// A number that is never cut, at the right edge of its column.
    Number,
    /// A text that is cut if the table is too narrow.
    Text,
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableColumn {
    head: &'static str,
    kind: ColumnKind,
    /// Rank by which columns are left out of a narrow table, the highest number first; a column with 0 always stays.
    leave_out_rank: u8,
}

impl TableColumn {
    /// A column of names, which are never cut.
    pub const fn name(head: &'static str) -> Self {
        Self { head, kind: ColumnKind::Name, leave_out_rank: 0 }
    }

    /// A column of numbers, at its right edge.
    pub const fn number(head: &'static str) -> Self {
        Self { head, kind: ColumnKind::Number, leave_out_rank: 0 }
    }

    /// A column of texts, which are cut if the table is too narrow.
    pub const fn text(head: &'static str) -> Self {
        Self { head, kind: ColumnKind::Text, leave_out_rank: 0 }
    }

    /// Leaves the column out of a narrow table, before columns with a lower rank.
    #[must_use]
    pub const fn optional(self, leave_out_rank: u8) -> Self {
        Self { leave_out_rank, ..self }
    }
}

/// Columns that a table may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableWidth {
    /// Columns of a terminal, which bound the table.
    Terminal(usize),
    /// A file or a pipe: every column, and texts of a bounded length.
    File,
    /// Everything, however wide it is.
    Unlimited,
}

/// A cell, and how it looks if styles are on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableCell {
    text: String,
    style: Style,
}

impl TableCell {
    /// Makes a cell with one line of a text.
    pub fn new(style: Style, text: &str) -> Self {
        Self { text: one_line(text.trim()), style }
    }
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self::new(Style::Plain, &text)
    }
}

impl From<&str> for TableCell {
    fn from(text: &str) -> Self {
        Self::new(Style::Plain, text)
    }
}

/// Rows of cells below a head.
#[derive(Debug)]
pub struct Table {
    columns: Vec<TableColumn>,
    rows: Vec<Vec<TableCell>>,
}

impl Table {
    /// Makes a table without rows.
    pub fn new(columns: &[TableColumn]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn push(&mut self, row: Vec<TableCell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    /// Adds rows with a cell for each column.
    #[must_use]
    pub fn with_rows<C: Into<TableCell>>(mut self, rows: impl IntoIterator<Item = Vec<C>>) -> Self {
        for row in rows {
            self.push(row.into_iter().map(Into::into).collect());
        }
        self
    }

    /// Lays the table out. A column is as wide as its widest cell, as long as the table fits.
    pub fn lines(&self, width: TableWidth) -> Vec<StyledLine> {
        let fitted = self.fit(width);
        let head: Vec<TableCell> =
            self.columns.iter().map(|column| TableCell { text: column.head.to_owned(), style: Style::Faint }).collect();
        std::iter::once(&head).chain(&self.rows).map(|row| self.line(row, &fitted)).collect()
    }

    /// Returns the columns that are shown, by index, and their widths.
    fn fit(&self, limit: TableWidth) -> Vec<(usize, usize)> {
        let mut shown: Vec<(usize, usize)> = self.natural_widths().into_iter().enumerate().collect();
        let columns = match limit {
            TableWidth::Unlimited => return shown,
            TableWidth::File => {
                for (index, width) in &mut shown {
                    if self.columns[*index].kind == ColumnKind::Text {
                        *width = (*width).min(TEXT_COLUMNS_MAX);
                    }
                }
                return shown;
            }
            TableWidth::Terminal(columns) => columns,
        };
        let narrowest = |shown: &[(usize, usize)]| {
            let cells: usize = shown
                .iter()
                .map(|(index, width)| match self.columns[*index].kind {
                    ColumnKind::Text => (*width).min(TEXT_COLUMNS_MIN),
                    ColumnKind::Name | ColumnKind::Number => *width,
                })
                .sum();
            cells + GAP.len() * shown.len().saturating_sub(1)
        };
        while narrowest(&shown) > columns {
            let rank = |(index, _): &(usize, usize)| self.columns[*index].leave_out_rank;
            let Some(position) = (0..shown.len()).max_by_key(|position| rank(&shown[*position])) else { break };
            if rank(&shown[position]) == 0 {
                break;
            }
            shown.remove(position);
        }
        self.cut_texts(&mut shown, columns);
        shown
    }

    /// Takes the columns that are too many from the widest texts.
    fn cut_texts(&self, shown: &mut [(usize, usize)], columns: usize) {
        let total = |shown: &[(usize, usize)]| {
            shown.iter().map(|(_, width)| width).sum::<usize>() + GAP.len() * shown.len().saturating_sub(1)
        };
        while total(shown) > columns {
            let widest = shown
                .iter_mut()
                .filter(|(index, width)| self.columns[*index].kind == ColumnKind::Text && *width > TEXT_COLUMNS_MIN)
                .max_by_key(|(_, width)| *width);
            let Some((_, width)) = widest else { break };
            *width -= 1;
        }
    }

    fn natural_widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| width(column.head)).collect();
        for row in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width(&cell.text));
            }
        }
        widths
    }

    fn line(&self, row: &[TableCell], shown: &[(usize, usize)]) -> StyledLine {
        let mut line = StyledLine::new();
        let mut blank = 0;
        for (position, (index, columns)) in shown.iter().enumerate() {
            let Some(cell) = row.get(*index) else { continue };
            if position > 0 {
                blank += GAP.len();
            }
            let text = clip(&cell.text, *columns);
            let missing = columns.saturating_sub(width(&text));
            let is_number = self.columns[*index].kind == ColumnKind::Number;
            if is_number {
                blank += missing;
            }
            if !text.is_empty() {
                if blank > 0 {
                    line.push(StyledSpan::new(Style::Plain, " ".repeat(blank)));
                }
                line.push(StyledSpan::new(cell.style, text));
                blank = 0;
            }
            if !is_number {
                blank += missing;
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(columns: &[TableColumn], rows: &[&[&str]], width: TableWidth, expect: &[&str]) {
        let rows = rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect());
        let lines = Table::new(columns).with_rows(rows).lines(width);
        let lines: Vec<String> =
            lines.iter().map(|line| line.iter().map(|span| span.text.as_str()).collect::<String>()).collect();
        assert_eq!(lines, expect, "{width:?}");
    }

    #[test]
    fn cells_of_different_widths_are_aligned() {
        let columns = [TableColumn::name("X"), TableColumn::number("N"), TableColumn::name("Y")];
        let rows: &[&[&str]] = &[&["a", "1", "bbb"], &["äää", "1,000", ""], &["日本", "20", "c"]];
        let expect = ["X         N  Y", "a         1  bbb", "äää   1,000", "日本     20  c"];
        check(&columns, rows, TableWidth::Unlimited, &expect);
    }

    #[test]
    fn narrow_table_leaves_columns_out_and_cuts_texts() {
        let columns = [
            TableColumn::name("ID"),
            TableColumn::number("TOKENS").optional(2),
            TableColumn::name("MODEL").optional(1),
            TableColumn::text("TITLE"),
        ];
        let rows: &[&[&str]] = &[&["01a2", "1,000", "qwen", "a title that is long, with\nanother line too"]];
        let title = "a title that is long, with another line too";
        check(
            &columns,
            rows,
            TableWidth::Terminal(60),
            &["ID    TOKENS  MODEL  TITLE", &format!("01a2   1,000  qwen   {}…", &title[..38])],
        );
        check(&columns, rows, TableWidth::Terminal(32), &["ID    MODEL  TITLE", "01a2  qwen   a title that is lo…"]);
        check(&columns, rows, TableWidth::Terminal(20), &["ID    TITLE", "01a2  a title that …"]);
        check(&columns, rows, TableWidth::Terminal(5), &["ID    TITLE", "01a2  a title tha…"]);
    }

    #[test]
    fn file_has_every_column_and_bounded_texts() {
        let columns = [TableColumn::name("ID"), TableColumn::text("TITLE").optional(1)];
        let long = "x".repeat(100);
        let rows: &[&[&str]] = &[&["a", &long]];
        check(&columns, rows, TableWidth::File, &["ID  TITLE", &format!("a   {}…", "x".repeat(59))]);
        check(&columns, rows, TableWidth::Unlimited, &["ID  TITLE", &format!("a   {long}")]);
    }
}
