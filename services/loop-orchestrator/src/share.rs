//! Tool results that wait together are folded together: one commit instead of one each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bus::work::Settle;
use contract::subject::SessionKey;
use tokio::sync::oneshot;

use crate::drive::settle;
use crate::input::Sent;
use crate::shell::{Shell, Trouble};

/// Inputs that wait for their session, by session. Its size is bounded by the inputs that the replica holds.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    // A plain lock: it is held for a look-up, never across an await.
    waiting: Mutex<HashMap<SessionKey, Vec<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    sent: Sent,
    answer: oneshot::Sender<Settle>,
}

impl Shared {
    /// Handles an input together with those of its session that wait at the same time. Whoever gets the session
    /// first handles them all; the others take their answer.
    pub(crate) async fn handle(&self, shell: &Shell, sent: Sent, delivered: u64) -> Settle {
        let key = sent.key.clone();
        let (answer, mut answered) = oneshot::channel();
        self.waiting().entry(key.clone()).or_default().push(Waiting { sent, answer });
        let mut place = shell.cache.lock(&key).await;
        let batch = self.waiting().remove(&key).unwrap_or_default();
        let (inputs, answers): (Vec<Sent>, Vec<_>) = batch.into_iter().map(|w| (w.sent, w.answer)).unzip();
        if !inputs.is_empty() {
            let settled = match shell.handle(&key, &mut place, &inputs).await {
                Err(Trouble::Split) => {
                    let mut settled = Vec::with_capacity(inputs.len());
                    for input in &inputs {
                        let one = shell.handle(&key, &mut place, std::slice::from_ref(input)).await;
                        settled.push(settle(&shell.failures, &key, delivered, one));
                    }
                    settled
                }
                result => vec![settle(&shell.failures, &key, delivered, result); inputs.len()],
            };
            for (answer, settled) in answers.into_iter().zip(settled) {
                // Gone is who no longer waits; its input is in the log all the same and comes again.
                let _gone = answer.send(settled);
            }
        }
        drop(place);
        // Ours was in some batch: that batch has answered, or its task was cut off with the answer.
        answered.try_recv().unwrap_or(Settle::Retry(std::time::Duration::ZERO))
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<SessionKey, Vec<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
