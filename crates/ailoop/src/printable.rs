//! What a text may do to a terminal or a file: models, tools and strangers choose it, not the user.

use std::fmt::Write as _;

use contract::text::is_hidden;

/// Takes out control characters other than newline and tab: they could move the cursor, write into the title of the window,
/// or send keys.
pub fn without_control(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

/// As [`without_control`], also without the characters that turn the direction of writing.
pub fn for_screen(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || is_directional(*c))).collect()
}

/// Writes characters that cannot be seen as `<U+200B>`, so that nobody approves what they cannot see.
pub fn reveal_invisible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            let _ = write!(shown, "<U+{:04X}>", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// JSON text with every control character escaped that a parser takes as it is: its value stays the same.
pub fn escape_json(text: &str) -> String {
    escape(text, |c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
}

/// As [`escape_json`], also the characters that cannot be seen.
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

/// The format characters of Unicode that turn the direction of writing.
const fn is_directional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_model_are_taken_out() {
        assert_eq!(without_control("a\x1b]0;title\x07b\n\tc\u{9b}2J\r"), "a]0;titleb\n\tc2J");
        assert_eq!(for_screen("rm \u{202e}fdp.exe\u{202c} שלום\x1b[2J"), "rm fdp.exe שלום[2J");
    }

    #[test]
    fn invisible_characters_are_revealed() {
        assert_eq!(reveal_invisible("a\u{202e}b\u{200b}c\x1bd\ne"), "a<U+202E>b<U+200B>c<U+001B>d\ne");
        // Fillers have a width, and nothing is seen of them.
        assert_eq!(reveal_invisible("rm\u{3164}\u{115f}x"), "rm<U+3164><U+115F>x");
    }

    #[test]
    fn json_with_control_characters_keeps_its_value() {
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
