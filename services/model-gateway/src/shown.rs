//! What of a reply's text is for people: the continuation envelope around or behind it is not.
//!
//! Models without the pseudo-tool write their signal as a JSON object: as the whole reply, in a code fence, or at the
//! end of the text. While it streams, only its `response` is shown. What looks like an envelope and is none in the
//! end is shown then, so that nothing is lost.

use serde_json::Value;

/// The keys with which an envelope begins.
const KEYS: &[&str] = &["continuation", "response", "tool_calls", "completion_percentage"];
/// Bytes within which an envelope must have shown its first key.
const LEAD_BYTES_MAX: usize = 256;

/// Filters one reply's text.
#[derive(Debug, Default)]
pub struct Shown {
    /// What may be the beginning of an envelope, or all of one.
    held: String,
    envelope: Option<Response>,
}

/// What the beginning of a text may be.
#[derive(Debug, PartialEq, Eq)]
enum Lead {
    /// Too short to tell.
    Open,
    /// No envelope.
    Text,
    /// An envelope, whose object begins at this byte.
    Envelope(usize),
}

impl Shown {
    /// Takes in a piece and returns what can be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        if let Some(response) = &mut self.envelope {
            self.held.push_str(piece);
            return response.push(piece);
        }
        self.held.push_str(piece);
        let mut out = String::new();
        loop {
            let Some(at) = self.held.find(['{', '`']) else {
                out.push_str(&std::mem::take(&mut self.held));
                return out;
            };
            out.extend(self.held.drain(..at));
            match lead(&self.held) {
                Lead::Open => return out,
                // A fence of backticks goes as one, so that its second one is no beginning.
                Lead::Text => {
                    let fence = self.held.len() - self.held.trim_start_matches('`').len();
                    out.extend(self.held.drain(..fence.max(1)));
                }
                Lead::Envelope(object) => {
                    let mut response = Response::default();
                    out.push_str(&response.push(&self.held[object..]));
                    self.envelope = Some(response);
                    return out;
                }
            }
        }
    }

    /// Ends the reply and returns what is left to be shown.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        match self.envelope.take() {
            Some(response) if response.began || is_envelope(&held) => String::new(),
            Some(_) | None => held,
        }
    }
}

fn lead(text: &str) -> Lead {
    let inner = match text.strip_prefix("```") {
        Some(fenced) => {
            let rest = fenced.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let language = fenced[..fenced.len() - rest.len()].to_ascii_lowercase();
            let grows = rest.is_empty() && "json".starts_with(&language);
            if !grows && !matches!(language.as_str(), "" | "json") {
                return Lead::Text;
            }
            rest.trim_start()
        }
        None if "```".starts_with(text) => return Lead::Open,
        None => text,
    };
    let object = text.len() - inner.len();
    let open = if text.len() > LEAD_BYTES_MAX { Lead::Text } else { Lead::Open };
    if inner.is_empty() {
        return open;
    }
    let Some(fields) = inner.strip_prefix('{').map(str::trim_start) else { return Lead::Text };
    if fields.is_empty() {
        return open;
    }
    let Some(key) = fields.strip_prefix('"') else { return Lead::Text };
    match key.split_once('"') {
        Some((key, _)) if KEYS.contains(&key) => Lead::Envelope(object),
        None if KEYS.iter().any(|known| known.starts_with(key)) => open,
        Some(_) | None => Lead::Text,
    }
}

/// Whether a text that began like an envelope is one after all; damaged JSON counts when it began with the signal.
fn is_envelope(text: &str) -> bool {
    let json = text.trim().trim_matches('`').trim();
    let json = json.get(..4).filter(|word| word.eq_ignore_ascii_case("json")).map_or(json, |_| &json[4..]);
    match serde_json::from_str::<Value>(json) {
        Ok(value) => value["continuation"]["status"].is_string() || value["response"].is_string(),
        Err(_) => json.trim_start_matches(|c: char| c == '{' || c.is_whitespace()).starts_with("\"continuation\""),
    }
}

/// Reads an envelope's object as it grows and decodes the string of its field `response`.
#[derive(Debug, Default)]
struct Response {
    depth: u32,
    /// Within a string: its raw content so far, or what of the response is not decoded yet.
    string: Option<String>,
    escaped: bool,
    /// The last string at depth 1 that may be a key.
    key: String,
    /// After a colon at depth 1.
    value: bool,
    /// The response has begun.
    began: bool,
}

