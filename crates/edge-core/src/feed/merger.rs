//! Merges the log, live events and chunks into what one viewer receives: every event once, in order, without gaps.
//!
//! It does no IO: it takes what was read and received, and returns what goes out and whether the log must be read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::viewer_event::{ChunkPosition, EventRole, ViewerEvent};

/// Live events beyond a gap that are buffered; further ones are read from the log.
pub(crate) const AHEAD_MAX: usize = 256;
/// Chunks that are buffered while a late viewer waits for the reply so far.
pub(crate) const HELD_CHUNKS_MAX: usize = 256;

/// The log does not have the events that the viewer needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogGap {
    /// The `seq` that the viewer needs.
    pub(crate) wanted: u64,
    /// The next `seq` that the log has.
    pub(crate) found: u64,
}

/// State of the stream of one viewer.
#[derive(Debug)]
pub(crate) struct EventMerger {
    next_seq: u64,
    known_seq: u64,
    ahead: BTreeMap<u64, Arc<ViewerEvent>>,
    /// Chunks up to this turn and step are obsolete.
    finished: (u32, u32),
    /// Turn, step and attempt of the newest chunk. `next_index` is the first index of this attempt that may go out.
    newest_attempt: Option<(u32, u32, (u32, u32))>,
    next_index: u64,
    /// Chunks that wait for the reply so far; `None` once it has arrived.
    held_chunks: Option<VecDeque<Arc<ViewerEvent>>>,
    is_ended: bool,
}

impl EventMerger {
    /// Creates the state of a viewer that wants everything from this `seq` on; 0 and 1 mean from the beginning.
    pub(crate) fn new(from: u64) -> Self {
        Self {
            next_seq: from.max(1),
            known_seq: 0,
            ahead: BTreeMap::new(),
            finished: (0, 0),
            newest_attempt: None,
            next_index: 0,
            held_chunks: Some(VecDeque::new()),
            is_ended: false,
        }
    }

    /// Returns the next `seq` that goes out.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Whether `session_ended` went out, after which no event follows.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether an event exists that must be read from the log.
    pub(crate) fn is_log_needed(&self) -> bool {
        !self.is_ended && self.known_seq >= self.next_seq
    }

    /// Records that events up to this `seq` exist.
    pub(crate) fn raise_known_seq(&mut self, seq: u64) {
        self.known_seq = self.known_seq.max(seq);
    }

    /// Forgets events that should exist but that the log does not have.
    pub(crate) fn forget_missing(&mut self) {
        self.known_seq = self.next_seq - 1;
        self.ahead.clear();
    }

    /// Merges events of the log, in order; those that went out already are skipped.
    pub(crate) fn merge_log(
        &mut self,
        events: &[Arc<ViewerEvent>],
        out: &mut Vec<Arc<ViewerEvent>>,
    ) -> Result<(), LogGap> {
        for event in events {
            let Some(seq) = event.envelope.seq else { continue };
            self.finish_chunks(event);
            if seq < self.next_seq || self.is_ended {
                continue;
            }
            if seq > self.next_seq {
                return Err(LogGap { wanted: self.next_seq, found: seq });
            }
            self.emit(event.clone(), out);
        }
        self.emit_ahead(out);
        Ok(())
    }

    /// Merges an event that was received live.
    pub(crate) fn merge_live(&mut self, event: Arc<ViewerEvent>, out: &mut Vec<Arc<ViewerEvent>>) {
        let Some(seq) = event.envelope.seq else { return self.merge_transient(event, out) };
        if self.is_ended || seq < self.next_seq {
            return;
        }
        self.raise_known_seq(seq);
        if seq == self.next_seq {
            self.finish_chunks(&event);
            self.emit(event, out);
            self.emit_ahead(out);
        } else if self.ahead.len() < AHEAD_MAX {
            self.ahead.insert(seq, event);
        }
    }

    /// Merges the reply so far; from now on chunks go out.
    pub(crate) fn merge_snapshot(&mut self, snapshot: Option<Arc<ViewerEvent>>, out: &mut Vec<Arc<ViewerEvent>>) {
        let held_chunks = self.held_chunks.take().unwrap_or_default();
        if let Some(event) = snapshot {
            self.merge_transient(event, out);
        }
        for event in held_chunks {
            self.merge_transient(event, out);
        }
    }

    /// Merges an event without `seq`: a chunk, progress, or an error about something that is not in the log.
    fn merge_transient(&mut self, event: Arc<ViewerEvent>, out: &mut Vec<Arc<ViewerEvent>>) {
        match event.role {
            EventRole::Chunk(position) => self.merge_chunk(event, position, out),
            EventRole::Plain | EventRole::Transient if !self.is_ended => out.push(event),
            EventRole::Plain
            | EventRole::Transient
            | EventRole::ReplyEnd(..)
            | EventRole::TurnOutcome(_)
            | EventRole::SessionEnd => {}
        }
    }

    fn merge_chunk(&mut self, event: Arc<ViewerEvent>, position: ChunkPosition, out: &mut Vec<Arc<ViewerEvent>>) {
        if let Some(held_chunks) = &mut self.held_chunks {
            if held_chunks.len() == HELD_CHUNKS_MAX {
                held_chunks.pop_front();
            }
            held_chunks.push_back(event);
        } else if self.accept_chunk(position) {
            out.push(event);
        }
    }

    /// Returns whether a chunk goes out, and records it as the newest one if it does.
    fn accept_chunk(&mut self, position: ChunkPosition) -> bool {
        let ChunkPosition { turn, step, attempt, index } = position;
        if self.is_ended || (turn, step) <= self.finished {
            return false;
        }
        let attempt_position = (turn, step, attempt);
        if self.newest_attempt.is_none_or(|newest| newest < attempt_position) {
            self.newest_attempt = Some(attempt_position);
            self.next_index = 0;
        }
        if self.newest_attempt != Some(attempt_position) {
            return false;
        }
        match index {
            Some(index) if index < self.next_index => false,
            Some(index) => {
                self.next_index = index + 1;
                true
            }
            None => true,
        }
    }

    fn emit_ahead(&mut self, out: &mut Vec<Arc<ViewerEvent>>) {
        while !self.is_ended
            && let Some(entry) = self.ahead.first_entry()
            && *entry.key() <= self.next_seq
        {
            let event = entry.remove();
            if event.envelope.seq == Some(self.next_seq) {
                self.finish_chunks(&event);
                self.emit(event, out);
            }
        }
    }

    fn emit(&mut self, event: Arc<ViewerEvent>, out: &mut Vec<Arc<ViewerEvent>>) {
        self.next_seq += 1;
        self.is_ended |= event.role == EventRole::SessionEnd;
        out.push(event);
    }

    fn finish_chunks(&mut self, event: &ViewerEvent) {
        match event.role {
            EventRole::ReplyEnd(turn, step) => self.finished = self.finished.max((turn, step)),
            EventRole::TurnOutcome(turn) => self.finished = self.finished.max((turn, u32::MAX)),
            EventRole::Plain | EventRole::Transient | EventRole::SessionEnd | EventRole::Chunk(_) => {}
        }
    }
}
