//! The loop, pure: an input and the time go in, events come out, and state is the fold over events (I1).
//!
//! [`Session::decide`] is total and changes nothing; [`Session::fold`] is the only mutation; [`Session::outstanding`]
//! lists the effects that may not have been performed. Effects follow from events alone, so nothing can be performed
//! that was not committed (I2). A session's transcript is built so that each tool call has exactly one result, in
//! order (I3).
//!
//! # Layout
//!
//! - `decide` has a module for each kind of input, and `continuation` decides whether a turn takes another step.
//! - `apply` folds events into `state`, and `effect` derives effects from them.
//! - `transcript`, `items`, `prune` and `parts` build the request to a model.
//! - `readable`, `audit` and `waits` show a session to people.

mod apply;
mod approval;
pub mod audit;
pub mod check;
mod child;
mod clock;
pub mod continuation;
mod deadline;
mod decide;
mod decision;
mod effect;
mod handled;
mod history;
mod import;
mod input;
mod items;
mod judge;
mod message_list;
mod parts;
mod prune;
pub mod readable;
mod repetition_guard;
mod shorten;
mod state;
mod tokens;
mod transcript;
mod waits;

pub use child::OutboundCommand;
pub use decide::{ask_user_spec, delegate_spec};
pub use decision::Decision;
pub use effect::SessionEffect;
pub use input::{Body, ConfigureInput, Input, StartInput};
pub use waits::Wait;

use contract::command::{Command, ControlReason, Start};
use contract::commit::{Commit, PARKING_FOLD, Phase, SessionSummary, TranscriptPart};
use contract::event::{Event, InputKind, InputRef, TimerSet};
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::trace::TraceContext;
use contract::{Json, Timestamp};
use serde::{Deserialize, Serialize};

use crate::handled::Handled;
use crate::state::State;
use crate::transcript::Transcript;

/// Bytes of the compiled patterns that this process keeps for its sessions; they are bounded by themselves.
pub fn pattern_cache_bytes() -> usize {
    reply::Patterns::cached_bytes()
}

/// The first fold that keeps what had come of a reply that was called off, counts what a session used itself, and knows
/// who said each message of a history.
const CUT_REPLIES_FOLD: u32 = 13;

/// A session's state: the fold over its events.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Session {
    #[serde(rename = "core")]
    state: State,
    handled: Handled,
    transcript: Transcript,
}

/// Reason why this version may not decide on a log.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A newer version wrote to it: its replicas take the inputs.
    #[error("a newer version runs this session (fold {fold}; this one knows {})", contract::commit::FOLD)]
    Newer {
        /// The version of its fold.
        fold: u32,
    },
    /// Its snapshot cannot be read.
    #[error("snapshot: {0}")]
    Snapshot(#[from] serde_json::Error),
}

/// Request to the composer for a `configure`.
#[derive(Debug, Clone, PartialEq)]
pub struct Recompose {
    /// Id of the agent to compose for.
    pub agent: contract::AgentId,
    /// The model; the agent's where none is given.
    pub model: Option<String>,
    /// All features that the session switched.
    pub features: contract::command::Features,
    /// All that the session says of how it goes on.
    pub continuation: Option<contract::command::ContinuationOverride>,
    /// All that the session says of its prompt and requests.
    pub ai_config: contract::AiConfig,
    /// Names of the tools that the session may use; all tools of the agent if none are given.
    pub tools: Option<Vec<String>>,
}

impl Session {
    /// A session of which nothing is known yet.
    pub fn new(key: SessionKey) -> Self {
        Self { state: State::new(key), handled: Handled::default(), transcript: Transcript::default() }
    }

    /// Decides about inputs that are to become one commit, in their order; at least one. Total: bad luck is an input,
    /// and a late, repeated or senseless input yields `input_ignored`. Whether an input was handled before is for the
    /// caller to ask ([`Session::handled`]).
    pub fn decide(&self, now: Timestamp, inputs: &[Input]) -> Decision {
        decide::decide(&self.state, &self.transcript, now, inputs)
    }

