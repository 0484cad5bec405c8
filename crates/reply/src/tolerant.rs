//! Reads JSON as models write it: with other quotes, other words for null, too many or too few commas, comments, quotes
//! that nobody escaped, or without an end.
//!
//! Valid JSON is read by `serde_json` and by nothing else. The tolerant reader takes the values that a person would
//! read, and returns the end of the object, so that the text behind it is not lost.

use serde_json::{Map, Number, Value};

/// Nesting beyond which nothing is read.
const DEPTH_MAX: usize = 32;
/// Bytes of a key.
const KEY_BYTES_MAX: usize = 64;

/// Reason why the reading of an object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The object's own brace closed it.
    Closed,
    /// Something that cannot belong to the object came first.
    Stopped,
    /// The text ended within the object.
    Open,
}

/// An object, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    /// Bytes of the text that belong to it.
    pub(crate) bytes: usize,
    pub(crate) end: End,
    /// Whether it is valid JSON.
    pub(crate) is_valid: bool,
    /// The key within which the text ended.
    pub(crate) cut_key: Option<String>,
}

/// Reads the object with which a text begins, where the text is all that there is.
pub(crate) fn read(text: &str) -> Object {
    read_as(text, true)
}

/// Reads the object with which a text begins, where more may follow.
pub(crate) fn read_so_far(text: &str) -> Object {
    read_as(text, false)
}

