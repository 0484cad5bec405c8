//! State of a session without its transcript. The types exclude illegal combinations.

mod setup;
mod summary;
mod tool_call;
mod tool_set;
mod turn;
mod weight;

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::command::{Parent, Verb};
use contract::commit::{Phase, SessionCounters};
use contract::event::{CallCancelled, Spent, StopReason, TimerSet, ToolsResolved};
use contract::ids::{CallAttempt, CallId, CommandId};
use contract::model::{ResultMeta, SignalForm};
use contract::settings::ModelSettings;
use contract::subject::SessionKey;
use contract::tool::Outcome;
use contract::{CellName, Json, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use setup::Setup;
pub(crate) use tool_call::{CallStage, RunsAt, ToolCallState, ToolRequest};
pub(crate) use tool_set::{ClientToolSet, ToolSet};
pub(crate) use turn::{Activity, CutCall, LastStep, ModelCall, Question, TurnState};

/// The state without the transcript and the handled inputs. A clone is cheap.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) key: SessionKeyData,
    /// Slots written so far.
    pub(crate) slots: u64,
    /// The last public `seq`.
    pub(crate) seq: u64,
    /// Stream sequence of the last client command handled.
    pub(crate) control_seq: u64,
    /// Time at which the control stream stored that command, by the server's clock; `None` if an older version handled
    /// it. Sequences are unique only until the stream is created again, and this time shows whether it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) control_at: Option<Timestamp>,
    /// Id of the last commit that was applied; empty before the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) commit: String,
    pub(crate) life: Lifecycle,
    pub(crate) paused: bool,
    pub(crate) setup: Option<Arc<Setup>>,
    pub(crate) tools: Arc<ToolSet>,
    /// The tools that clients brought.
    #[serde(default, skip_serializing_if = "has_no_tools")]
    pub(crate) client_tools: Arc<ClientToolSet>,
    pub(crate) turns: u32,
    pub(crate) turn: Option<TurnState>,
    /// User messages that the model has not seen, in order.
    pub(crate) waiting: Vec<PendingMessage>,
    pub(crate) timer: Option<TimerSet>,
    pub(crate) timers: u64,
    /// Calls cancelled in the last turn. Their cancellation is outstanding after a reload.
    pub(crate) cancels: Vec<CallCancelled>,
    /// Model calls that were called off and have no other attempt: their gateways send what had come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cut_calls: Vec<CutCall>,
    pub(crate) title: String,
    pub(crate) started: Timestamp,
    pub(crate) updated: Timestamp,
    /// Time of the last handled input other than a timer, or of the import of the session.
    pub(crate) touched: Timestamp,
    /// Time of the last input other than a timer, handled or refused, or of the end of the last turn.
    #[serde(default)]
    pub(crate) active: Timestamp,
    /// Tokens and money that it used, with the sessions below it.
    pub(crate) spent: Spent,
    /// Those that it used itself. An older version did not count that apart: then it stays unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spent_own: Option<Spent>,
    pub(crate) last_stop: Option<StopReason>,
    pub(crate) traceparent: Option<String>,
    /// The same of the turn before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous_traceparent: Option<String>,
    /// The last command to each child, until the result of its call arrives.
    #[serde(default)]
    pub(crate) children: BTreeMap<CallId, ParentCommand>,
    /// Number of the commands to all children.
    #[serde(default, rename = "told")]
    pub(crate) child_commands: u64,
    /// The last command of the parent.
    #[serde(default, rename = "heard")]
    pub(crate) last_parent_command: Option<ParentCommand>,
    /// Result of the parent's call, once it is known.
    #[serde(default)]
    pub(crate) report: Option<Report>,
    #[serde(default)]
    pub(crate) tally: SessionCounters,
    /// Since when it is paused.
    #[serde(default)]
    pub(crate) paused_at: Option<Timestamp>,
    /// The slot in which it was resumed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resumed_in: Option<u64>,
    /// First slot of the log after the session was archived, or imported; earlier slots are in the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) archived: Option<u64>,
    /// Slot with which the log begins, of a log that was compacted or imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log_start: Option<u64>,
    /// The cell that has the session instead of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) moved: Option<CellName>,
}

/// A command of a parent to a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ParentCommand {
    /// Index among the commands of the parent to all children; a lower one is older.
    pub(crate) number: u64,
    /// `pause`, `resume` or `stop`.
    pub(crate) verb: Verb,
}