    /// Folds the events of one commit. The only mutation.
    pub fn fold(&mut self, slot: u64, at: Timestamp, events: &[Event]) {
        self.state.begin_commit(slot, at);
        if events.iter().any(Event::begins_log) {
            self.transcript.parts_mut().forget();
        }
        if slot.is_multiple_of(SLOTS_PER_PAGE) {
            self.transcript.parts_mut().begin_page();
        }
        for event in events {
            self.apply(at, event);
        }
    }

    /// Folds a commit of the log.
    pub fn fold_commit(&mut self, slot: u64, commit: &Commit) {
        // Beside a snapshot it is what is in no part.
        if let Some(part) = commit.transcript.as_ref().filter(|_| commit.snapshot.is_none()) {
            self.add_part(slot, &commit.meta.commit, part);
        }
        self.fold(slot, commit.meta.time, &commit.events);
        self.link(slot, &commit.meta.commit);
        self.take_back_what_its_fold_lacks(commit);
    }

    /// Takes back what an older version did not know when it folded a commit: its snapshots do not have it, so the log
    /// must not either.
    fn take_back_what_its_fold_lacks(&mut self, commit: &Commit) {
        if commit.meta.fold < PARKING_FOLD {
            self.state.forget_openers_and_resumes();
        }
        if commit.meta.fold < CUT_REPLIES_FOLD {
            self.state.forget_what_older_folds_lack();
            if commit.events.iter().any(|event| matches!(event, Event::SessionStarted(_))) {
                self.transcript.take_history_for_the_users();
            }
        }
    }

    /// Notes the id of the commit that was just folded, for the one that follows it.
    pub fn link(&mut self, slot: u64, commit_id: &str) {
        self.state.link(slot, commit_id);
    }

    fn apply(&mut self, at: Timestamp, event: &Event) {
        self.handled.apply(self.state.slot(), event);
        if let Event::SessionArchived(_) | Event::SessionMoved(_) = event {
            self.transcript = Transcript::default();
        }
        self.transcript.apply(event);
        self.state.apply(at, event);
    }

    /// Folds what was read from the log: the commits of one page, its snapshot first, in slot order.
    pub fn replay(key: SessionKey, commits: &[(u64, Commit)]) -> Result<Self, serde_json::Error> {
        let mut session = Self::new(key);
        for (slot, commit) in commits {
            if let Some(snapshot) = &commit.snapshot {
                session = session.take_snapshot(snapshot, commit.transcript.as_ref())?;
            }
            session.fold_commit(*slot, commit);
        }
        Ok(session)
    }

    /// The state of a snapshot. The messages of parts before `part` are taken from this state where nobody read them.
    pub(crate) fn take_snapshot(
        &self,
        snapshot: &Json,
        part: Option<&TranscriptPart>,
    ) -> Result<Self, serde_json::Error> {
        let mut stored: Self = serde_json::from_str(snapshot.get())?;
        if let Some(part) = part {
            stored.transcript.fill(part, &self.transcript)?;
        }
        stored.transcript.migrate_positions(stored.state.turns);
        Ok(stored)
    }

    /// As [`Session::replay`], for a caller that decides: refused where a newer version wrote any of it.
    pub fn restore(key: SessionKey, commits: &[(u64, Commit)]) -> Result<Self, RestoreError> {
        if let Some((_, newer)) = commits.iter().find(|(_, commit)| commit.is_newer()) {
            return Err(RestoreError::Newer { fold: newer.meta.fold });
        }
        Ok(Self::replay(key, commits)?)
    }

    /// Returns the key of this session.
    pub fn key(&self) -> SessionKey {
        SessionKey { tenant: self.state.tenant().clone(), session: self.state.session().clone() }
    }

    /// Effects that may not have been performed: after a reload that is unknown. Of an ended session: the cancels.
    pub fn outstanding(&self) -> Vec<SessionEffect> {
        effect::outstanding(&self.state)
    }

    /// The slot in which this input is already folded, if it is remembered.
    pub fn handled(&self, input: &InputRef) -> Option<u64> {
        self.handled.slot(input)
    }

