//! One delivered model call: which, for whom, until when.

use bus::Delivery;
use contract::CommandId;
use contract::ids::CallAttempt;
use contract::model::{ItemMeta, ModelItem, ResultMeta};
use contract::subject::SessionKey;
use contract::tool::header::TRACEPARENT;

/// Where the random part of an id begins that names a run: twelve digits.
const RUN_OFFSET: usize = 20;

/// A call and its delivery.
#[derive(Debug)]
pub struct Job {
    /// The session.
    pub key: SessionKey,
    /// Which try of which call.
    pub call: CallAttempt,
    /// What the loop asks.
    pub item: ModelItem,
    /// Bytes of the item, for estimates.
    pub bytes: usize,
    /// `<orchestrator's attempt>.<delivery>`, as viewers see it.
    pub attempt: String,
    /// This run of the attempt: no other one has the same name, on whichever gateway.
    pub run: String,
    /// The trace that the call belongs to.
    pub traceparent: Option<String>,
}

impl Job {
    /// A job of an item and the message that brought it.
    pub fn new(key: SessionKey, item: ModelItem, bytes: usize, delivery: &Delivery) -> Self {
        let call = CallAttempt { call: item.meta.call.clone(), attempt: item.meta.attempt };
        let attempt = format!("{}.{}", item.meta.attempt, delivery.delivered);
        let traceparent = bus::transport::header(&delivery.headers, TRACEPARENT).map(str::to_owned);
        let run = uuid::Uuid::now_v7().simple().to_string().split_off(RUN_OFFSET);
        Self { key, call, item, bytes, attempt, run, traceparent }
    }

    /// The item's ids.
    pub fn meta(&self) -> &ItemMeta {
        &self.item.meta
    }

    /// What a result tells of the item.
    pub fn result_meta(&self) -> ResultMeta {
        let meta = self.meta();
        ResultMeta { v: contract::commit::VERSION, slot: meta.slot, call: meta.call.clone(), attempt: meta.attempt }
    }
}

/// The id under which an attempt of a call is reported: the same however often its item is delivered, so that whoever is to
/// make the call finds what waits already. `None` for a call id that leaves no room.
pub fn result_id(call: &CallAttempt) -> Option<CommandId> {
    CommandId::new(&format!("{}-{}", call.call, call.attempt)).ok()
}

/// The id of a second result of one attempt, while the first one waits under [`result_id`].
pub fn run_id(call: &CallAttempt, run: &str) -> Option<CommandId> {
    CommandId::new(&format!("{}-{}-{run}", call.call, call.attempt)).ok()
}
