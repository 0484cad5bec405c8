//! Publishes a reply to viewers while it grows: chunks, partial calls, and a snapshot for viewers that join late.

use std::sync::{Arc, Mutex, PoisonError};

use bus::Bus;
use contract::Json;
use contract::event::{Envelope, Topic};
use contract::model::{Channel, Chunk, FinishReason, PartialCall, ReplySnapshot, SIGNAL_TOOL};
use reply::Splitter;
use serde::Serialize;

use crate::chunks::{ChunkKind, Chunker};
use crate::job::ModelJob;
use crate::reply::Delta;
use service::clock::Clock;

/// Publishes one reply. Lost messages are not sent again, since the result has the complete reply.
pub(crate) struct ReplyPublisher<'a> {
    bus: &'a Bus,
    clock: &'a dyn Clock,
    job: &'a ModelJob,
    /// `<attempt of the orchestrator>.<delivery>`, as viewers see it.
    attempt: String,
    chunker: Chunker,
    splitter: Splitter,
    /// Names of the calls of the reply, by slot.
    calls: Vec<Option<String>>,
    /// Slot of a call whose name is not published yet.
    pending_name: Option<u32>,
    snapshot: SharedSnapshot,
    /// Number of published messages.
    message_count: u64,
}

/// Snapshot of the reply, shared with the task that serves it. The lock is held for a copy only.
#[derive(Debug, Clone)]
pub(crate) struct SharedSnapshot(Arc<Mutex<ReplySnapshot>>);

impl SharedSnapshot {
    pub(crate) fn new(job: &ModelJob) -> Self {
        let (turn, step) = (job.item.meta.turn, job.item.meta.step);
        Self(Arc::new(Mutex::new(ReplySnapshot { turn, step, attempt: job.attempt(), index: 0, text: String::new() })))
    }

    pub(crate) fn get(&self) -> ReplySnapshot {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a chunk and returns its index.
    fn advance(&self, channel: Channel, delta: &str) -> u64 {
        let mut snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if channel == Channel::Text {
            snapshot.text.push_str(delta);
        }
        snapshot.index += 1;
        snapshot.index - 1
    }
}

impl<'a> ReplyPublisher<'a> {
    pub(crate) fn new(bus: &'a Bus, clock: &'a dyn Clock, job: &'a ModelJob, snapshot: SharedSnapshot) -> Self {
        let chunker = Chunker::new(&job.item.streaming);
        Self {
            bus,
            clock,
            job,
            attempt: job.attempt(),
            chunker,
            splitter: Splitter::new(job.item.signal),
            calls: Vec::new(),
            pending_name: None,
            snapshot,
            message_count: 0,
        }
    }

    /// Returns the time by which buffered text must be published; `None` if there is none.
    pub(crate) fn flush_deadline(&self) -> Option<tokio::time::Instant> {
        self.chunker.flush_deadline()
    }

    pub(crate) fn message_count(&self) -> u64 {
        self.message_count
    }

    /// Publishes deltas, now or after a short buffering. Without streaming, viewers get only the whole reply of the log.
    pub(crate) async fn publish_deltas(&mut self, deltas: &[Delta]) {
        if !self.job.item.streaming.enabled {
            return;
        }
        let mut out = Vec::new();
        for delta in deltas {
            self.buffer_delta(delta, &mut out);
        }
        self.flush_call_name(&mut out);
        self.chunker.flush_if_due(&mut out);
        self.publish_chunks(out).await;
    }

    fn buffer_delta(&mut self, delta: &Delta, out: &mut Vec<(ChunkKind, String)>) {
        match delta {
            Delta::Text(text) => {
                let text = self.splitter.push(text);
                self.chunker.add(ChunkKind::Reasoning, &self.splitter.take_thought(), out);
                self.chunker.add(ChunkKind::Text, &text, out);
            }
            Delta::Reasoning(text) => self.chunker.add(ChunkKind::Reasoning, text, out),
            Delta::Call(call) => {
                let slot = call.slot as usize;
                if self.calls.len() <= slot {
                    self.calls.resize(slot + 1, None);
                }
                if let (None, Some(name)) = (&self.calls[slot], &call.name) {
                    self.flush_call_name(out);
                    self.calls[slot] = Some(name.clone());
                    self.pending_name = Some(call.slot);
                }
                self.chunker.add(ChunkKind::Call(call.slot), &call.arguments, out);
            }
            Delta::Replay(_) | Delta::Usage(_) | Delta::Model(_) | Delta::Finish { .. } => {}
        }
    }

