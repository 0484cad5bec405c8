//! Reads the reply of a tool: progress, a result, or an error that the model reads.

use bus::CoreMessage;
use contract::ErrorCode;
use contract::limits::PROGRESS_BYTES_MAX;
use contract::tool::{EffectClass, OUTCOME_UNKNOWN, Outcome, READ_RESULT, UNKNOWN_OUTCOME_TEXT, header};

/// The parsed reply of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolReply {
    /// The tool still works on the call.
    Progress {
        /// Progress text for people.
        text: String,
        /// The replica that works on the call, where it names itself.
        instance: Option<String>,
    },
    Final(ToolAnswer),
}

/// The outcome of a call before it is shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolAnswer {
    pub(crate) outcome: Outcome,
    pub(crate) content: String,
    pub(crate) code: Option<ErrorCode>,
}

impl ToolAnswer {
    /// An answer without an error code; the text is for the model.
    pub(crate) fn new(outcome: Outcome, content: impl Into<String>) -> Self {
        Self { outcome, content: content.into(), code: None }
    }

    /// An error by its code; the text is for the model.
    pub(crate) fn error(code: ErrorCode, content: impl Into<String>) -> Self {
        Self { outcome: Outcome::Error, content: content.into(), code: Some(code) }
    }

    /// This answer of a call that did not end well, if its tool has no effect. The outcome of any other call is unknown: a
    /// model that repeats an idempotent call makes another one with another key.
    pub(crate) fn or_unknown(self, effect: EffectClass) -> Self {
        if effect.takes_effect() { unknown_answer(&self.content) } else { self }
    }
}

/// Builds the answer of a call whose outcome is unknown.
pub(crate) fn unknown_answer(why: &str) -> ToolAnswer {
    ToolAnswer::new(Outcome::Unknown, format!("{why}; {UNKNOWN_OUTCOME_TEXT}"))
}

pub(crate) fn parse_reply(message: &CoreMessage, effect: EffectClass) -> ToolReply {
    let body = std::str::from_utf8(&message.payload);
    if message.header(header::PROGRESS).is_some() {
        let text = body.unwrap_or_default();
        let text = text[..text.floor_char_boundary(PROGRESS_BYTES_MAX)].to_owned();
        return ToolReply::Progress { text, instance: message.header(header::INSTANCE).map(str::to_owned) };
    }
    let error = message.header(header::ERROR).or_else(|| message.header(header::SERVICE_ERROR));
    let unknown = message.header(header::OUTCOME) == Some(OUTCOME_UNKNOWN);
    ToolReply::Final(match (error, body) {
        // The tool itself does not know the outcome.
        (error, body) if unknown => {
            ToolAnswer::new(Outcome::Unknown, error_text(error.unwrap_or_default(), body.unwrap_or_default()))
        }
        (Some(error), body) => ToolAnswer::error(ErrorCode::ToolError, error_text(error, body.unwrap_or_default())),
        (None, Ok(body)) => ToolAnswer::new(Outcome::Ok, body),
        (None, Err(_)) => {
            let text = format!("the tool answered with {} bytes that are not UTF-8 text", message.payload.len());
            // After an error a model calls again, which could repeat the effect.
            ToolAnswer::error(ErrorCode::ToolError, text).or_unknown(effect)
        }
    })
}

/// The header has one line of the error, and a body may have the whole text.
fn error_text(header: &str, body: &str) -> String {
    match (header.trim(), body.trim()) {
        ("", "") => "the tool failed and does not say why".to_owned(),
        (line, "") => line.to_owned(),
        (line, body) if body.contains(line) => body.to_owned(),
        (line, body) => format!("{line}\n{body}"),
    }
}

