//! A conversation with the loop in which time, model and tools do what the test says.

mod cast;
mod model;
mod story;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use cast::{Cast, rule};
use contract::command::{
    Answer, AnswerDecision, Command, Configure, ControlReason, MessageMode, Refusal, SendUserMessage, Start, Verb,
};
use contract::commit::{Commit, CommitMeta, FOLD, PartRef, TranscriptPart, VERSION};
use contract::event::{Event, GateOpened, InputKind, InputRef};
use contract::ids::CallAttempt;
use contract::model::{AfterPart, Content, FinishReason, Message, ModelItem, ReasoningParts, ResultMeta};
use contract::settings::ContinuationSettings;
use contract::subject::SessionKey;
use contract::tool::{ApprovalPolicy, EffectClass, ExtendToolCall, Outcome, ToolResult, ToolSpec};
use contract::{AgentId, CommandId, Json, SessionId, TenantId, Timestamp, ToolName};
use session::{Body, ConfigureInput, Decision, Input, OutboundCommand, Session, SessionEffect, StartInput};

/// More inputs, and more waits, than any test needs.
const EVER: usize = 200;

/// A session under test, with everything that was committed.
pub(crate) struct Talk {
    key: SessionKey,
    pub(crate) session: Session,
    /// Everything that was committed.
    pub(crate) events: Vec<Event>,
    /// The last commit's effects.
    pub(crate) effects: Vec<SessionEffect>,
    pub(crate) now: u64,
    inputs: u64,
    parent_command_number: Option<u64>,
    finish_reason: FinishReason,
    /// Reasoning text of the next reply.
    reasoning: String,
    /// Text that had come of the next reply that fails.
    pub(crate) text_so_far: String,
    /// Parts that the next reply's provider wants to see again.
    pub(crate) replay: Option<ReasoningParts>,
    /// Tools of the tenant besides those that every test has.
    pub(crate) more_tools: Vec<ToolSpec>,
    waits: usize,
    /// Inputs that are to become one commit.
    batch: Option<Vec<Input>>,
    /// Time without an input after which the log is compacted.
    pub(crate) compact_after: Duration,
    /// Sender of the next command.
    pub(crate) by: Option<String>,
    /// The agents that the sender of the next command may use.
    pub(crate) agents: Option<BTreeSet<AgentId>>,
    /// The commit that results name as the opener of their call; none as of an older worker.
    pub(crate) opened_by: String,
    /// Time at which the edge received the next command.
    pub(crate) sent: Option<Timestamp>,
    /// The log, as its writer writes it.
    pub(crate) log: Vec<(u64, Commit)>,
    /// The session as text; see [`Talk::story`].
    story: String,
    /// The last item of a model call in the story, of which the next one shows only the difference.
    last_model_item: Option<serde_json::Value>,
}

impl Talk {
    /// A session of an agent with these settings, asked for something.
    pub(crate) fn begin(continuation: ContinuationSettings) -> Self {
        Self::cast(Cast { continuation, ..Cast::default() })
    }

    /// The same with a cast of its own.
    pub(crate) fn cast(cast: Cast) -> Self {
        let start = Start { prompt: Some(Content::Text("Do it.".to_owned())), interactive: true, ..Start::default() };
        let mut talk = Self::not_started("s");
        talk.start("start", start, Ok(cast));
        talk
    }

    /// The same, of a session that ends with its turn.
    pub(crate) fn once(cast: Cast) -> Self {
        let start = Start { prompt: Some(Content::Text("Do it.".to_owned())), ..Start::default() };
        let mut talk = Self::not_started("s");
        talk.start("start", start, Ok(cast));
        talk
    }

    /// A session that nobody has started.
    pub(crate) fn not_started(session: &str) -> Self {
        let key = SessionKey { tenant: TenantId::new("acme").unwrap(), session: SessionId::new(session).unwrap() };
        Self {
            session: Session::new(key.clone()),
            key,
            events: Vec::new(),
            effects: Vec::new(),
            now: 1_000_000,
            inputs: 0,
            parent_command_number: None,
            finish_reason: FinishReason::Stop,
            reasoning: String::new(),
            text_so_far: String::new(),
            replay: None,
            more_tools: Vec::new(),
            waits: 0,
            batch: None,
            compact_after: contract::limits::COMPACT_AFTER,
            by: None,
            agents: None,
            opened_by: String::new(),
            sent: None,
            log: Vec::new(),
            story: String::new(),
            last_model_item: None,
        }
    }

    pub(crate) fn start(&mut self, id: &str, start: Start, cast: Result<Cast, Refusal>) {
        self.start_from(Vec::new(), id, start, cast);
    }

