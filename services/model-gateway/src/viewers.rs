//! What viewers get of a reply while it grows: chunks, partial calls, and the text so far for those who come late.

use std::sync::{Arc, Mutex, PoisonError};

use bus::Bus;
use contract::Json;
use contract::event::{Envelope, ErrorEvent, Topic};
use contract::model::{Channel, Chunk, FinishReason, PartialCall, ReplySnapshot};
use reply::Splitter;
use serde::Serialize;

use crate::chunks::{Chunker, Lane};
use crate::job::Job;
use crate::reply::Delta;
use crate::scripted::play::SIGNAL;
use service::clock::Clock;

/// Publishes one reply. What is lost is not sent again: tokens are not facts.
pub struct Viewers<'a> {
    bus: &'a Bus,
    clock: &'a dyn Clock,
    job: &'a Job,
    chunker: Chunker,
    shown: Splitter,
    /// Names of the reply's calls by slot; none for those that viewers do not see.
    calls: Vec<Option<String>>,
    /// A call whose name nobody was told yet.
    unnamed: Option<u32>,
    view: Shared,
    /// Messages so far, chunks and partial calls.
    sent: u64,
}

/// The text so far. A lock since requests for it come from elsewhere; it is held for a copy only.
#[derive(Debug, Clone)]
pub struct Shared(Arc<Mutex<ReplySnapshot>>);

impl Shared {
    /// Nothing so far.
    pub fn new(job: &Job) -> Self {
        let (turn, step) = (job.meta().turn, job.meta().step);
        Self(Arc::new(Mutex::new(ReplySnapshot {
            turn,
            step,
            attempt: job.attempt.clone(),
            index: 0,
            text: String::new(),
        })))
    }

    /// The reply so far.
    pub fn get(&self) -> ReplySnapshot {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a chunk and returns its index.
    fn advance(&self, channel: Channel, delta: &str) -> u64 {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if channel == Channel::Text {
            view.text.push_str(delta);
        }
        view.index += 1;
        view.index - 1
    }
}

impl<'a> Viewers<'a> {
    /// The viewers of one call.
    pub fn new(bus: &'a Bus, clock: &'a dyn Clock, job: &'a Job, view: Shared) -> Self {
        let chunker = Chunker::new(&job.item.streaming);
        Self {
            bus,
            clock,
            job,
            chunker,
            shown: Splitter::new(job.item.signal),
            calls: Vec::new(),
            unnamed: None,
            view,
            sent: 0,
        }
    }

    /// When gathered pieces go out at the latest.
    pub fn due(&self) -> Option<tokio::time::Instant> {
        self.chunker.due()
    }

    /// Messages so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Shows deltas that came together, now or a little later. Without streaming nothing but the end is shown.
    pub async fn show(&mut self, deltas: &[Delta]) {
        if !self.job.item.streaming.enabled {
            return;
        }
        let mut out = Vec::new();
        for delta in deltas {
            self.gather(delta, &mut out);
        }
        self.name(&mut out);
        self.chunker.settle(&mut out);
        self.publish(out).await;
    }

    fn gather(&mut self, delta: &Delta, out: &mut Vec<(Lane, String)>) {
        match delta {
            Delta::Text(text) => {
                let text = self.shown.push(text);
                self.chunker.add(Lane::Reasoning, &self.shown.take_thought(), out);
                self.chunker.add(Lane::Text, &text, out);
            }
            Delta::Reasoning(text) => self.chunker.add(Lane::Reasoning, text, out),
            Delta::Call(call) => {
                let slot = call.slot as usize;
                if self.calls.len() <= slot {
                    self.calls.resize(slot + 1, None);
                }
                if let (None, Some(name)) = (&self.calls[slot], &call.name) {
                    self.name(out);
                    self.calls[slot] = Some(name.clone());
                    self.unnamed = Some(call.slot);
                }
                self.chunker.add(Lane::Call(call.slot), &call.arguments, out);
            }
            Delta::Replay(_) | Delta::Usage(_) | Delta::Model(_) | Delta::Finish { .. } => {}
        }
    }