fn read_as(text: &str, is_all: bool) -> Object {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value @ Value::Object(_))) = values.next() {
        return Object { value, bytes: values.byte_offset(), end: End::Closed, is_valid: true, cut_key: None };
    }
    let mut reader = Reader { text, at: 0, end: None, cut_string: false, cut_key: None, depth: 0, arrays: 0, is_all };
    let value = if reader.eat('{') { reader.object() } else { Value::Null };
    let end = reader.end.unwrap_or(End::Closed);
    Object { value, bytes: reader.at, end, is_valid: false, cut_key: reader.cut_key }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Set once: nothing is read after it.
    end: Option<End>,
    /// The string that was read last had no end.
    cut_string: bool,
    cut_key: Option<String>,
    /// Number of brackets that are open.
    depth: usize,
    /// Number of open brackets that are arrays.
    arrays: usize,
    /// Whether nothing follows the text.
    is_all: bool,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.at += wanted.len_utf8();
        }
        is_next
    }

    fn stop(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// Skips white space and comments.
    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            let rest = self.rest();
            let is_line = rest.starts_with("//") || rest.starts_with('#') || rest == "/";
            if is_line {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            } else {
                return;
            }
        }
    }

    /// Reads an object behind its brace.
    fn object(&mut self) -> Value {
        let mut fields = Map::new();
        self.depth += 1;
        while self.end.is_none() {
            let before = self.at;
            self.skip_space();
            match self.peek() {
                None => self.stop(End::Open),
                Some('}') => {
                    self.at += 1;
                    break;
                }
                // The brace is missing.
                Some(']') if self.arrays > 0 => break,
                Some(',' | ';' | ']' | ')') => self.at += 1,
                Some(_) => {
                    if let Some(key) = self.key() {
                        self.field(key, &mut fields);
                        continue;
                    }
                    if self.end.is_none() {
                        self.at = before;
                    }
                    self.stop(End::Stopped);
                }
            }
        }
        self.depth -= 1;
        Value::Object(fields)
    }

    fn field(&mut self, key: String, fields: &mut Map<String, Value>) {
        self.skip_space();
        if self.peek().is_none() {
            return self.stop(End::Open);
        }
        self.cut_string = false;
        let mut value = self.value();
        // Nobody knows which word was to be written.
        if self.cut_string && key == "status" && !value.as_str().is_some_and(is_status) {
            value = Value::Null;
        }
        fields.insert(key, value);
    }

    /// Reads a key and its colon; none where there is no such thing.
    fn key(&mut self) -> Option<String> {
        let rest = self.rest();
        match key_at(rest) {
            KeyAt::Key { key, bytes } => {
                let key = key.to_owned();
                self.at += bytes;
                Some(key)
            }
            KeyAt::Cut(key) => {
                self.cut_key = Some(key.to_owned());
                self.at = self.text.len();
                self.stop(End::Open);
                None
            }
            KeyAt::None => None,
        }
    }

    fn value(&mut self) -> Value {
        if self.depth >= DEPTH_MAX {
            self.stop(End::Stopped);
            return Value::Null;
        }
        match self.peek() {
            Some('{') => {
                self.at += 1;
                self.object()
            }
            Some('[') => {
                self.at += 1;
                self.array()
            }
            Some(quote) if closing(quote).is_some() => {
                self.at += quote.len_utf8();
                Value::String(self.string(quote))
            }
            Some(_) | None => self.bare(),
        }
    }

    fn array(&mut self) -> Value {
        let mut items = Vec::new();
        self.depth += 1;
        self.arrays += 1;
        while self.end.is_none() {
            self.skip_space();
            match self.peek() {
                None => self.stop(End::Open),
                Some(',') => self.at += 1,
                Some(']') => {
                    self.at += 1;
                    break;
                }
                // The bracket is missing.
                Some('}') => break,
                Some(_) if matches!(key_at(self.rest()), KeyAt::Key { .. }) => break,
                Some(_) => {
                    let before = self.at;
                    let item = self.value();
                    if self.at == before {
                        self.stop(End::Stopped);
                    }
                    items.push(item);
                }
            }
        }
        self.depth -= 1;
        self.arrays -= 1;
        Value::Array(items)
    }

    /// A word without quotes: a number, a constant of some language, or a text that nobody quoted.
    fn bare(&mut self) -> Value {
        let rest = self.rest();
        let end = rest.find(['\n', ',', '}', ']', '{', '[', '`']).unwrap_or(rest.len());
        let is_cut = end == rest.len();
        let word = rest[..end].trim();
        let comment = [" //", " /*", " #"].iter().filter_map(|mark| word.find(mark)).min();
        let word = word[..comment.unwrap_or(word.len())].trim_end();
        let value = match word {
            _ if is_cut && !is_status(word) => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            "" | "null" | "None" | "NULL" | "nil" | "undefined" | "NaN" => Value::Null,
            word => word.parse::<Number>().map_or_else(|_| Value::String(word.to_owned()), Value::Number),
        };
        self.at += end;
        if is_cut {
            self.stop(End::Open);
        }
        value
    }

    /// Reads a string behind its quote. A quote ends it only where something follows that can follow a string.
    fn string(&mut self, quote: char) -> String {
        let mut out = String::new();
        let from = self.at;
        // Where the string ends if no quote does.
        let mut fallback: Option<(usize, usize)> = None;
        let mut chars = self.rest().char_indices();
        while let Some((offset, c)) = chars.next() {
            let at = from + offset;
            if c == '\\' {
                match unescape(&self.text[at..]) {
                    Some((text, bytes)) => {
                        out.push_str(&text);
                        let skipped = self.text[at + 1..at + bytes].chars().count();
                        for _ in 0..skipped {
                            chars.next();
                        }
                        continue;
                    }
                    // Cut within an escape.
                    None => break,
                }
            }
            if ends(quote, c) && self.closes(&self.text[at + c.len_utf8()..]) {
                self.at = at + c.len_utf8();
                return out;
            }
            if self.is_all && fallback.is_none() && self.may_break(c, &self.text[at..]) {
                fallback = Some((at, out.len()));
            }
            out.push(c);
        }
        if let Some((at, bytes)) = fallback {
            out.truncate(bytes);
            self.at = at;
            return out;
        }
        self.at = self.text.len();
        self.cut_string = true;
        self.stop(End::Open);
        out
    }

    /// Whether what follows a quote can follow the end of a string.
    fn closes(&self, behind: &str) -> bool {
        let next = behind.trim_start();
        let has_blank_line = behind[..behind.len() - next.len()].matches('\n').count() > 1;
        let Some(first) = next.chars().next() else { return true };
        match first {
            ',' | ';' => {
                let next = next[1..].trim_start();
                let Some(first) = next.chars().next() else { return true };
                let is_value = matches!(first, '{' | '[' | '0'..='9' | '-') || closing(first).is_some();
                matches!(first, '}' | ']' | '/' | '#')
                    || !matches!(key_at(next), KeyAt::None)
                    || (self.arrays > 0 && is_value)
            }
            '}' | ']' => self.is_end(next),
            '/' => next.starts_with("//") || next.starts_with("/*"),
            '#' => true,
            '`' => next.starts_with("```") || next.len() == 1,
            '<' => next.starts_with("</") || next.starts_with("<|"),
            _ => has_blank_line || matches!(key_at(next), KeyAt::Key { .. }),
        }
    }

    /// Whether closing brackets close what is open, and not a bracket that the string holds.
    fn is_end(&self, brackets: &str) -> bool {
        let mut count = 0;
        let mut behind = brackets;
        while let Some(rest) = behind.strip_prefix(['}', ']', ')']) {
            count += 1;
            behind = rest.trim_start();
        }
        let on_line = brackets.len() - behind.len();
        let has_line_end = brackets[..on_line].trim_end_matches(['}', ']', ')']).contains('\n')
            || brackets[..on_line].ends_with(char::is_whitespace) && brackets[..on_line].contains('\n');
        let next = behind.chars().next();
        count >= self.depth
            || has_line_end
            || next.is_none_or(|c| matches!(c, ',' | '`' | '<' | '/' | '#') || closing(c).is_some())
    }

    /// Whether a string without a closing quote may have ended here: before brackets that close all, or at the end of
    /// its line.
    fn may_break(&self, c: char, from: &str) -> bool {
        match c {
            '}' | ']' => {
                let behind = from.trim_start_matches(['}', ']', ' ']);
                let count = from[..from.len() - behind.len()].matches(['}', ']']).count();
                count >= self.depth && (behind.is_empty() || behind.starts_with(['\n', '`']))
            }
            '\n' => {
                let next = from.trim_start();
                from[..from.len() - next.len()].matches('\n').count() > 1
                    || next.starts_with(['}', ']', '`'])
                    || matches!(key_at(next), KeyAt::Key { .. })
            }
            _ => false,
        }
    }
}

