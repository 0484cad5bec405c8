//! From the commits of a turn to its spans.

use std::collections::BTreeMap;

use contract::command::Verb;
use contract::commit::Commit;
use contract::event::{
    AiFullReceived, ContinuationProgress, Event, GateClosed, GateKind, GateOpened, InputKind, ModelCallFailed, Spent,
    StopReason, ToolCallResult, TurnCompleted,
};
use contract::ids::CallAttempt;
use contract::settings::{AgentSettings, ModelSettings};
use contract::subject::SessionKey;
use contract::tool::Outcome;
use contract::trace::TraceContext;
use contract::{CallId, ErrorCode, Timestamp};
use telemetry::names::{attr, span as name};
use telemetry::trace::{FinishedSpan, SpanKind, Value};

use crate::content::{self, Messages};

/// Facts that a turn's spans need and that its own commits may lack.
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
    let (mut turns, mut given, mut running) = (Vec::<(u32, TurnSpans)>::new(), None, None);
    for (position, (_, commit)) in commits.iter().enumerate() {
        for event in &commit.events {
            if let Some((agent, model)) = settings(event) {
                facts.agent_id = agent.id.to_string();
                facts.agent_name.clone_from(&agent.name);
                facts.model.clone_from(&model.id);
            }
            if let Event::TurnCompleted(_) = event {
                running = None;
            }
            if let Some((turn, late)) = late_spend(event).filter(|(turn, _)| running != Some(*turn))
                && let Some((_, spans)) = turns.iter_mut().find(|(number, _)| *number == turn)
            {
                spans.add(&late);
            }
            if let Some(started) = event.turn_started() {
                running = Some(started.turn);
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

/// Tokens and money of a call, known after the end of its turn.
struct LateSpend {
    call: CallId,
    spent: Spent,
    /// Whether it is the session's own, and not that of a child.
    is_own: bool,
}

/// The turn of a late figure, and the figure.
fn late_spend(event: &Event) -> Option<(u32, LateSpend)> {
    if let Event::AiCutReceived(cut) = event {
        return Some((cut.turn, LateSpend { call: cut.call.clone(), spent: cut.spent, is_own: true }));
    }
    if let Event::InputIgnored(ignored) = event {
        let (call, spent) = (ignored.call.clone()?, ignored.usage?);
        let is_own = ignored.input.kind != InputKind::Control(Verb::ProvideToolResult);
        return Some((call.turn()?, LateSpend { call, spent, is_own }));
    }
    None
}

impl TurnSpans {
    /// Adds a late figure to the turn, and to the call.
    fn add(&mut self, late: &LateSpend) {
        let LateSpend { call, spent, is_own } = late;
        let of_call = (attr::CALL, Value::from(call.as_str()));
        let is_attempt = |span: &FinishedSpan| {
            span.attributes.contains(&of_call) && span.attributes.iter().any(|(name, _)| *name == attr::ATTEMPT)
        };
        if let Some(attempt) = self.spans.iter_mut().rfind(|span| is_attempt(span)) {
            add_attributes(&mut attempt.attributes, spent_attributes(spent));
        }
        if let Some(turn) = self.spans.first_mut() {
            add_attributes(&mut turn.attributes, spent_attributes(spent));
            let own = is_own.then(|| (attr::COST_OWN, spent.cost_usd.into()));
            add_attributes(&mut turn.attributes, own.into_iter().collect());
        }
    }
}

/// Adds figures to those that are there.
fn add_attributes(attributes: &mut Vec<(&'static str, Value)>, more: Vec<(&'static str, Value)>) {
    for (name, value) in more {
        match (attributes.iter_mut().find(|(known, _)| *known == name), value) {
            (Some((_, Value::Integer(sum))), Value::Integer(more)) => *sum = sum.saturating_add(more),
            (Some((_, Value::Number(sum))), Value::Number(more)) => *sum += more,
            (Some(_), _) => {}
            (None, value) => attributes.push((name, value)),
        }
    }
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
                    waiting.insert(&message.message_id, message);
                }
                (None, Event::TurnStarted(started) | Event::PrivateTurnStarted(started)) if started.turn == turn => {
                    let given: TraceContext = started.traceparent.as_deref()?.parse().ok()?;
                    let mut begun = Builder::new(key, turn, facts, given, now, with_content);
                    for message in started.messages.iter().filter_map(|id| waiting.get(id)) {
                        begun.messages.add_user(message);
                    }
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

    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
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
            Event::AiCutReceived(cut) => self.messages.add_cut(cut),
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
            _ => {}
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
        self.push_gate(since, now, &opened, Some(closed.decision.as_str()));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use contract::{SessionId, TenantId};
    use serde_json::json;

    use super::*;

    /// A commit with these events.
    fn commit(slot: u64, events: &serde_json::Value) -> (u64, Commit) {
        let meta = json!({"v": 1, "commit": "c", "fold": 1, "phase": "idle", "open": [], "control_seq": 0, "seq": 1,
            "time": "2024-01-15T10:30:45.123Z"});
        (slot, serde_json::from_value(json!({"meta": meta, "events": events})).unwrap())
    }

    #[test]
    fn reply_that_comes_after_the_end_of_its_turn_costs_that_turn_and_no_later_one() {
        let spent = |usd: f64| json!({"usage": {"input": 10, "output": 5}, "cost_usd": usd});
        let none = json!({"usage": {}, "cost_usd": 0.0});
        let began = |turn: u32| {
            let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            json!({"type": "turn_started", "data": {"turn": turn, "traceparent": traceparent, "messages": []}})
        };
        let ended = |turn: u32, spent: &serde_json::Value| {
            json!({"type": "turn.completed", "data": {"turn": turn, "stop_reason": "stopped", "iterations": 1,
                "final_response": "", "spent": spent, "spent_own": spent}})
        };
        let opened = json!({"type": "model_call_opened", "data": {"call": "m1-1", "attempt": 1, "turn": 1, "step": 1,
            "deadline": "2024-01-15T10:31:45.123Z"}});
        let cancelled = json!({"type": "call_cancelled", "data": {"call": "m1-1", "attempt": 1}});
        let cut = json!({"type": "message.ai_cut_received", "data": {"call": "m1-1", "turn": 1, "step": 1,
            "text": "The port is", "spent": spent(0.5)}});
        let late_child = json!({"type": "input_ignored", "data": {"kind": "provide_tool_result", "id": "c1-1-1-1",
            "refusal": {"code": "not_now", "message": ""}, "usage": spent(2.0), "call": "c1-1-1"}});
        let log = [
            commit(0, &json!([began(1), opened])),
            commit(1, &json!([cancelled, ended(1, &none), began(2)])),
            commit(2, &json!([cut])),
            commit(3, &json!([late_child])),
            commit(4, &json!([ended(2, &spent(0.25))])),
        ];
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let turns = session_spans(&key, &log, false);
        let usd = |span: &FinishedSpan, name: &str| {
            let found = span.attributes.iter().find_map(|(known, value)| {
                if let Value::Number(usd) = value { (*known == name).then_some(*usd) } else { None }
            });
            found.unwrap_or_default()
        };
        let costs: Vec<_> = turns
            .iter()
            .map(|(_, turn)| (usd(&turn.spans[0], attr::COST), usd(&turn.spans[0], attr::COST_OWN)))
            .collect();
        assert_eq!(costs, [(2.5, 0.5), (0.25, 0.25)]);
        assert!((usd(&turns[0].1.spans[1], attr::COST) - 0.5).abs() < 1e-9, "the call has its part");
    }
}
