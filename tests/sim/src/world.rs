//! Ring 2: one session's life on a toy bus, with several replicas, stale views, crashes, repeats and losses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use contract::command::{
    Answer, AnswerDecision, Configure, ContinuationOverride, ControlReason, MessageMode, SendUserMessage, Start, Verb,
};
use contract::commit::Phase;
use contract::compose::Composed;
use contract::event::{Event, GateKind, GateOpened, InputKind, InputRef};
use contract::ids::CallAttempt;
use contract::limits::PAUSE_SEEN_MAX;
use contract::model::{Content, FinishReason, ModelItem, ResultMeta};
use contract::settings::{
    AgentSettings, ContinuationSettings, Limits, ModelSettings, OnError, OnLimit, Prune, ToolFilter,
};
use contract::subject::SessionKey;
use contract::tool::{ApprovalPolicy, EffectClass, ExtendToolCall, Outcome, ToolResult, ToolSpec};
use contract::{AgentId, CallId, CommandId, Json, SessionId, TenantId, Timestamp, ToolName};
use session::{Body, ConfigureInput, Effect, Input, Session, StartInput};

use crate::children::{COST_MICROS, Children};
use crate::oracle::{Oracle, valid_request};
use crate::plant::Bug;
use crate::replies::{self, TOOLS};
use crate::rng::Rng;

/// What a world came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Inputs that were delivered.
    pub inputs: u64,
    /// Things that went wrong.
    pub faults: u64,
    /// Commits.
    pub commits: u64,
    /// Virtual time.
    pub lived: Duration,
    /// Rare things that happened.
    pub seen: Seen,
}

/// How often something rare happened: a world in which it never does proves nothing about it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Transcripts that were cut to a window.
    pub pruned: u64,
    /// Summaries that were asked for.
    pub summaries: u64,
    /// Fallbacks that took over.
    pub fallbacks: u64,
    /// Calls that children performed.
    pub children: u64,
    /// Words to children.
    pub words: u64,
    /// Questions to a person about a limit or a failed model.
    pub questions: u64,
    /// Settings changed while the session ran.
    pub configured: u64,
    /// Turns that were cut short by a limit.
    pub limits: u64,
    /// Turns at a limit that were given one last step.
    pub last_steps: u64,
    /// Replies that a judge was asked about.
    pub judged: u64,
}

impl Seen {
    fn event(&mut self, event: &Event) {
        let counter = match event {
            Event::ContextPruned(_) => &mut self.pruned,
            Event::SummaryOpened(_) => &mut self.summaries,
            Event::ModelFellBack(_) => &mut self.fallbacks,
            Event::ToolCallOpened(opened) if opened.child.is_some() => &mut self.children,
            Event::ChildCommanded(_) => &mut self.words,
            Event::GateOpened(gate) if gate.kind != GateKind::Approval => &mut self.questions,
            Event::Configured(_) => &mut self.configured,
            Event::TurnCompleted(turn) if turn.stop_reason.is_limit() => &mut self.limits,
            Event::LimitReached(_) => &mut self.last_steps,
            Event::JudgeOpened(_) => &mut self.judged,
            Event::InputHandled(_)
            | Event::InputIgnored(_)
            | Event::SessionStarted(_)
            | Event::SessionEnded(_)
            | Event::UserProcessed(_)
            | Event::TurnStarted(_)
            | Event::ToolsResolved(_)
            | Event::ModelCallOpened(_)
            | Event::ModelCallFailed(_)
            | Event::CallCancelled(_)
            | Event::ModelCallInterrupted(_)
            | Event::AiFullReceived(_)
            | Event::ToolCallIdentified(_)
            | Event::ToolCallOpened(_)
            | Event::ToolCallExtended(_)
            | Event::ToolCallResult(_)
            | Event::StatusPaused(_)
            | Event::StatusResumed(_)
            | Event::ContinuationProgress(_)
            | Event::TurnCompleted(_)
            | Event::GateOpened(_)
            | Event::GateClosed(_)
            | Event::ContextCleared(_)
            | Event::TimerSet(_)
            | Event::SessionArchived(_)
            | Event::SessionImported(_)
            | Event::Error(_)
            | Event::Unknown => return,
        };
        *counter += 1;
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            pruned: self.pruned + other.pruned,
            summaries: self.summaries + other.summaries,
            fallbacks: self.fallbacks + other.fallbacks,
            children: self.children + other.children,
            words: self.words + other.words,
            questions: self.questions + other.questions,
            configured: self.configured + other.configured,
            limits: self.limits + other.limits,
            last_steps: self.last_steps + other.last_steps,
            judged: self.judged + other.judged,
        }
    }

    /// The smallest count of all.
    pub fn least(self) -> u64 {
        let Self { pruned, summaries, fallbacks, children, words, questions, configured, limits, last_steps, judged } =
            self;
        let all = [pruned, summaries, fallbacks, children, words, questions, configured, limits, last_steps, judged];
        all.into_iter().min().unwrap_or(0)
    }
}

