//! Parses the replies of a tool: progress, a result, or an error.

use bus::CoreMessage;
use contract::tool::{OUTCOME_UNKNOWN, header};

/// One message from a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolReply {
    /// Progress of a running call.
    Progress(ProgressReply),
    /// The end of a call.
    Final(FinalReply),
}

/// Progress of a running call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressReply {
    /// The text of the tool.
    pub text: String,
    /// `<service name>.<service id>` of the replica, if it sends it; executors detect the loss of such a replica early.
    pub(crate) instance: Option<String>,
}

/// The last reply to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalReply {
    /// The result or the error; bytes that are not UTF-8 are replaced.
    pub outcome: Result<String, TrialError>,
    /// Size of the body in bytes.
    pub bytes: usize,
    /// Whether the body is UTF-8 text.
    pub is_text: bool,
    /// The trace id in the reply.
    pub(crate) trace_id: Option<String>,
}

/// An error that a tool sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialError {
    /// Description of the error, for the model.
    pub text: String,
    /// Whether it is unknown if the call took effect.
    pub is_unknown: bool,
}

impl TrialError {
    /// Returns the outcome as a word.
    pub(crate) fn outcome_word(&self) -> &'static str {
        if self.is_unknown { "unknown" } else { "error" }
    }
}

/// Parses a message as an executor does.
pub(crate) fn parse_reply(message: &CoreMessage) -> ToolReply {
    let body = String::from_utf8_lossy(&message.payload).into_owned();
    if message.header(header::PROGRESS).is_some() {
        return ToolReply::Progress(ProgressReply {
            text: body,
            instance: message.header(header::INSTANCE).map(str::to_owned),
        });
    }
    let error = message.header(header::ERROR).or_else(|| message.header(header::SERVICE_ERROR));
    let is_unknown = message.header(header::OUTCOME) == Some(OUTCOME_UNKNOWN);
    let outcome = match error {
        None if !is_unknown => Ok(body),
        Some(line) if body.contains(line.trim()) && !body.trim().is_empty() => {
            Err(TrialError { text: body, is_unknown })
        }
        line => {
            let text = [line.unwrap_or_default().trim(), body.trim()].join("\n").trim().to_owned();
            Err(TrialError { text, is_unknown })
        }
    };
    ToolReply::Final(FinalReply {
        outcome,
        bytes: message.payload.len(),
        is_text: std::str::from_utf8(&message.payload).is_ok(),
        trace_id: message.header(header::TRACEPARENT).and_then(parse_trace_id),
    })
}

/// Parses the trace id of a `traceparent`.
pub(crate) fn parse_trace_id(parent: &str) -> Option<String> {
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
        let message =
            CoreMessage { subject: String::new(), reply: None, headers, payload: Bytes::copy_from_slice(body) };
        let ToolReply::Final(answer) = parse_reply(&message) else { panic!("progress") };
        assert_eq!(answer.outcome.as_deref().map_err(|error| (error.outcome_word(), error.text.as_str())), expect);
    }

    #[test]
    fn parse_reply_headers_decide_outcome() {
        check(&[], b"{}", Ok("{}"));
        check(&[], b"", Ok(""));
        check(&[("Ailoop-Error", "bad")], b"", Err(("error", "bad")));
        check(&[("ailoop-error", "bad")], b"bad: line 3", Err(("error", "bad: line 3")));
        check(&[("Nats-Service-Error", "bad"), ("Nats-Service-Error-Code", "500")], b"why", Err(("error", "bad\nwhy")));
        check(&[("Ailoop-Error", "")], b"why", Err(("error", "why")));
        check(&[("Ailoop-Error", "half done"), ("Ailoop-Outcome", "unknown")], b"", Err(("unknown", "half done")));
        check(&[("Ailoop-Outcome", "unknown")], b"half done", Err(("unknown", "half done")));
        let progress = CoreMessage {
            subject: String::new(),
            reply: None,
            headers: [("Ailoop-Progress", "1"), ("Ailoop-Instance", "t.i")]
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .into(),
            payload: Bytes::from_static(b"half"),
        };
        let half = ProgressReply { text: "half".to_owned(), instance: Some("t.i".to_owned()) };
        assert_eq!(parse_reply(&progress), ToolReply::Progress(half));
    }

    #[test]
    fn parse_trace_id_invalid_traceparent_is_none() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(parse_trace_id(&format!("00-{trace}-b7ad6b7169203331-01")).as_deref(), Some(trace));
        for wrong in ["", "00-x-y-01", "00"] {
            assert_eq!(parse_trace_id(wrong), None, "{wrong}");
        }
    }
}
