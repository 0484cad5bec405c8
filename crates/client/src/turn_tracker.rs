//! Finds the turn of a message in the events of a session.

use crate::event::{EventContent, SessionEvent};

/// Counts turns and messages, so that the end of the right turn is the end of a message.
///
/// No event says which messages a turn has read, so this follows the rules: a message begins a turn if none runs, a queued
/// one begins a turn of its own after those that wait, and any other is read in the turn that runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TurnTracker {
    /// The last `seq` that was taken.
    pub(crate) seq: u64,
    pub(crate) is_running: bool,
    is_paused: bool,
    queued: u32,
}

impl TurnTracker {
    /// A tracker of an idle session from a `seq` on.
    pub(crate) fn idle_at(seq: u64) -> Self {
        Self { seq, ..Self::default() }
    }

    /// Takes the queued message that was pushed last, which waits according to the fleet. It waits for a turn, unless
    /// the session is paused. If no turn ran by the rules, a cancelled turn had left a message unread, which began a
    /// turn that no event shows. Returns how many turns end until the message has its answer.
    pub(crate) fn correct_waiting(&mut self, ends: u32) -> u32 {
        if ends > 1 || self.is_paused {
            return ends;
        }
        self.queued += 1;
        2
    }

    /// Takes the next event of the log. Returns how many turns end until a message has its answer, if it is a message.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
    pub(crate) fn push(&mut self, event: &SessionEvent) -> Option<u32> {
        self.seq = event.seq.unwrap_or(self.seq);
        match event.topic.as_str() {
            "status.paused" => self.is_paused = true,
            "status.resumed" => self.is_paused = false,
            _ => {}
        }
        match &event.content {
            EventContent::TurnCompleted(_) => {
                // The next queued message begins a turn at once.
                self.is_running = self.queued > 0;
                self.queued = self.queued.saturating_sub(1);
                None
            }
            EventContent::UserMessage(_) if !self.is_running => {
                self.is_running = true;
                Some(1)
            }
            EventContent::UserMessage(message) if message.mode == "queue" => {
                self.queued += 1;
                Some(1 + self.queued)
            }
            EventContent::UserMessage(_) => Some(1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::Notification;
    use serde_json::{Value, json};

    use super::*;

    fn event(seq: u64, topic: &str, data: &Value) -> SessionEvent {
        let notification = Notification { topic: topic.to_owned(), seq: Some(seq), ..Notification::default() };
        SessionEvent::parse("s", Notification { data_json: data.to_string(), ..notification }).unwrap()
    }

    /// Pushes messages by their modes, ends of turns (`end`), pauses (`pause`) and resumptions (`resume`).
    fn push(tracker: &mut TurnTracker, what: &str) -> Option<u32> {
        let (topic, data) = match what {
            "end" => {
                let spent = json!({"usage": {}, "cost_usd": 0.0});
                let end = json!({"turn": 1, "stop_reason": "completed", "iterations": 1, "final_response": "", "spent": spent});
                ("turn.completed", end)
            }
            "pause" => ("status.paused", json!({})),
            "resume" => ("status.resumed", json!({})),
            mode => ("message.user_processed", json!({"message_id": "m", "mode": mode})),
        };
        tracker.push(&event(tracker.seq + 1, topic, &data))
    }

    fn check(events: &str, expected: &[u32]) -> TurnTracker {
        let mut tracker = TurnTracker::default();
        let ends: Vec<u32> = events.split(' ').filter_map(|what| push(&mut tracker, what)).collect();
        assert_eq!(ends, expected, "{events}");
        tracker
    }

    #[test]
    fn message_counts_the_turns_until_its_answer() {
        check("queue steer queue queue interrupt", &[1, 1, 2, 3, 1]);
        check("queue queue end steer end queue", &[1, 2, 1, 1]);
        check("steer end queue end", &[1, 1]);
    }

    #[test]
    fn message_that_waits_behind_an_unseen_turn_counts_it() {
        // The cancelled turn had not read the second message, which began another turn.
        let mut tracker = check("queue steer end queue", &[1, 1, 1]);
        assert_eq!(tracker.correct_waiting(1), 2);
        assert_eq!(push(&mut tracker, "end"), None);
        assert!(tracker.is_running, "the turn of the last message");
        push(&mut tracker, "end");
        assert!(!tracker.is_running);
        // In a paused session, it waits for the session to be resumed.
        assert_eq!(check("queue end pause queue", &[1, 1]).correct_waiting(1), 1);
        assert_eq!(check("queue end pause resume queue", &[1, 1]).correct_waiting(1), 2);
        assert_eq!(check("queue queue", &[1, 2]).correct_waiting(2), 2);
    }
}
