//! Tool results that wait together are folded together: one commit instead of one each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bus::work::Settle;
use bus::{BusError, Delivery};
use contract::subject::SessionKey;
use tokio::sync::oneshot;

use crate::drive::{Taken, settle};
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
    subject: String,
    delivered: u64,
    answer: oneshot::Sender<Settle>,
}

impl Shared {
    /// Handles an input together with those of its session that wait at the same time. Whoever gets the session
    /// first handles them all; the others take their answer.
    pub(crate) async fn handle(&self, shell: &Shell, sent: Sent, delivery: &Delivery) -> Settle {
        let key = sent.key.clone();
        let (answer, mut answered) = oneshot::channel();
        let (subject, delivered) = (delivery.subject.clone(), delivery.delivered);
        self.waiting().entry(key.clone()).or_default().push(Waiting { sent, subject, delivered, answer });
        let mut place = shell.cache.lock(&key).await;
        let batch = self.waiting().remove(&key).unwrap_or_default();
        let (mut inputs, mut names, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for Waiting { sent, subject, delivered, answer } in batch {
            inputs.push(sent);
            names.push((subject, delivered));
            answers.push(answer);
        }
        let settle_one = |(subject, delivered): &(String, u64), result| {
            settle(&shell.failures, Taken { key: &key, subject, delivered: *delivered }, result)
        };
        if !inputs.is_empty() {
            let settled = match shell.handle(&key, &mut place, &inputs).await {
                // One of them may be what is wrong: it must not cost the others their tries.
                Err(Trouble::Split | Trouble::Internal(_) | Trouble::Bus(BusError::Malformed(_)))
                    if inputs.len() > 1 =>
                {
                    let mut settled = Vec::with_capacity(inputs.len());
                    for (input, name) in inputs.iter().zip(&names) {
                        let one = shell.handle(&key, &mut place, std::slice::from_ref(input)).await;
                        settled.push(settle_one(name, one));
                    }
                    settled
                }
                result => names.iter().map(|name| settle_one(name, result.clone())).collect(),
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