/// Lives one session's life; the error says what the oracle found, and when.
pub fn live(seed: u64, bug: Bug) -> Result<Figures, String> {
    let mut world = World::new(seed, bug);
    let result = world.run();
    let figures = world.figures;
    result.map(|()| figures).map_err(|why| {
        let lines: Vec<&str> = world.trace.iter().rev().take(40).rev().map(String::as_str).collect();
        format!("seed {seed}, bug {bug:?}, after {} inputs: {why}\n  {}", figures.inputs, lines.join("\n  "))
    })
}

#[derive(Debug, Clone)]
enum Action {
    Deliver(usize),
    StartModel {
        call: CallAttempt,
        slot: u64,
        delivery: u32,
    },
    EndModel {
        call: CallAttempt,
        slot: u64,
    },
    StartTool {
        call: CallAttempt,
        slot: u64,
        delivery: u32,
    },
    /// A tool shows progress.
    Progress {
        call: CallAttempt,
        slot: u64,
    },
    EndTool {
        call: CallAttempt,
        slot: u64,
        outcome: Outcome,
    },
    Timer(u64),
    StartChild {
        call: CallId,
        slot: u64,
    },
    CommandChild {
        call: CallId,
        number: u64,
        verb: Verb,
    },
    EndChild {
        call: CallId,
    },
}

struct World {
    rng: Rng,
    bug: Bug,
    now: u64,
    queue: BTreeMap<(u64, u64), Action>,
    order: u64,
    inputs: Vec<Input>,
    known: BTreeMap<InputRef, usize>,
    waiting: BTreeMap<u64, usize>,
    control_seq: u64,
    log: Vec<(Timestamp, Vec<Event>)>,
    heads: Vec<(Vec<String>, Phase)>,
    truth: Session,
    replicas: Vec<Session>,
    oracle: Oracle,
    timer: Option<u64>,
    stored_items: BTreeSet<String>,
    running: BTreeSet<String>,
    claims: BTreeSet<String>,
    runs: BTreeMap<String, u32>,
    effects: BTreeMap<String, EffectClass>,
    cost_micros: u64,
    max_iterations: u32,
    /// Whether a person is asked at a limit.
    asks: bool,
    figures: Figures,
    trace: Vec<String>,
    public: u64,
    calm: bool,
    children: Children,
    /// The messages that each turn began with.
    asked: BTreeMap<u32, Vec<CommandId>>,
    /// Items that workers laid aside in the pause that lasts.
    laid_aside: Vec<Action>,
    /// Calls that were laid aside and that nobody has begun.
    not_begun: BTreeSet<String>,
}

/// Every tool of the world.
static CATALOGUE: LazyLock<Arc<Vec<ToolSpec>>> =
    LazyLock::new(|| Arc::new(TOOLS.iter().map(|name| spec(name)).collect()));

macro_rules! ensure {
    ($condition:expr, $($why:tt)*) => {
        if !$condition {
            return Err(format!($($why)*));
        }
    };
}

fn key() -> SessionKey {
    let session = SessionId::new("s").unwrap_or_else(|_| unreachable!("a valid id"));
    SessionKey { tenant: TenantId::default(), session }
}

impl World {
    fn new(seed: u64, bug: Bug) -> Self {
        let mut rng = Rng::new(seed);
        let max_iterations = 1 + u32::try_from(rng.below(5)).unwrap_or(0);
        let asks = rng.chance(40);
        let replicas = 1 + rng.below(3);
        let calm = rng.chance(15);
        Self {
            bug,
            now: 1_000_000,
            queue: BTreeMap::new(),
            order: 0,
            inputs: Vec::new(),
            known: BTreeMap::new(),
            waiting: BTreeMap::new(),
            control_seq: 0,
            log: Vec::new(),
            heads: Vec::new(),
            truth: Session::new(key()),
            replicas: (0..replicas).map(|_| Session::new(key())).collect(),
            oracle: Oracle::new(max_iterations),
            timer: None,
            stored_items: BTreeSet::new(),
            running: BTreeSet::new(),
            claims: BTreeSet::new(),
            runs: BTreeMap::new(),
            effects: BTreeMap::new(),
            cost_micros: 0,
            max_iterations,
            asks,
            figures: Figures::default(),
            trace: Vec::new(),
            public: 0,
            calm,
            children: Children::default(),
            asked: BTreeMap::new(),
            laid_aside: Vec::new(),
            not_begun: BTreeSet::new(),
            rng,
        }
    }

    /// Whether something goes wrong now.
    fn fault(&mut self, percent: u64) -> bool {
        let happens = !self.calm && self.rng.chance(percent);
        self.figures.faults += u64::from(happens);
        happens
    }

