//! Detects that what a command waits for has happened, and with which exit. Pure.

use contract::CommandId;
use contract::command::MessageMode;
use contract::event::{EndReason, Event, StopKind, StopReason};
use terminal::failure::Exit;

use crate::notification::{NotificationContent, ParsedNotification};

/// Condition that a command waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitTarget {
    /// The end of the session.
    SessionEnd,
    /// The end of the first turn.
    TurnEnd,
    /// The end of the turn that has this message; earlier turns of the session do not count.
    TurnOfMessage {
        /// Id of the command that sends the message.
        message_id: String,
    },
}

/// Follows the notifications of a session until the wait target is reached.
#[derive(Debug)]
pub struct CompletionTracker {
    target: WaitTarget,
    stop_reason: Option<StopReason>,
}

impl CompletionTracker {
    /// Makes a tracker that waits for a target.
    pub fn new(target: WaitTarget) -> Self {
        Self { target, stop_reason: None }
    }

    /// Applies a notification; returns the exit once the target is reached.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
    pub fn update(&mut self, notification: &ParsedNotification) -> Option<Exit> {
        let NotificationContent::Event(event) = &notification.content else { return None };
        match &**event {
            Event::UserProcessed(user) if user.mode != MessageMode::Queue => self.reach_turn(&[&user.message_id]),
            Event::TurnStarted(started) => self.reach_turn(&started.messages.iter().collect::<Vec<_>>()),
            Event::TurnCompleted(turn) => {
                self.stop_reason = Some(turn.stop_reason);
                (self.target == WaitTarget::TurnEnd).then(|| exit_of_turn(turn.stop_reason))
            }
            Event::SessionEnded(ended) => Some(exit_of_session(ended.reason, ended.stop_reason.or(self.stop_reason))),
            _ => None,
        }
    }

    /// Waits for the end of the turn, if these messages that it reads have the one of the target.
    fn reach_turn(&mut self, messages: &[&CommandId]) -> Option<Exit> {
        if let WaitTarget::TurnOfMessage { message_id } = &self.target
            && messages.iter().any(|id| id.as_str() == message_id)
        {
            self.target = WaitTarget::TurnEnd;
        }
        None
    }
}

fn exit_of_turn(reason: StopReason) -> Exit {
    match reason.kind() {
        StopKind::Completed => Exit::Done,
        StopKind::Limit => Exit::Limit,
        StopKind::Stopped | StopKind::Error => Exit::Failed,
    }
}

fn exit_of_session(reason: EndReason, turn: Option<StopReason>) -> Exit {
    match reason {
        EndReason::Completed => turn.map_or(Exit::Done, exit_of_turn),
        EndReason::Stopped | EndReason::Error | EndReason::Expired => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> ParsedNotification {
        let event = serde_json::from_str(text).unwrap();
        ParsedNotification {
            seq: Some(1),
            time: None,
            trace_id: String::new(),
            content: NotificationContent::Event(Box::new(event)),
        }
    }

    fn message(id: &str, mode: &str) -> ParsedNotification {
        event(&format!(
            r#"{{"type":"message.user_processed","data":{{"message_id":"{id}","content":"x","mode":"{mode}"}}}}"#
        ))
    }

    fn user(id: &str) -> ParsedNotification {
        message(id, "steer")
    }

    fn turn(reason: &str) -> ParsedNotification {
        event(&format!(
            r#"{{"type":"turn.completed","data":{{"turn":1,"stop_reason":"{reason}","iterations":1,
            "final_response":"","spent":{{}}}}}}"#
        ))
    }

    fn end(reason: &str) -> ParsedNotification {
        event(&format!(r#"{{"type":"session_ended","data":{{"reason":"{reason}"}}}}"#))
    }

    fn check(target: WaitTarget, rows: &[ParsedNotification], expect: Option<(usize, Exit)>) {
        let mut tracker = CompletionTracker::new(target);
        let got = rows.iter().enumerate().find_map(|(index, row)| tracker.update(row).map(|exit| (index, exit)));
        assert_eq!(got, expect);
    }

    #[test]
    fn session_end_exit_is_that_of_the_last_turn() {
        check(WaitTarget::SessionEnd, &[turn("completed"), end("completed")], Some((1, Exit::Done)));
        check(WaitTarget::SessionEnd, &[turn("max_iterations"), end("completed")], Some((1, Exit::Limit)));
        check(WaitTarget::SessionEnd, &[turn("timeout"), end("completed")], Some((1, Exit::Limit)));
        check(WaitTarget::SessionEnd, &[turn("error"), end("error")], Some((1, Exit::Failed)));
        check(WaitTarget::SessionEnd, &[end("stopped")], Some((0, Exit::Failed)));
        check(WaitTarget::SessionEnd, &[turn("completed")], None);
    }

    #[test]
    fn turn_of_message_earlier_turns_do_not_count() {
        let turn_of_message = || WaitTarget::TurnOfMessage { message_id: "m".into() };
        check(turn_of_message(), &[turn("completed"), user("m"), turn("completed")], Some((2, Exit::Done)));
        check(turn_of_message(), &[user("other"), turn("completed")], None);
        let began = event(r#"{"type":"turn.started","data":{"turn":2,"messages":["m"]}}"#);
        let queued = [message("m", "queue"), turn("completed"), began, turn("completed")];
        check(turn_of_message(), &queued, Some((3, Exit::Done)));
        check(turn_of_message(), &[user("m"), turn("max_iterations")], Some((1, Exit::Limit)));
        check(turn_of_message(), &[end("expired")], Some((0, Exit::Failed)));
        check(WaitTarget::TurnEnd, &[user("x"), turn("completed")], Some((1, Exit::Done)));
    }
}