    /// A call's name is news by itself: it goes out at once, with those of its arguments that came with it.
    fn name(&mut self, out: &mut Vec<(Lane, String)>) {
        let Some(slot) = self.unnamed.take() else { return };
        self.chunker.flush(out);
        if !out.iter().any(|(lane, _)| *lane == Lane::Call(slot)) {
            out.push((Lane::Call(slot), String::new()));
        }
    }

    /// Tells of something that went wrong while the call goes on. As with chunks, what is lost is not sent again.
    pub async fn notice(&mut self, notice: &ErrorEvent) {
        self.send(Topic::Error, notice).await;
    }

    /// Sends what was gathered.
    pub async fn flush(&mut self) {
        let mut out = Vec::new();
        self.chunker.flush(&mut out);
        self.publish(out).await;
    }

    /// Sends the rest and the final marker, which is never left out where somebody watches; `finish` says why the reply
    /// ended.
    pub async fn end(&mut self, finish: Option<FinishReason>) {
        if !self.job.meta().call.is_watched() {
            return;
        }
        let mut out = Vec::new();
        let form = self.job.item.signal;
        let rest = std::mem::replace(&mut self.shown, Splitter::new(form)).finish();
        self.chunker.add(Lane::Reasoning, &rest.thought, &mut out);
        self.chunker.add(Lane::Text, &rest.text, &mut out);
        self.chunker.flush(&mut out);
        let rest = match out.pop() {
            Some((Lane::Text, rest)) => rest,
            other => {
                out.extend(other);
                String::new()
            }
        };
        self.publish(out).await;
        self.chunk(Channel::Text, rest, true, finish).await;
    }

    async fn publish(&mut self, out: Vec<(Lane, String)>) {
        for (lane, delta) in out {
            match lane {
                Lane::Text => self.chunk(Channel::Text, delta, false, None).await,
                Lane::Reasoning => self.chunk(Channel::Reasoning, delta, false, None).await,
                Lane::Call(slot) => self.partial(slot, delta).await,
            }
        }
    }

    async fn chunk(&mut self, channel: Channel, delta: String, last: bool, finish_reason: Option<FinishReason>) {
        let index = self.view.advance(channel, &delta);
        let (turn, step, attempt) = self.place();
        let chunk = Chunk { turn, step, attempt, index, channel, delta, last, finish_reason };
        self.send(Topic::AiChunkReceived, &chunk).await;
    }

    async fn partial(&mut self, slot: u32, delta: String) {
        let name = self.calls.get(slot as usize).cloned().flatten();
        // The signal is between the model and the loop.
        if name.as_deref() == Some(SIGNAL) {
            return;
        }
        let (turn, step, attempt) = self.place();
        self.send(Topic::ToolCallPartial, &PartialCall { turn, step, attempt, index: slot, name, delta }).await;
    }

    fn place(&self) -> (u32, u32, String) {
        (self.job.meta().turn, self.job.meta().step, self.job.attempt.clone())
    }

    async fn send<T: Serialize>(&mut self, topic: Topic, data: &T) {
        let key = &self.job.key;
        let trace = self.job.traceparent.as_deref().and_then(telemetry::trace::trace_id);
        let envelope = Envelope {
            id: format!("{}-{}-{}-{}", key.session, self.job.meta().call, self.job.attempt, self.sent),
            session_id: key.session.clone(),
            tenant: key.tenant.clone(),
            seq: None,
            time: self.clock.now(),
            trace_id: trace.unwrap_or_default().to_owned(),
            data: Json::of(data),
        };
        self.sent += 1;
        if let Err(error) = self.bus.publish_event(key, topic, &envelope).await {
            tracing::debug!(session = %key, call = %self.job.call, %error, "chunk not sent");
        }
    }
}