    fn at(&mut self, delay: u64, action: Action) {
        self.order += 1;
        self.queue.insert((self.now + delay, self.order), action);
    }

    fn run(&mut self) -> Result<(), String> {
        self.script();
        let born = self.now;
        while let Some(((at, _), action)) = self.queue.pop_first() {
            self.now = self.now.max(at);
            ensure!(self.figures.inputs < 5_000, "the session does not come to an end");
            self.act(action)?;
        }
        self.figures.lived = Duration::from_millis(self.now - born);
        self.at_rest()
    }

    /// What the user does, and when.
    fn script(&mut self) {
        let interactive = self.rng.chance(70);
        let mut time = 0;
        let start = self.start(interactive);
        self.command(Verb::Start, start, time);
        let span = [50, 2_000, 60_000][usize::try_from(self.rng.below(3)).unwrap_or(0)];
        for _ in 0..2 + self.rng.below(24) {
            time += self.rng.below(span);
            let because = ControlReason::default();
            let (verb, body) = match self.rng.below(100) {
                0..45 => {
                    let mode = *self.rng.pick(&[MessageMode::Steer, MessageMode::Queue, MessageMode::Interrupt]);
                    let content = Content::Text(format!("message {}", self.inputs.len()));
                    (Verb::SendUserMessage, Body::Send(SendUserMessage { content, mode }))
                }
                45..58 => (Verb::Pause, Body::Pause(because)),
                58..84 => (Verb::Resume, Body::Resume(because)),
                84..86 => (Verb::Stop, Body::Stop(because)),
                86..89 => (Verb::Configure, self.configure()),
                89..92 => (Verb::ClearHistory, Body::Clear(because)),
                92..95 => (Verb::Start, self.start(true)),
                95..98 => (Verb::Answer, self.blind_answer("c1-1-1", b"{\"a\":1}")),
                _ => (Verb::Answer, self.blind_answer("limit-1-1", b"max_iterations")),
            };
            self.command(verb, body, time);
        }
    }

    /// A model, often with too small a window.
    fn model(&mut self) -> ModelSettings {
        let context_window = self.rng.chance(50).then(|| 600 + self.rng.below(600));
        ModelSettings { id: "sim".to_owned(), context_window, max_output: Some(100), ..ModelSettings::default() }
    }

    fn configure(&mut self) -> Body {
        let continuation = ContinuationOverride {
            max_iterations: self.rng.chance(30).then_some(self.max_iterations),
            enabled: self.rng.chance(30).then(|| self.rng.chance(80)),
            timeout: self.rng.chance(30).then(|| 30 + self.rng.below(240)),
            on_error: self.rng.chance(50).then_some(OnError::Ask),
            prune: self.rng.chance(50).then_some(Prune::Summarise),
            ..ContinuationOverride::default()
        };
        let configure = Configure { continuation: Some(continuation), ..Configure::default() };
        Body::Configure(Box::new(ConfigureInput { configure, composed: None }))
    }

    fn start(&mut self, interactive: bool) -> Body {
        let forgotten = self.bug == Bug::ForgetLimit;
        let continuation = ContinuationSettings {
            require_explicit_signal: self.rng.chance(50),
            max_iterations: if forgotten { 200 } else { self.max_iterations },
            timeout: 60 + self.rng.below(240),
            continuation_patterns: vec!["now I'll".to_owned()],
            termination_patterns: vec!["all done".to_owned()],
            limits: Limits {
                tool_calls: self.rng.chance(20).then_some(5),
                tokens: self.rng.chance(20).then_some(60),
                ..Limits::default()
            },
            on_limit: if self.asks { OnLimit::Ask } else { OnLimit::End },
            ends_at_once: self.rng.chance(20),
            on_error: *self.rng.pick(&[OnError::End, OnError::Ask, OnError::Fallback]),
            prune: *self.rng.pick(&[Prune::Drop, Prune::Summarise]),
            judge: self.rng.chance(50).then(|| "judge".to_owned()),
            ..ContinuationSettings::default()
        };
        let fallbacks = (0..self.rng.below(3)).map(|_| self.model()).collect();
        let agent = AgentId::new("e").unwrap_or_else(|_| unreachable!("a valid id"));
        let parallel = 1 + u32::try_from(self.rng.below(4)).unwrap_or(0);
        let composed = Composed {
            ai_config: None,
            fallbacks,
            prompt: "You are a simulation.".to_owned(),
            fingerprint: "f".to_owned(),
            components: Vec::new(),
            warnings: Vec::new(),
            agent: AgentSettings {
                id: agent,
                name: "E".to_owned(),
                continuation,
                tools: ToolFilter { allow: vec!["*".to_owned()], deny: Vec::new() },
                approvals: Vec::new(),
            },
            model: ModelSettings {
                id: "sim".to_owned(),
                multi_tool: parallel > 1,
                max_parallel_tools: parallel,
                ..self.model()
            },
        };
        let prompt = self.rng.chance(90).then(|| Content::Text(format!("message {}", self.inputs.len())));
        let start = Start { prompt, interactive, ..Start::default() };
        Body::Start(Box::new(StartInput { start, history: Vec::new(), composed: Ok(Box::new(composed)) }))
    }

