//! Tables that fit the width of the terminal.

use super::wrap::{pad, wrap};
use crate::terminal::{Style, StyledLine, StyledSpan, line_width};

/// Fewest columns of a cell; a table that would need narrower cells becomes a list.
const CELL_COLUMNS_MIN: usize = 6;
const SEPARATOR: &str = " │ ";
/// Width of [`SEPARATOR`], in columns.
const SEPARATOR_COLUMNS: usize = 3;

/// Formats a table whose first row is its head.
pub(super) fn format_table(rows: &[Vec<StyledLine>], columns: usize) -> Vec<StyledLine> {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    if count == 0 {
        return Vec::new();
    }
    let room = columns.saturating_sub((count - 1) * SEPARATOR_COLUMNS);
    let Some(widths) = fit(&natural_widths(rows, count), room) else { return format_as_list(rows, columns) };
    let mut lines = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        lines.extend(format_row(row, &widths));
        if index == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            lines.push(vec![StyledSpan::new(Style::Faint, rule.join("─┼─"))]);
        }
    }
    lines
}

fn natural_widths(rows: &[Vec<StyledLine>], count: usize) -> Vec<usize> {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(line_width).max().unwrap_or_default();
    (0..count).map(|column| width(column).max(1)).collect()
}

/// Narrows the widest columns until all fit; none if a cell would be too narrow.
fn fit(natural: &[usize], room: usize) -> Option<Vec<usize>> {
    let total: usize = natural.iter().sum();
    if total <= room {
        return Some(natural.to_vec());
    }
    // The widest limit with which all columns fit: narrow columns keep their width.
    let sum = |limit: usize| natural.iter().map(|width| (*width).min(limit)).sum::<usize>();
    let limit = (CELL_COLUMNS_MIN..=room).rev().find(|limit| sum(*limit) <= room)?;
    let mut widths: Vec<usize> = natural.iter().map(|width| (*width).min(limit)).collect();
    let mut left = room - sum(limit);
    for (width, wanted) in widths.iter_mut().zip(natural) {
        let more = usize::from(left > 0 && *width < *wanted);
        *width += more;
        left -= more;
    }
    Some(widths)
}

fn format_row(row: &[StyledLine], widths: &[usize]) -> Vec<StyledLine> {
    let empty = StyledLine::new();
    let cells: Vec<Vec<StyledLine>> =
        widths.iter().enumerate().map(|(index, width)| wrap(row.get(index).unwrap_or(&empty), *width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or_default();
    let line = |row: usize| {
        let mut line = StyledLine::new();
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let mut part = cell.get(row).cloned().unwrap_or_default();
            let is_end = index + 1 == widths.len() && part.is_empty();
            if index > 0 {
                line.push(StyledSpan::new(Style::Faint, if is_end { SEPARATOR.trim_end() } else { SEPARATOR }));
            }
            if index + 1 < widths.len() {
                pad(&mut part, *width);
            }
            line.extend(part);
        }
        line
    };
    (0..height).map(line).collect()
}

/// Formats each row as lines of `head: cell`.
fn format_as_list(rows: &[Vec<StyledLine>], columns: usize) -> Vec<StyledLine> {
    let Some((head, rows)) = rows.split_first() else { return Vec::new() };
    let mut lines = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            lines.push(StyledLine::new());
        }
        for (name, cell) in head.iter().zip(row) {
            let mut line = name.clone();
            line.push(StyledSpan::new(Style::Plain, ": "));
            line.extend(cell.iter().cloned());
            lines.extend(wrap(&line, columns));
        }
    }
    lines
}
