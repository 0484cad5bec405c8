//! Untrusted text, as it is shown to a person who decides by it: invisible characters are written as escapes.
//!
//! Letters without a width hide words, letters that turn the direction of writing exchange them, and control characters
//! move the cursor. A person who approves a call must see what it says.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character is invisible, or changes how others are shown. Ends of lines and tabs are neither.
pub const fn is_hidden(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\u{B}'..='\u{1F}' | '\u{7F}'..='\u{9F}'
        // Soft hyphen, joiners, fillers, vowel separators.
        | '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
        // Without width, direction, line and paragraph separators, invisible operators.
        | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}'
        // Variants; the two that choose between text and picture change nothing else.
        | '\u{FE00}'..='\u{FE0D}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}'
    )
}

/// A text with its hidden characters written out as `\u{202e}`.
pub fn show(text: &str) -> Cow<'_, str> {
    replace(text, |c, out| {
        let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
    })
}

/// JSON with the hidden characters of its texts written as JSON does, such as `\u202e`: it means the same.
pub fn show_json(text: &str) -> Cow<'_, str> {
    // Outside of its texts JSON has no hidden characters but ends of lines.
    replace(text, |c, out| {
        if c == '\r' {
            out.push(c);
            return;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

fn replace(text: &str, mut write: impl FnMut(char, &mut String)) -> Cow<'_, str> {
    let Some(first) = text.find(is_hidden) else { return Cow::Borrowed(text) };
    let mut shown = String::with_capacity(text.len() + 16);
    shown.push_str(&text[..first]);
    for c in text[first..].chars() {
        if is_hidden(c) { write(c, &mut shown) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_written_out_and_others_stay() {
        for (text, shown) in [
            ("plain, d\u{e9}j\u{e0} vu, \u{4e2d}\u{6587}, \u{1F980} \u{2764}\u{FE0F}\n\ttab", None),
            ("rm \u{202E}gpj.exe", Some("rm \\u{202e}gpj.exe")),
            ("pay\u{200B}pal", Some("pay\\u{200b}pal")),
            ("\u{1b}[2Jclean", Some("\\u{1b}[2Jclean")),
            ("first\rsecond", Some("first\\u{d}second")),
            ("a\u{E0041}b\u{FEFF}c\u{2066}d\u{9b}", Some("a\\u{e0041}b\\u{feff}c\\u{2066}d\\u{9b}")),
            ("", None),
        ] {
            assert_eq!(show(text), shown.unwrap_or(text), "{text:?}");
            assert_eq!(matches!(show(text), Cow::Borrowed(_)), shown.is_none(), "{text:?}");
        }
    }

    #[test]
    fn json_shown_has_the_same_value() {
        let value = serde_json::json!({"path": "a\u{202E}b\u{E0041}\u{7f}", "\u{200B}": ["\u{1b}", "\u{4e2d}"]});
        let text = value.to_string();
        let shown = show_json(&text);
        assert!(!shown.contains(is_hidden), "{shown:?}");
        assert!(shown.contains("a\\u202eb\\udb40\\udc41\\u007f"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        let spaced = "{\r\n\t\"a\": 1 }";
        assert_eq!(serde_json::from_str::<serde_json::Value>(&show_json(spaced)).unwrap()["a"], 1);
    }
}