    /// An answer to a gate that may not be there.
    fn blind_answer(&mut self, gate: &str, asked: &[u8]) -> Body {
        let decision = *self.rng.pick(&[AnswerDecision::Approve, AnswerDecision::Deny]);
        let arguments_sha256 = contract::tool::sha256_hex(asked);
        let gate = contract::CallId::new(gate).unwrap_or_else(|_| unreachable!("a valid id"));
        Body::Answer(Answer::new(gate, arguments_sha256, decision))
    }

    /// What a person says to a gate; now and then something that does not fit it.
    fn answer(&mut self, gate: &GateOpened) -> Answer {
        use AnswerDecision::{Answer as Says, Approve, Deny};
        let decision = match gate.kind {
            GateKind::Question => *self.rng.pick(&[Says, Says, Says, Deny, Approve]),
            GateKind::Approval => *self.rng.pick(&[Approve, Approve, Approve, Deny, Deny, Says]),
            GateKind::Limit(_) | GateKind::Error(_) => *self.rng.pick(&[Approve, Deny]),
        };
        let sha256 = if self.rng.chance(3) { "0".repeat(64) } else { gate.arguments_sha256.clone() };
        let mut answer = Answer::new(gate.gate.clone(), sha256, decision);
        if decision == Says {
            answer.content = Some("because".to_owned());
        }
        if decision == Approve && gate.kind == GateKind::Approval && self.rng.chance(30) {
            answer.arguments = Json::parse(r#"{"a":2}"#).ok();
        }
        answer
    }

    fn command(&mut self, verb: Verb, body: Body, delay: u64) {
        self.control_seq += 1;
        let seq = self.control_seq;
        let id = format!("u{}", self.inputs.len());
        let index = self.input(InputKind::Control(verb), &id, Some(seq), body);
        self.waiting.insert(seq, index);
        let jitter = if self.fault(10) { self.rng.below(9_000) } else { 0 };
        self.at(delay + jitter, Action::Deliver(index));
    }

    /// Stores an input; one of the same kind and id is the same input.
    fn input(&mut self, kind: InputKind, id: &str, control_seq: Option<u64>, body: Body) -> usize {
        let id = CommandId::new(id).unwrap_or_else(|_| unreachable!("a valid id"));
        let reference = InputRef { kind, id };
        if let Some(index) = self.known.get(&reference) {
            return *index;
        }
        self.inputs.push(Input {
            parent_command_number: None,
            reference: reference.clone(),
            control_seq,
            control_at: control_seq.map(|_| Timestamp::from_millis(self.now)),
            sent: None,
            by: None,
            traceparent: None,
            tools: Some(CATALOGUE.clone()),
            archive_after: contract::limits::ARCHIVE_AFTER,
            body,
        });
        let index = self.inputs.len() - 1;
        self.known.insert(reference, index);
        index
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Deliver(index) => self.deliver(index),
            Action::StartModel { call, slot, delivery } => self.start_call(call, slot, delivery, None),
            Action::EndModel { call, slot } => {
                self.end_model(&call, slot, false);
                Ok(())
            }
            Action::StartTool { call, slot, delivery } => {
                let effect = self.effects.get(call.call.as_str()).copied().unwrap_or_default();
                self.start_call(call, slot, delivery, Some(effect))
            }
            Action::EndTool { call, slot, outcome } => {
                self.end_tool(&call, slot, outcome);
                Ok(())
            }
            Action::Progress { call, slot } => {
                if self.running.contains(&call.to_string()) {
                    let meta = ResultMeta { v: 1, slot, call: call.call, attempt: call.attempt };
                    let deadline = Timestamp::from_millis(self.now + self.rng.below(300_000));
                    let id = format!("x{}", self.inputs.len());
                    let body = Body::Extend(ExtendToolCall { meta, deadline });
                    let index = self.input(InputKind::Control(Verb::ExtendToolCall), &id, None, body);
                    self.report(index);
                }
                Ok(())
            }
            Action::StartChild { call, slot } => {
                let result = self.children.start(&call, slot);
                let slowest = if self.fault(5) { 400_000 } else { 2_000 };
                let delay = 1 + self.rng.below(slowest);
                self.at(delay, Action::EndChild { call });
                self.child_ended(result);
                Ok(())
            }
            Action::CommandChild { call, number, verb } => {
                let result = self.children.hear(&call, number, verb);
                self.child_ended(result);
                if verb == Verb::Resume {
                    let delay = 1 + self.rng.below(2_000);
                    self.at(delay, Action::EndChild { call });
                }
                Ok(())
            }
            Action::EndChild { call } => {
                let outcome = *self.rng.pick(&[Outcome::Ok, Outcome::Ok, Outcome::Error]);
                let result = self.children.end(&call, outcome);
                self.child_ended(result);
                Ok(())
            }
            Action::Timer(number) => {
                if self.timer == Some(number) || self.fault(30) {
                    let index = self.input(InputKind::Timer, &number.to_string(), None, Body::Timer);
                    return self.deliver(index);
                }
                Ok(())
            }
        }
    }

