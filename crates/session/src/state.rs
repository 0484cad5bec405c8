//! State of a session without its transcript. The types exclude illegal combinations.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use contract::command::{ContinuationOverride, Features, Parent, Verb};
use contract::commit::{OpenGate, Phase, SessionCounters, SessionSummary};
use contract::event::{CallCancelled, Child, GateKind, Progress, Spent, StopReason, TimerSet, ToolsResolved};
use contract::ids::{CallAttempt, CallId, CommandId, ToolName};
use contract::limits::{GATE_SHOWN_BYTES, GATES_SHOWN_MAX};
use contract::model::{FailureKind, SignalForm, Streaming};
use contract::settings::{AgentSettings, ContinuationSettings, ModelSettings, OnExpiry};
use contract::subject::SessionKey;
use contract::text::{show, show_json};
use contract::tool::{ASK_USER, EffectClass, Outcome, arguments_sha256, sha256_hex};
use contract::{AiConfig, Json, Timestamp};
use reply::Patterns;
use serde::{Deserialize, Serialize};

use crate::approval::Approvals;
use crate::clock::Clock;
use crate::repetition_guard::RepetitionGuard;

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
    /// When the control stream stored that command by the server's clock; `None` if an older version handled it. Sequences
    /// are unique only until the stream is created again, and this time shows whether it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) control_at: Option<Timestamp>,
    /// Id of the last commit that was applied; empty before the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) commit: String,
    pub(crate) life: Lifecycle,
    pub(crate) paused: bool,
    pub(crate) setup: Option<Arc<Setup>>,
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) turns: u32,
    pub(crate) turn: Option<TurnState>,
    /// User messages that the model has not seen, in order.
    pub(crate) waiting: Vec<PendingMessage>,
    pub(crate) timer: Option<TimerSet>,
    pub(crate) timers: u64,
    /// Calls cancelled in the last turn. Their cancellation is outstanding after a reload.
    pub(crate) cancels: Vec<CallCancelled>,
    pub(crate) title: String,
    pub(crate) started: Timestamp,
    pub(crate) updated: Timestamp,
    /// When anybody last wanted something of it.
    pub(crate) touched: Timestamp,
    pub(crate) spent: Spent,
    pub(crate) last_stop: Option<StopReason>,
    pub(crate) traceparent: Option<String>,
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
    /// First slot of the log after the session was archived; earlier slots are in the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) archived: Option<u64>,
}

/// The tools that a session may use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ToolSet {
    pub(crate) resolved: ToolsResolved,
    /// The definitions for models, built once, since each step sends them.
    #[serde(skip)]
    definitions: OnceLock<Vec<Json>>,
}

impl ToolSet {
    pub(crate) fn new(resolved: ToolsResolved) -> Self {
        Self { resolved, definitions: OnceLock::new() }
    }

    pub(crate) fn definitions(&self) -> &[Json] {
        self.definitions.get_or_init(|| self.resolved.tools.iter().map(crate::items::definition).collect())
    }
}

/// A command of a parent to a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ParentCommand {
    /// Index among the commands of the parent to all children; a lower one is older.
    pub(crate) number: u64,
    /// `pause`, `resume` or `stop`.
    pub(crate) verb: Verb,
}

/// What a child's parent gets for its call.
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

/// What a session keeps from its start to its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) agent: AgentSettings,
    pub(crate) model: ModelSettings,
    pub(crate) interactive: bool,
    pub(crate) parameters: serde_json::Map<String, serde_json::Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_choice: Vec<serde_json::Value>,
    /// What the session itself says of its prompt and requests.
    #[serde(default, skip_serializing_if = "AiConfig::is_empty")]
    pub(crate) ai_config: AiConfig,
    pub(crate) streaming: Streaming,
    #[serde(default)]
    pub(crate) fallbacks: Vec<ModelSettings>,
    /// What the session itself switched and replaced, for when agent or model are looked up again.
    #[serde(default)]
    pub(crate) features: Features,
    #[serde(default)]
    pub(crate) overrides: Option<ContinuationOverride>,
    /// The tools to which the session limits itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) only_tools: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) parent: Option<Box<Parent>>,
}

