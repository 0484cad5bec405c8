//! Results that are known but not yet stored: the bus was away when they came.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use contract::ids::CallAttempt;
use contract::subject::SessionKey;
use contract::tool::ToolResult;

/// Results that are kept at the same time; a further one is lost as if this process had died.
const UNSENT_MAX: usize = 1_024;

/// Results by their call. Kept so that a call whose result is known does not run again when its item comes back.
#[derive(Debug, Default)]
pub(super) struct Unsent(Mutex<HashMap<(SessionKey, CallAttempt), ToolResult>>);

impl Unsent {
    pub(super) fn get(&self, key: &SessionKey, call: &CallAttempt) -> Option<ToolResult> {
        self.with(|results| results.get(&(key.clone(), call.clone())).cloned())
    }

    pub(super) fn put(&self, key: &SessionKey, call: &CallAttempt, result: &ToolResult) {
        self.with(|results| {
            if results.len() < UNSENT_MAX {
                results.insert((key.clone(), call.clone()), result.clone());
            }
        });
    }

    pub(super) fn remove(&self, key: &SessionKey, call: &CallAttempt) {
        self.with(|results| results.remove(&(key.clone(), call.clone())));
    }

    // A lock, since it is held for one access to the map only.
    fn with<T>(&self, access: impl FnOnce(&mut HashMap<(SessionKey, CallAttempt), ToolResult>) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