    /// The shell of one replica over one delivered input; a client command only after those that wait before it.
    fn deliver(&mut self, index: usize) -> Result<(), String> {
        if let Some(seq) = self.inputs[index].control_seq {
            let earlier: Vec<usize> = self.waiting.range(..seq).map(|(_, index)| *index).collect();
            // Sent earlier, not necessarily there yet: what is not in the stream has no sequence before this one.
            for index in earlier {
                self.handle(index)?;
            }
        }
        self.handle(index)
    }

    fn handle(&mut self, index: usize) -> Result<(), String> {
        self.figures.inputs += 1;
        let mut input = self.inputs[index].clone();
        let count = self.replicas.len() as u64;
        let replica = usize::try_from(self.rng.below(count)).unwrap_or(0);
        if self.fault(5) {
            self.replicas[replica] = Session::new(key());
        }
        self.stale_reply(&mut input);
        loop {
            let state = &self.replicas[replica];
            let folded = state.has_handled(&input.reference, input.control_seq, input.control_at);
            if folded && self.bug != Bug::DecideTwice {
                if self.bug != Bug::ForgetEffects {
                    // What is owed is read from the latest state.
                    self.replicas[replica] = self.truth.clone();
                    let owed = self.truth.outstanding();
                    self.perform(replica, &owed)?;
                }
                return self.ack(index);
            }
            let decision = state.decide(Timestamp::from_millis(self.now), std::slice::from_ref(&input));
            let mut events = decision.events;
            self.bug.spoil(&mut events);
            if self.bug == Bug::AckWithoutCommit && matches!(events[0], Event::InputIgnored(_)) {
                return self.ack(index);
            }
            let slot = state.next_slot();
            if slot != self.log.len() as u64 {
                if self.bug == Bug::BelieveDuplicateAck {
                    self.replicas[replica].fold(slot, decision.at, &events);
                    self.perform(replica, &decision.effects)?;
                    return self.ack(index);
                }
                self.reload(replica);
                continue;
            }
            self.commit(slot, decision.at, &events)?;
            self.replicas[replica].fold(slot, decision.at, &events);
            if self.fault(6) {
                // It dies before or amid its effects, unacknowledged; another one takes over.
                let performed = usize::try_from(self.rng.below(decision.effects.len() as u64 + 1)).unwrap_or(0);
                self.perform(replica, &decision.effects[..performed])?;
                self.replicas[replica] = Session::new(key());
                self.at(5_000, Action::Deliver(index));
                return Ok(());
            }
            self.perform(replica, &decision.effects)?;
            if self.fault(6) {
                let delay = self.rng.below(6_000);
                self.at(delay, Action::Deliver(index));
                return Ok(());
            }
            return self.ack(index);
        }
    }

    /// A replica reads the log again; the read may be stale, and then it loses again.
    fn reload(&mut self, replica: usize) {
        let behind = if self.fault(10) { self.rng.below(3) } else { 0 };
        let upto = self.log.len().saturating_sub(usize::try_from(behind).unwrap_or(0));
        let mut state = Session::new(key());
        for (slot, (at, events)) in self.log[..upto].iter().enumerate() {
            state.fold(slot as u64, *at, events);
        }
        self.replicas[replica] = state;
    }

    fn commit(&mut self, slot: u64, at: Timestamp, events: &[Event]) -> Result<(), String> {
        self.figures.commits += 1;
        self.trace.push(format!("{} slot {slot}: {}", self.now, names(events)));
        self.oracle.commit(events)?;
        self.log.push((at, events.to_vec()));
        self.truth.fold(slot, at, events);
        self.heads.push((self.truth.open_calls(), self.truth.phase()));
        self.pause_is_over(events)?;
        for event in events {
            if let Event::ToolCallIdentified(identified) = event {
                self.effects.insert(identified.call.to_string(), identified.effect);
            }
            self.figures.seen.event(event);
            if let Event::TurnStarted(turn) = event {
                self.asked.insert(turn.turn, turn.messages.clone());
            }
            if let Event::GateOpened(gate) = event {
                // Nobody, one person, or two at the same time.
                for _ in 0..*self.rng.pick(&[0, 1, 1, 1, 2]) {
                    let answer = self.answer(gate);
                    let delay = self.rng.below(20_000);
                    self.oracle.answers(format!("u{}", self.inputs.len()), &answer);
                    self.command(Verb::Answer, Body::Answer(answer), delay);
                }
            }
        }
        self.public += events.iter().filter(|event| event.topic().is_some()).count() as u64;
        ensure!(self.truth.seq() == self.public, "seq {} after {} public events", self.truth.seq(), self.public);
        Ok(())
    }

