//! One delivered model call: which, for whom, until when.

use bus::call::OpenCall;
use contract::ids::CallAttempt;
use contract::model::{ItemMeta, ModelItem, ResultMeta};
use contract::subject::SessionKey;
use tokio_util::sync::CancellationToken;

/// Where the random part of an id begins that names a run: twelve digits.
const RUN_OFFSET: usize = 20;

/// A call and its delivery.
#[derive(Debug)]
pub(crate) struct Job {
    /// The session.
    pub(crate) key: SessionKey,
    /// Which try of which call.
    pub(crate) call: CallAttempt,
    /// What the loop asks.
    pub(crate) item: ModelItem,
    /// Bytes of the item, for estimates.
    pub(crate) bytes: usize,
    /// `<orchestrator's attempt>.<delivery>`, as viewers see it.
    pub(crate) attempt: String,
    /// This run of the attempt: no other one has the same name, on whichever gateway.
    pub(crate) run: String,
    /// The trace that the call belongs to.
    pub(crate) traceparent: Option<String>,
    /// Cancelled when the loop calls the call off.
    pub(crate) cancelled: CancellationToken,
}

impl Job {
    /// A job of a call that may start.
    pub(crate) fn new(open: OpenCall<ModelItem>) -> Self {
        let attempt = open.attempt();
        let run = uuid::Uuid::now_v7().simple().to_string().split_off(RUN_OFFSET);
        let OpenCall { key, call, item, bytes, traceparent, cancelled, .. } = open;
        Self { key, call, item, bytes, attempt, run, traceparent, cancelled }
    }

    /// The item's ids.
    pub(crate) fn meta(&self) -> &ItemMeta {
        &self.item.meta
    }

    /// What a result tells of the item.
    pub(crate) fn result_meta(&self) -> ResultMeta {
        self.meta().of_result()
    }
}