/// Whether a word is one of the two that a status may have.
pub(crate) fn is_status(word: &str) -> bool {
    let word = word.trim();
    word.eq_ignore_ascii_case("CONTINUE") || word.eq_ignore_ascii_case("TERMINATE")
}

/// The quote that ends what this one begins.
fn closing(quote: char) -> Option<char> {
    match quote {
        '"' | '\'' | '`' => Some(quote),
        '\u{201C}' | '\u{201D}' | '\u{201E}' => Some('\u{201D}'),
        '\u{2018}' | '\u{2019}' => Some('\u{2019}'),
        _ => None,
    }
}

/// Whether a quote may end what another one began.
fn ends(opened: char, quote: char) -> bool {
    closing(opened) == Some(quote)
        || matches!((opened, quote), ('\u{201C}' | '\u{201D}' | '\u{201E}', '"' | '\u{201C}'))
        || matches!((opened, quote), ('"', '\u{201D}'))
}

enum KeyAt<'a> {
    /// With its colon and all before it.
    Key {
        key: &'a str,
        bytes: usize,
    },
    /// The text ends within it, or before its colon.
    Cut(&'a str),
    None,
}

/// The key with which a text begins.
fn key_at(text: &str) -> KeyAt<'_> {
    let quote = text.chars().next().filter(|quote| closing(*quote).is_some());
    let from = quote.map_or(0, char::len_utf8);
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.') || (c == ' ' && quote.is_some());
    let name = &text[from..];
    let end = name.find(|c: char| !is_part(c)).unwrap_or(name.len());
    if end > KEY_BYTES_MAX {
        return KeyAt::None;
    }
    let (key, mut behind) = name.split_at(end);
    if behind.is_empty() {
        let may_be = quote.is_some() || key.is_empty() || key.starts_with(|c: char| c.is_alphabetic() || c == '_');
        return if may_be { KeyAt::Cut(key) } else { KeyAt::None };
    }
    if key.is_empty() {
        return KeyAt::None;
    }
    if let Some(quote) = quote {
        let Some(rest) = behind.chars().next().filter(|c| ends(quote, *c)).map(|c| &behind[c.len_utf8()..]) else {
            return KeyAt::None;
        };
        behind = rest;
    }
    let colon = behind.trim_start_matches([' ', '\t']);
    match colon.chars().next() {
        None => KeyAt::Cut(key),
        Some(':' | '=') => KeyAt::Key { key, bytes: text.len() - colon.len() + 1 },
        Some(_) => KeyAt::None,
    }
}