    /// Workers look again at what they laid aside. Until they could begin, no call is given up.
    fn pause_is_over(&mut self, events: &[Event]) -> Result<(), String> {
        if self.truth.phase() != Phase::Paused {
            let latest = u64::try_from(PAUSE_SEEN_MAX.as_millis()).unwrap_or(0);
            for action in std::mem::take(&mut self.laid_aside) {
                let delay = self.rng.below(latest);
                self.at(delay, action);
            }
        }
        let by_timer = matches!(&events[0], Event::InputHandled(handled) if handled.input.kind == InputKind::Timer);
        let turn_ends = events.iter().any(|event| matches!(event, Event::TurnCompleted(_)));
        for event in events {
            if let Event::CallCancelled(cancelled) = event
                && cancelled.tool.is_some()
            {
                let call = CallAttempt { call: cancelled.call.clone(), attempt: cancelled.attempt }.to_string();
                let was_aside = self.not_begun.remove(&call);
                ensure!(!(was_aside && by_timer && !turn_ends), "{call} was given up before anybody could begin");
            }
        }
        Ok(())
    }

    fn ack(&mut self, index: usize) -> Result<(), String> {
        let input = &self.inputs[index];
        let folded = self.truth.has_handled(&input.reference, input.control_seq, input.control_at);
        ensure!(folded, "I2: {:?} was acknowledged and is not in the log", input.reference);
        if let Some(seq) = input.control_seq {
            self.waiting.remove(&seq);
        }
        if self.fault(3) {
            let delay = self.rng.below(10_000);
            self.at(delay, Action::Deliver(index));
        }
        Ok(())
    }

