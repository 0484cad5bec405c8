//! Removes or escapes unsafe characters of texts that models, tools and other users wrote.

use std::fmt::Write as _;

use contract::text::is_hidden;

/// Removes control characters other than newline and tab: they could move the cursor, set the title of the window, or
/// send keys.
pub(crate) fn strip_control(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

/// As `strip_control`, and removes characters that change the direction of writing.
pub fn strip_unprintable(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || is_directional(*c))).collect()
}

/// As [`strip_unprintable`], on one line: for texts of others in a line of ours.
pub fn one_line(text: &str) -> String {
    strip_unprintable(&text.replace(['\n', '\r', '\t'], " "))
}

/// Replaces invisible characters, for example by `<U+200B>`, so that nobody approves what they cannot see.
pub fn reveal_invisible(text: &str) -> String {
    let mut revealed = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            let _ = write!(revealed, "<U+{:04X}>", u32::from(c));
        } else {
            revealed.push(c);
        }
    }
    revealed
}

/// Escapes the control characters of a JSON text; its value stays the same.
pub(crate) fn escape_json(text: &str) -> String {
    escape(text, |c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
}

/// As `escape_json`, and escapes invisible characters.
pub fn escape_invisible_json(text: &str) -> String {
    escape(text, |c| is_hidden(c) || c == '\t')
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Whether this is a format character of Unicode that changes the direction of writing.
const fn is_directional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strip_text_with_control_characters_removes_them() {
        assert_eq!(strip_control("a\x1b]0;title\x07b\n\tc\u{9b}2J\r"), "a]0;titleb\n\tc2J");
        assert_eq!(strip_unprintable("rm \u{202e}fdp.exe\u{202c} שלום\x1b[2J"), "rm fdp.exe שלום[2J");
    }

    #[test]
    fn reveal_invisible_text_with_hidden_characters_names_them() {
        assert_eq!(reveal_invisible("a\u{202e}b\u{200b}c\x1bd\ne"), "a<U+202E>b<U+200B>c<U+001B>d\ne");
        // Fillers have a width but no visible glyph.
        assert_eq!(reveal_invisible("rm\u{3164}\u{115f}x"), "rm<U+3164><U+115F>x");
    }

    #[test]
    fn escape_json_with_control_characters_keeps_value() {
        let text = "{\"a\":\"x\u{9b}y\u{7f}\"}\n";
        let escaped = escape_json(text);
        assert_eq!(escaped, "{\"a\":\"x\\u009by\\u007f\"}\n");
        let hidden = "{\"a\":\"x\u{202e}\u{e0041}\"}";
        assert_eq!(escape_invisible_json(hidden), "{\"a\":\"x\\u202e\\udb40\\udc41\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&escaped), value(text));
        assert_eq!(value(&escape_invisible_json(hidden)), value(hidden));
    }
}