/// Keeps the head and the tail of a text over `max` bytes, with a note between them that says how much is missing, and
/// how the whole result of `call` can be read.
pub(crate) fn truncate(text: &str, max: usize, call: Option<&str>) -> String {
    /// Bytes of the note without the hint to the whole result.
    const NOTE: usize = 64;
    if text.len() <= max {
        return text.to_owned();
    }
    let how = call.map(|call| format!("; {READ_RESULT} with call {call:?} reads them")).unwrap_or_default();
    let room = max.saturating_sub(NOTE + how.len());
    let head = text.floor_char_boundary(room - room / 3);
    let tail = text.ceil_char_boundary(text.len() - room / 3);
    let (left_out, all) = (tail - head, text.len());
    format!("{}\n[… bytes {head} to {tail} of {all} left out ({left_out}){how} …]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn reply(headers: &[(&str, &str)], body: &[u8]) -> ToolReply {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let message =
            CoreMessage { subject: String::new(), reply: None, headers, payload: Bytes::copy_from_slice(body) };
        parse_reply(&message, EffectClass::Pure)
    }

    #[test]
    fn reply_of_every_kind_is_parsed() {
        let ok = |text: &str| ToolReply::Final(ToolAnswer::new(Outcome::Ok, text));
        let error = |text: &str| ToolReply::Final(ToolAnswer::error(ErrorCode::ToolError, text));
        assert_eq!(reply(&[], b"{\"a\":1}"), ok("{\"a\":1}"));
        assert_eq!(reply(&[], b""), ok(""));
        let progress = |text: &str, instance: Option<&str>| ToolReply::Progress {
            text: text.to_owned(),
            instance: instance.map(str::to_owned),
        };
        assert_eq!(reply(&[("ailoop-progress", "")], b"half"), progress("half", None));
        assert_eq!(reply(&[("Ailoop-Progress", "1"), ("Ailoop-Instance", "a.b")], b"\xff"), progress("", Some("a.b")));
        let unknown = |text: &str| ToolReply::Final(ToolAnswer::new(Outcome::Unknown, text));
        assert_eq!(reply(&[("Ailoop-Outcome", "unknown"), ("Ailoop-Error", "lost it")], b""), unknown("lost it"));
        assert_eq!(reply(&[("Ailoop-Outcome", "splendid")], b"x"), ok("x"));
        assert_eq!(reply(&[("Ailoop-Error", "no such file")], b""), error("no such file"));
        assert_eq!(reply(&[("Ailoop-Error", "bad")], b"bad: line 3\nx"), error("bad: line 3\nx"));
        assert_eq!(
            reply(&[("Nats-Service-Error", "bad"), ("Nats-Service-Error-Code", "500")], b"why"),
            error("bad\nwhy")
        );
        assert_eq!(reply(&[("Ailoop-Error", "")], b""), error("the tool failed and does not say why"));
        assert_eq!(reply(&[], b"\xff\xfe"), error("the tool answered with 2 bytes that are not UTF-8 text"));
        assert_eq!(reply(&[("Ailoop-Error", "x")], b"\xff"), error("x"));
        let unknown = |text: &str| ToolReply::Final(ToolAnswer::new(Outcome::Unknown, text));
        assert_eq!(reply(&[("Ailoop-Error", "gone"), ("Ailoop-Outcome", "unknown")], b"gone\nx"), unknown("gone\nx"));
        assert_eq!(reply(&[("Ailoop-Outcome", "unknown")], b"who knows"), unknown("who knows"));
        assert_eq!(reply(&[("Ailoop-Error", "bad"), ("Ailoop-Outcome", "ok")], b""), error("bad"));
    }

    #[test]
    fn text_too_long_keeps_head_and_tail_within_the_limit() {
        for (length, max) in [(101, 100), (5_000, 100), (1_000_000, 1_000), (200, 10), (200, 0)] {
            let text = format!("<{}>", "ä".repeat(length / 2));
            let short = truncate(&text, max, None);
            assert!(short.len() <= max.max(64), "{} > {max}", short.len());
            assert!(short.contains("left out"), "{short}");
            if max >= 100 {
                assert!(short.starts_with('<') && short.ends_with('>'), "{short}");
            }
        }
        assert_eq!(truncate("short", 5, None), "short");
        let note = truncate(&"x".repeat(500), 200, Some("c1-1-1"));
        assert!(note.len() <= 200 && note.contains("; read_result with call \"c1-1-1\" reads them"), "{note}");
    }
}