    fn perform(&mut self, replica: usize, effects: &[Effect]) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::CallModel(call) => {
                    let Some(item) = self.replicas[replica].model_item(call) else { continue };
                    valid_request(&item.messages)?;
                    self.reads_what_was_asked(&item)?;
                    self.oracle.may_call_tools(&item)?;
                    if self.stored_items.insert(call.to_string()) {
                        let (delay, slot) = (self.rng.below(50), item.meta.slot);
                        self.at(delay, Action::StartModel { call: call.clone(), slot, delivery: 1 });
                    }
                }
                Effect::CallTool(call) => {
                    let Some(item) = self.replicas[replica].tool_item(call) else { continue };
                    self.oracle.may_run(&item)?;
                    if self.stored_items.insert(call.to_string()) {
                        let (delay, slot) = (self.rng.below(50), item.meta.slot);
                        self.at(delay, Action::StartTool { call: call.clone(), slot, delivery: 1 });
                    }
                }
                Effect::Cancel { call, tool } => {
                    self.stored_items.remove(&call.to_string());
                    if self.running.contains(&call.to_string()) && !self.fault(10) {
                        match tool {
                            None => self.end_model(call, 0, true),
                            Some(_) => self.end_tool(call, 0, Outcome::Cancelled),
                        }
                    }
                }
                Effect::SetTimer { number, at } => {
                    self.timer = Some(*number);
                    let delay = at.as_millis().saturating_sub(self.now) + self.rng.below(20);
                    self.at(delay, Action::Timer(*number));
                }
                Effect::StartChild(call) => {
                    let Some(word) = self.replicas[replica].child_start(call) else { continue };
                    let Some(parent) = word.body.body.parent else { return Err("a child without a parent".into()) };
                    let delay = self.word_delay();
                    self.at(delay, Action::StartChild { call: parent.call, slot: parent.slot });
                }
                Effect::CommandChild(call) => {
                    let Some(word) = self.replicas[replica].child_command(call) else { continue };
                    let number = word.body.meta.parent_command_number.unwrap_or(0);
                    let (delay, verb) = (self.word_delay(), word.verb);
                    self.at(delay, Action::CommandChild { call: call.clone(), number, verb });
                }
                Effect::ReportToParent => return Err("nobody asked for this session".to_owned()),
                Effect::CancelTimer => self.timer = None,
                Effect::Index | Effect::Archive { .. } => {}
            }
        }
        Ok(())
    }

    /// A worker takes an item: it starts only what it sees open in the log.
    fn start_call(
        &mut self,
        call: CallAttempt,
        slot: u64,
        delivery: u32,
        effect: Option<EffectClass>,
    ) -> Result<(), String> {
        let name = call.to_string();
        if !self.stored_items.contains(&name) {
            return Ok(());
        }
        let again = |delivery| match effect {
            None => Action::StartModel { call: call.clone(), slot, delivery },
            Some(_) => Action::StartTool { call: call.clone(), slot, delivery },
        };
        let (open, phase) = self.seen_head();
        if !open.contains(&name) {
            self.stored_items.remove(&name);
            return Ok(());
        }
        if phase == Phase::Paused {
            if self.truth.phase() == Phase::Paused {
                self.laid_aside.push(again(delivery));
                self.not_begun.insert(name);
            } else {
                self.at(500, again(delivery));
            }
            return Ok(());
        }
        if delivery > 1 && self.running.contains(&name) {
            // Its holder answers: it is alive.
            self.at(1_000, again(delivery));
            return Ok(());
        }
        let truly = self.heads.last().is_some_and(|(open, phase)| open.contains(&name) && *phase != Phase::Paused);
        ensure!(truly, "I5: {name} started although the log does not list it as open");
        self.not_begun.remove(&name);
        if effect == Some(EffectClass::AtMostOnce) && !self.claims.insert(name.clone()) {
            self.running.insert(name);
            self.at(1, Action::EndTool { call, slot, outcome: Outcome::Unknown });
            return Ok(());
        }
        if effect.is_some() {
            let times = self.runs.entry(call.call.to_string()).or_insert(0);
            *times += 1;
            let times = *times;
            ensure!(effect != Some(EffectClass::AtMostOnce) || times == 1, "{name} ran {times} times");
        }
        if self.fault(6) {
            self.at(5_000, again(delivery + 1));
            return Ok(());
        }
        self.running.insert(name);
        let slowest = if self.fault(4) { 400_000 } else { 400 };
        let delay = 1 + self.rng.below(slowest);
        let outcome = *self.rng.pick(&[Outcome::Ok, Outcome::Ok, Outcome::Ok, Outcome::Error, Outcome::Timeout]);
        if self.fault(3) {
            self.at(delay / 2, again(delivery + 1));
        }
        if effect.is_none() {
            self.at(delay, Action::EndModel { call, slot });
            return Ok(());
        }
        if self.rng.chance(20) {
            self.at(delay / 2, Action::Progress { call: call.clone(), slot });
        }
        self.at(delay, Action::EndTool { call, slot, outcome });
        Ok(())
    }

    /// The head as a worker reads it: from the leader; the planted bug believes a replica.
    fn seen_head(&mut self) -> (Vec<String>, Phase) {
        let behind = if self.bug == Bug::TrustStaleRead { self.rng.below(4) } else { 0 };
        let last = self.heads.len().saturating_sub(1);
        let at = last.saturating_sub(usize::try_from(behind).unwrap_or(0));
        self.heads.get(at).cloned().unwrap_or((Vec::new(), Phase::Ended))
    }

    fn end_model(&mut self, call: &CallAttempt, slot: u64, cancelled: bool) {
        if !self.running.remove(&call.to_string()) {
            return;
        }
        let meta = ResultMeta { v: 1, slot, call: call.call.clone(), attempt: call.attempt };
        // Each run of an attempt is an input of its own: of the second one only the costs count.
        let id = format!("{}-{}-{}", call.call, call.attempt, self.inputs.len());
        let (kind, body) = if cancelled {
            let mut partial = replies::blank(meta);
            partial.finish_reason = FinishReason::Cancelled;
            partial.text = if self.rng.chance(70) { "So far".to_owned() } else { String::new() };
            (Verb::ModelFinished, Body::ModelFinished(Box::new(partial)))
        } else {
            let is_judge = meta.call.as_str().starts_with('j');
            let answer = if is_judge { replies::judgement } else { replies::answer };
            match answer(&mut self.rng, meta) {
                replies::Answer::Finished(finished) => (Verb::ModelFinished, Body::ModelFinished(finished)),
                replies::Answer::Failed(failed) => (Verb::ModelFailed, Body::ModelFailed(failed)),
            }
        };
        let new = self.inputs.len();
        let index = self.input(InputKind::Control(kind), &id, None, body);
        if index == new && kind == Verb::ModelFinished {
            self.cost_micros += 250_000;
        }
        self.report(index);
        if !self.fault(4) {
            self.stored_items.remove(&call.to_string());
        } else if !cancelled {
            let delay = 5_000;
            self.at(delay, Action::StartModel { call: call.clone(), slot, delivery: 2 });
        }
    }

    fn end_tool(&mut self, call: &CallAttempt, slot: u64, outcome: Outcome) {
        if !self.running.remove(&call.to_string()) {
            return;
        }
        let meta = ResultMeta { v: 1, slot, call: call.call.clone(), attempt: call.attempt };
        let content =
            if self.rng.chance(15) { format!("{{\"text\":\"{}\"}}", "x".repeat(4_000)) } else { "{}".to_owned() };
        let result = ToolResult { whole: None, used: None, meta, outcome, content, code: None, duration_ms: 3 };
        let id = format!("{}-{}", call.call, call.attempt);
        let index = self.input(InputKind::Control(Verb::ProvideToolResult), &id, None, Body::ToolResult(result));
        self.report(index);
        self.stored_items.remove(&call.to_string());
    }

    /// Words to a child overtake each other when their senders are slow.
    fn word_delay(&mut self) -> u64 {
        if self.fault(10) { self.rng.below(8_000) } else { self.rng.below(20) }
    }

    fn child_ended(&mut self, result: Option<ToolResult>) {
        let Some(result) = result else { return };
        if result.outcome != Outcome::Error || result.used.is_some_and(|used| used.spent.cost_usd > 0.0) {
            self.cost_micros += COST_MICROS;
        }
        let id = format!("{}-1", result.meta.call);
        let index = self.input(InputKind::Control(Verb::ProvideToolResult), &id, None, Body::ToolResult(result));
        self.report(index);
    }

    /// What the user asked in this turn is never pruned away.
    fn reads_what_was_asked(&self, item: &ModelItem) -> Result<(), String> {
        if item.meta.call.as_str().starts_with(['s', 'j']) {
            return Ok(());
        }
        for asked in self.asked.get(&item.meta.turn).into_iter().flatten() {
            let text = format!("\"message {}\"", asked.as_str().trim_start_matches('u'));
            let reads = item.messages.iter().any(|message| message.get().contains(&text));
            ensure!(reads, "the model is not shown {text}, which turn {} is about", item.meta.turn);
        }
        Ok(())
    }

    fn report(&mut self, index: usize) {
        let delay = self.rng.below(30);
        self.at(delay, Action::Deliver(index));
        if self.fault(5) {
            let delay = self.rng.below(20_000);
            self.at(delay, Action::Deliver(index));
        }
    }

    /// The planted bug: a reply of an older call is taken for the awaited one.
    fn stale_reply(&self, input: &mut Input) {
        if self.bug != Bug::AcceptStaleReply {
            return;
        }
        let open = self.truth.open_calls();
        if let (Body::ModelFinished(finished), Some(open)) = (&mut input.body, open.first())
            && let Some((call, _)) = open.rsplit_once('.')
            && let Ok(call) = contract::CallId::new(call)
            && call.as_str().starts_with('m')
        {
            finished.meta.call = call;
        }
    }

    /// When nothing is left to happen.
    fn at_rest(&mut self) -> Result<(), String> {
        if let Some(call) = self.children.left_over() {
            return Err(format!("the child of {call} lives on"));
        }
        ensure!(!self.oracle.is_alive(), "I4: nothing is left to happen and the session has not ended");
        for input in &self.inputs {
            let folded = self.truth.handled(&input.reference).is_some();
            ensure!(folded, "{:?} was lost", input.reference);
        }
        ensure!(
            self.oracle.spent_micros() == self.cost_micros,
            "replies cost {} and the log says {}",
            self.cost_micros,
            self.oracle.spent_micros()
        );
        let texts: Vec<String> = self.truth.messages().iter().map(|message| message.get().to_owned()).collect();
        for index in 0..self.inputs.len() {
            let text = format!("\"message {index}\"");
            let times = texts.iter().filter(|message| message.contains(&text)).count();
            ensure!(times <= 1, "message {index} stands {times} times in the transcript");
        }
        let mut again = Session::new(key());
        for (slot, (at, events)) in self.log.iter().enumerate() {
            again.fold(slot as u64, *at, events);
            if slot.is_multiple_of(7) {
                let snapshot = again.snapshot();
                again = serde_json::from_str(snapshot.get()).map_err(|error| error.to_string())?;
            }
        }
        ensure!(again.snapshot() == self.truth.snapshot(), "replay differs from live state");
        Ok(())
    }
}

fn spec(name: &str) -> ToolSpec {
    if name == contract::tool::DELEGATE {
        return session::delegate_spec();
    }
    if name == contract::tool::ASK_USER {
        return session::ask_user_spec();
    }
    let (effect, approval) = match name {
        "look" => (EffectClass::Pure, ApprovalPolicy::Never),
        "put" => (EffectClass::Idempotent, ApprovalPolicy::Never),
        "launch" => (EffectClass::AtMostOnce, ApprovalPolicy::Always),
        _ => (EffectClass::AtMostOnce, ApprovalPolicy::Never),
    };
    ToolSpec {
        name: ToolName::new(name).unwrap_or_else(|_| unreachable!("a valid id")),
        description: String::new(),
        parameters: Json::of(&serde_json::json!({"type": "object"})),
        effect,
        approval,
        timeout_ms: Some(30_000),
        max_output: None,
        instructions: None,
        version: String::new(),
    }
}

fn names(events: &[Event]) -> String {
    let list: Vec<String> = events
        .iter()
        .map(|event| {
            let text = serde_json::to_string(event).unwrap_or_default();
            text.chars().take(110).collect()
        })
        .collect();
    list.join(" ")
}