    /// Whether an input is in the log already: its id is remembered, or the session forgot ids and the mark of handled
    /// client commands covers it. "Yes" may be believed of any state, "no" of none: that is what slots are for.
    ///
    /// A command is covered when the stream gave it no higher sequence and took it no later than the command of the
    /// mark. Both must hold: a stream that was put back to an older state gives sequences out again, at a later time.
    pub fn has_handled(&self, input: &InputRef, control_seq: Option<u64>, control_at: Option<Timestamp>) -> bool {
        let is_covered = || {
            let taken_earlier = match (control_at, self.state.control_at) {
                (Some(at), Some(mark)) => at <= mark,
                (None, _) | (_, None) => true,
            };
            control_seq.is_some_and(|seq| seq <= self.state.control_seq) && taken_earlier
        };
        let is_remembered = self.handled(input).is_some() && !self.is_current_timer(input);
        is_remembered || self.handled.may_have_forgotten() && is_covered()
    }

    /// Whether the input is the setting of the timer that has not fired. One with its number may have fired before: that
    /// of a history which the log has lost.
    fn is_current_timer(&self, input: &InputRef) -> bool {
        let is_current = |timer: &TimerSet| timer.number.to_string() == input.id.as_str();
        input.kind == InputKind::Timer && self.state.timer.as_ref().is_some_and(is_current)
    }

    /// The id of the last commit; empty before the first.
    pub fn commit_id(&self) -> &str {
        &self.state.commit
    }

    /// The session's timer as it was set last; none where it fired or none is needed.
    pub fn timer(&self) -> Option<Timestamp> {
        self.state.timer.as_ref().map(|timer| timer.at)
    }

    /// Settings of the timer so far.
    pub fn timers(&self) -> u64 {
        self.state.timers
    }

    /// The next slot to write.
    pub fn next_slot(&self) -> u64 {
        self.state.next_slot()
    }

    /// The last public `seq`.
    pub fn seq(&self) -> u64 {
        self.state.seq
    }

    /// The stream sequence of the last client command handled.
    pub fn control_seq(&self) -> u64 {
        self.state.control_seq
    }

    /// Returns the phase of the session.
    pub fn phase(&self) -> Phase {
        self.state.phase()
    }

    /// The open calls as `<call>.<attempt>`.
    pub fn open_calls(&self) -> Vec<String> {
        self.state.open_calls().iter().map(ToString::to_string).collect()
    }

    /// The W3C `traceparent` under which the turn's spans stand.
    pub fn traceparent(&self) -> Option<&str> {
        self.state.traceparent.as_deref()
    }

    /// The span of the running turn, or of the last one.
    pub fn turn_trace(&self) -> Option<TraceContext> {
        let given: TraceContext = self.state.traceparent.as_deref()?.parse().ok()?;
        (self.state.turns > 0).then(|| given.turn(&self.key(), self.state.turns))
    }

    /// The trace context under which the turn before turn `turn` began: for a link. `turn` is the running turn, or the
    /// next one.
    pub fn trace_before(&self, turn: u32) -> Option<TraceContext> {
        let begun = self.state.turns >= turn;
        let before = if begun { &self.state.previous_traceparent } else { &self.state.traceparent };
        before.as_deref()?.parse().ok()
    }

    /// Lists everything that the session waits for. Empty if it has ended, or if an orchestrator has to take the next
    /// step.
    pub fn waits(&self) -> Vec<Wait> {
        self.state.waits()
    }

    /// Number of the running turn, or of the last one; 0 before the first.
    pub fn turns(&self) -> u32 {
        self.state.turns
    }

    /// Returns the time at which the running turn began; none if no turn runs, or if an older version began it.
    pub fn turn_began(&self) -> Option<Timestamp> {
        let turn = self.state.turn.as_ref()?;
        (turn.started != Timestamp::default()).then_some(turn.started)
    }

    /// Whether a turn runs.
    pub fn has_running_turn(&self) -> bool {
        self.state.turn.is_some()
    }

    /// The agent's name, for people: for spans.
    pub fn agent_name(&self) -> &str {
        self.state.setup.as_ref().map_or("", |setup| setup.agent.name.as_str())
    }

    /// The agent's id and the model's: for counting.
    pub fn who(&self) -> (&str, &str) {
        let agent = self.state.setup.as_ref().map_or("", |setup| setup.agent.id.as_str());
        (agent, self.state.model().map_or("", |model| model.id.as_str()))
    }

