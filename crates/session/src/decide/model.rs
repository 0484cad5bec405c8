//! `model_finished` and `model_failed`: a reply, or none.

use std::time::Duration;

use contract::ErrorCode;
use contract::backoff::Backoff;
use contract::commit::VERSION;
use contract::event::{
    AiCutReceived, AiFullReceived, ContinuationProgress, Event, ModelCallFailed, ModelFellBack, Progress, Spent,
    StopReason,
};
use contract::ids::CallId;
use contract::limits::{CUT_REPLY_BYTES_MAX, EMPTY_REPLIES_MAX};
use contract::model::{FailureKind, FinishReason, ModelFailed, ModelFinished, ResultMeta, SignalForm, ToolCall, Usage};
use contract::settings::OnError;

use super::builder::{DecisionBuilder, Rejection};
use reply::{Reading, Signal};

use crate::check;
use crate::continuation::{self, ContinuationVerdict, Facts};
use crate::state::{Activity, CutCall, Question};

/// Pauses before a model is asked again. The spread follows from the ids: each replica decides the same.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// Message about a reply of nothing but tool calls that the model's server did not parse.
const UNREAD_CALLS: &str = "the model's server leaves its tool calls in the text instead of reading them";

/// The model call that a report may belong to.
struct Awaited {
    /// The attempt that runs now; none while the next one waits for its time.
    attempt: Option<u32>,
    empties: u32,
    interrupted: bool,
    turn: u32,
    step: u32,
    /// The limit at which the turn ends with this call.
    last: Option<StopReason>,
}

/// A reply that is decided about.
pub(super) struct Reply<'a> {
    /// Text of the reply that the user reads.
    pub(super) text: &'a str,
    pub(super) signal: Option<&'a Signal>,
    /// Its calls, without the one that only signals.
    pub(super) calls: Vec<&'a ToolCall>,
}

