//! Results of methods about the fleet: agents, models, tools, mail, budgets, queues, processes and dead letters.

use std::collections::BTreeSet;

use contract::budget::BudgetStatus;
use contract::commit::Phase;
use contract::compose::{Component, KnownModel};
use contract::fleet::ReplicaStatus;
use contract::mail::WaitingMail;
use contract::settings::AgentSettings;
use contract::subject::DeadKind;
use contract::tool::ToolSpec;
use contract::tool_request::{ToolReplicaStats, TrialResult};
use contract::{AgentId, CellName, CommandId, ErrorCode, Json, SessionId, TenantId, Timestamp, ToolName};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::scope::Scope;

/// Rights of a caller, so that a client offers nothing that would be refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Caller {
    /// Holder of the credential, as the credential names it.
    pub subject: String,
    /// Tenant of the caller.
    pub tenant: TenantId,
    /// Scopes that the credential grants.
    pub scopes: BTreeSet<Scope>,
    /// Agents whose sessions the caller reaches; absent if it reaches all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<BTreeSet<AgentId>>,
    /// Names of the methods that the caller may use now.
    pub methods: Vec<&'static str>,
}

/// The agents of the fleet, by key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentList {
    /// The agents in the caller's reach.
    pub agents: Vec<AgentInfo>,
}

/// An agent of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
pub struct AgentInfo {
    /// Key of the agent.
    pub id: AgentId,
    /// Name of the agent, for people.
    pub name: String,
    /// Other ids that select this agent.
    pub aliases: Vec<AgentId>,
    /// Its model, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether sessions that name no agent get this one.
    pub is_default: bool,
}

impl AgentInfo {
    /// Whether a client may call the agent by this name: its id or an alias.
    pub fn is_named(&self, name: &str) -> bool {
        self.id.as_str() == name || self.aliases.iter().any(|alias| alias.as_str() == name)
    }
}

/// An agent as the next session would have it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AgentDescription {
    /// Its settings, after all layers of the configuration.
    #[serde(flatten)]
    pub settings: AgentSettings,
    /// Id of the model.
    pub model: String,
    /// The system prompt, as the model reads it.
    pub prompt: String,
    /// SHA-256 over the prompt, in hex.
    pub fingerprint: String,
    /// The parts of the prompt, in its order.
    pub components: Vec<Component>,
    /// Problems that did not stop the composition.
    pub warnings: Vec<String>,
}

/// Decision that the loop would make after a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReplyDecision {
    /// Whether another step would follow.
    pub continues: bool,
    /// Source of the decision, such as `explicit` or `pattern:<pattern>`.
    pub source: String,
    /// Reason for the decision, for people.
    pub reason: String,
    /// Text of the reply that a user would read.
    pub visible: String,
}

/// The models of the fleet, by id.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelList {
    /// The models that are described.
    pub models: Vec<KnownModel>,
}

/// The tools of the fleet, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FleetToolList {
    /// The tools of the tenant.
    pub tools: Vec<ToolSpec>,
}

/// The processes that serve the tools of the tenant, by tool.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ToolReplicaList {
    /// The processes that serve them.
    pub replicas: Vec<ToolReplicaStats>,
}

/// A call of a tool outside of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TriedTool {
    /// Name of the tool.
    pub tool: ToolName,
    /// The arguments, as the tool gets them.
    #[schemars(with = "Map<String, Value>")]
    pub arguments: Json,
    /// SHA-256 of the arguments, to which an approval of the call is bound.
    pub arguments_sha256: String,
    /// Whether the call runs only after a person has approved it.
    pub needs_approval: bool,
    /// Absent if the call did not run, because nobody has approved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<TrialResult>,
}

/// Mails that are not answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "MailList")]
pub struct MailboxPage {
    /// The mails, the oldest first.
    pub mails: Vec<WaitingMail>,
    /// Number of mails beyond those.
    pub more: usize,
    /// Cells that did not answer, so that nothing of them is here; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_cells: Vec<CellName>,
}

/// Budgets of the tenant.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BudgetList {
    /// The budgets in their current periods.
    pub budgets: Vec<BudgetStatus>,
}

/// Queues of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueueList {
    /// The queues of all services.
    pub queues: Vec<QueueDepth>,
    /// Number of waiting model calls at which new turns are refused.
    pub waiting_calls_max: u64,
    /// The same for the model calls of the caller's tenant.
    pub tenant_waiting_calls_max: u64,
    /// Cells that did not answer, so that nothing of them is here; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_cells: Vec<CellName>,
}