impl Setup {
    /// They compiled when the session started; if they no longer do, no pattern speaks. The process keeps them within one
    /// limit for all sessions: a session that held its own would keep them as long as it is in memory.
    pub(crate) fn patterns(&self) -> Arc<Patterns> {
        Patterns::compile(&self.agent.continuation).unwrap_or_default()
    }

    /// What the session itself says of how it goes on, with what it says now.
    pub(crate) fn overrides_with(&self, now: Option<&ContinuationOverride>) -> Option<ContinuationOverride> {
        match (self.overrides.clone(), now.cloned()) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => now.or(before),
        }
    }

    /// The same of its rules about asking a person.
    pub(crate) fn approvals(&self) -> Arc<Approvals> {
        Approvals::shared(&self.agent.approvals)
    }
}

/// A user message that waits for its place in the transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingMessage {
    pub(crate) id: CommandId,
    /// Whether it goes into the running turn; otherwise it begins one.
    pub(crate) steers: bool,
    /// Whether it only asks to go on.
    #[serde(default)]
    pub(crate) nudges: bool,
    /// Bytes of its content; 0 where an older version took it in.
    #[serde(default)]
    pub(crate) bytes: usize,
}

/// From a user message to the answer to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TurnState {
    pub(crate) number: u32,
    pub(crate) step: u32,
    pub(crate) clock: Clock,
    pub(crate) activity: Activity,
    pub(crate) retries: u32,
    pub(crate) spent: Spent,
    /// What the user read last.
    pub(crate) text: String,
    /// What the guards watch.
    #[serde(default)]
    pub(crate) guard: RepetitionGuard,
    /// The attempt that was opened last, of this step's model call.
    #[serde(default)]
    pub(crate) attempt: u32,
    /// Which fallback answers in the model's place; 0: none.
    #[serde(default)]
    pub(crate) fallback: u32,
    /// Requests for summaries.
    #[serde(default)]
    pub(crate) summaries: u32,
    /// The step before which the last summary was asked for.
    #[serde(default)]
    pub(crate) summarised: u32,
    /// The last step whose request was cut because the provider found it too long.
    #[serde(default)]
    pub(crate) squeezed: u32,
    /// When it began; 1970 where an older fold did not say.
    #[serde(default)]
    pub(crate) started: Timestamp,
    /// The form in which the last model call asked for a signal; none where an older fold did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) form: Option<SignalForm>,
    /// How far the model said last that the work is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
    /// Whether a step was taken since the model was not sure that it is done.
    #[serde(default)]
    pub(crate) is_doubted: bool,
    /// Set when the turn is at a limit and ends with its next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_step: Option<LastStep>,
}

/// The step without tools with which a turn at a limit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastStep {
    /// The turn's stop reason.
    pub(crate) limit: StopReason,
    /// Whether its one model call was opened.
    pub(crate) opened: bool,
}

/// What a turn is busy with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Activity {
    /// The next step may begin.
    Ready,
    /// A model call is open.
    #[serde(rename = "Thinking")]
    AwaitingModel(ModelCall),
    /// A failed model call waits for its next attempt.
    Backoff { call: CallId, attempt: u32, empties: u32, retry_at: Timestamp },
    /// A reply without calls is being decided about: between two events of one commit, or until a pause is over in which
    /// nobody can be asked.
    Deciding,
    /// The reply's calls run.
    #[serde(rename = "Acting")]
    RunningTools(Vec<ToolCallState>),
    /// A person is asked whether to go on.
    #[serde(rename = "Asking")]
    AwaitingUser {
        gate: CallId,
        #[serde(alias = "limit")]
        question: Question,
        expires: Timestamp,
    },
    /// The model sums up the turns before one, so that they can go.
    Summarising { model: ModelCall, before: u32 },
    /// Another model is asked whether the turn goes on after its last reply.
    Judging { judge: ModelCall, model: String },
}

/// Why a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Question {
    /// The turn is at a limit: may it use as much again?
    Limit(StopReason),
    /// A model call failed for good: shall it be tried again?
    Failed { kind: FailureKind },
}

impl Question {
    /// How the turn ends when the answer is no.
    pub(crate) fn denied(self) -> StopReason {
        match self {
            Self::Limit(limit) => limit,
            Self::Failed { .. } => StopReason::Error,
        }
    }

