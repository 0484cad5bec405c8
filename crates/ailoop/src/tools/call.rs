//! Calls as an executor makes them, of a session that was made up.

use bus::Headers;
use bytes::Bytes;
use contract::Timestamp;
use contract::tool::header;
use uuid::Uuid;

/// Who calls: a session that nobody has, so that nothing is mixed up with a real one.
#[derive(Debug, Clone)]
pub struct Caller {
    session: String,
    agent: String,
    trace: String,
    calls: u32,
}

/// One call, which may be sent more than once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its id, as in `Ailoop-Call`.
    pub id: String,
    /// Every header.
    pub headers: Headers,
    /// The arguments.
    pub body: Bytes,
}

impl Caller {
    /// A session of its own and a trace of its own, both after `unique`.
    pub fn new(agent: &str, unique: Uuid) -> Self {
        Self { session: format!("try-{unique}"), agent: agent.to_owned(), trace: unique.simple().to_string(), calls: 0 }
    }

    /// The trace that every call belongs to.
    pub fn trace(&self) -> &str {
        &self.trace
    }

    /// A call of its own id.
    pub fn call(&mut self, body: impl Into<Bytes>, deadline: Timestamp) -> Call {
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
        Call { id, headers, body: body.into() }
    }
}

impl Call {
    /// The same call once more, as after a loss: another delivery, the same id.
    #[must_use]
    pub fn again(&self) -> Self {
        let next = |(name, value): &(String, String)| {
            let value = if name == header::ATTEMPT { "1.2".to_owned() } else { value.clone() };
            (name.clone(), value)
        };
        Self { headers: self.headers.iter().map(next).collect(), ..self.clone() }
    }

    /// What says that nobody waits any more.
    pub fn cancel(&self) -> Headers {
        vec![(header::CALL.to_owned(), self.id.clone())]
    }
}

#[cfg(test)]
mod tests {
    use contract::SessionId;

    use super::*;
    use crate::tools::reply::trace_of;

    #[test]
    fn calls_look_like_those_of_an_executor() {
        let mut caller = Caller::new("e", Uuid::from_u128(7));
        let call = caller.call("{}", Timestamp::default());
        let value = |call: &Call, name: &str| bus::transport::header(&call.headers, name).map(str::to_owned);
        assert!(SessionId::new(&value(&call, header::SESSION).unwrap()).is_ok());
        assert_eq!(call.id, "try-00000000-0000-0000-0000-000000000007-c1-1-1");
        assert_eq!(trace_of(&value(&call, header::TRACEPARENT).unwrap()).as_deref(), Some(caller.trace()));
        let again = call.again();
        assert_eq!(
            (value(&again, header::CALL), value(&again, header::ATTEMPT).as_deref()),
            (Some(call.id.clone()), Some("1.2"))
        );
        assert_ne!(caller.call("{}", Timestamp::default()).id, call.id);
        assert_eq!(call.cancel(), [(header::CALL.to_owned(), call.id.clone())]);
    }
}