impl DecisionBuilder<'_> {
    /// The call that a report is of, if it is awaited; none for an attempt that was never opened.
    fn awaited(&self, report: &ResultMeta) -> Option<Awaited> {
        let (call, turn) = (&report.call, self.state.turn.as_ref()?);
        if !(1..=turn.attempt).contains(&report.attempt) {
            return None;
        }
        let (attempt, empties, interrupted) = match &turn.activity {
            Activity::AwaitingModel(model) if model.call == *call => {
                (Some(model.attempt), model.empties, model.interrupted.is_some())
            }
            // A failure counts only while no finish of that call is known: a reply that was paid for is taken.
            Activity::Backoff { call: waiting, empties, .. } if waiting == call => (None, *empties, false),
            Activity::AwaitingModel(_)
            | Activity::Backoff { .. }
            | Activity::Summarising { .. }
            | Activity::Judging { .. }
            | Activity::Ready
            | Activity::Deciding
            | Activity::RunningTools(_)
            | Activity::AwaitingUser { .. } => return None,
        };
        let last = turn.last_step.map(|last| last.limit);
        Some(Awaited { attempt, empties, interrupted, turn: turn.number, step: turn.step, last })
    }

    pub(super) fn model_finished(&mut self, finished: &ModelFinished) -> Result<(), Rejection> {
        if let Some(before) = self.summarises(&finished.meta) {
            self.handled();
            self.summary(finished, before);
            return Ok(());
        }
        if let Some(model) = self.judges(&finished.meta) {
            self.handled();
            self.judged(finished, model);
            return Ok(());
        }
        let Some(awaited) = self.awaited(&finished.meta) else {
            let spent = Spent { usage: finished.usage, cost_usd: finished.cost_usd };
            if self.keep_cut_reply(&finished.meta, &finished.text, spent) {
                return Ok(());
            }
            return Err(self.late(ErrorCode::NotNow, "the call was answered, cancelled or superseded"));
        };
        let cancelled = finished.finish_reason == FinishReason::Cancelled;
        let reading = reply::read(&finished.text, &finished.tool_calls, self.state.signal_form());
        // Reasoning alone is no answer, and providers refuse a transcript that holds it.
        let is_unread = reply::is_only_marked_calls(&reading.visible);
        let has_text = !reading.visible.trim().is_empty() && !is_unread;
        let says = has_text || reading.signal.is_some() || !reading.calls.is_empty();
        let empty = !says && finished.tool_calls.is_empty();
        // Of an older attempt only what it says is taken; that it says nothing fails no attempt that runs, or is to
        // run.
        if (empty || cancelled) && !awaited.interrupted && awaited.attempt != Some(finished.meta.attempt) {
            return Err(self.late(ErrorCode::NotNow, "that attempt was superseded, and its reply is empty"));
        }
        self.handled();
        if awaited.interrupted {
            self.partial(finished, &awaited);
        } else if cancelled {
            // Nobody called it off: an attempt that ended for reasons of the gateway's own.
            self.failed(finished, FailureKind::Truncated, "the call was given up by its gateway", None);
        } else if empty {
            self.empty(finished, &awaited, is_unread || reading.unread_calls > 0);
        } else if let Some(limit) = awaited.last {
            self.last_word(finished, &reading, &awaited, limit);
        } else {
            self.reply(finished, &reading, &awaited);
        }
        Ok(())
    }

    /// Records the part of a reply that was received before the user interrupted it; its calls are not run.
    fn partial(&mut self, finished: &ModelFinished, awaited: &Awaited) {
        let reading = reply::read(&finished.text, &[], self.state.signal_form());
        let mut event = full(finished, awaited, &reading, Vec::new());
        event.finish_reason = FinishReason::Cancelled;
        // Nothing stays of calls that the model was writing.
        event.raw = None;
        self.emit(Event::AiFullReceived(Box::new(event)));
    }

    /// The called-off step that a report is of, if what had come of its reply is still to be kept.
    pub(super) fn cut_call(&self, report: &ResultMeta) -> Option<&CutCall> {
        self.state.cut_calls.iter().find(|cut| cut.call == report.call && cut.attempt == report.attempt)
    }

    /// Whether a person is asked if a called-off step gets another attempt, whose reply takes the place of what had come.
    /// While an attempt waits for its time, replies of the earlier ones are awaited and do not come here.
    fn may_be_replaced(&self, cut: &CutCall) -> bool {
        self.state.turn.as_ref().is_some_and(|turn| {
            let asks = matches!(turn.activity, Activity::AwaitingUser { question: Question::Failed { .. }, .. });
            asks && turn.number == cut.turn && turn.step == cut.step
        })
    }

    /// Keeps what had come of a called-off step. False for any other call, and where nothing came and nothing was spent.
    fn keep_cut_reply(&mut self, report: &ResultMeta, text: &str, spent: Spent) -> bool {
        let Some(cut) = self.cut_call(report).filter(|cut| !self.may_be_replaced(cut)).cloned() else { return false };
        let CutCall { call, attempt: _, turn, step, form, opened_by: _ } = cut;
        let text = cut_text(text, form);
        if text.is_empty() && spent.is_nothing() {
            return false;
        }
        self.handled();
        self.emit(Event::AiCutReceived(AiCutReceived { call, turn, step, text, spent }));
        true
    }

    /// Keeps what had come of the running step's reply, which failed and has no other attempt. The failure names its cost.
    fn keep_failed_reply(&mut self, report: &ModelFinished) {
        let Some(turn) = &self.state.turn else { return };
        let (call, spent) = (report.meta.call.clone(), Spent::default());
        let (turn, step, text) = (turn.number, turn.step, cut_text(&report.text, self.state.signal_form()));
        if !text.is_empty() {
            self.emit(Event::AiCutReceived(AiCutReceived { call, turn, step, text, spent }));
        }
    }

    /// A reply without text and tool calls. `has_unread_calls`: its server left tool calls in the text.
    fn empty(&mut self, finished: &ModelFinished, awaited: &Awaited, has_unread_calls: bool) {
        let what = if has_unread_calls { UNREAD_CALLS } else { "the reply is empty" };
        if let Some(limit) = awaited.last {
            self.no_last_word(finished, FailureKind::Empty, what, limit);
        } else if awaited.empties + 1 < EMPTY_REPLIES_MAX {
            self.attempt_failed(finished, FailureKind::Empty, what, Some(self.at));
        } else if has_unread_calls {
            let message = format!(
                "{UNREAD_CALLS}, {EMPTY_REPLIES_MAX} times; switch its reading of tool calls on (llama.cpp: `--jinja`, \
                 vLLM: `--enable-auto-tool-choice` and `--tool-call-parser`), or use another model"
            );
            self.give_up(finished, FailureKind::Empty, &message);
        } else {
            let advice = match finished.finish_reason {
                FinishReason::Length => {
                    "the last one was cut at the output limit: raise max_output, or let it reason less"
                }
                FinishReason::Stop
                | FinishReason::ToolCalls
                | FinishReason::ContentFilter
                | FinishReason::Cancelled
                | FinishReason::Other => "rephrase, or use another model",
            };
            let message =
                format!("the model sent {EMPTY_REPLIES_MAX} empty replies, without text and tool calls; {advice}");
            self.give_up(finished, FailureKind::Empty, &message);
        }
    }

    /// The reply to a turn's last step. Calls that it makes all the same are not run, and nothing of them stays in the
    /// transcript: no result would follow.
    fn last_word(&mut self, finished: &ModelFinished, reading: &Reading, awaited: &Awaited, limit: StopReason) {
        // Small models repeat their last call even where they have no tools: that is no answer.
        if reading.visible.trim().is_empty() || reply::is_only_calls(&reading.visible) {
            return self.no_last_word(finished, FailureKind::Empty, "the last step has no text", limit);
        }
        let mut event = full(finished, awaited, reading, Vec::new());
        if !finished.tool_calls.is_empty() || !reading.calls.is_empty() {
            (event.raw, event.replay) = (None, None);
        }
        self.emit(Event::AiFullReceived(Box::new(event)));
        self.end_turn(limit);
    }

    /// A turn's last step failed: the turn ends without the model's answer. There is no other attempt.
    fn no_last_word(&mut self, report: &ModelFinished, kind: FailureKind, message: &str, limit: StopReason) {
        self.attempt_failed(report, kind, message, None);
        self.keep_failed_reply(report);
        self.end_without_answer(limit);
    }

    pub(super) fn attempt_failed(
        &mut self,
        finished: &ModelFinished,
        kind: FailureKind,
        message: &str,
        retry_at: Option<contract::Timestamp>,
    ) {
        self.emit(Event::ModelCallFailed(ModelCallFailed {
            call: finished.meta.call.clone(),
            attempt: finished.meta.attempt,
            kind,
            message: message.to_owned(),
            spent: Spent { usage: finished.usage, cost_usd: finished.cost_usd },
            retry_at,
        }));
    }

    fn reply(&mut self, finished: &ModelFinished, reading: &Reading, awaited: &Awaited) {
        if let Some(attempt) = awaited.attempt
            && attempt != finished.meta.attempt
        {
            self.cancel(&finished.meta.call, attempt, None);
        }
        let asked = finished.tool_calls.iter().chain(&reading.calls);
        let calls: Vec<ToolCall> = (1..)
            .zip(asked.chain(&reading.refused_calls))
            .map(|(index, call)| ToolCall {
                id: CallId::tool(awaited.turn, awaited.step, index).to_string(),
                ..call.clone()
            })
            .collect();
        self.emit(Event::AiFullReceived(Box::new(full(finished, awaited, reading, calls.clone()))));
        self.identify(&calls, reading.refused_calls.len());
        self.decide_reply(reading, &calls, finished.finish_reason);
    }

    fn decide_reply(&mut self, reading: &Reading, calls: &[ToolCall], finish: FinishReason) {
        let Some(setup) = self.state.setup.clone() else { return };
        let settings = &setup.agent.continuation;
        let limit = self.state.turn.as_ref().and_then(|turn| turn.limit(settings, self.at));
        let real: Vec<&ToolCall> = calls.iter().filter(|call| !call.is_signal()).collect();
        let facts = Facts {
            text: reading.spoken(),
            signal: reading.signal.as_ref(),
            has_calls: !real.is_empty(),
            finish,
            unseen: self.has_unseen_message(),
            doubted: self.state.turn.as_ref().is_some_and(|turn| turn.is_doubted),
            limit,
        };
        let verdict = continuation::decide(settings, &setup.patterns(), facts);
        if limit.is_none() && verdict.is_silent && settings.judge().is_some() {
            // No call opens in a pause: the judge is asked when it is over.
            if self.state.paused || self.ask_judge() {
                return;
            }
        }
        self.conclude(verdict, &Reply { text: &reading.visible, signal: reading.signal.as_ref(), calls: real });
    }

    /// Whether there is a user message that the model has not seen.
    pub(super) fn has_unseen_message(&self) -> bool {
        self.state.waiting.iter().any(|waiting| waiting.steers)
    }

    /// Puts a decision about the running step's reply into the log, and does what follows from it.
    pub(super) fn conclude(&mut self, verdict: ContinuationVerdict, reply: &Reply<'_>) {
        let (Some(setup), Some(turn)) = (self.state.setup.clone(), &self.state.turn) else { return };
        let settings = &setup.agent.continuation;
        let ContinuationVerdict { continues, source, reason, nudge, spent, limit, is_silent: _ } = verdict;
        let decide_by_signal = reply.signal.and_then(|signal| signal.progress.clone());
        let steps = || Progress { current_step: Some(turn.step), ..Progress::default() };
        let progress = decide_by_signal.or_else(|| turn.progress.clone()).unwrap_or_else(steps);
        self.emit(Event::ContinuationProgress(Box::new(ContinuationProgress {
            agent_id: setup.agent.id.to_string(),
            turn: turn.number,
            iteration: turn.step,
            max_iterations: settings.max_iterations,
            progress,
            current_tools: reply.calls.iter().map(|call| call.function.name.clone()).collect(),
            continues,
            source,
            reason,
            status: reply.signal.map_or_else(|| "UNKNOWN".to_owned(), |signal| signal.word.clone()),
            confidence: reply.signal.and_then(|signal| signal.confidence),
            excerpt: reply.text.chars().take(200).collect(),
            call_ids: reply.calls.iter().filter_map(|call| CallId::new(&call.id).ok()).collect(),
            nudge,
            spent,
        })));
        if reply.calls.is_empty() && !continues {
            match limit {
                Some(limit) => self.at_limit(limit),
                None => self.end_turn(StopReason::Completed),
            }
        }
    }

    pub(super) fn model_failed(&mut self, failed: &ModelFailed) -> Result<(), Rejection> {
        let spent = Spent { usage: failed.usage, cost_usd: failed.cost_usd };
        if let Some(before) = self.summarises(&failed.meta) {
            self.handled();
            self.forget(before, None, spent);
            return Ok(());
        }
        if let Some(model) = self.judges(&failed.meta) {
            self.handled();
            self.not_judged(&model, &failed.message, spent);
            return Ok(());
        }
        let awaited = self.awaited(&failed.meta).filter(|awaited| awaited.attempt == Some(failed.meta.attempt));
        let Some(awaited) = awaited else {
            if self.keep_cut_reply(&failed.meta, &failed.text, spent) {
                return Ok(());
            }
            return Err(self.late(ErrorCode::NotNow, "that attempt was answered, cancelled or superseded"));
        };
        self.handled();
        let report = ModelFinished {
            text: failed.text.clone(),
            usage: failed.usage,
            cost_usd: failed.cost_usd,
            ..silent(failed.meta.clone())
        };
        if awaited.interrupted {
            self.partial(&report, &awaited);
        } else {
            let kind = if failed.kind == FailureKind::Cancelled { FailureKind::Truncated } else { failed.kind };
            self.failed(&report, kind, &failed.message, failed.retry_after());
        }
        Ok(())
    }

    /// An attempt failed: try again, or give the turn up.
    fn failed(&mut self, report: &ModelFinished, kind: FailureKind, message: &str, retry_after: Option<Duration>) {
        let Some(turn) = &self.state.turn else { return };
        if let Some(last) = turn.last_step {
            return self.no_last_word(report, kind, message, last.limit);
        }
        // A call never gets more time than its turn has left: then it is the turn's limit that it ran into.
        if kind == FailureKind::TimedOut && turn.clock.deadline_from(self.at) <= self.at {
            self.attempt_failed(report, kind, message, None);
            self.keep_failed_reply(report);
            return self.end_at_limit(StopReason::Timeout);
        }
        let retries = self.state.setup.as_ref().map_or(0, |setup| setup.agent.continuation.retries);
        let retry_at = (kind.is_retryable() && turn.retries < retries).then(|| {
            let salt = format!("{}.{}", report.meta.call, report.meta.attempt);
            self.at.after(RETRY.spread(turn.retries, &salt).max(retry_after.unwrap_or_default()))
        });
        let retry_at = retry_at.filter(|retry_at| *retry_at < turn.clock.deadline_from(self.at));
        match retry_at {
            Some(retry_at) => self.attempt_failed(report, kind, message, Some(retry_at)),
            None => self.give_up(report, kind, message),
        }
    }

    /// Nothing is left to try with this model and this transcript.
    fn give_up(&mut self, report: &ModelFinished, kind: FailureKind, message: &str) {
        if kind == FailureKind::ContextLength && self.force_prune(report, message) {
            return;
        }
        let Some(setup) = self.state.setup.clone() else { return };
        let during = format!("model call {}", report.meta.call);
        match setup.agent.continuation.on_error {
            OnError::Fallback => {
                let taken = self.state.turn.as_ref().map_or(0, |turn| turn.fallback);
                if let Some(next) = usize::try_from(taken).ok().and_then(|taken| setup.fallbacks.get(taken)) {
                    self.attempt_failed(report, kind, message, Some(self.at));
                    let message = format!("{message}; {} takes over", next.id);
                    self.error(kind.code(), &message, true, during);
                    let (number, model) = (taken + 1, next.id.clone());
                    self.emit(Event::ModelFellBack(ModelFellBack { number, model }));
                    return;
                }
            }
            OnError::Ask => {
                self.attempt_failed(report, kind, message, None);
                self.error(kind.code(), message, kind.is_retryable(), during);
                self.ask_about(kind);
                return;
            }
            OnError::End => {}
        }
        self.attempt_failed(report, kind, message, None);
        self.keep_failed_reply(report);
        self.error(kind.code(), message, kind.is_retryable(), during);
        self.end_turn(StopReason::Error);
    }

    /// The deadline of a model call has passed.
    pub(super) fn model_hung(&mut self, call: &CallId, attempt: u32, interrupted: bool) {
        self.cancel(call, attempt, None);
        if interrupted {
            return;
        }
        let meta = ResultMeta { v: VERSION, slot: 0, call: call.clone(), attempt, opened_by: String::new() };
        self.failed(&silent(meta), FailureKind::TimedOut, "nothing was heard of the model call in time", None);
    }
}

