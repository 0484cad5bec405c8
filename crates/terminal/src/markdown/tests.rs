use super::*;
use crate::columns;
use crate::terminal::{Style, StyledSpan};

const REPLY: &str = "\
# Report

A *short* text with **bold** parts, `code()` and [a link](https://example.com/x) that is long enough to be wrapped.

- one
- two
  - nested item
3. three

```rust
fn main() {
    let long = \"a line of code that is longer than sixty columns is not wrapped\";
}
```

| name | what it does | n |
|---|---|---|
| read_file | reads a file, from a line on, up to a number of lines | 12 |
| x | y | 3 |

> quoted
> text
";

/// Formats a text in pieces of this many characters; styles are shown as letters in braces.
fn format(text: &str, columns: usize, has_styles: bool, piece: usize) -> String {
    let mut stream = MarkdownStream::new(MarkdownLayout { columns, has_styles });
    let characters: Vec<char> = text.chars().collect();
    let mut lines = Vec::new();
    for piece in characters.chunks(piece) {
        lines.extend(stream.push(&piece.iter().collect::<String>()));
    }
    lines.extend(stream.finish());
    let format = |line: &StyledLine| {
        if has_styles { show(line) } else { line.iter().map(|span| span.text.as_str()).collect::<String>() }
    };
    lines.iter().map(|line| format(line) + "\n").collect()
}

fn show(line: &StyledLine) -> String {
    let part = |span: &StyledSpan| match span.style {
        Style::Plain => span.text.clone(),
        Style::Heading => format!("{{H {}}}", span.text),
        Style::Strong => format!("{{B {}}}", span.text),
        Style::Emphasis => format!("{{I {}}}", span.text),
        Style::Code => format!("{{C {}}}", span.text),
        Style::Faint => format!("{{F {}}}", span.text),
        Style::Good | Style::Warn | Style::Bad => unreachable!("no style of Markdown"),
    };
    line.iter().map(part).collect()
}

fn check_golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/markdown/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "{name} differs; UPDATE_GOLDEN=1 writes it");
}

#[test]
fn reply_is_laid_out_for_the_width() {
    for columns in [60, 80, 200] {
        let plain = format(REPLY, columns, false, 7);
        for line in plain.lines().filter(|line| !line.contains("let long")) {
            assert!(columns::width(line) <= columns, "{columns}: {line}");
        }
        check_golden(&format!("reply_{columns}_plain.txt"), &plain);
    }
    check_golden("reply_60_styled.txt", &format(REPLY, 60, true, 7));
}

#[test]
fn text_in_pieces_of_any_size_gives_the_same_lines() {
    let whole = format(REPLY, 80, true, usize::MAX);
    for piece in [1, 2, 3, 5, 50] {
        assert_eq!(format(REPLY, 80, true, piece), whole, "{piece}");
    }
}

#[test]
fn complete_block_is_returned_before_the_text_ends() {
    let mut stream = MarkdownStream::new(MarkdownLayout { columns: 80, has_styles: true });
    assert_eq!(stream.push("one\n\n"), Vec::<StyledLine>::new());
    assert_eq!(stream.preview().iter().map(show).collect::<Vec<_>>(), ["one"]);
    assert_eq!(stream.push("t").iter().map(show).collect::<Vec<_>>(), ["one"]);
    assert_eq!(stream.push("wo\n```\nlet a").iter().map(show).collect::<Vec<_>>(), ["", "two"]);
    assert_eq!(stream.push(" = 1;\nb").iter().map(show).collect::<Vec<_>>(), ["", "{C   let a = 1;}"]);
    assert_eq!(stream.finish().iter().map(show).collect::<Vec<_>>(), ["{C   b}"]);
}

#[test]
fn control_characters_and_directions_are_removed() {
    let hostile = "a\u{1b}]52;c;eA==\u{7}b \u{202e}txt `\u{1b}[2J` [x](http://y\u{1b}[1m)\n\n```\n\u{9b}2J\r\n```\n\n\
                   |\u{1b}a|\n|---|\n|\u{202e}b|\n";
    let shown = format(hostile, 80, true, 3);
    assert!(!shown.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{shown:?}");
}

#[test]
fn link_shows_its_address() {
    let shown = format("[bank](https://evil.example) <https://ok.example>", 80, true, 80);
    assert_eq!(shown, "bank{F  (https://evil.example)} https://ok.example\n");
}

#[test]
fn long_line_has_a_bound_and_is_wrapped() {
    let shown = format(&"x".repeat(1 << 20), 80, true, 4096);
    assert_eq!(shown.chars().filter(|c| *c == 'x').count(), 1 << 20);
    assert!(shown.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn table_without_room_becomes_a_list() {
    let shown = format("|aa|bb|cc|\n|---|---|---|\n|one more|two more|three more|\n", 20, false, 50);
    assert_eq!(shown, "aa: one more\nbb: two more\ncc: three more\n");
}

#[test]
fn code_in_a_list_stays_in_its_item() {
    let shown = format("1. run\n\n   ```sh\n   make\n\n   make test\n   ```\n2. done\n", 80, true, 4);
    assert_eq!(shown, "1. run\n\n   {C   make}\n   {C   }\n   {C   make test}\n2. done\n");
}
