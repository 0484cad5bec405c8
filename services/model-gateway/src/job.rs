//! One delivered model call.

use std::sync::Arc;

use bus::CallNote;
use bus::call::OpenCall;
use contract::ids::CallAttempt;
use contract::model::{ItemMeta, ModelItem, ResultMeta};
use contract::subject::SessionKey;
use contract::trace::TraceContext;
use tokio_util::sync::CancellationToken;

use crate::transcript_parts::StoredPart;

/// Start of the twelve random digits of a UUID v7, which name a run.
const RUN_OFFSET: usize = 20;

/// A model call with its delivery.
#[derive(Debug)]
pub(crate) struct ModelJob {
    pub(crate) key: SessionKey,
    pub(crate) call: CallAttempt,
    pub(crate) item: ModelItem,
    /// Parts of the transcript that the log has; their messages are in the item, behind the system prompt.
    pub(crate) parts: Vec<Arc<StoredPart>>,
    /// Size of the item in bytes, to estimate its tokens.
    pub(crate) bytes: usize,
    /// `<attempt of the orchestrator>.<delivery>`, as viewers see it.
    pub(crate) attempt: String,
    /// Name of this run of the attempt, unique among all gateways.
    pub(crate) run: String,
    /// Which delivery of the item this is, from 1.
    pub(crate) delivered: u64,
    /// The span of this attempt of the call.
    pub(crate) trace: Option<TraceContext>,
    /// Cancelled when the session cancels the call.
    pub(crate) cancelled: CancellationToken,
    /// What people read who ask about the call.
    pub(crate) note: CallNote,
}

impl ModelJob {
    pub(crate) fn new(open: OpenCall<ModelItem>) -> Self {
        let attempt = open.attempt();
        let run = uuid::Uuid::now_v7().simple().to_string().split_off(RUN_OFFSET);
        let OpenCall { key, call, item, bytes, delivered, trace, cancelled, note, .. } = open;
        Self { key, call, item, parts: Vec::new(), bytes, attempt, run, delivered, trace, cancelled, note }
    }

    pub(crate) fn meta(&self) -> &ItemMeta {
        &self.item.meta
    }

    /// Metadata of a result of this item.
    pub(crate) fn result_meta(&self) -> ResultMeta {
        self.item.result_meta()
    }
}