impl Response {
    fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        for c in piece.chars() {
            if self.string.is_some() { self.within(c, &mut out) } else { self.between(c) }
        }
        if self.is_response() {
            out.push_str(&self.decoded());
        }
        out
    }

    fn is_response(&self) -> bool {
        self.string.is_some() && self.depth == 1 && self.value && self.key == "response"
    }

    fn between(&mut self, c: char) {
        match c {
            '"' => {
                self.string = Some(String::new());
                self.began |= self.is_response();
            }
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            ':' if self.depth == 1 => self.value = true,
            ',' if self.depth == 1 => self.value = false,
            _ => {}
        }
    }

    fn within(&mut self, c: char, out: &mut String) {
        if c == '"' && !self.escaped {
            if self.is_response() {
                out.push_str(&self.decoded());
            } else if let (1, false, Some(key)) = (self.depth, self.value, &self.string) {
                self.key.clone_from(key);
            }
            self.string = None;
            return;
        }
        self.escaped = c == '\\' && !self.escaped;
        // Only keys and the response are worth keeping.
        if let Some(string) = &mut self.string
            && self.depth == 1
            && (!self.value || self.key == "response")
        {
            string.push(c);
        }
    }

    /// Decodes what is there of the response, but for an escape that is not whole yet.
    fn decoded(&mut self) -> String {
        let Some(raw) = &mut self.string else { return String::new() };
        let whole = raw.split_off(0);
        let cut = safe(&whole);
        raw.push_str(&whole[cut..]);
        // Models write line ends into strings as they are.
        let json = whole[..cut].replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
        serde_json::from_str(&format!("\"{json}\"")).unwrap_or_else(|_| whole[..cut].to_owned())
    }
}

/// How far a string's raw content can be decoded: not into an escape, nor between two halves of a character.
fn safe(raw: &str) -> usize {
    let bytes = raw.as_bytes();
    let (mut at, mut end) = (0, 0);
    while at < bytes.len() {
        let length = match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'u'))
                if raw.get(at + 2..at + 3).is_some_and(|d| d.eq_ignore_ascii_case("d"))
                    && raw.get(at + 3..at + 4).is_some_and(|d| "89abAB".contains(d)) =>
            {
                12
            }
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            _ => 1,
        };
        at += length;
        if at <= bytes.len() {
            end = at;
        }
    }
    // Escapes are ASCII, so that a step of 1 may end within a character.
    raw.floor_char_boundary(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&str]) -> String {
        let mut filter = Shown::default();
        let mut out: String = pieces.iter().map(|piece| filter.push(piece)).collect();
        out.push_str(&filter.finish());
        out
    }

    /// The same however the text is cut.
    fn check(text: &str, expected: &str) {
        assert_eq!(shown(&[text]), expected, "whole: {text}");
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            assert_eq!(shown(&[&text[..cut], &text[cut..]]), expected, "cut at {cut}: {text}");
        }
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        assert_eq!(shown(&chars), expected, "by character: {text}");
    }

    #[test]
    fn text_passes() {
        for text in [
            "",
            "plain",
            "a {b} c",
            "{ not json",
            "{\"a\": 1}",
            "{}",
            "`code` and ```\nblock\n``` and ````",
            "```rust\nfn main() {}\n```",
            "```json\n{\"name\": \"x\"}\n```",
            "```json5\n{\"continuation\": 1}\n```",
            "ends with {",
            "ends with ```",
            "ends with ```json\n{\"cont",
            "{\"response\": 42}",
            "{\"tool_calls\": [], \"x\": \"y\"}",
            "{\"completion_percentage\": 5",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn an_envelope_is_not_shown() {
        check(r#"{"continuation":{"status":"CONTINUE"}}"#, "");
        check("Done.\n```json\n{\"continuation\":{\"status\":\"Continue\"}}\n```\n", "Done.\n");
        check(r#"So {a} it is. {"continuation":{"status":"later"}}"#, "So {a} it is. ");
        check("Cut off. {\"continuation\": {\"status\": \"CONT", "Cut off. ");
        check("```\n{ \"continuation\": {\"status\":\"TERMINATE\"} }\n```", "");
    }

    #[test]
    fn only_the_response_of_an_envelope_is_shown() {
        check(r#"{"response":"Hi","continuation":{"status":"TERMINATE"}}"#, "Hi");
        check(
            r#"{"continuation":{"status":"CONTINUE","response":"no"},"response":"a \"b\"\\ \n c"}"#,
            "a \"b\"\\ \n c",
        );
        check(r#"{"tool_calls":[{"response":"no"}],"response":"\u00e4 \ud83e\udd80 {x}"}"#, "\u{e4} \u{1f980} {x}");
        check("```json\n{\"response\": \"two\nlines\", \"continuation\": {}}\n```", "two\nlines");
        check("{\"response\": \"cut of", "cut of");
        check("Before. {\"response\": \"after\"}", "Before. after");
        check(r#"{"continuation":{"status":"x"},"other":"response","response":"y"}"#, "y");
    }

    #[test]
    fn the_response_is_shown_while_it_grows() {
        let mut filter = Shown::default();
        assert_eq!(filter.push("{\"response\": \"one "), "one ");
        assert_eq!(filter.push("two\\"), "two");
        assert_eq!(filter.push("n\\ud83e"), "\n");
        assert_eq!(filter.push("\\udd80."), "\u{1f980}.");
        assert_eq!(filter.push("\", \"continuation\": {\"status\":"), "");
        assert_eq!(filter.finish(), "");
    }
}