    /// What the answer is bound to.
    pub(crate) fn word(self) -> String {
        match self {
            Self::Limit(limit) => limit.as_str().to_owned(),
            Self::Failed { kind } => kind.code().as_str().to_owned(),
        }
    }
}

/// An open model call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ModelCall {
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) slot: u64,
    pub(crate) deadline: Timestamp,
    /// Empty replies so far.
    pub(crate) empties: u32,
    /// Set when the user took the floor: how long the partial text is awaited.
    pub(crate) interrupted: Option<Timestamp>,
}

impl ModelCall {
    /// One that is made once, beside the turn's steps.
    pub(crate) fn once(call: CallId, slot: u64, deadline: Timestamp) -> Self {
        Self { call, attempt: 1, slot, deadline, empties: 0, interrupted: None }
    }

    pub(crate) fn id(&self) -> CallAttempt {
        CallAttempt { call: self.call.clone(), attempt: self.attempt }
    }
}

/// One call of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToolCallState {
    pub(crate) call: CallId,
    /// As the model wrote it.
    pub(crate) name: String,
    pub(crate) stage: CallStage,
    /// What a person made of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) changed: Option<Json>,
    /// The id of the commit that opened it first; empty before, and where an older version opened it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) opened_by: String,
}

/// How far a tool call is.
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
        /// What counts when nobody answers in time.
        #[serde(default)]
        on_expiry: OnExpiry,
    },
    /// With the executors.
    Open {
        request: Box<ToolRequest>,
        attempt: u32,
        slot: u64,
        deadline: Timestamp,
        /// The session that performs it, where the loop does.
        #[serde(default)]
        child: Option<Box<Child>>,
    },
    /// Has its one result.
    Done(Outcome),
}