/// Result of a child for the call of its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) parent: Box<Parent>,
    pub(crate) outcome: Outcome,
    pub(crate) content: String,
    pub(crate) used: contract::tool::ChildUsage,
    pub(crate) duration_ms: u64,
}

/// [`SessionKey`] as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionKeyData {
    tenant: contract::TenantId,
    session: contract::SessionId,
}

/// Whether there is a session at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lifecycle {
    #[serde(rename = "Unborn")]
    NotStarted,
    Alive,
    Ended,
}

/// A user message that waits for its place in the transcript.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PendingMessage {
    pub(crate) id: CommandId,
    /// Whether it goes into the running turn; otherwise it begins one.
    pub(crate) steers: bool,
    /// Whether it only asks to go on.
    #[serde(default)]
    pub(crate) nudges: bool,
    /// Bytes of its content, and of the tools that it brings; 0 where an older version took it in.
    #[serde(default)]
    pub(crate) bytes: usize,
    /// The tools of clients from the step that reads it; none: as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_tools: Option<Arc<ClientToolSet>>,
}

/// Whether no client brought a tool.
fn has_no_tools(tools: &Arc<ClientToolSet>) -> bool {
    tools.is_empty()
}

impl State {
    pub(crate) fn new(key: SessionKey) -> Self {
        Self {
            key: SessionKeyData { tenant: key.tenant, session: key.session },
            slots: 0,
            seq: 0,
            control_seq: 0,
            control_at: None,
            commit: String::new(),
            life: Lifecycle::NotStarted,
            paused: false,
            setup: None,
            tools: Arc::new(ToolSet::new(ToolsResolved { sha256: String::new(), tools: Vec::new() })),
            client_tools: Arc::default(),
            turns: 0,
            turn: None,
            waiting: Vec::new(),
            timer: None,
            timers: 0,
            cancels: Vec::new(),
            cut_calls: Vec::new(),
            title: String::new(),
            started: Timestamp::default(),
            updated: Timestamp::default(),
            touched: Timestamp::default(),
            active: Timestamp::default(),
            spent: Spent::default(),
            spent_own: Some(Spent::default()),
            last_stop: None,
            traceparent: None,
            previous_traceparent: None,
            children: BTreeMap::new(),
            child_commands: 0,
            last_parent_command: None,
            report: None,
            tally: SessionCounters::default(),
            paused_at: None,
            resumed_in: None,
            archived: None,
            log_start: None,
            moved: None,
        }
    }

    /// Notes the id of the commit that was just folded: in calls that it opened, too.
    pub(crate) fn link(&mut self, slot: u64, commit: &str) {
        commit.clone_into(&mut self.commit);
        if let Some(turn) = &mut self.turn {
            turn.link(slot, commit);
        }
    }

    /// Whether a result is of another call of its id: one of a history that the log has lost.
    pub(crate) fn is_of_lost_history(&self, report: &ResultMeta) -> bool {
        let called_off = || self.cut_calls.iter().find(|cut| cut.call == report.call).map(|cut| cut.opened_by.as_str());
        let opener = self.turn.as_ref().and_then(|turn| turn.opener(&report.call)).or_else(called_off);
        opener.is_some_and(|opened_by| !report.is_of(opened_by))
    }