    /// The same, after the transcript of an older session.
    pub(crate) fn start_from(&mut self, history: Vec<Message>, id: &str, start: Start, cast: Result<Cast, Refusal>) {
        let composed = cast.map(|cast| Box::new(cast.composed()));
        let body = Body::Start(Box::new(StartInput { start, history, composed }));
        self.input(InputKind::Control(Verb::Start), id, body);
    }

    /// A word of the parent comes.
    pub(crate) fn receive(&mut self, word: OutboundCommand<Command<ControlReason>>) {
        let body = match word.verb {
            Verb::Pause => Body::Pause(word.body.body),
            Verb::Resume => Body::Resume(word.body.body),
            Verb::Stop => Body::Stop(word.body.body),
            other => panic!("{other} is no word to a child"),
        };
        self.parent_command_number = word.body.meta.parent_command_number;
        self.input(InputKind::Control(word.verb), word.id.as_str(), body);
        self.parent_command_number = None;
    }

    /// A result comes that the loop of another session gives.
    pub(crate) fn receive_result(&mut self, word: OutboundCommand<ToolResult>) {
        self.input(InputKind::Control(word.verb), word.id.as_str(), Body::ToolResult(word.body));
    }

    pub(crate) fn configure(&mut self, configure: Configure, cast: Option<Cast>) {
        let composed = cast.map(|cast| Ok(Box::new(cast.composed())));
        self.command(Verb::Configure, Body::Configure(Box::new(ConfigureInput { configure, composed })));
    }

    /// The open model call, a request for a summary and a question to a judge included.
    pub(crate) fn model_call(&self) -> CallAttempt {
        let open = self.open().into_iter().find(|call| call.call.as_str().starts_with(['m', 's', 'j']));
        open.unwrap_or_else(|| panic!("no model call is open: {:#?}", self.events.last()))
    }

    /// Returns the work item of the open model call.
    pub(crate) fn item(&self) -> ModelItem {
        self.item_of(&self.model_call()).unwrap()
    }

    /// The work item of a call, with the whole transcript, as a gateway puts it together.
    pub(crate) fn item_of(&self, call: &CallAttempt) -> Option<ModelItem> {
        let mut item = self.session.model_item(call)?;
        if let Some(AfterPart { part, system, messages }) = item.after.take() {
            let last = self.part(&part);
            let earlier = last.before.iter().flat_map(|part| &self.part(part).messages);
            item.messages =
                [&system].into_iter().chain(earlier).chain(&last.messages).chain(&messages).cloned().collect();
            assert_eq!(item.messages, self.session.messages(), "parts and what is in none are the transcript");
        }
        Some(item)
    }

    /// The part of the transcript in a commit of the log.
    fn part(&self, part: &PartRef) -> &TranscriptPart {
        let (_, commit) = self.log.iter().find(|(slot, _)| *slot == part.slot).unwrap();
        assert_eq!(commit.meta.commit, part.commit);
        let found = commit.transcript.as_ref().unwrap();
        assert_eq!(found.messages.len(), part.messages);
        found
    }

    fn input(&mut self, kind: InputKind, id: &str, body: Body) {
        let client = matches!(kind, InputKind::Control(verb) if verb.is_client());
        self.inputs += 1;
        let look = tool("look", EffectClass::Pure, ApprovalPolicy::Never);
        let act = tool("act", EffectClass::AtMostOnce, ApprovalPolicy::Always);
        let input = Input {
            parent_command_number: self.parent_command_number,
            reference: InputRef { kind, id: CommandId::new(id).unwrap() },
            control_seq: client.then_some(self.inputs),
            control_at: None,
            sent: self.sent,
            by: self.by.clone(),
            agents: self.agents.clone(),
            traceparent: client.then(|| format!("00-{:032x}-{:016x}-01", self.inputs, self.inputs)),
            tools: Some(Arc::new(
                [look, act, session::delegate_spec(), session::ask_user_spec()]
                    .into_iter()
                    .chain(self.more_tools.clone())
                    .collect(),
            )),
            archive_after: contract::limits::ARCHIVE_AFTER,
            compact_after: self.compact_after,
            body,
        };
        let is_handled = self.session.has_handled(&input.reference, input.control_seq, input.control_at);
        assert!(!is_handled, "a test says everything once");
        match &mut self.batch {
            Some(batch) => batch.push(input),
            None => self.decide(&[input]),
        }
    }

    /// The inputs that a test gives in `say` come together, and become one commit.
    pub(crate) fn together(&mut self, say: impl FnOnce(&mut Self)) {
        self.batch = Some(Vec::new());
        say(self);
        let inputs = self.batch.take().unwrap();
        self.decide(&inputs);
    }

    fn decide(&mut self, inputs: &[Input]) {
        assert!(self.log.len() < EVER, "it goes on for ever");
        let reference = inputs.last().unwrap().reference.clone();
        let decision = self.session.decide(Timestamp::from_millis(self.now), inputs);
        self.commit(&decision);
        self.effects = decision.effects;
        self.control(&reference, &decision.events);
        self.events.extend(decision.events);
        assert_eq!(self.session.handled(&reference), Some(self.session.next_slot() - 1), "it is remembered");
        self.holds();
    }

