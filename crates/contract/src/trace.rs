//! W3C trace context, and the ids of spans that follow from a session's log.
//!
//! A turn outlives the processes that take part in it. So its span, and the span of each of its calls, have ids that
//! every process computes alike: from the `traceparent` in the log, the session, the turn and the call. A process may
//! name such a span as a parent before it exists, and the replica that ends the turn sends it. See ADR 50.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::ids::{CallAttempt, CallId};
use crate::subject::SessionKey;

/// A text is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a W3C traceparent")]
pub struct NoTraceparent;

/// The position of a span: its trace, its id, and whether the trace is sampled.
///
/// Its text is a W3C `traceparent`: `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// Id of the trace, as 128 bits; never 0.
    pub trace_id: u128,
    /// Id of the span, as 64 bits; never 0.
    pub span_id: u64,
    /// Whether the spans of this trace are exported.
    pub is_sampled: bool,
}

impl TraceContext {
    /// A context that begins a trace. It names no span: [`TraceContext::is_beginning`].
    pub fn beginning(trace_id: u128, is_sampled: bool) -> Self {
        let trace_id = trace_id.max(1);
        Self { trace_id, span_id: beginning_id(trace_id), is_sampled }
    }

    /// Whether the context begins a trace, so that a span under it has no parent.
    pub fn is_beginning(&self) -> bool {
        self.span_id == beginning_id(self.trace_id)
    }

    /// The context for a turn that no client's request begins: a trace of its own, sampled as the one before.
    #[must_use]
    pub fn next_beginning(&self, session: &SessionKey, turn: u32) -> Self {
        let digest = digest(&["trace", &format!("{:032x}", self.trace_id), &session.to_string(), &turn.to_string()]);
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self::beginning(u128::from_be_bytes(id), self.is_sampled)
    }

    /// The span of a turn that began under this context.
    #[must_use]
    pub fn turn(&self, session: &SessionKey, turn: u32) -> Self {
        self.derived(&["turn", &session.to_string(), &turn.to_string()])
    }

    /// The span of an attempt of a call; `self` is the span of its turn.
    #[must_use]
    pub fn call(&self, call: &CallAttempt) -> Self {
        self.derived(&["call", &call.to_string()])
    }

    /// The span of one delivery of a call to a worker; `self` is the span of the attempt.
    #[must_use]
    pub fn delivery(&self, number: u64) -> Self {
        self.derived(&["delivery", &number.to_string()])
    }

    /// The span of the decision after a step; `self` is the span of its turn.
    #[must_use]
    pub fn decision(&self, step: u32) -> Self {
        self.derived(&["decision", &step.to_string()])
    }

    /// The span of a question to a person; `self` is the span of its turn.
    #[must_use]
    pub fn gate(&self, gate: &CallId) -> Self {
        self.derived(&["gate", gate.as_str()])
    }

    /// Another span of the same trace, whose id follows from this one and from what it is about.
    fn derived(&self, about: &[&str]) -> Self {
        let own = self.to_string();
        let mut parts = vec![own.as_str()];
        parts.extend(about);
        Self { span_id: first_eight(&digest(&parts)), ..*self }
    }

    /// The 32 hex digits of the trace.
    pub fn trace_id_hex(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    /// The 16 hex digits of the span.
    pub fn span_id_hex(&self) -> String {
        format!("{:016x}", self.span_id)
    }
}

fn beginning_id(trace_id: u128) -> u64 {
    first_eight(&digest(&["beginning", &format!("{trace_id:032x}")]))
}

/// An id must not be 0.
fn first_eight(digest: &[u8; 32]) -> u64 {
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(id).max(1)
}

/// The lengths go in too, so that no two lists of parts have the same digest.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.is_sampled))
    }
}

impl FromStr for TraceContext {
    type Err = NoTraceparent;

    /// Parses a `traceparent`; fields that a later version of the format appends are ignored.
    fn from_str(text: &str) -> Result<Self, NoTraceparent> {
        let mut parts = text.split('-');
        let mut next = |digits: usize| {
            let is_hex = |text: &&str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            parts.next().filter(|text| text.len() == digits).filter(is_hex).ok_or(NoTraceparent)
        };
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(NoTraceparent);
        }
        let trace_id = u128::from_str_radix(trace, 16).map_err(|_| NoTraceparent)?;
        let span_id = u64::from_str_radix(span, 16).map_err(|_| NoTraceparent)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| NoTraceparent)?;
        if trace_id == 0 || span_id == 0 {
            return Err(NoTraceparent);
        }
        Ok(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ids::{SessionId, TenantId};

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn key(session: &str) -> SessionKey {
        SessionKey { tenant: TenantId::default(), session: SessionId::new(session).unwrap() }
    }

    fn attempt(call: &str, attempt: u32) -> CallAttempt {
        CallAttempt { call: CallId::new(call).unwrap(), attempt }
    }

    #[test]
    fn traceparent_is_read_and_written_alike() {
        let context: TraceContext = GIVEN.parse().unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.to_string(), GIVEN);
        assert_eq!(context.trace_id_hex(), "0af7651916cd43dd8448eb211c80319c");
        let newer = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02-what";
        assert_eq!(newer.parse::<TraceContext>().map(|context| context.is_sampled), Ok(false));
    }

    #[test]
    fn text_that_is_no_traceparent_is_refused() {
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-äf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(bad.parse::<TraceContext>(), Err(NoTraceparent), "{bad}");
        }
    }

    #[test]
    fn spans_of_a_turn_have_ids_that_follow_from_what_they_are_about() {
        let given: TraceContext = GIVEN.parse().unwrap();
        let turn = given.turn(&key("s"), 1);
        let all = [
            given,
            turn,
            given.turn(&key("s"), 2),
            given.turn(&key("t"), 1),
            turn.call(&attempt("m1-1", 1)),
            turn.call(&attempt("m1-1", 2)),
            turn.call(&attempt("m1-1", 1)).delivery(1),
            turn.call(&attempt("m1-1", 1)).delivery(2),
        ];
        assert!(all.iter().all(|context| context.trace_id == given.trace_id && context.is_sampled));
        assert_eq!(all.iter().map(|context| context.span_id).collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(given.turn(&key("s"), 1), turn);
    }

    #[test]
    fn context_that_begins_a_trace_is_known_by_its_id() {
        let beginning = TraceContext::beginning(7, true);
        assert!(beginning.is_beginning());
        assert!(beginning.to_string().parse::<TraceContext>().unwrap().is_beginning());
        let given: TraceContext = GIVEN.parse().unwrap();
        assert!(!given.is_beginning() && !beginning.turn(&key("s"), 1).is_beginning());
        let next = beginning.next_beginning(&key("s"), 2);
        assert!(next.is_beginning() && next.is_sampled);
        assert_ne!(next.trace_id, beginning.trace_id);
    }
}