    /// Bytes of the messages that wait for their place in the transcript: each snapshot carries them.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.bytes).sum()
    }

    /// Forgets what the snapshots of folds below 14 do not have.
    pub(crate) fn forget_openers_and_resumes(&mut self) {
        self.resumed_in = None;
        if let Some(turn) = &mut self.turn {
            turn.opened_by.clear();
        }
    }

    /// Forgets what the snapshots of folds below 13 do not have.
    pub(crate) fn forget_what_older_folds_lack(&mut self) {
        self.cut_calls.clear();
        self.spent_own = None;
        if let Some(turn) = &mut self.turn {
            turn.spent_own = None;
        }
    }

    pub(crate) fn next_slot(&self) -> u64 {
        self.slots
    }

    /// The slot of the commit that is being folded.
    pub(crate) fn slot(&self) -> u64 {
        self.slots.saturating_sub(1)
    }

    pub(crate) fn phase(&self) -> Phase {
        match (self.life, self.paused, &self.turn) {
            (Lifecycle::NotStarted | Lifecycle::Ended, _, _) => Phase::Ended,
            (Lifecycle::Alive, true, _) => Phase::Paused,
            (Lifecycle::Alive, false, Some(_)) => Phase::Running,
            (Lifecycle::Alive, false, None) => Phase::Idle,
        }
    }

    pub(crate) fn open_calls(&self) -> Vec<CallAttempt> {
        let Some(turn) = &self.turn else { return Vec::new() };
        if let Some(model) = turn.open_model_call() {
            return if model.interrupted.is_none() { vec![model.id()] } else { Vec::new() };
        }
        // No worker may run what waits for a client.
        let open = turn.calls().iter().filter_map(|state| match &state.stage {
            CallStage::Open { .. } if state.waits_for_client() => None,
            CallStage::Open { attempt, .. } => Some(CallAttempt { call: state.call.clone(), attempt: *attempt }),
            CallStage::Announced | CallStage::Pending(_) | CallStage::Gated { .. } | CallStage::Done(_) => None,
        });
        open.collect()
    }

    /// The model that is asked now: the session's, or the fallback that took over.
    pub(crate) fn model(&self) -> Option<&ModelSettings> {
        let setup = self.setup.as_deref()?;
        let number = self.turn.as_ref().map_or(0, |turn| turn.fallback);
        let fallback = usize::try_from(number).ok().and_then(|number| setup.fallbacks.get(number.checked_sub(1)?));
        Some(fallback.unwrap_or(&setup.model))
    }

    /// The form in which the model is asked to signal, and in which its reply is read.
    pub(crate) fn signal_form(&self) -> SignalForm {
        self.turn.as_ref().and_then(|turn| turn.form).unwrap_or_else(|| self.next_signal_form())
    }

    /// The form in which a model call that opens now asks for a signal.
    pub(crate) fn next_signal_form(&self) -> SignalForm {
        let (Some(setup), Some(model)) = (&self.setup, self.model()) else { return SignalForm::Text };
        if !setup.agent.continuation.enabled {
            return SignalForm::Off;
        }
        // Without tools neither the pseudo-call nor the envelope is asked for. Those of clients do not count: the prompt
        // says how to signal, and its composer knows the agent's tools alone.
        match (self.tools.resolved.tools.is_empty(), model.structured_output, model.multi_tool) {
            (false, true, _) => SignalForm::Envelope,
            (false, false, true) => SignalForm::Call,
            (false, false, false) | (true, _, _) => SignalForm::Text,
        }
    }

    /// Whether the model is offered any tool.
    pub(crate) fn offers_tools(&self) -> bool {
        !self.client_tools.is_empty() || !self.tools.resolved.tools.is_empty()
    }

    /// The tools of the agent on offer, then those of clients. A tool that a client brought stands in place of one of
    /// the agent that got its name later.
    pub(crate) fn tool_definitions(&self) -> Vec<Json> {
        let resolved = self.tools.resolved.tools.iter().zip(self.tools.definitions());
        let of_agent =
            resolved.filter(|(spec, _)| !self.client_tools.has(&spec.name)).map(|(_, definition)| definition);
        of_agent.chain(self.client_tools.definitions()).cloned().collect()
    }

    /// Takes the tools that the messages bring which the model reads from now on; the last ones count.
    fn take_client_tools(&mut self, is_read: impl Fn(&PendingMessage) -> bool) {
        let brought = self.waiting.iter().filter(|waiting| is_read(waiting));
        if let Some(tools) = brought.filter_map(|waiting| waiting.client_tools.clone()).last() {
            self.client_tools = tools;
        }
    }

    /// Places messages that a turn begins with, or that steer it: they wait no longer.
    pub(crate) fn place_messages(&mut self, is_read: impl Fn(&PendingMessage) -> bool) {
        self.take_client_tools(&is_read);
        self.waiting.retain(|waiting| !is_read(waiting));
    }

    /// Whether it was archived: what others may still ask of it is all that is left.
    pub(crate) fn is_archived(&self) -> bool {
        self.life == Lifecycle::Ended && self.archived.is_some()
    }

    /// Whether the log was compacted, or imported, and has no other commit since.
    pub(crate) fn is_compacted(&self) -> bool {
        self.log_start.is_some_and(|start| self.slots == start + 1)
    }

    /// Drops the state that an archived session needs no more.
    pub(crate) fn drop_tools(&mut self) {
        self.tools = Arc::new(ToolSet::new(ToolsResolved { sha256: String::new(), tools: Vec::new() }));
        self.client_tools = Arc::default();
        self.cut_calls.clear();
        self.timer = None;
    }

    pub(crate) fn tenant(&self) -> &contract::TenantId {
        &self.key.tenant
    }

    pub(crate) fn session(&self) -> &contract::SessionId {
        &self.key.session
    }
}
