//! What a tool sends back: progress, a result, or an error.

use bus::Message;
use contract::tool::{OUTCOME_UNKNOWN, header};

/// One message from a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It is still at it.
    Progress(Progress),
    /// The last one.
    Final(Answer),
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// In its own words.
    pub text: String,
    /// `<service name>.<service id>` of the replica, where it says so: by that its death is found early.
    pub instance: Option<String>,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The result, or what is wrong; what is no text is shown as well as it goes.
    pub outcome: Result<String, Wrong>,
    /// Bytes of the body.
    pub bytes: usize,
    /// Whether the body is text.
    pub is_text: bool,
    /// The trace that it says it belongs to.
    pub trace: Option<String>,
}

/// An answer that is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// What the tool says of it.
    pub text: String,
    /// Whether it says that nobody knows whether the call took effect.
    pub unknown: bool,
}

impl Wrong {
    /// The outcome in a word.
    pub fn word(&self) -> &'static str {
        if self.unknown { "unknown" } else { "error" }
    }
}

/// Reads a message as an executor does.
pub fn read(message: &Message) -> Reply {
    let body = String::from_utf8_lossy(&message.payload).into_owned();
    if message.header(header::PROGRESS).is_some() {
        return Reply::Progress(Progress { text: body, instance: message.header(header::INSTANCE).map(str::to_owned) });
    }
    let error = message.header(header::ERROR).or_else(|| message.header(header::SERVICE_ERROR));
    let unknown = message.header(header::OUTCOME) == Some(OUTCOME_UNKNOWN);
    let outcome = match error {
        None if !unknown => Ok(body),
        Some(line) if body.contains(line.trim()) && !body.trim().is_empty() => Err(Wrong { text: body, unknown }),
        line => {
            let text = [line.unwrap_or_default().trim(), body.trim()].join("\n").trim().to_owned();
            Err(Wrong { text, unknown })
        }
    };
    Reply::Final(Answer {
        outcome,
        bytes: message.payload.len(),
        is_text: std::str::from_utf8(&message.payload).is_ok(),
        trace: message.header(header::TRACEPARENT).and_then(trace_of),
    })
}

/// The trace of a `traceparent`.
pub fn trace_of(parent: &str) -> Option<String> {
    let mut parts = parent.split('-');
    let (_version, trace, _span, _flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (trace.len() == 32).then(|| trace.to_owned())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn check(headers: &[(&str, &str)], body: &[u8], expect: Result<&str, (&str, &str)>) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let message = Message { subject: String::new(), reply: None, headers, payload: Bytes::copy_from_slice(body) };
        let Reply::Final(answer) = read(&message) else { panic!("progress") };
        assert_eq!(answer.outcome.as_deref().map_err(|wrong| (wrong.word(), wrong.text.as_str())), expect);
    }

    #[test]
    fn replies_are_read() {
        check(&[], b"{}", Ok("{}"));
        check(&[], b"", Ok(""));
        check(&[("Ailoop-Error", "bad")], b"", Err(("error", "bad")));
        check(&[("ailoop-error", "bad")], b"bad: line 3", Err(("error", "bad: line 3")));
        check(&[("Nats-Service-Error", "bad"), ("Nats-Service-Error-Code", "500")], b"why", Err(("error", "bad\nwhy")));
        check(&[("Ailoop-Error", "")], b"why", Err(("error", "why")));
        check(&[("Ailoop-Error", "half done"), ("Ailoop-Outcome", "unknown")], b"", Err(("unknown", "half done")));
        check(&[("Ailoop-Outcome", "unknown")], b"half done", Err(("unknown", "half done")));
        let progress = Message {
            subject: String::new(),
            reply: None,
            headers: [("Ailoop-Progress", "1"), ("Ailoop-Instance", "t.i")]
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .into(),
            payload: Bytes::from_static(b"half"),
        };
        let half = Progress { text: "half".to_owned(), instance: Some("t.i".to_owned()) };
        assert_eq!(read(&progress), Reply::Progress(half));
    }

    #[test]
    fn a_trace_is_found_in_its_parent() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(trace_of(&format!("00-{trace}-b7ad6b7169203331-01")).as_deref(), Some(trace));
        for wrong in ["", "00-x-y-01", "00"] {
            assert_eq!(trace_of(wrong), None, "{wrong}");
        }
    }
}
