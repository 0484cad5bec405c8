//! Merges the log, live events and chunks into what one viewer receives: every event once, in order, without holes.
//!
//! Pure: it is fed what was read and heard, and says what goes out and whether the log must be read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::notice::{Mark, Notice, Piece};

/// Live events ahead of a hole that are kept; further ones are read from the log.
pub(crate) const AHEAD_MAX: usize = 256;
/// Chunks that are kept while a late viewer asks for the reply so far.
pub(crate) const HELD_MAX: usize = 256;

/// The log does not hold what the viewer asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone {
    /// The first `seq` that was wanted.
    pub(crate) wanted: u64,
    /// The next one that the log holds.
    pub(crate) found: u64,
}

/// The state of one viewer.
#[derive(Debug)]
pub(crate) struct Merger {
    /// The next `seq` to go out.
    next: u64,
    /// The greatest `seq` that is known to exist.
    known: u64,
    ahead: BTreeMap<u64, Arc<Notice>>,
    /// Chunks up to this turn and step are worthless.
    finished: (u32, u32),
    /// The newest attempt seen, and the first index of it that is still wanted.
    newest: Option<(u32, u32, (u32, u32))>,
    index: u64,
    /// Chunks that wait for the reply so far; none once it was asked for.
    held: Option<VecDeque<Arc<Notice>>>,
    ended: bool,
}

impl Merger {
    /// A viewer that wants everything from this `seq` on; 0 and 1 mean from the beginning.
    pub(crate) fn new(from: u64) -> Self {
        Self {
            next: from.max(1),
            known: 0,
            ahead: BTreeMap::new(),
            finished: (0, 0),
            newest: None,
            index: 0,
            held: Some(VecDeque::new()),
            ended: false,
        }
    }

    /// The next `seq` that goes out.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether `session_ended` went out: nothing follows.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Whether something exists that only the log can tell.
    pub(crate) fn wants_log(&self) -> bool {
        !self.ended && self.known >= self.next
    }

    /// Notes that events up to this `seq` exist.
    pub(crate) fn exists(&mut self, seq: u64) {
        self.known = self.known.max(seq);
    }

    /// Forgets what is only said to exist, when the log denies it again and again.
    pub(crate) fn give_up(&mut self) {
        self.known = self.next - 1;
        self.ahead.clear();
    }

    /// Takes events of the log, in order; older ones than wanted are left out.
    pub(crate) fn log(&mut self, events: &[Arc<Notice>], out: &mut Vec<Arc<Notice>>) -> Result<(), Gone> {
        for event in events {
            let Some(seq) = event.envelope.seq else { continue };
            self.mark(event);
            if seq < self.next || self.ended {
                continue;
            }
            if seq > self.next {
                return Err(Gone { wanted: self.next, found: seq });
            }
            self.give(event.clone(), out);
        }
        self.follow(out);
        Ok(())
    }

    /// Takes an event that was heard.
    pub(crate) fn live(&mut self, event: Arc<Notice>, out: &mut Vec<Arc<Notice>>) {
        let Some(seq) = event.envelope.seq else { return self.passing(event, out) };
        if self.ended || seq < self.next {
            return;
        }
        self.exists(seq);
        if seq == self.next {
            self.mark(&event);
            self.give(event, out);
            self.follow(out);
        } else if self.ahead.len() < AHEAD_MAX {
            self.ahead.insert(seq, event);
        }
    }

    /// Takes the answer to the question for the reply so far; chunks go out from now on.
    pub(crate) fn view(&mut self, so_far: Option<Arc<Notice>>, out: &mut Vec<Arc<Notice>>) {
        let held = self.held.take().unwrap_or_default();
        if let Some(notice) = so_far {
            self.passing(notice, out);
        }
        for notice in held {
            self.passing(notice, out);
        }
    }

    /// What is in no log: chunks, and errors about what never came into one.
    fn passing(&mut self, notice: Arc<Notice>, out: &mut Vec<Arc<Notice>>) {
        match notice.mark {
            Mark::Piece(piece) => self.chunk(notice, piece, out),
            Mark::Plain | Mark::Passing if !self.ended => out.push(notice),
            Mark::Plain | Mark::Passing | Mark::Reply(..) | Mark::Turn(_) | Mark::End => {}
        }
    }

    fn chunk(&mut self, notice: Arc<Notice>, piece: Piece, out: &mut Vec<Arc<Notice>>) {
        if let Some(held) = &mut self.held {
            if held.len() == HELD_MAX {
                held.pop_front();
            }
            held.push_back(notice);
        } else if self.is_wanted(piece) {
            out.push(notice);
        }
    }

    fn is_wanted(&mut self, piece: Piece) -> bool {
        let Piece { turn, step, attempt, index } = piece;
        if self.ended || (turn, step) <= self.finished {
            return false;
        }
        let place = (turn, step, attempt);
        if self.newest.is_none_or(|newest| newest < place) {
            self.newest = Some(place);
            self.index = 0;
        }
        if self.newest != Some(place) {
            return false;
        }
        match index {
            Some(index) if index < self.index => false,
            Some(index) => {
                self.index = index + 1;
                true
            }
            None => true,
        }
    }

    fn follow(&mut self, out: &mut Vec<Arc<Notice>>) {
        while !self.ended
            && let Some(entry) = self.ahead.first_entry()
            && *entry.key() <= self.next
        {
            let event = entry.remove();
            if event.envelope.seq == Some(self.next) {
                self.mark(&event);
                self.give(event, out);
            }
        }
    }

    fn give(&mut self, event: Arc<Notice>, out: &mut Vec<Arc<Notice>>) {
        self.next += 1;
        self.ended |= event.mark == Mark::End;
        out.push(event);
    }

    fn mark(&mut self, event: &Notice) {
        match event.mark {
            Mark::Reply(turn, step) => self.finished = self.finished.max((turn, step)),
            Mark::Turn(turn) => self.finished = self.finished.max((turn, u32::MAX)),
            Mark::Plain | Mark::Passing | Mark::End | Mark::Piece(_) => {}
        }
    }
}
