//! The shell of one replica: it decides on an input, commits, performs the effects, and acknowledges.

use contract::Timestamp;
use contract::command::Verb;
use contract::event::{Event, InputKind};
use contract::ids::CallAttempt;
use session::{Body, Input, Session};

use crate::ensure::ensure;
use crate::planted_bug::PlantedBug;
use crate::world::state::{Action, World, key};

/// Source from which a replica knows the commands before the one that it handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// It read the inbox.
    Inbox,
    /// It takes the log for empty, so that there is no session that they could be for.
    EmptyLog,
}

impl World {
    /// A replica handles a delivered input; a client command only after the earlier ones that wait. A replica that does
    /// not know the session decides a start on an empty state, without a look at those.
    pub(super) fn deliver(&mut self, index: usize) -> Result<(), String> {
        let input = &self.inputs[index];
        let (seq, is_start) = (input.control_seq, matches!(input.body, Body::Start(_)));
        if is_start && self.rng.chance(50) {
            return self.handle(index, Order::EmptyLog);
        }
        if let Some(seq) = seq {
            let earlier: Vec<usize> = self.waiting.range(..seq).map(|(_, index)| *index).collect();
            // All of them are stored: an input that is not in the stream has no earlier sequence.
            for index in earlier {
                self.handle(index, Order::Inbox)?;
            }
        }
        self.handle(index, Order::Inbox)
    }

