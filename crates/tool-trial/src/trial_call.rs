//! Calls like those of an executor, from a session that does not exist.

use bus::Headers;
use bytes::Bytes;
use contract::Timestamp;
use contract::tool::header;
use uuid::Uuid;

/// Makes calls of a session id that no real session has.
#[derive(Debug, Clone)]
pub struct TrialCaller {
    session: String,
    agent: String,
    trace: String,
    calls: u32,
}

/// One call, which may be sent repeatedly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialCall {
    /// The call id, as in `Ailoop-Call`.
    pub(crate) id: String,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

impl TrialCaller {
    /// Derives the session id and the trace id from `unique`.
    pub fn new(agent: &str, unique: Uuid) -> Self {
        Self { session: format!("try-{unique}"), agent: agent.to_owned(), trace: unique.simple().to_string(), calls: 0 }
    }

    /// Returns the trace id of every call.
    pub(crate) fn trace_id(&self) -> &str {
        &self.trace
    }

    /// Makes a call with a new id.
    pub fn make_call(&mut self, body: impl Into<Bytes>, deadline: Timestamp) -> TrialCall {
        self.calls += 1;
        let id = format!("{}-c1-1-{}", self.session, self.calls);
        let parent = format!("00-{}-{:016x}-01", self.trace, self.calls);
        let headers = [
            (header::CALL, id.clone()),
            (header::SESSION, self.session.clone()),
            (header::AGENT, self.agent.clone()),
            (header::ATTEMPT, "1.1".to_owned()),
            (header::DEADLINE, deadline.to_string()),
            (header::TRACEPARENT, parent),
        ];
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        TrialCall { id, headers, body: body.into() }
    }
}

impl TrialCall {
    /// Makes the next delivery of the same call, as after a loss.
    #[must_use]
    pub(crate) fn redeliver(&self) -> Self {
        let next = |(name, value): &(String, String)| {
            let value = if name == header::ATTEMPT { "1.2".to_owned() } else { value.clone() };
            (name.clone(), value)
        };
        Self { headers: self.headers.iter().map(next).collect(), ..self.clone() }
    }

    /// Makes the headers of the cancellation.
    pub fn cancel_headers(&self) -> Headers {
        vec![(header::CALL.to_owned(), self.id.clone())]
    }
}

#[cfg(test)]
mod tests {
    use contract::SessionId;

    use super::*;
    use crate::tool_reply::parse_trace_id;

    #[test]
    fn trial_call_headers_are_those_of_an_executor() {
        let mut caller = TrialCaller::new("e", Uuid::from_u128(7));
        let call = caller.make_call("{}", Timestamp::default());
        let value = |call: &TrialCall, name: &str| bus::transport::header(&call.headers, name).map(str::to_owned);
        assert!(SessionId::new(&value(&call, header::SESSION).unwrap()).is_ok());
        assert_eq!(call.id, "try-00000000-0000-0000-0000-000000000007-c1-1-1");
        assert_eq!(parse_trace_id(&value(&call, header::TRACEPARENT).unwrap()).as_deref(), Some(caller.trace_id()));
        let redelivery = call.redeliver();
        assert_eq!(
            (value(&redelivery, header::CALL), value(&redelivery, header::ATTEMPT).as_deref()),
            (Some(call.id.clone()), Some("1.2"))
        );
        assert_ne!(caller.make_call("{}", Timestamp::default()).id, call.id);
        assert_eq!(call.cancel_headers(), [(header::CALL.to_owned(), call.id.clone())]);
    }
}
