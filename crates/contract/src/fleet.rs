//! What the processes of a fleet say of themselves when an operator asks: `ai_rpc.fleet.status`, and the worker that
//! holds a call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::streams::Queue;
use crate::{ErrorCode, Timestamp};

/// The service name of a process that runs all services.
pub const ALL_SERVICES: &str = "ailoop";

/// One process of a service, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Name of the service, such as `model-gateway`; [`ALL_SERVICES`] where one process runs them all.
    pub service: String,
    /// Host and process id, as in `gateway-5d8f:1`.
    pub replica: String,
    /// Version of its binary.
    pub version: String,
    /// Commit of its binary, or `unknown`.
    pub commit: String,
    /// Version of the rules by which it folds a log; a replica with an older one leaves newer sessions alone.
    pub fold: u32,
    /// When the process was ready for requests.
    pub started: Timestamp,
    /// The time by its own clock.
    pub now: Timestamp,
    /// Parts that are not ready; it takes no work until there are none.
    #[serde(default)]
    pub waiting_for: Vec<String>,
    /// What is wrong although it works, such as a file that cannot be read.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The items that it works on, by queue.
    #[serde(default)]
    pub work: BTreeMap<String, WorkerLoad>,
    /// Models that failed lately, as a gateway sees them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelHealth>,
    /// The agents, models and prompts of a composer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationMark>,
}

/// Which configuration a composer uses. All composers of a fleet should use the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationMark {
    /// Digest of its agents, models and prompts.
    pub fingerprint: String,
    /// When it began to use them.
    pub since: Timestamp,
}

/// A model that failed since it last succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelHealth {
    /// Id of the provider.
    pub provider: String,
    /// The provider's name for the model.
    pub model: String,
    /// Failures since the last success.
    pub failures: u32,
    /// Stable code of the last failure.
    pub last_failure: ErrorCode,
    /// No request is sent to it before this time; none while requests are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
}

impl ReplicaStatus {
    /// Whether the process does the work of a service.
    pub fn serves(&self, service: &str) -> bool {
        [service, ALL_SERVICES].contains(&self.service.as_str())
    }
}

/// The service whose processes take the items of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerService {
    /// As it calls itself in [`ReplicaStatus::service`].
    pub service: &'static str,
    /// As people call it.
    pub noun: &'static str,
    /// The same with its article.
    pub one: &'static str,
}

impl WorkerService {
    /// The service that takes the items of a queue.
    pub const fn of(queue: Queue) -> Self {
        match queue {
            Queue::Inputs | Queue::Timers => {
                Self { service: "loop-orchestrator", noun: "orchestrator", one: "an orchestrator" }
            }
            Queue::Model => Self { service: "model-gateway", noun: "gateway", one: "a gateway" },
            Queue::Tool => Self { service: "tool-executor", noun: "executor", one: "an executor" },
        }
    }
}

/// How busy a worker of a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerLoad {
    /// Items that it holds.
    pub running: u64,
    /// Items that it may hold at the same time.
    pub max: u64,
}

/// The worker that runs a call now, as it answers on [`crate::subject::call_holder`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CallHolder {
    /// As in [`ReplicaStatus::replica`]; empty of an older version.
    pub replica: String,
    /// For how long it has held this delivery, in milliseconds.
    pub held_ms: u64,
    /// Which delivery of the item this is, from 1.
    pub delivery: u64,
    /// What it did or learned last, such as the failure of a request and the next try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What became of the delivery that the question offered; none where it offered none, and of an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<OfferOutcome>,
}

/// What an orchestrator did with a result that a worker sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultAnswer {
    /// The log has it, and what follows from it is performed.
    InLog,
    /// It cannot say so: the worker stores the result, under the same id.
    Store,
}

/// A delivery of a work item, as its worker offers it on [`crate::subject::call_holder`] to the worker that runs the call
/// already. That one keeps it alive from then on, and settles it with the end of the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedDelivery {
    /// Which attempt of the call the item is for, from 1.
    pub attempt: u32,
    /// The id of the commit that opened the call; empty of older orchestrators.
    #[serde(default)]
    pub opened_by: String,
    /// Subject of the item.
    pub subject: String,
    /// Sequence of the item in its stream.
    pub seq: u64,
    /// Which delivery this is, from 1.
    pub delivered: u64,
    /// When the item was stored.
    pub stored_at: Timestamp,
    /// Subject for its acks.
    pub ack: String,
}

/// What a worker does with a delivery that is offered to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferOutcome {
    /// It runs the call, and has taken the delivery over.
    Taken,
    /// It has just settled the item.
    Settled,
    /// Its call has this id in another history of the log.
    OtherHistory,
}