    /// The agent's id, the turn and the step: for spans.
    pub fn position(&self) -> (&str, u32, u32) {
        let agent = self.state.setup.as_ref().map_or("", |setup| setup.agent.id.as_str());
        (agent, self.state.turns, self.state.turn.as_ref().map_or(0, |turn| turn.step))
    }

    /// Whether a turn may begin with this input, so that the tools should be looked up before it is decided.
    pub fn wants_tools(&self, input: &Body) -> bool {
        match input {
            Body::Start(_) => true,
            Body::Send(_) | Body::Resume(_) => self.state.turn.is_none(),
            Body::Pause(_)
            | Body::Stop(_)
            | Body::Answer(_)
            | Body::AnswerToolCall(_)
            | Body::CancelTurn(_)
            | Body::Clear(_)
            | Body::Configure(_)
            | Body::ToolResult(_)
            | Body::Extend(_)
            | Body::ModelFinished(_)
            | Body::ModelFailed(_)
            | Body::Timer => !self.state.waiting.is_empty(),
        }
    }

    /// Returns the composer request that must be answered before this is decided; none if it changes neither model nor
    /// prompt.
    pub fn recomposes(&self, configure: &contract::command::Configure) -> Option<Recompose> {
        let setup = self.state.setup.as_ref()?;
        let is_looked_up =
            |over: &contract::command::ContinuationOverride| over.template.is_some() || over.judge.is_some();
        let asked = configure.agent.is_some()
            || configure.model.is_some()
            || configure.continuation.as_ref().is_some_and(is_looked_up)
            || !configure.features.is_empty()
            || !configure.ai_config.is_empty();
        asked.then(|| Recompose {
            agent: configure.agent.clone().unwrap_or_else(|| setup.agent.id.clone()),
            model: configure.model.clone().or_else(|| configure.agent.is_none().then(|| setup.model.id.clone())),
            features: setup.features.clone().and(&configure.features),
            continuation: setup.overrides_with(configure.continuation.as_ref()),
            ai_config: configure.ai_config.over(setup.own_ai_config()),
            tools: match &configure.agent {
                Some(_) => setup.only_tools.clone(),
                None => Some(setup.agent.tools.allow.clone()),
            },
        })
    }

    /// A `start` that resumes from this session: what it does not say is as this session has it. Where it names an
    /// agent, the model is that agent's.
    #[must_use]
    pub fn continued_by(&self, start: contract::command::Start) -> contract::command::Start {
        let Some(setup) = &self.state.setup else { return start };
        let is_same = start.agent.is_none();
        contract::command::Start {
            agent: start.agent.clone().or_else(|| Some(setup.agent.id.clone())),
            model: start.model.clone().or_else(|| is_same.then(|| setup.model.id.clone())),
            features: setup.features.clone().and(&start.features),
            continuation: setup.overrides_with(start.continuation.as_ref()),
            ai_config: start.own_ai_config().over(setup.own_ai_config()),
            parameters: serde_json::Map::new(),
            streaming: None,
            ..start
        }
    }

    /// The `start` of the child that performs an open call; `None` when no child does.
    pub fn child_start(&self, call: &contract::ids::CallAttempt) -> Option<OutboundCommand<Command<Start>>> {
        self.state.child_start(call)
    }

    /// The last command to the child of a call.
    pub fn child_command(&self, call: &contract::ids::CallId) -> Option<OutboundCommand<Command<ControlReason>>> {
        self.state.child_command(call)
    }

    /// The result for the call of the session that asked for this one, once it is known.
    pub fn parent_report(&self) -> Option<OutboundCommand<contract::tool::ToolResult>> {
        self.state.parent_report()
    }

    /// Bytes of memory that it takes, about: most of them are texts, and are counted by their length.
    pub fn weight(&self) -> usize {
        self.state.weight() + self.handled.weight() + self.transcript.weight()
    }

    /// The line of the session index.
    pub fn summary(&self) -> SessionSummary {
        self.state.summary()
    }

    /// Lists the open gates, with complete arguments.
    pub fn gates(&self) -> Vec<contract::commit::OpenGate> {
        self.state.open_gates(usize::MAX, usize::MAX)
    }

    /// Lists the open client calls, with complete arguments.
    pub fn client_calls(&self) -> Vec<contract::client_tool::OpenClientCall> {
        self.state.open_client_calls(usize::MAX, usize::MAX)
    }