/// Decodes an escape, and returns its text and its length in bytes; an invalid escape stands for itself. None if the
/// text ends within the escape.
fn unescape(text: &str) -> Option<(String, usize)> {
    let c = text[1..].chars().next()?;
    let simple = match c {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'b' => '\u{8}',
        'f' => '\u{C}',
        '"' | '\\' | '/' | '\'' => c,
        'u' => {
            let unit = |at: usize| {
                let digits = text.get(at..at + 4)?;
                u16::from_str_radix(digits, 16).ok()
            };
            if text.len() < 6 {
                return None;
            }
            let Some(first) = unit(2) else { return Some(("\\u".to_owned(), 2)) };
            let second = (text.get(6..8) == Some("\\u")).then(|| unit(8)).flatten();
            if let Some(second) =
                second.filter(|low| (0xDC00..0xE000).contains(low) && (0xD800..0xDC00).contains(&first))
            {
                return Some((String::from_utf16_lossy(&[first, second]), 12));
            }
            return Some((String::from_utf16_lossy(&[first]), 6));
        }
        _ => return Some((text[..=c.len_utf8()].to_owned(), 1 + c.len_utf8())),
    };
    Some((simple.to_string(), 1 + c.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn damaged_object_is_read_with_its_evident_values() {
        for (text, value, behind) in [
            (r#"{"a": 1, "b": [true, null],} rest"#, json!({"a": 1, "b": [true, null]}), " rest"),
            (r"{'a': True, 'b': None}", json!({"a": true, "b": null}), ""),
            ("{a: 'it's done', b: 2}", json!({"a": "it's done", "b": 2}), ""),
            ("{\u{201C}a\u{201D}: \u{201C}b\u{201D}}", json!({"a": "b"}), ""),
            ("{\"a\": \"b\", // why\n \"c\": 1 /* no */ }", json!({"a": "b", "c": 1}), ""),
            (r#"{"a": "the "big" one", "b": "x"}"#, json!({"a": "the \"big\" one", "b": "x"}), ""),
            (r#"{"c": {"a": "uses {"x"} here"}}"#, json!({"c": {"a": "uses {\"x\"} here"}}), ""),
            ("{\"a\": \"b\"\n\"c\": \"d\"}", json!({"a": "b", "c": "d"}), ""),
            ("{\"a\": {\"b\": 1}\n\nText goes on.", json!({"a": {"b": 1}}), "\n\nText goes on."),
            ("{\"a\": \"no end}\n```", json!({"a": "no end"}), "\n```"),
            ("{\"a\": \"two\nlines\"}", json!({"a": "two\nlines"}), ""),
            (r#"{"a": [1, 2}"#, json!({"a": [1, 2]}), ""),
            (r#"{"a": CONTINUE, "b": 50%}"#, json!({"a": "CONTINUE", "b": "50%"}), ""),
        ] {
            let object = read(text);
            assert_eq!((&object.value, &text[object.bytes..]), (&value, behind), "{text}");
        }
    }

    #[test]
    fn cut_object_keeps_its_complete_values() {
        for (text, value) in [
            (r#"{"a":"b"#, json!({"a": "b"})),
            (r#"{"a":["b","c"#, json!({"a": ["b", "c"]})),
            (r#"{"a":"b\"#, json!({"a": "b"})),
            (r#"{"a":"b\u00e"#, json!({"a": "b"})),
            (r#"{"a":"b\\"#, json!({"a": "b\\"})),
            (r#"{"a":1"#, json!({"a": null})),
            (r#"{"a":1,"#, json!({"a": 1})),
            (r#"{"a":"#, json!({})),
            (r#"{"a"#, json!({})),
            (r#"{"continuation":{"status":"CONTIN"#, json!({"continuation": {"status": null}})),
            (r#"{"status":"TERMINATE"#, json!({"status": "TERMINATE"})),
            (
                r#"{"continuation":{"status":"CONTINUE","reason":"mo"#,
                json!({"continuation": {"status": "CONTINUE", "reason": "mo"}}),
            ),
        ] {
            let object = read(text);
            assert_eq!((object.end, &object.value), (End::Open, &value), "{text}");
        }
    }

    #[test]
    fn any_text_is_read_without_panic() {
        let pieces =
            ["{", "}", "[", "]", "\"", "'", "\\", "\\u", "d83e", ":", ",", "a", "\u{e4}", "\n\n", "//", "/*", "1"];
        for a in pieces {
            for b in pieces {
                for c in pieces {
                    for d in pieces {
                        let text = ["{", a, b, c, d].concat();
                        let object = read(&text);
                        assert!(text.is_char_boundary(object.bytes), "{text}");
                    }
                }
            }
        }
    }
}
