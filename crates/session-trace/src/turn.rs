//! From the commits of a turn to its spans.

use std::collections::BTreeMap;

use contract::commit::Commit;
use contract::event::{
    AiFullReceived, ContinuationProgress, Event, GateClosed, GateKind, GateOpened, ModelCallFailed, Spent, StopReason,
    ToolCallResult, TurnCompleted, UserProcessed,
};
use contract::ids::CallAttempt;
use contract::settings::{AgentSettings, ModelSettings};
use contract::subject::SessionKey;
use contract::tool::Outcome;
use contract::trace::TraceContext;
use contract::{CallId, CommandId, ErrorCode, Timestamp};
use telemetry::names::{attr, span as name};
use telemetry::trace::{FinishedSpan, SpanKind, Value};

use crate::content::{self, Messages};

/// What the commits of a turn need not contain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnFacts {
    /// Key of the agent in its configuration.
    pub agent_id: String,
    /// Name of the agent, for people.
    pub agent_name: String,
    /// Id of the model that the session asks.
    pub model: String,
    /// The `traceparent` in the log under which the turn before began.
    pub previous: Option<TraceContext>,
}

/// The spans of one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnSpans {
    /// The span of the turn itself, which is the first of `spans`.
    pub context: TraceContext,
    /// Whether the turn has ended. The spans of a running one end with the last commit.
    pub has_ended: bool,
    /// All spans; parents come before their children.
    pub spans: Vec<FinishedSpan>,
    /// Index of the first call or gate that is still open, and that ends with the last commit; the later ones are too.
    pub open_from: usize,
}

/// The spans of every turn of a session, by number. `commits` is the whole log.
pub fn session_spans(key: &SessionKey, commits: &[(u64, Commit)], with_content: bool) -> Vec<(u32, TurnSpans)> {
    let mut facts = TurnFacts::default();
    let (mut turns, mut given) = (Vec::new(), None);
    for (position, (_, commit)) in commits.iter().enumerate() {
        for event in &commit.events {
            if let Some((agent, model)) = settings(event) {
                facts.agent_id = agent.id.to_string();
                facts.agent_name.clone_from(&agent.name);
                facts.model.clone_from(&model.id);
            }
            if let Event::TurnStarted(started) = event {
                let own = started.traceparent.as_deref().and_then(|traceparent| traceparent.parse().ok());
                facts.previous = std::mem::replace(&mut given, own);
                let rest = commits.get(position..).unwrap_or_default();
                let spans = turn_spans(key, started.turn, &facts, rest, with_content);
                turns.extend(spans.map(|spans| (started.turn, spans)));
            }
        }
    }
    turns
}

/// The settings that hold from this event on, where it sets them.
fn settings(event: &Event) -> Option<(&AgentSettings, &ModelSettings)> {
    if let Event::SessionStarted(started) = event {
        return Some((&started.agent, &started.model));
    }
    if let Event::Configured(configured) = event {
        return Some((&configured.agent, &configured.model));
    }
    None
}

/// The spans of a turn. `commits` holds the one that began it and all later ones up to its end, or up to now. With
/// `with_content` the spans carry messages, arguments and results. None where the turn does not begin in the commits, or
/// began without a trace.
pub fn turn_spans(
    key: &SessionKey,
    turn: u32,
    facts: &TurnFacts,
    commits: &[(u64, Commit)],
    with_content: bool,
) -> Option<TurnSpans> {
    let mut builder = None;
    let mut waiting = BTreeMap::new();
    for (_, commit) in commits {
        let now = commit.meta.time;
        for event in &commit.events {
            match (&mut builder, event) {
                (None, Event::UserProcessed(message)) => {
                    waiting.insert(message.message_id.clone(), message.clone());
                }
                (None, Event::TurnStarted(started)) if started.turn == turn => {
                    let given: TraceContext = started.traceparent.as_deref()?.parse().ok()?;
                    let mut begun = Builder::new(key, turn, facts, given, now, with_content);
                    begun.add_messages(&started.messages, &waiting);
                    builder = Some(begun);
                }
                (None, _) => {}
                (Some(builder), event) => {
                    builder.apply(now, event);
                    if matches!(event, Event::TurnCompleted(completed) if completed.turn == turn) {
                        return Some(builder.finish(now, true));
                    }
                }
            }
        }
    }
    let end = commits.last().map_or_else(Timestamp::default, |(_, commit)| commit.meta.time);
    builder.map(|mut builder| builder.finish(end, false))
}