/// What is asked of a tool.
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

    pub(crate) fn request(&self) -> Option<&ToolRequest> {
        match &self.stage {
            CallStage::Pending(request) | CallStage::Gated { request, .. } | CallStage::Open { request, .. } => {
                Some(request)
            }
            CallStage::Announced | CallStage::Done(_) => None,
        }
    }
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
            turns: 0,
            turn: None,
            waiting: Vec::new(),
            timer: None,
            timers: 0,
            cancels: Vec::new(),
            title: String::new(),
            started: Timestamp::default(),
            updated: Timestamp::default(),
            touched: Timestamp::default(),
            spent: Spent::default(),
            last_stop: None,
            traceparent: None,
            children: BTreeMap::new(),
            child_commands: 0,
            last_parent_command: None,
            report: None,
            tally: SessionCounters::default(),
            paused_at: None,
            archived: None,
        }
    }

    /// Notes the id of the commit that was just folded: in calls that it opened, too.
    pub(crate) fn link(&mut self, slot: u64, commit: &str) {
        commit.clone_into(&mut self.commit);
        for state in self.turn.iter_mut().flat_map(TurnState::calls_mut) {
            if matches!(state.stage, CallStage::Open { slot: opened, .. } if opened == slot)
                && state.opened_by.is_empty()
            {
                commit.clone_into(&mut state.opened_by);
            }
        }
    }

    /// Bytes of the messages that wait for their place in the transcript: each snapshot carries them.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.bytes).sum()
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
        match &turn.activity {
            Activity::AwaitingModel(model) if model.interrupted.is_none() => vec![model.id()],
            Activity::RunningTools(calls) => calls
                .iter()
                .filter_map(|state| match &state.stage {
                    CallStage::Open { attempt, .. } => {
                        Some(CallAttempt { call: state.call.clone(), attempt: *attempt })
                    }
                    CallStage::Announced | CallStage::Pending(_) | CallStage::Gated { .. } | CallStage::Done(_) => None,
                })
                .collect(),
            Activity::Summarising { model, .. } | Activity::Judging { judge: model, .. } => vec![model.id()],
            Activity::AwaitingModel(_)
            | Activity::Ready
            | Activity::Backoff { .. }
            | Activity::Deciding
            | Activity::AwaitingUser { .. } => Vec::new(),
        }
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
        // Without tools neither the pseudo-call nor the envelope is asked for.
        match (self.tools.resolved.tools.is_empty(), model.structured_output, model.multi_tool) {
            (false, true, _) => SignalForm::Envelope,
            (false, false, true) => SignalForm::Call,
            (false, false, false) | (true, _, _) => SignalForm::Text,
        }
    }

    /// Whether it was archived: what others may still ask of it is all that is left.
    pub(crate) fn is_archived(&self) -> bool {
        self.life == Lifecycle::Ended && self.archived.is_some()
    }

    /// Lets go of what nobody asks of a session that is archived.
    pub(crate) fn drop_tools(&mut self) {
        self.tools = Arc::new(ToolSet::new(ToolsResolved { sha256: String::new(), tools: Vec::new() }));
        self.timer = None;
    }

    /// Bytes of memory that it takes, about: texts that can be long are counted, and for all else there is a sum.
    pub(crate) fn weight(&self) -> usize {
        /// All that is small.
        const SMALL_BYTES: usize = 4 << 10;
        /// A parsed value or name, its share of the map or list included.
        const VALUE_BYTES: usize = 96;
        /// A tool with its definition, texts aside.
        const TOOL_BYTES: usize = 512;
        let texts = |list: &[String]| list.iter().map(|text| text.len() + 24).sum::<usize>();
        let setup = self.setup.as_deref().map_or(0, |setup| {
            let Setup { agent, parameters, features, overrides, ai_config, fallbacks, only_tools, .. } = setup;
            let over = overrides.as_ref().map_or(0, |over| {
                let lists = [&over.continuation_patterns, &over.termination_patterns];
                lists.into_iter().flatten().map(|list| texts(list)).sum()
            });
            let parameters = Json::of(&(parameters, ai_config, fallbacks));
            let settings = &agent.continuation;
            let lists = [&settings.continuation_patterns, &settings.termination_patterns, &agent.tools.allow];
            let names = texts(&features.enable) + texts(&features.disable) + only_tools.as_deref().map_or(0, texts);
            let lists: usize = lists.into_iter().map(|list| texts(list)).sum();
            parameters.get().len() + parameters.size().values * VALUE_BYTES + lists + over + names
        });
        // Each tool has its description and its definition for models.
        let tools = self.tools.resolved.tools.iter().map(|tool| {
            let words = tool.description.len() + tool.instructions.as_ref().map_or(0, String::len);
            TOOL_BYTES + 2 * (words + tool.parameters.get().len())
        });
        let calls = self.turn.as_ref().map_or(&[][..], |turn| turn.calls()).iter();
        let arguments = calls.map(|state| {
            let changed = state.changed.as_ref().map_or(0, |changed| changed.get().len());
            changed + state.request().map_or(0, |request| request.arguments.get().len() + TOOL_BYTES)
        });
        let user_message = self.turn.as_ref().map_or(0, |turn| turn.text.len());
        let report = self.report.as_ref().map_or(0, |report| report.content.len());
        SMALL_BYTES + setup + tools.sum::<usize>() + arguments.sum::<usize>() + user_message + report
    }

    pub(crate) fn tenant(&self) -> &contract::TenantId {
        &self.key.tenant
    }

    pub(crate) fn session(&self) -> &contract::SessionId {
        &self.key.session
    }

    pub(crate) fn summary(&self) -> SessionSummary {
        SessionSummary {
            session_id: self.key.session.clone(),
            tenant: self.key.tenant.clone(),
            phase: self.phase(),
            agent: self.setup.as_ref().map(|s| s.agent.id.to_string()).unwrap_or_default(),
            model: self.setup.as_ref().map(|s| s.model.id.clone()).unwrap_or_default(),
            title: show(&self.title).into_owned(),
            turn: self.turns,
            step: self.turn.as_ref().map_or(0, |turn| turn.step),
            seq: self.seq,
            started: self.started,
            updated: self.updated,
            spent: self.spent,
            stop_reason: self.last_stop,
            parent: self.setup.as_ref().and_then(|s| s.parent.as_ref()).map(|parent| parent.session_id.clone()),
            tally: self.tally.clone(),
            gates: self.open_gates(GATE_SHOWN_BYTES, GATES_SHOWN_MAX),
        }
    }

    /// What waits for a person, at most so many, their arguments shortened to so many bytes.
    pub(crate) fn open_gates(&self, shown_max: usize, most: usize) -> Vec<OpenGate> {
        let Some(turn) = self.turn.as_ref().filter(|_| self.life == Lifecycle::Alive) else { return Vec::new() };
        if let Activity::AwaitingUser { gate, question, expires } = &turn.activity {
            return vec![OpenGate {
                gate: gate.clone(),
                kind: match question {
                    Question::Limit(limit) => GateKind::Limit(*limit),
                    Question::Failed { kind } => GateKind::Error(*kind),
                },
                tool: None,
                arguments: String::new(),
                shortened: false,
                arguments_sha256: sha256_hex(question.word().as_bytes()),
                expires: *expires,
            }];
        }
        let gated = turn.calls().iter().filter_map(|state| match &state.stage {
            CallStage::Gated { request, expires, .. } => Some((state, request, *expires)),
            CallStage::Announced | CallStage::Pending(_) | CallStage::Open { .. } | CallStage::Done(_) => None,
        });
        let shown = gated.take(most).map(|(state, request, expires)| {
            // Calls of older logs have what cannot be seen in their arguments as it came.
            let text = show_json(request.arguments.get());
            let beginning = &text[..text.floor_char_boundary(shown_max)];
            OpenGate {
                gate: state.call.clone(),
                kind: if request.is_question() { GateKind::Question } else { GateKind::Approval },
                tool: Some(request.tool.clone()),
                arguments: beginning.to_owned(),
                shortened: beginning.len() < text.len(),
                arguments_sha256: arguments_sha256(&request.arguments),
                expires,
            }
        });
        shown.collect()
    }
}

