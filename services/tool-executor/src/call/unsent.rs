//! Results that are known but not yet stored: the bus was away when they came.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::ids::CallAttempt;
use contract::subject::SessionKey;
use contract::tool::ToolResult;

/// Results that are kept at the same time; a further one is lost as if this process had died.
const UNSENT_MAX: usize = 1_024;
/// Bytes of their contents; as above.
const UNSENT_BYTES_MAX: usize = 16 << 20;

/// Results by their call. Kept so that a call whose result is known does not run again when its item comes back.
#[derive(Debug, Default)]
pub(super) struct Unsent(Mutex<Results>);

#[derive(Debug, Default)]
struct Results {
    by_call: HashMap<(SessionKey, CallAttempt), ToolResult>,
    bytes: usize,
}

impl Unsent {
    pub(super) fn get(&self, key: &SessionKey, call: &CallAttempt) -> Option<ToolResult> {
        self.lock().by_call.get(&(key.clone(), call.clone())).cloned()
    }

    pub(super) fn put(&self, key: &SessionKey, call: &CallAttempt, result: &ToolResult) {
        let mut results = self.lock();
        results.remove(key, call);
        if results.by_call.len() < UNSENT_MAX && results.bytes + result.content.len() <= UNSENT_BYTES_MAX {
            results.bytes += result.content.len();
            results.by_call.insert((key.clone(), call.clone()), result.clone());
        }
    }

    pub(super) fn remove(&self, key: &SessionKey, call: &CallAttempt) {
        self.lock().remove(key, call);
    }

    // A lock, since it is held for one access to the map only.
    fn lock(&self) -> MutexGuard<'_, Results> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Results {
    fn remove(&mut self, key: &SessionKey, call: &CallAttempt) {
        if let Some(result) = self.by_call.remove(&(key.clone(), call.clone())) {
            self.bytes -= result.content.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::CallId;
    use contract::model::ResultMeta;
    use contract::tool::Outcome;
    use contract::{SessionId, TenantId};

    use super::*;

    #[test]
    fn results_over_their_bytes_are_not_kept_and_room_comes_back() {
        let unsent = Unsent::default();
        let key = SessionKey { tenant: TenantId::new("acme").unwrap(), session: SessionId::new("s").unwrap() };
        let call = |index| CallAttempt { call: CallId::tool(1, 1, index), attempt: 1 };
        let result = |index| ToolResult {
            meta: ResultMeta { v: 1, slot: 0, call: CallId::tool(1, 1, index), attempt: 1 },
            outcome: Outcome::Ok,
            content: "x".repeat(64 << 10),
            code: None,
            duration_ms: 1,
            whole: None,
            used: None,
        };
        for index in 1..=300 {
            unsent.put(&key, &call(index), &result(index));
            unsent.put(&key, &call(index), &result(index));
        }
        assert!(unsent.get(&key, &call(256)).is_some() && unsent.get(&key, &call(257)).is_none());
        unsent.remove(&key, &call(1));
        unsent.put(&key, &call(300), &result(300));
        assert!(unsent.get(&key, &call(300)).is_some());
    }
}
