//! Trials without other sessions beside them: a party that tries what it may not, and the outcome of each try.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::LocalBoxFuture;
use tokio::time::timeout;

use crate::hostile::table::Row;

/// Deadline of a trial: a way for it to end, and no statement.
const TRIAL_MAX: Duration = Duration::from_mins(8);
/// Outcomes that the table names; it counts all of them.
const NAMED_MAX: usize = 4;

/// A trial with a fleet of its own, and nobody beside it.
pub(crate) struct AccessTrial {
    pub(crate) name: &'static str,
    pub(crate) attack: fn(Attempts) -> LocalBoxFuture<'static, anyhow::Result<()>>,
}

/// Attempts of a hostile party, and their outcomes. Clones share one list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempts(Arc<Mutex<Tally>>);

#[derive(Debug, Default)]
struct Tally {
    count: u64,
    breaches: Vec<String>,
}

impl Attempts {
    /// Counts one attempt. It is a breach unless its outcome is the right one, as `is_right` says.
    pub(crate) fn check(&self, is_right: bool, outcome: impl FnOnce() -> String) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.count += 1;
        if !is_right {
            tally.breaches.push(outcome());
        }
    }
}

/// Runs a trial; one that cannot be run counts as failed.
pub(crate) async fn run(trial: &AccessTrial) -> Row {
    let attempts = Attempts::default();
    let ended = timeout(TRIAL_MAX, (trial.attack)(attempts.clone())).await;
    let ended = ended.with_context(|| format!("not within {TRIAL_MAX:?}")).flatten();
    let tally = std::mem::take(&mut *attempts.0.lock().unwrap_or_else(PoisonError::into_inner));
    let mut wrong: Vec<String> = tally.breaches.iter().take(NAMED_MAX).cloned().collect();
    if tally.count == 0 && ended.is_ok() {
        wrong.push("nothing was tried".to_owned());
    }
    wrong.extend(ended.err().map(|error| format!("the trial did not run to its end: {error:#}")));
    Row {
        trial: trial.name.to_owned(),
        inputs: tally.count,
        accepted: tally.breaches.len() as u64,
        wrong: (!wrong.is_empty()).then(|| wrong.join("; ")),
        ..Row::default()
    }
}