    /// The messages that the model sees, the system prompt first.
    pub fn messages(&self) -> Vec<Json> {
        self.transcript.messages()
    }

    /// The transcript for a session that goes on from here: without the system prompt, valid wherever this one stands,
    /// and with call ids that no session makes.
    pub fn export_transcript(&self) -> Vec<contract::model::Message> {
        self.transcript.export_transcript()
    }

    /// The whole state as JSON.
    pub fn snapshot(&self) -> Json {
        Json::of(self)
    }

    /// The state as a page's first commit has it: without the messages of the transcript, of which the commit has those
    /// that are in no part yet. Such a commit is no part itself: it is large, and leaves the log with its page. With
    /// `begins_log` it needs no commit before it, and has all messages.
    pub fn snapshot_and_part(&self, begins_log: bool) -> (Json, TranscriptPart) {
        let (transcript, part) = self.transcript.split(begins_log);
        let rest = Self { state: self.state.clone(), handled: self.handled.clone(), transcript };
        (rest.snapshot(), part)
    }

    /// The messages that are in no part of the log yet.
    pub fn next_part(&self) -> TranscriptPart {
        self.transcript.next_part()
    }

    /// Whether the next commit should have a part, where as many bytes are in none: each model call repeats them.
    pub fn wants_part(&self, part_bytes: usize) -> bool {
        /// The last slot of a page: it tells whether the page has left the log, so it never stays there.
        const LAST: u64 = SLOTS_PER_PAGE - 1;
        const BEFORE_LAST: u64 = LAST - 1;
        let wanted = match self.next_slot() % SLOTS_PER_PAGE {
            LAST => return false,
            // The snapshot of the next page would repeat it too.
            BEFORE_LAST => part_bytes / 4,
            _ => part_bytes,
        };
        self.transcript.bytes_after_parts() >= wanted
    }

    /// Takes note of the commit that has the next part, before its events are folded.
    pub fn add_part(&mut self, slot: u64, commit: &str, part: &TranscriptPart) {
        self.transcript.add_part(slot, commit, part);
    }

    /// Slots with parts of the transcript, which stay in the log when their page moves to the archive.
    pub fn kept_slots(&self) -> Vec<u64> {
        self.transcript.parts().kept_slots()
    }

    /// Slots that leave the log now, because their parts are not of the transcript any more.
    pub fn leaving_slots(&self) -> &[u64] {
        self.transcript.parts().leaving_slots()
    }

    /// The least state of an archived session, with which its log begins anew: enough to answer late commands.
    pub fn tombstone(&self) -> Json {
        let mut state = self.state.clone();
        state.drop_tools();
        Json::of(&Self { state, handled: self.handled.clone(), transcript: Transcript::default() })
    }

    /// The slot with which its log began anew: what was before it is in the archive.
    pub fn archived(&self) -> Option<u64> {
        self.state.archived
    }

    /// The slot with which its log begins, of a log that was compacted or imported.
    pub fn log_start(&self) -> Option<u64> {
        self.state.log_start
    }

    /// Whether its log was compacted, or imported, and has no other commit since.
    pub fn is_compacted(&self) -> bool {
        self.state.is_compacted()
    }

    /// Whether it was archived: each of its commits then stands alone, and has an end.
    pub fn is_archived(&self) -> bool {
        self.state.is_archived()
    }

    /// The cell that has the session instead of this one. Each commit here then stands alone, and stays.
    pub fn moved(&self) -> Option<&contract::CellName> {
        self.state.moved.as_ref()
    }

    /// The model call's work item; `None` when it is not open.
    pub fn model_item(&self, call: &contract::ids::CallAttempt) -> Option<contract::model::ModelItem> {
        items::model(&self.state, &self.transcript, call)
    }

    /// Whether the session was resumed after the commit of this slot: a worker may have acknowledged the item of a call
    /// which that commit opened, without handling it.
    pub fn was_resumed_after(&self, slot: u64) -> bool {
        self.state.resumed_in.is_some_and(|resumed| resumed > slot)
    }

    /// The tool call's work item; `None` when it is not open.
    pub fn tool_item(&self, call: &contract::ids::CallAttempt) -> Option<contract::tool::ToolItem> {
        items::tool(&self.state, call)
    }
}