    fn handle(&mut self, index: usize, order: Order) -> Result<(), String> {
        self.figures.inputs += 1;
        let mut input = self.inputs[index].clone();
        let (control_seq, control_at) = (input.control_seq, input.control_at);
        let count = self.replicas.len() as u64;
        let replica = usize::try_from(self.rng.below(count)).unwrap_or(0);
        if order == Order::EmptyLog || self.fault(5) {
            self.replicas[replica] = Session::new(key());
        }
        self.stale_reply(&mut input);
        loop {
            let state = &self.replicas[replica];
            let is_handled = state.has_handled(&input.reference, control_seq, control_at);
            // A session that exists may have commands that wait, so this commit claims nothing about them.
            if order == Order::EmptyLog && state.next_slot() > 0 && self.bug != PlantedBug::ClaimUnseenCommands {
                (input.control_seq, input.control_at) = (None, None);
            }
            if is_handled && self.bug != PlantedBug::DecideTwice {
                if self.bug != PlantedBug::ForgetEffects {
                    // Outstanding effects are read from the latest state.
                    self.replicas[replica] = self.truth.clone();
                    let outstanding = self.truth.outstanding();
                    self.perform(replica, &outstanding)?;
                }
                return self.ack(index);
            }
            let decision = state.decide(Timestamp::from_millis(self.now), std::slice::from_ref(&input));
            let mut events = decision.events;
            self.bug.apply(&mut events);
            if self.bug == PlantedBug::AckWithoutCommit && matches!(events[0], Event::InputIgnored(_)) {
                return self.ack(index);
            }
            let slot = state.next_slot();
            if slot != self.log.len() as u64 {
                if self.bug == PlantedBug::BelieveDuplicateAck {
                    fold(&mut self.replicas[replica], slot, decision.at, &events);
                    self.perform(replica, &decision.effects)?;
                    return self.ack(index);
                }
                self.reload(replica);
                continue;
            }
            if events.iter().any(|event| matches!(event, Event::LogCompacted(_))) {
                self.log_start = Some((
                    slot,
                    self.bug.change_snapshot(&self.replicas[replica].snapshot(), &Session::new(key()).snapshot()),
                ));
            }
            self.commit(slot, decision.at, &events)?;
            fold(&mut self.replicas[replica], slot, decision.at, &events);
            if self.fault(6) {
                // The replica dies before or during its effects, without an ack; another one takes over.
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

    /// A replica reads the log again, from where it begins; after a stale read it loses the next slot again.
    pub(super) fn reload(&mut self, replica: usize) {
        let behind = if self.fault(10) { self.rng.below(3) } else { 0 };
        let upto = self.log.len().saturating_sub(usize::try_from(behind).unwrap_or(0));
        let (start, mut state) = match &self.log_start {
            Some((start, snapshot)) if *start < upto as u64 => {
                let state = serde_json::from_str(snapshot.get()).unwrap_or_else(|_| unreachable!("a snapshot"));
                (usize::try_from(*start).unwrap_or(0), state)
            }
            // The stale read shows the log as it was before.
            Some(_) | None => (0, Session::new(key())),
        };
        for (slot, (at, events)) in self.log[..upto].iter().enumerate().skip(start) {
            fold(&mut state, slot as u64, *at, events);
        }
        self.replicas[replica] = state;
    }

    pub(super) fn commit(&mut self, slot: u64, at: Timestamp, events: &[Event]) -> Result<(), String> {
        self.figures.commits += 1;
        self.trace.push(format!("{} slot {slot}: {}", self.now, names(events)));
        self.oracle.commit(events)?;
        self.log.push((at, events.to_vec()));
        fold(&mut self.truth, slot, at, events);
        self.heads.push((self.truth.open_calls(), self.truth.phase()));
        self.check_timeouts_after_a_pause(events)?;
        for event in events {
            if let Event::ToolCallIdentified(identified) = event {
                self.effects.insert(identified.call.to_string(), identified.effect);
            }
            self.figures.rare.count(event);
            if let Some(turn) = event.turn_started() {
                self.turn_messages.insert(turn.turn, turn.messages.clone());
            }
            if let Event::ClientCallOpened(opened) = event {
                self.perform_as_client(&opened.call);
            }
            if let Event::GateOpened(gate) = event {
                // No answer, one, or two at the same time.
                for _ in 0..*self.rng.pick(&[0, 1, 1, 1, 2]) {
                    let answer = self.answer(gate);
                    let delay = self.rng.below(20_000);
                    self.oracle.record_answer(format!("u{}", self.inputs.len()), &answer);
                    self.command(Verb::Answer, Body::Answer(answer), delay);
                }
            }
        }
        self.public += events.iter().filter(|event| event.topic().is_some()).count() as u64;
        ensure!(self.truth.seq() == self.public, "seq {} after {} public events", self.truth.seq(), self.public);
        Ok(())
    }

    /// Checks that no call that waited for the end of a pause times out before a worker could start it.
    pub(super) fn check_timeouts_after_a_pause(&mut self, events: &[Event]) -> Result<(), String> {
        let by_timer = matches!(&events[0], Event::InputHandled(handled) if handled.input.kind == InputKind::Timer);
        let turn_ends = events.iter().any(|event| matches!(event, Event::TurnCompleted(_) | Event::LimitReached(_)));
        for event in events {
            if let Event::CallCancelled(cancelled) = event
                && cancelled.tool.is_some()
            {
                let call = CallAttempt { call: cancelled.call.clone(), attempt: cancelled.attempt }.to_string();
                let was_parked = self.not_started.remove(&call);
                ensure!(!(was_parked && by_timer && !turn_ends), "{call} timed out before a worker could start it");
            }
        }
        Ok(())
    }

    pub(super) fn ack(&mut self, index: usize) -> Result<(), String> {
        let input = &self.inputs[index];
        let is_handled = self.truth.has_handled(&input.reference, input.control_seq, input.control_at);
        ensure!(is_handled, "I2: {:?} was acknowledged and is not in the log", input.reference);
        if let Some(seq) = input.control_seq {
            self.waiting.remove(&seq);
        }
        if self.fault(3) {
            let delay = self.rng.below(10_000);
            self.at(delay, Action::Deliver(index));
        }
        Ok(())
    }

    /// Gives a stale reply the id of the open call, with [`PlantedBug::AcceptStaleReply`].
    pub(super) fn stale_reply(&self, input: &mut Input) {
        if self.bug != PlantedBug::AcceptStaleReply {
            return;
        }
        let open = self.truth.open_calls();
        if let (Body::ModelFinished(finished), Some(open)) = (&mut input.body, open.first())
            && let Some((call, _)) = open.rsplit_once('.')
            && let Ok(call) = contract::CallId::new(call)
            && call.as_str().starts_with('m')
        {
            finished.meta.call = call;
            finished.meta.opened_by.clear();
        }
    }
}

/// Folds a commit; its id is its slot.
pub(super) fn fold(state: &mut Session, slot: u64, at: Timestamp, events: &[Event]) {
    state.fold(slot, at, events);
    state.link(slot, &slot.to_string());
}

/// Events of a commit that its line in the trace shows.
const EVENTS_SHOWN_MAX: usize = 64;

fn names(events: &[Event]) -> String {
    let list: Vec<String> = events
        .iter()
        .take(EVENTS_SHOWN_MAX)
        .map(|event| {
            let text = serde_json::to_string(event).unwrap_or_default();
            text.chars().take(110).collect()
        })
        .collect();
    list.join(" ")
}
