//! Agents and models that the composer accepted lately: a start that names them again is not checked again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contract::Json;
use contract::compose::ComposeRequest;
use tokio::time::Instant;

/// How long names that the composer accepted are not checked again. If they are gone meanwhile, the loop refuses the
/// start.
const ACCEPTED_FOR: Duration = Duration::from_secs(10);
/// Accepted names that are kept, and the largest request of a check that is kept with its answer.
const NAMES_MAX: usize = 256;
const CHECK_BYTES_MAX: usize = 4096;

/// Agents and models that the composer accepted lately, by the request that named them.
#[derive(Debug, Default)]
pub(crate) struct AcceptedNames(Mutex<HashMap<Box<str>, AcceptedAgent>>);

#[derive(Debug)]
struct AcceptedAgent {
    agent: String,
    until: Instant,
}

impl AcceptedNames {
    /// Returns the agent of a check that had the same answer a moment ago.
    pub(crate) fn get(&self, check: &ComposeRequest) -> Option<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = names.get(Json::of(check).get())?;
        (Instant::now() < accepted.until).then(|| accepted.agent.clone())
    }

    pub(crate) fn put(&self, check: &ComposeRequest, agent: &str) {
        let check = Json::of(check);
        if check.get().len() > CHECK_BYTES_MAX {
            return;
        }
        let now = Instant::now();
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX {
            names.retain(|_, accepted| now < accepted.until);
        }
        if names.len() < NAMES_MAX {
            names.insert(check.get().into(), AcceptedAgent { agent: agent.to_owned(), until: now + ACCEPTED_FOR });
        }
    }
}