    /// Publishes the name of a new call at once, with the arguments that came with it.
    fn flush_call_name(&mut self, out: &mut Vec<(ChunkKind, String)>) {
        let Some(slot) = self.pending_name.take() else { return };
        self.chunker.flush(out);
        if !out.iter().any(|(kind, _)| *kind == ChunkKind::Call(slot)) {
            out.push((ChunkKind::Call(slot), String::new()));
        }
    }

    pub(crate) async fn flush(&mut self) {
        let mut out = Vec::new();
        self.chunker.flush(&mut out);
        self.publish_chunks(out).await;
    }

    /// Publishes the rest and the final marker, which every watched call has that is streamed. `finish` says why the
    /// reply ended.
    pub(crate) async fn finish(&mut self, finish: Option<FinishReason>) {
        if !self.job.item.meta.call.is_watched() || !self.job.item.streaming.enabled {
            return;
        }
        let mut out = Vec::new();
        let form = self.job.item.signal;
        let rest = std::mem::replace(&mut self.splitter, Splitter::new(form)).finish();
        self.chunker.add(ChunkKind::Reasoning, &rest.thought, &mut out);
        self.chunker.add(ChunkKind::Text, &rest.text, &mut out);
        self.chunker.flush(&mut out);
        let rest = match out.pop() {
            Some((ChunkKind::Text, rest)) => rest,
            other => {
                out.extend(other);
                String::new()
            }
        };
        self.publish_chunks(out).await;
        self.publish_chunk(Channel::Text, rest, true, finish).await;
    }

    async fn publish_chunks(&mut self, out: Vec<(ChunkKind, String)>) {
        for (kind, delta) in out {
            match kind {
                ChunkKind::Text => self.publish_chunk(Channel::Text, delta, false, None).await,
                ChunkKind::Reasoning => self.publish_chunk(Channel::Reasoning, delta, false, None).await,
                ChunkKind::Call(slot) => self.publish_partial_call(slot, delta).await,
            }
        }
    }

    async fn publish_chunk(
        &mut self,
        channel: Channel,
        delta: String,
        last: bool,
        finish_reason: Option<FinishReason>,
    ) {
        let index = self.snapshot.advance(channel, &delta);
        let (turn, step, attempt) = self.position();
        let chunk = Chunk { turn, step, attempt, index, channel, delta, last, finish_reason };
        self.publish_event(Topic::AiChunkReceived, &chunk).await;
    }

    async fn publish_partial_call(&mut self, slot: u32, delta: String) {
        let name = self.calls.get(slot as usize).cloned().flatten();
        // The signal is for the orchestrator only.
        if name.as_deref() == Some(SIGNAL_TOOL) {
            return;
        }
        let (turn, step, attempt) = self.position();
        self.publish_event(Topic::ToolCallPartial, &PartialCall { turn, step, attempt, index: slot, name, delta })
            .await;
    }

    fn position(&self) -> (u32, u32, String) {
        (self.job.item.meta.turn, self.job.item.meta.step, self.attempt.clone())
    }

    /// Publishes an event; a lost one is not sent again.
    pub(crate) async fn publish_event<T: Serialize>(&mut self, topic: Topic, data: &T) {
        let key = &self.job.key;
        let envelope = Envelope {
            id: format!("{}-{}-{}-{}", key.session, self.job.item.meta.call, self.attempt, self.message_count),
            session_id: key.session.clone(),
            tenant: key.tenant.clone(),
            seq: None,
            time: self.clock.now(),
            trace_id: self.job.trace.map_or_else(String::new, |trace| trace.trace_id_hex()),
            data: Json::of(data),
        };
        self.message_count += 1;
        if let Err(error) = self.bus.publish_event(key, topic, &envelope).await {
            tracing::debug!(session = %key, call = %self.job.call, %error, "chunk not sent");
        }
    }
}