/// A call that has no result yet.
#[derive(Debug)]
struct OpenCall {
    attempt: u32,
    since: Timestamp,
    name: String,
    kind: SpanKind,
    attributes: Vec<(&'static str, Value)>,
}

#[derive(Debug)]
struct Builder<'a> {
    facts: &'a TurnFacts,
    session: String,
    turn: u32,
    context: TraceContext,
    parent: Option<TraceContext>,
    links: Vec<TraceContext>,
    began: Timestamp,
    model: String,
    with_content: bool,
    messages: Messages,
    tools: BTreeMap<CallId, (String, String)>,
    calls: BTreeMap<CallId, OpenCall>,
    gates: BTreeMap<CallId, (Timestamp, GateOpened)>,
    /// The call that sums up, and the one that judges.
    summary: Option<CallId>,
    judge: Option<CallId>,
    completed: Option<TurnCompleted>,
    error: Option<ErrorCode>,
    spans: Vec<FinishedSpan>,
}

impl<'a> Builder<'a> {
    fn new(
        key: &SessionKey,
        turn: u32,
        facts: &'a TurnFacts,
        given: TraceContext,
        began: Timestamp,
        with_content: bool,
    ) -> Self {
        let before = facts.previous.zip(turn.checked_sub(1)).filter(|(_, number)| *number > 0);
        Self {
            facts,
            session: key.session.to_string(),
            turn,
            context: given.turn(key, turn),
            parent: (!given.is_beginning()).then_some(given),
            links: before.map(|(previous, number)| previous.turn(key, number)).into_iter().collect(),
            began,
            model: facts.model.clone(),
            with_content,
            messages: Messages::default(),
            tools: BTreeMap::new(),
            calls: BTreeMap::new(),
            gates: BTreeMap::new(),
            summary: None,
            judge: None,
            completed: None,
            error: None,
            spans: Vec::new(),
        }
    }

    fn add_messages(&mut self, ids: &[CommandId], waiting: &BTreeMap<CommandId, UserProcessed>) {
        for message in ids.iter().filter_map(|id| waiting.get(id)) {
            self.messages.add_user(message);
        }
    }

    fn apply(&mut self, now: Timestamp, event: &Event) {
        match event {
            Event::UserProcessed(message) => self.messages.add_user(message),
            Event::ModelCallOpened(opened) => {
                let step = (attr::STEP, opened.step.into());
                self.open_model_call(now, &opened.call, opened.attempt, &self.model.clone(), vec![step]);
            }
            Event::SummaryOpened(opened) => {
                let purpose = (attr::PURPOSE, "summary".into());
                self.open_model_call(now, &opened.call, 1, &self.model.clone(), vec![purpose]);
                self.summary = Some(opened.call.clone());
            }
            Event::JudgeOpened(opened) => {
                let purpose = (attr::PURPOSE, "judge".into());
                self.open_model_call(now, &opened.call, 1, &opened.model, vec![purpose]);
                self.judge = Some(opened.call.clone());
            }
            Event::AiFullReceived(reply) => self.close_reply(now, reply),
            Event::ModelCallFailed(failed) => self.close_failed(now, failed),
            Event::ModelFellBack(fallback) => self.model.clone_from(&fallback.model),
            Event::CallCancelled(cancelled) => self.close(now, &cancelled.call, Vec::new(), Some("cancelled")),
            Event::ContextPruned(pruned) => {
                if let Some(call) = self.summary.take() {
                    self.close(now, &call, spent_attributes(&pruned.spent), None);
                }
            }
            Event::ToolCallIdentified(call) => {
                let arguments = call.arguments.get().to_owned();
                self.tools.insert(call.call.clone(), (call.tool.to_string(), arguments));
            }
            Event::ToolCallOpened(opened) => self.open_tool_call(now, &opened.call, opened.attempt),
            Event::ClientCallOpened(opened) => self.open_tool_call(now, &opened.call, 1),
            Event::ToolCallResult(result) => self.close_result(now, result),
            Event::ContinuationProgress(progress) => self.decide(now, progress),
            Event::GateOpened(opened) => {
                self.gates.insert(opened.gate.clone(), (now, opened.clone()));
            }
            Event::GateClosed(closed) => self.close_gate(now, closed),
            Event::TurnCompleted(completed) => self.completed = Some(completed.clone()),
            Event::Error(error) => self.error = Some(error.code.clone()),
            Event::InputHandled(_)
            | Event::InputIgnored(_)
            | Event::SessionStarted(_)
            | Event::SessionEnded(_)
            | Event::TurnStarted(_)
            | Event::ToolsResolved(_)
            | Event::ModelCallInterrupted(_)
            | Event::ToolCallExtended(_)
            | Event::StatusPaused(_)
            | Event::StatusResumed(_)
            | Event::Configured(_)
            | Event::LimitReached(_)
            | Event::ChildCommanded(_)
            | Event::ContextCleared(_)
            | Event::TimerSet(_)
            | Event::SessionArchived(_)
            | Event::SessionImported(_)
            | Event::LogCompacted(_)
            | Event::SessionMoved(_)
            | Event::Unknown => {}
        }
    }