    /// Folds a decision and keeps it in the log.
    pub(crate) fn commit(&mut self, decision: &Decision) {
        let remains = self.session.tombstone();
        let slot = self.session.next_slot();
        // More often than a page begins: every slot is a place to begin from. What is archived stands alone.
        let begins = decision.events.iter().any(Event::begins_log);
        let (before, part) = match slot % 3 {
            _ if begins => Some(self.session.snapshot_and_part(true)).unzip(),
            0 => Some(self.session.snapshot_and_part(false)).unzip(),
            1 => (None, Some(self.session.next_part())),
            _ => (None, None),
        };
        let archives = decision.events.iter().any(|event| matches!(event, Event::SessionArchived(_)));
        let part = part.filter(|_| !archives && !self.session.is_archived());
        if let Some(part) = part.as_ref().filter(|_| before.is_none()) {
            self.session.add_part(slot, &slot.to_string(), part);
        }
        let seq = self.session.seq() + 1;
        let prev = self.session.commit_id().to_owned();
        self.session.fold(slot, decision.at, &decision.events);
        self.session.link(slot, &slot.to_string());
        let meta = CommitMeta {
            v: VERSION,
            commit: slot.to_string(),
            fold: FOLD,
            phase: self.session.phase(),
            open: self.session.open_calls(),
            control_seq: self.session.control_seq(),
            prev,
            timers: self.session.timers(),
            seq,
            time: decision.at,
            trace_id: String::new(),
            archived: self.session.archived(),
            log_start: self.session.log_start(),
            moved: self.session.moved().cloned(),
        };
        let snapshot = if meta.is_archived() { Some(remains) } else { before };
        self.log.push((slot, Commit { meta, snapshot, transcript: part, events: decision.events.clone() }));
    }

    /// The log says what the state is, and so does the state as it is stored; at every slot.
    fn holds(&self) {
        let audit = session::audit::audit(self.key.clone(), &self.log, None);
        assert_eq!(audit.differs, []);
        let stored: Session = serde_json::from_str(self.session.snapshot().get()).unwrap();
        for read in [audit.session, stored] {
            assert_eq!(read.snapshot(), self.session.snapshot());
            for (_, commit) in &self.log {
                for event in &commit.events {
                    if let Event::InputHandled(handled) = event {
                        assert_eq!(read.handled(&handled.input), self.session.handled(&handled.input));
                    }
                }
            }
            assert_eq!(read.outstanding(), self.session.outstanding());
        }
    }

    /// A command of a client.
    pub(crate) fn command(&mut self, verb: Verb, body: Body) {
        let id = format!("u{}", self.inputs);
        self.input(InputKind::Control(verb), &id, body);
    }

    /// The user says something.
    pub(crate) fn send_message(&mut self, text: &str, mode: MessageMode) {
        self.send(SendUserMessage::new(Content::Text(text.to_owned()), mode));
    }

    /// The same, with all that a message may hold.
    pub(crate) fn send(&mut self, message: SendUserMessage) {
        self.command(Verb::SendUserMessage, Body::Send(message));
    }

    pub(crate) fn pause(&mut self) {
        self.command(Verb::Pause, Body::Pause(ControlReason::default()));
    }

    pub(crate) fn resume(&mut self) {
        self.command(Verb::Resume, Body::Resume(ControlReason::default()));
    }

    pub(crate) fn stop(&mut self) {
        self.command(Verb::Stop, Body::Stop(ControlReason::default()));
    }

    /// The gate that was opened last.
    pub(crate) fn gate(&self) -> GateOpened {
        let opened = self.events.iter().rev().find_map(|event| match event {
            Event::GateOpened(opened) => Some(opened.clone()),
            _ => None,
        });
        opened.unwrap()
    }

    /// The user answers the gate that was opened last.
    pub(crate) fn answer(&mut self, decision: AnswerDecision) {
        self.answer_with(decision, |_| {});
    }

    /// The same, with more to say.
    pub(crate) fn answer_with(&mut self, decision: AnswerDecision, more: impl FnOnce(&mut Answer)) {
        let GateOpened { gate, arguments_sha256, .. } = self.gate();
        let mut answer = Answer::new(gate, arguments_sha256, decision);
        more(&mut answer);
        self.command(Verb::Answer, Body::Answer(answer));
    }

    /// An executor asks for more time for a call.
    pub(crate) fn extend(&mut self, call: &CallAttempt, deadline: Timestamp) {
        let meta = self.meta_of(call.clone());
        let id = format!("x{}", self.inputs);
        let body = Body::Extend(ExtendToolCall { meta, deadline });
        self.input(InputKind::Control(Verb::ExtendToolCall), &id, body);
    }

