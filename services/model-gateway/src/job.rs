//! One delivered model call: which, for whom, until when.

use bus::Delivery;
use contract::CommandId;
use contract::ids::CallAttempt;
use contract::model::{ItemMeta, ModelItem, ResultMeta};
use contract::subject::SessionKey;
use contract::tool::header::TRACEPARENT;
use serde_json::Value;

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
    /// The trace that the call belongs to.
    pub traceparent: Option<String>,
}

impl Job {
    /// A job of an item and the message that brought it.
    pub fn new(key: SessionKey, item: ModelItem, bytes: usize, delivery: &Delivery) -> Self {
        let call = CallAttempt { call: item.meta.call.clone(), attempt: item.meta.attempt };
        let attempt = format!("{}.{}", item.meta.attempt, delivery.delivered);
        let traceparent = bus::transport::header(&delivery.headers, TRACEPARENT).map(str::to_owned);
        Self { key, call, item, bytes, attempt, traceparent }
    }

    /// The item's ids.
    pub fn meta(&self) -> &ItemMeta {
        &self.item.meta
    }

    /// Tokens that the reply may have, where the item says so. Protocols have names of their own for it: the greatest counts.
    pub fn output_max(&self) -> Option<u64> {
        let parameters = &self.item.parameters;
        let names = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
        let nested = parameters.get("generationConfig").and_then(|config| config.get("maxOutputTokens"));
        names.iter().filter_map(|name| parameters.get(*name)).chain(nested).filter_map(Value::as_u64).max()
    }

    /// What a result tells of the item.
    pub fn result_meta(&self) -> ResultMeta {
        let meta = self.meta();
        ResultMeta { v: contract::commit::VERSION, slot: meta.slot, call: meta.call.clone(), attempt: meta.attempt }
    }
}

/// The id under which a try of a call is reported: the same however often its item is delivered, so that it counts
/// once. `None` for a call id that leaves no room.
pub fn result_id(call: &CallAttempt) -> Option<CommandId> {
    CommandId::new(&format!("{}-{}", call.call, call.attempt)).ok()
}
