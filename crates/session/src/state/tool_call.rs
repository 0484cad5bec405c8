//! One tool call of a reply, from its announcement to its result.

use contract::client_tool::Performer;
use contract::event::Child;
use contract::ids::{CallId, ToolName};
use contract::settings::OnExpiry;
use contract::tool::{ASK_USER, EffectClass, Outcome};
use contract::{Json, Timestamp};
use serde::{Deserialize, Serialize};

/// One call of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToolCallState {
    pub(crate) call: CallId,
    /// As the model wrote it.
    pub(crate) name: String,
    pub(crate) stage: CallStage,
    /// Arguments as a person changed them; none if they were not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) changed: Option<Json>,
    /// The id of the commit that opened it first; empty before, and where an older version opened it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) opened_by: String,
    /// Performer of the call. It stays the same, even if the tool of that name is replaced or removed.
    #[serde(default, skip_serializing_if = "Performer::is_fleet")]
    pub(crate) performer: Performer,
}

/// Stage of a tool call, from the reply to the result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum CallStage {
    /// In the reply, not looked at yet; only between two events of one commit.
    Announced,
    /// Waits for its turn, or for resume.
    Pending(Box<ToolRequest>),
    /// Waits for a person.
    Gated {
        request: Box<ToolRequest>,
        expires: Timestamp,
        /// Decision that applies if nobody answers in time.
        #[serde(default)]
        on_expiry: OnExpiry,
    },
    /// Sent to the executors or to a child session, or waits for a client.
    Open {
        request: Box<ToolRequest>,
        attempt: u32,
        slot: u64,
        deadline: Timestamp,
        /// The session that performs it, where the loop does.
        #[serde(default)]
        child: Option<Box<Child>>,
        /// Time at which the call was opened; 1970 if an older fold did not record it.
        #[serde(default)]
        since: Timestamp,
    },
    /// Has its one result.
    Done(Outcome),
}

/// Performer of an open call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunsAt<'a> {
    /// A tool, called by an executor.
    Executor,
    /// A child session of this one.
    Child(&'a Child),
    /// A client, which no work item reaches.
    Client,
}

/// Request to a tool, with its settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToolRequest {
    pub(crate) tool: ToolName,
    pub(crate) arguments: Json,
    pub(crate) effect: EffectClass,
    pub(crate) timeout_ms: u64,
    pub(crate) max_output: usize,
}

impl ToolRequest {
    /// Whether a person answers it: no executor is asked.
    pub(crate) fn is_question(&self) -> bool {
        self.tool.as_str() == ASK_USER
    }
}

impl ToolCallState {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, CallStage::Done(_))
    }

    pub(crate) fn is_gated(&self) -> bool {
        matches!(self.stage, CallStage::Gated { .. })
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, CallStage::Open { .. })
    }

    /// Returns the performer of the call; none if the call is not open.
    pub(crate) fn runs_at(&self) -> Option<RunsAt<'_>> {
        let CallStage::Open { child, .. } = &self.stage else { return None };
        Some(match (self.performer, child) {
            (Performer::Client, _) => RunsAt::Client,
            (Performer::Fleet, Some(child)) => RunsAt::Child(child),
            (Performer::Fleet, None) => RunsAt::Executor,
        })
    }

    /// Whether the fleet performs the call now.
    pub(crate) fn runs_in_fleet(&self) -> bool {
        matches!(self.runs_at(), Some(RunsAt::Executor | RunsAt::Child(_)))
    }

    /// Whether the call waits for a client now.
    pub(crate) fn waits_for_client(&self) -> bool {
        matches!(self.runs_at(), Some(RunsAt::Client))
    }

    pub(crate) fn request(&self) -> Option<&ToolRequest> {
        match &self.stage {
            CallStage::Pending(request) | CallStage::Gated { request, .. } | CallStage::Open { request, .. } => {
                Some(request)
            }
            CallStage::Announced | CallStage::Done(_) => None,
        }
    }
}