    /// Returns outcome and content of the last tool result.
    pub(crate) fn result(&self) -> (Outcome, String) {
        let found = self.events.iter().rev().find_map(|event| match event {
            Event::ToolCallResult(result) => Some((result.outcome, result.content.clone())),
            _ => None,
        });
        found.unwrap()
    }

    /// The open model call.
    pub(crate) fn call(&self) -> Option<CallAttempt> {
        self.open().into_iter().find(|call| call.call.as_str().starts_with('m'))
    }

    pub(crate) fn open(&self) -> Vec<CallAttempt> {
        let parse = |text: String| {
            let (call, attempt) = text.rsplit_once('.').unwrap();
            CallAttempt { call: contract::CallId::new(call).unwrap(), attempt: attempt.parse().unwrap() }
        };
        self.session.open_calls().into_iter().map(parse).collect()
    }

    /// Sends the command `clear_history`.
    pub(crate) fn clear(&mut self) {
        self.command(Verb::ClearHistory, Body::Clear(ControlReason::default()));
    }

    /// Returns the refusal code of the last input; none if it was not ignored.
    pub(crate) fn refused(&self) -> Option<&str> {
        let last = self.log.last()?;
        last.1.events.iter().find_map(|event| match event {
            Event::InputIgnored(ignored) => Some(ignored.refusal.code.as_str()),
            _ => None,
        })
    }

    /// Every open tool call answers this.
    pub(crate) fn results(&mut self, content: &str) {
        for call in self.open().into_iter().filter(|call| call.call.as_str().starts_with('c')) {
            let id = format!("{}-{}", call.call, call.attempt);
            self.result_of(&id, call, Outcome::Ok, content);
        }
    }

    fn meta_of(&self, call: CallAttempt) -> ResultMeta {
        let CallAttempt { call, attempt } = call;
        ResultMeta { v: 1, slot: 0, call, attempt, opened_by: self.opened_by.clone() }
    }

    /// A tool call's result, awaited or not.
    pub(crate) fn result_of(&mut self, id: &str, call: CallAttempt, outcome: Outcome, content: &str) {
        let result = ToolResult {
            whole: None,
            used: None,
            meta: self.meta_of(call),
            outcome,
            content: content.to_owned(),
            code: None,
            duration_ms: 1,
        };
        self.input(InputKind::Control(Verb::ProvideToolResult), id, Body::ToolResult(result));
    }

    /// The server delivers this setting of the timer.
    pub(crate) fn fire_timer(&mut self, number: u64) {
        self.input(InputKind::Timer, &number.to_string(), Body::Timer);
    }

    /// Time passes, and the timer fires if it is set for then.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.waits += 1;
        assert!(self.waits < EVER, "what is waited for never comes");
        let end = self.now + u64::try_from(time.as_millis()).unwrap();
        loop {
            let set = self.events.iter().rev().find_map(|event| match event {
                Event::TimerSet(set) => Some(set.clone()),
                _ => None,
            });
            let Some(set) = set.filter(|set| set.at <= Timestamp::from_millis(end)) else { break };
            let fired = self.events.iter().any(|event| {
                matches!(event, Event::InputHandled(handled)
                    if handled.input.kind == InputKind::Timer && handled.input.id.as_str() == set.number.to_string())
            });
            if fired {
                break;
            }
            self.now = self.now.max(set.at.as_millis());
            self.fire_timer(set.number);
        }
        self.now = end;
    }

    /// Returns the stop reason of the last turn that ended.
    pub(crate) fn stop_reason(&self) -> Option<&'static str> {
        self.events.iter().rev().find_map(|event| match event {
            Event::TurnCompleted(completed) => Some(completed.stop_reason.as_str()),
            _ => None,
        })
    }

    /// Returns the source of the last decision; empty if there is none.
    pub(crate) fn source(&self) -> String {
        let source = self.events.iter().rev().find_map(|event| match event {
            Event::ContinuationProgress(progress) => Some(progress.source.to_string()),
            _ => None,
        });
        source.unwrap_or_default()
    }

    /// Roles of the messages that the model would see now.
    pub(crate) fn roles(&self) -> Vec<String> {
        let role = |message: &Json| {
            let value: serde_json::Value = serde_json::from_str(message.get()).unwrap();
            value["role"].as_str().unwrap().to_owned()
        };
        self.session.messages().iter().map(role).collect()
    }
}

fn tool(name: &str, effect: EffectClass, approval: ApprovalPolicy) -> ToolSpec {
    ToolSpec {
        name: ToolName::new(name).unwrap(),
        description: String::new(),
        parameters: Json::parse("{}").unwrap(),
        effect,
        approval,
        timeout_ms: None,
        max_output: None,
        instructions: None,
        version: String::new(),
    }
}
