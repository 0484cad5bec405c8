//! Batches tool results that wait for the same session, so that one commit contains them all.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bus::work::Settle;
use bus::{BusError, Delivery};
use contract::subject::SessionKey;
use tokio::sync::oneshot;

use crate::handle_error::HandleError;
use crate::input::DeliveredInput;
use crate::session_runner::{Handled, SessionRunner};
use crate::settlement::settle;

/// Results that wait for their session. Their number is bounded by the inputs that the replica handles at the same
/// time.
#[derive(Debug, Default)]
pub(crate) struct ResultBatcher {
    // A blocking lock: it is held for a look-up, never across an await.
    pending: Mutex<HashMap<SessionKey, Vec<PendingResult>>>,
}

#[derive(Debug)]
struct PendingResult {
    input: DeliveredInput,
    reply: oneshot::Sender<Result<Handled, HandleError>>,
}

impl ResultBatcher {
    /// Handles an input together with those of its session that wait at the same time. The task that locks the session
    /// first handles them all and sends the others what came of theirs.
    pub(crate) async fn handle(&self, runner: &SessionRunner, input: DeliveredInput, delivery: &Delivery) -> Settle {
        let key = input.key.clone();
        // Dropped after the receiver.
        let _place = Place { batcher: self, key: &key };
        let (reply, mut handled) = oneshot::channel();
        self.lock().entry(key.clone()).or_default().push(PendingResult { input, reply });
        let mut cached = runner.cache.lock(&key).await;
        let batch = self.lock().remove(&key).unwrap_or_default();
        let (inputs, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|PendingResult { input, reply }| (input, reply)).unzip();
        if !inputs.is_empty() {
            let results = match runner.handle(&key, &mut cached, &inputs).await {
                // One input may cause the failure, and the others must not fail with it.
                Err(HandleError::Split | HandleError::Internal(_) | HandleError::Bus(BusError::Malformed(_)))
                    if inputs.len() > 1 =>
                {
                    let mut results = Vec::with_capacity(inputs.len());
                    for input in &inputs {
                        results.push(runner.handle(&key, &mut cached, std::slice::from_ref(input)).await);
                    }
                    results
                }
                result => vec![result; inputs.len()],
            };
            for (reply, result) in replies.into_iter().zip(results) {
                // A task that was cancelled does not receive it. Its input is in the log, and is delivered again.
                let _send_result = reply.send(result);
            }
        }
        drop(cached);
        // This input was in a batch. The task of the batch has sent what came of it, or was cancelled before.
        match handled.try_recv() {
            Ok(result) => settle(&runner.failures, &key, delivery, result).await,
            Err(_) => Settle::Retry(Duration::ZERO),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionKey, Vec<PendingResult>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a task among the results that wait. A task that is cancelled takes its result out again.
struct Place<'a> {
    batcher: &'a ResultBatcher,
    key: &'a SessionKey,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut pending = self.batcher.lock();
        if let Some(waiting) = pending.get_mut(self.key) {
            waiting.retain(|result| !result.reply.is_closed());
            if waiting.is_empty() {
                pending.remove(self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use std::sync::Arc;

    use bus::Stored;
    use bus_memory::MemoryServer;
    use contract::command::Verb;
    use contract::subject::ControlSubject;
    use contract::{CommandId, SessionId, TenantId, Timestamp};
    use service::clock::SystemClock;
    use tokio::task::JoinSet;

    use super::*;
    use crate::OrchestratorConfig;
    use crate::testing::delivery;

    #[tokio::test]
    async fn cancelled_task_leaves_no_result_behind() {
        let bus = MemoryServer::new().bus();
        let runner = Arc::new(SessionRunner::new(bus.clone(), Arc::new(SystemClock), &OrchestratorConfig::default()));
        let batcher = Arc::new(ResultBatcher::default());
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let body = r#"{"meta":{"v":1,"slot":0,"call":"t1-1-1","attempt":1},"outcome":"ok","content":""}"#;
        let (verb, id) = (Verb::ProvideToolResult, CommandId::new("t1-1-1-1").unwrap());
        let delivery = delivery(contract::subject::control(&key, verb, &id).as_str(), 1, body.into());
        let (subject, seq, generation) = (delivery.subject.clone(), 1, 1);
        let (stored_at, headers) = (Timestamp::default(), Vec::new());
        let message = Stored { subject, seq, stored_at, generation, headers, payload: body.into() };
        let at = ControlSubject { key: key.clone(), verb, id };
        let input = DeliveredInput::read(&bus, at, message).await.unwrap();

        let locked = runner.cache.lock(&key).await;
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let (batcher, runner) = (batcher.clone(), runner.clone());
            async move { batcher.handle(&runner, input, &delivery).await }
        });
        while batcher.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        tasks.shutdown().await;
        assert!(batcher.lock().is_empty());
        drop(locked);
    }
}