impl TurnState {
    /// The limit that keeps it from another step.
    pub(crate) fn limit(&self, settings: &ContinuationSettings, at: Timestamp) -> Option<StopReason> {
        let out_of_time = self.clock.deadline().is_some_and(|deadline| deadline <= at);
        let settled = !matches!(self.activity, Activity::RunningTools(_));
        let reached = self.guard.reached(settings, self.step, settled, self.spent);
        reached.or_else(|| out_of_time.then_some(StopReason::Timeout))
    }

    /// Whether no call runs and nobody is asked: the next step, or a question about it, may follow.
    pub(crate) fn is_between_steps(&self) -> bool {
        match self.activity {
            Activity::Ready | Activity::Deciding => true,
            Activity::AwaitingModel(_)
            | Activity::Backoff { .. }
            | Activity::RunningTools(_)
            | Activity::Summarising { .. }
            | Activity::Judging { .. }
            | Activity::AwaitingUser { .. } => false,
        }
    }

    /// Steps that count for the user: the last one at a limit is none.
    pub(crate) fn iterations(&self) -> u32 {
        self.step - u32::from(self.last_step.is_some_and(|last| last.opened))
    }

    pub(crate) fn calls(&self) -> &[ToolCallState] {
        match &self.activity {
            Activity::RunningTools(calls) => calls,
            Activity::Ready
            | Activity::AwaitingModel(_)
            | Activity::Backoff { .. }
            | Activity::Deciding
            | Activity::Summarising { .. }
            | Activity::Judging { .. }
            | Activity::AwaitingUser { .. } => &[],
        }
    }

    pub(crate) fn calls_mut(&mut self) -> &mut [ToolCallState] {
        match &mut self.activity {
            Activity::RunningTools(calls) => calls,
            Activity::Ready
            | Activity::AwaitingModel(_)
            | Activity::Backoff { .. }
            | Activity::Deciding
            | Activity::Summarising { .. }
            | Activity::Judging { .. }
            | Activity::AwaitingUser { .. } => &mut [],
        }
    }

    pub(crate) fn call_mut(&mut self, call: &CallId) -> Option<&mut ToolCallState> {
        self.calls_mut().iter_mut().find(|state| state.call == *call)
    }

    pub(crate) fn call(&self, call: &CallId) -> Option<&ToolCallState> {
        self.calls().iter().find(|state| state.call == *call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_of_the_second_fold_is_read() {
        let old = r#"{"Asking":{"gate":"limit-1-1","limit":"max_iterations","expires":"2026-01-15T10:30:45.123Z"}}"#;
        let asking: Activity = serde_json::from_str(old).unwrap();
        assert!(matches!(asking, Activity::AwaitingUser { question: Question::Limit(StopReason::MaxIterations), .. }));
        let failed = Question::Failed { kind: FailureKind::Auth };
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(serde_json::from_str::<Question>(&text).unwrap(), failed);
    }
}
