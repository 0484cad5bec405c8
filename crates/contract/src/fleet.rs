//! Reports of the processes of a fleet to an operator: `ai_rpc.fleet.status`, and the worker that holds a call.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::streams::Queue;
use crate::{ErrorCode, Timestamp};

/// The service name of a process that runs all services.
pub const ALL_SERVICES: &str = "ailoop";

/// One process of a service, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaStatus {
    /// Name of the service, such as `model-gateway`; `ailoop` where one process runs them all.
    pub service: String,
    /// Host and process id, as in `gateway-5d8f:1`.
    pub replica: String,
    /// Version of its binary.
    pub version: String,
    /// Commit of its binary, or `unknown`.
    pub commit: String,
    /// Version of the rules by which it folds a log; a replica with an older one leaves newer sessions alone.
    pub fold: u32,
    /// Time at which the process was ready for requests.
    pub started: Timestamp,
    /// The time by its own clock.
    pub now: Timestamp,
    /// Parts that are not ready; it takes no work until there are none.
    #[serde(default)]
    pub waiting_for: Vec<String>,
    /// Problems that do not stop it, such as a file that cannot be read.
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

/// Configuration that a composer uses. All composers of a fleet should use the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationMark {
    /// Digest of its agents, models and prompts.
    pub fingerprint: String,
    /// Time at which it began to use them.
    pub since: Timestamp,
}

/// A model that failed since it last succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Name of the service, as in [`ReplicaStatus::service`].
    pub service: &'static str,
    /// Name for people, without an article.
    pub noun: &'static str,
    /// Name for people, with its article.
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

/// Load of a worker of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkerLoad {
    /// Items that it holds.
    pub running: u64,
    /// Items that it may hold at the same time.
    pub max: u64,
}

/// The worker that runs a call now, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallHolder {
    /// Host and process id of the worker; empty of an older version.
    pub replica: String,
    /// Time for which it has held this delivery, in milliseconds.
    pub held_ms: u64,
    /// Number of this delivery of the item, from 1.
    pub delivery: u64,
    /// Latest note of the worker on the call, such as the failure of a request and the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Outcome for the delivery that the request offered; none if it offered none, and from an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<OfferOutcome>,
}

/// Answer of an orchestrator to a result that a worker sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultAnswer {
    /// The result is in the log, and its effects are performed.
    InLog,
    /// The orchestrator cannot confirm that: the worker stores the result, under the same id.
    Store,
}

/// A delivery of a work item, which its worker offers on [`crate::subject::call_holder`] to the worker that already
/// runs the call. That worker keeps the delivery alive from then on, and settles it at the end of the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedDelivery {
    /// Attempt of the call that the item is for, from 1.
    pub attempt: u32,
    /// The id of the commit that opened the call; empty of older orchestrators.
    #[serde(default)]
    pub opened_by: String,
    /// Subject of the item.
    pub subject: String,
    /// Sequence of the item in its stream.
    pub seq: u64,
    /// Number of this delivery, from 1.
    pub delivered: u64,
    /// Time at which the item was stored.
    pub stored_at: Timestamp,
    /// Subject for its acks.
    pub ack: String,
}

/// Answer of a worker to a delivery that is offered to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum OfferOutcome {
    /// It runs the call, and has taken the delivery over.
    Taken,
    /// It has just settled the item.
    Settled,
    /// Its call has the same id, but belongs to another history of the log.
    OtherHistory,
}