/// Depth of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueueDepth {
    /// `drive` (inputs), `due` (timers), `model` or `tool` (calls).
    pub queue: &'static str,
    /// Items that no worker has.
    pub waiting: u64,
    /// Items that workers have.
    pub held: u64,
}

/// State of the fleet.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FleetStatus {
    /// The time of the server's clock.
    pub now: Timestamp,
    /// Processes that answered, by service.
    pub replicas: Vec<ReplicaInfo>,
    /// The queues with their workers.
    pub queues: Vec<QueueStatus>,
    /// Sessions of the tenant; absent while the index is not in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionNumbers>,
    /// Dead letters of the tenant.
    pub dead_letters: u64,
    /// Streams and object stores of all tenants, on one replica.
    pub storage: Vec<StorageStatus>,
    /// Cells that did not answer, so that nothing of them is here; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_cells: Vec<CellName>,
}

impl FleetStatus {
    /// Sums up the status of two cells. The sessions are those of the cells whose index is in memory.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.replicas.extend(other.replicas);
        for (queue, more) in self.queues.iter_mut().zip(&other.queues) {
            queue.waiting += more.waiting;
            queue.held += more.held;
            queue.pullers += more.pullers;
            queue.oldest_ms = queue.oldest_ms.max(more.oldest_ms);
        }
        self.sessions = match (self.sessions, other.sessions) {
            (Some(one), Some(other)) => Some(one.plus(other)),
            (one, other) => one.or(other),
        };
        self.dead_letters += other.dead_letters;
        for (stored, more) in self.storage.iter_mut().zip(&other.storage) {
            stored.messages += more.messages;
            stored.bytes += more.bytes;
        }
        self
    }
}

/// A process of the fleet.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Replica")]
pub struct ReplicaInfo {
    /// The process, as it describes itself.
    #[serde(flatten)]
    pub status: ReplicaStatus,
    /// Milliseconds by which its clock is ahead of the server's, to the accuracy of a request.
    pub clock_ahead_ms: i64,
    /// Its cell, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellName>,
}

/// A queue and its workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueueStatus {
    /// `drive` (inputs), `due` (timers), `model` or `tool` (calls).
    pub queue: &'static str,
    /// Items that no worker has.
    pub waiting: u64,
    /// Items that workers have.
    pub held: u64,
    /// Requests of workers for items; none where all workers are gone, or have no free place.
    pub pullers: u64,
    /// Age of the oldest item in milliseconds; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
}

/// Numbers of sessions, by phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct SessionNumbers {
    /// Sessions that wait for the user.
    pub idle: usize,
    /// Sessions with a running turn.
    pub running: usize,
    /// Sessions that are paused.
    pub paused: usize,
    /// Sessions that have ended.
    pub ended: usize,
    /// Sessions that wait for a person.
    pub with_gates: usize,
}

impl SessionNumbers {
    /// Sums up two counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            idle: self.idle + other.idle,
            running: self.running + other.running,
            paused: self.paused + other.paused,
            ended: self.ended + other.ended,
            with_gates: self.with_gates + other.with_gates,
        }
    }

    /// The number of sessions in a phase.
    pub fn of_phase(&mut self, phase: Phase) -> &mut usize {
        match phase {
            Phase::Idle => &mut self.idle,
            Phase::Running => &mut self.running,
            Phase::Paused => &mut self.paused,
            Phase::Ended => &mut self.ended,
        }
    }
}

/// A stream or an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StorageStatus {
    /// Name on the nats-server.
    pub name: &'static str,
    /// Messages that it holds.
    pub messages: u64,
    /// Bytes that it holds.
    pub bytes: u64,
}

/// Dead letters of the tenant.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DeadLetterList {
    /// The letters, without their bodies.
    pub dead: Vec<DeadLetterInfo>,
    /// Cells that did not answer, so that nothing of them is here; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_cells: Vec<CellName>,
}

/// A message that no service could handle.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetter")]
pub struct DeadLetterInfo {
    /// Id of the session.
    pub session_id: SessionId,
    /// Kind of the original message.
    pub kind: DeadKind,
    /// Id that is unique for the session and kind.
    pub id: CommandId,
    /// Stable code of the reason.
    pub code: ErrorCode,
    /// Reason as text for people.
    pub reason: String,
    /// Number of deliveries of the original.
    pub delivered: u64,
    /// Time at which the original was stored.
    pub stored_at: Timestamp,
    /// Subject of the original.
    pub subject: String,
    /// Body of the original; lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Json>,
}

/// A dead letter that is handled again.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DeadLetterRetry {
    /// Id of the session.
    pub session_id: SessionId,
    /// New id of the command.
    pub command_id: CommandId,
}