    fn open_model_call(
        &mut self,
        now: Timestamp,
        call: &CallId,
        attempt: u32,
        model: &str,
        more: Vec<(&'static str, Value)>,
    ) {
        let mut attributes = vec![(attr::OPERATION, name::CHAT.into()), (attr::MODEL, model.into())];
        attributes.extend(more);
        if self.with_content {
            attributes.push((attr::INPUT_MESSAGES, self.messages.to_text().into()));
        }
        let name = format!("{} {model}", name::CHAT);
        self.open(now, call, OpenCall { attempt, since: now, name, kind: SpanKind::Client, attributes });
    }

    fn open_tool_call(&mut self, now: Timestamp, call: &CallId, attempt: u32) {
        let (tool, arguments) = self.tools.get(call).cloned().unwrap_or_default();
        let mut attributes = vec![
            (attr::OPERATION, name::EXECUTE_TOOL.into()),
            (attr::TOOL, tool.as_str().into()),
            (attr::TOOL_TYPE, "function".into()),
            (attr::TOOL_CALL, call.as_str().into()),
        ];
        if self.with_content {
            attributes.push((attr::TOOL_ARGUMENTS, content::shorten(arguments).into()));
        }
        let name = format!("{} {tool}", name::EXECUTE_TOOL);
        self.open(now, call, OpenCall { attempt, since: now, name, kind: SpanKind::Internal, attributes });
    }

    /// Opens a call. An earlier attempt that is still open was lost with its worker.
    fn open(&mut self, now: Timestamp, call: &CallId, open: OpenCall) {
        self.close(now, call, vec![(attr::CLOSED_BY, "orchestrator".into())], Some("worker_lost"));
        self.calls.insert(call.clone(), open);
    }

    /// Ends the span of a call, if the call is open.
    fn close(&mut self, now: Timestamp, call: &CallId, more: Vec<(&'static str, Value)>, error: Option<&str>) {
        let Some(open) = self.calls.remove(call) else { return };
        let context = |attempt| self.context.call(&CallAttempt { call: call.clone(), attempt });
        let mut attributes = open.attributes;
        attributes.extend([
            (attr::CONVERSATION, self.session.as_str().into()),
            (attr::CALL, call.as_str().into()),
            (attr::ATTEMPT, open.attempt.into()),
        ]);
        attributes.extend(more);
        self.spans.push(FinishedSpan {
            context: context(open.attempt),
            parent: Some(self.context),
            name: open.name,
            kind: open.kind,
            times: (open.since.as_millis(), now.as_millis()),
            attributes,
            links: (open.attempt > 1).then(|| context(open.attempt - 1)).into_iter().collect(),
            error: error.map(str::to_owned),
        });
    }

    fn close_reply(&mut self, now: Timestamp, reply: &AiFullReceived) {
        let mut more = spent_attributes(&reply.spent);
        let reason = serde_json::to_value(reply.finish_reason).ok();
        let reason = reason.as_ref().and_then(|reason| reason.as_str()).unwrap_or_default();
        more.extend([
            (attr::PROVIDER, reply.provider.as_str().into()),
            (attr::RESPONSE_MODEL, reply.model.as_str().into()),
            (attr::RESPONSE_ID, reply.call.as_str().into()),
            (attr::FINISH_REASON, Value::Texts(vec![reason.to_owned()])),
            (attr::LATENCY_MS, reply.latency_ms.into()),
        ]);
        if self.with_content {
            more.push((attr::OUTPUT_MESSAGES, content::reply_text(reply).into()));
        }
        self.close(now, &reply.call, more, None);
        self.messages.add_reply(reply);
    }

    fn close_failed(&mut self, now: Timestamp, failed: &ModelCallFailed) {
        let code = failed.kind.code();
        self.close(now, &failed.call, spent_attributes(&failed.spent), Some(code.as_str()));
    }

    fn close_result(&mut self, now: Timestamp, result: &ToolCallResult) {
        let outcome = result.outcome.as_str();
        let mut more = vec![(attr::OUTCOME, outcome.into()), (attr::LATENCY_MS, result.duration_ms.into())];
        if self.with_content {
            more.push((attr::TOOL_RESULT, content::shorten(result.content.clone()).into()));
        }
        let error = match (&result.code, result.outcome) {
            (Some(code), _) => Some(code.as_str()),
            (None, Outcome::Ok | Outcome::Denied | Outcome::Cancelled) => None,
            (None, Outcome::Error | Outcome::Timeout | Outcome::Unknown) => Some(outcome),
        };
        self.close(now, &result.call, more, error);
        self.messages.add_result(result);
    }

    fn decide(&mut self, now: Timestamp, progress: &ContinuationProgress) {
        if let Some(call) = self.judge.take() {
            self.close(now, &call, spent_attributes(&progress.spent), None);
        }
        self.spans.push(FinishedSpan {
            context: self.context.decision(progress.iteration),
            parent: Some(self.context),
            name: name::DECIDE.to_owned(),
            kind: SpanKind::Internal,
            times: (now.as_millis(), now.as_millis()),
            attributes: vec![
                (attr::CONVERSATION, self.session.as_str().into()),
                (attr::STATUS, progress.status.as_str().into()),
                (attr::SOURCE, progress.source.to_string().into()),
                (attr::ITERATION, progress.iteration.into()),
                (attr::MAX_ITERATIONS, progress.max_iterations.into()),
                (attr::CONTINUES, progress.continues.into()),
            ],
            links: Vec::new(),
            error: None,
        });
    }

    fn close_gate(&mut self, now: Timestamp, closed: &GateClosed) {
        let Some((since, opened)) = self.gates.remove(&closed.gate) else { return };
        let decision = serde_json::to_value(closed.decision).ok();
        let decision = decision.as_ref().and_then(|decision| decision.as_str()).unwrap_or("expired");
        self.push_gate(since, now, &opened, Some(decision));
    }

    fn push_gate(&mut self, since: Timestamp, now: Timestamp, opened: &GateOpened, decision: Option<&str>) {
        let kind = match opened.kind {
            GateKind::Approval => "approval",
            GateKind::Question => "question",
            GateKind::Limit(_) => "limit",
            GateKind::Error(_) => "error",
        };
        let mut attributes =
            vec![(attr::CONVERSATION, self.session.as_str().into()), (attr::CALL, opened.gate.as_str().into())];
        attributes.extend(opened.tool.as_ref().map(|tool| (attr::TOOL, tool.as_str().into())));
        attributes.extend(decision.map(|decision| (attr::DECISION, decision.into())));
        self.spans.push(FinishedSpan {
            context: self.context.gate(&opened.gate),
            parent: Some(self.context),
            name: format!("{} {kind}", name::GATE),
            kind: SpanKind::Internal,
            times: (since.as_millis(), now.as_millis()),
            attributes,
            links: Vec::new(),
            error: None,
        });
    }

    fn finish(&mut self, now: Timestamp, has_ended: bool) -> TurnSpans {
        let closed = self.spans.len();
        let error = has_ended.then_some("cancelled");
        for call in self.calls.keys().cloned().collect::<Vec<_>>() {
            self.close(now, &call, Vec::new(), error);
        }
        for (_, (since, opened)) in std::mem::take(&mut self.gates) {
            self.push_gate(since, now, &opened, None);
        }
        let mut spans = vec![self.turn_span(now)];
        spans.append(&mut self.spans);
        let open_from = if has_ended { spans.len() } else { closed + 1 };
        TurnSpans { context: self.context, has_ended, spans, open_from }
    }

    fn turn_span(&mut self, now: Timestamp) -> FinishedSpan {
        let TurnFacts { agent_id, agent_name, model, .. } = self.facts;
        let mut attributes = vec![
            (attr::OPERATION, name::INVOKE_AGENT.into()),
            (attr::AGENT, agent_id.as_str().into()),
            (attr::AGENT_NAME, agent_name.as_str().into()),
            (attr::CONVERSATION, self.session.as_str().into()),
            (attr::MODEL, model.as_str().into()),
            (attr::TURN, self.turn.into()),
        ];
        let mut error = None;
        if let Some(completed) = &self.completed {
            attributes.extend(spent_attributes(&completed.spent));
            attributes.extend(completed.spent_own.map(|own| (attr::COST_OWN, own.cost_usd.into())));
            attributes.push((attr::STOP_REASON, completed.stop_reason.as_str().into()));
            attributes.push((attr::ITERATIONS, completed.iterations.into()));
            if completed.stop_reason == StopReason::Error {
                error = Some(self.error.as_ref().map_or("error", ErrorCode::as_str).to_owned());
            }
        }
        if self.with_content {
            attributes.push((attr::INPUT_MESSAGES, self.messages.to_text().into()));
        }
        FinishedSpan {
            context: self.context,
            parent: self.parent,
            name: format!("{} {agent_id}", name::INVOKE_AGENT),
            kind: SpanKind::Internal,
            times: (self.began.as_millis(), now.as_millis()),
            attributes,
            links: std::mem::take(&mut self.links),
            error,
        }
    }
}

fn spent_attributes(spent: &Spent) -> Vec<(&'static str, Value)> {
    let usage = spent.usage;
    vec![
        (attr::INPUT_TOKENS, usage.input.into()),
        (attr::OUTPUT_TOKENS, usage.output.into()),
        (attr::CACHED_TOKENS, usage.cached.into()),
        (attr::REASONING_TOKENS, usage.reasoning.into()),
        (attr::COST, spent.cost_usd.into()),
    ]
}