/// Text that is kept of a reply that was cut off: what the user read, without calls that its server did not read.
fn cut_text(text: &str, form: SignalForm) -> String {
    let visible = reply::read(text, &[], form).visible;
    if visible.trim().is_empty() || reply::is_only_calls(&visible) {
        return String::new();
    }
    visible[..visible.floor_char_boundary(CUT_REPLY_BYTES_MAX)].to_owned()
}

/// A report that says nothing.
fn silent(meta: ResultMeta) -> ModelFinished {
    ModelFinished {
        meta,
        text: String::new(),
        reasoning: String::new(),
        tool_calls: Vec::new(),
        finish_reason: FinishReason::Other,
        raw_finish_reason: String::new(),
        usage: Usage::default(),
        cost_usd: 0.0,
        provider: String::new(),
        model: String::new(),
        latency_ms: 0,
        replay: None,
        run: String::new(),
    }
}

fn full(finished: &ModelFinished, awaited: &Awaited, reading: &Reading, tool_calls: Vec<ToolCall>) -> AiFullReceived {
    AiFullReceived {
        call: finished.meta.call.clone(),
        turn: awaited.turn,
        step: awaited.step,
        text: reading.visible.clone(),
        raw: (reading.visible != finished.text).then(|| finished.text.clone()),
        reasoning: finished.reasoning.clone(),
        tool_calls,
        finish_reason: finished.finish_reason,
        raw_finish_reason: finished.raw_finish_reason.clone(),
        spent: Spent { usage: finished.usage, cost_usd: finished.cost_usd },
        provider: finished.provider.clone(),
        model: finished.model.clone(),
        latency_ms: finished.latency_ms,
        // What the log cannot hold is left out: its provider then reasons anew.
        replay: finished.replay.clone().filter(check::is_embeddable),
    }
}
