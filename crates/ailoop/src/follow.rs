//! When a command has seen what it waited for, and how it came out. Pure.

use contract::event::{EndReason, Event, StopReason};

use crate::failure::Exit;
use crate::heard::{Heard, What};

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// The end of the session.
    SessionEnds,
    /// The end of the first turn.
    TurnEnds,
    /// The end of the turn that has this message; the session's earlier turns do not count.
    AnswerTo {
        /// The id of the command that brings it.
        message: String,
    },
}

/// Waits.
#[derive(Debug)]
pub struct Follow {
    until: Until,
    stop_reason: Option<StopReason>,
}

impl Follow {
    /// Waits for this.
    pub fn new(until: Until) -> Self {
        Self { until, stop_reason: None }
    }

    /// How it came out, once it did.
    pub fn on(&mut self, heard: &Heard) -> Option<Exit> {
        let What::Event(event) = &heard.what else { return None };
        if let Event::UserProcessed(user) = &**event
            && let Until::AnswerTo { message } = &self.until
            && user.message_id.as_str() == message
        {
            self.until = Until::TurnEnds;
        }
        if let Event::TurnCompleted(turn) = &**event {
            self.stop_reason = Some(turn.stop_reason);
            return (self.until == Until::TurnEnds).then(|| of_turn(turn.stop_reason));
        }
        if let Event::SessionEnded(ended) = &**event {
            return Some(of_session(ended.reason, ended.stop_reason.or(self.stop_reason)));
        }
        None
    }
}

fn of_turn(reason: StopReason) -> Exit {
    match reason {
        StopReason::Completed => Exit::Done,
        StopReason::MaxIterations
        | StopReason::Timeout
        | StopReason::TokenLimit
        | StopReason::CostLimit
        | StopReason::ToolCallLimit
        | StopReason::Repetition
        | StopReason::NoProgress => Exit::Limit,
        StopReason::Stopped | StopReason::Error => Exit::Failed,
    }
}

fn of_session(reason: EndReason, turn: Option<StopReason>) -> Exit {
    match reason {
        EndReason::Completed => turn.map_or(Exit::Done, of_turn),
        EndReason::Stopped | EndReason::Error | EndReason::Expired => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Heard {
        let event = serde_json::from_str(text).unwrap();
        Heard { seq: Some(1), time: None, trace_id: String::new(), what: What::Event(Box::new(event)) }
    }

    fn user(id: &str) -> Heard {
        event(&format!(
            r#"{{"type":"message.user_processed","data":{{"message_id":"{id}","content":"x","mode":"steer"}}}}"#
        ))
    }

    fn turn(reason: &str) -> Heard {
        event(&format!(
            r#"{{"type":"turn.completed","data":{{"turn":1,"stop_reason":"{reason}","iterations":1,
            "final_response":"","spent":{{}}}}}}"#
        ))
    }

    fn end(reason: &str) -> Heard {
        event(&format!(r#"{{"type":"session_ended","data":{{"reason":"{reason}"}}}}"#))
    }

    fn check(until: Until, rows: &[Heard], expect: Option<(usize, Exit)>) {
        let mut follow = Follow::new(until);
        let got = rows.iter().enumerate().find_map(|(index, row)| follow.on(row).map(|exit| (index, exit)));
        assert_eq!(got, expect);
    }

    #[test]
    fn a_session_ends_as_its_last_turn_did() {
        check(Until::SessionEnds, &[turn("completed"), end("completed")], Some((1, Exit::Done)));
        check(Until::SessionEnds, &[turn("max_iterations"), end("completed")], Some((1, Exit::Limit)));
        check(Until::SessionEnds, &[turn("timeout"), end("completed")], Some((1, Exit::Limit)));
        check(Until::SessionEnds, &[turn("error"), end("error")], Some((1, Exit::Failed)));
        check(Until::SessionEnds, &[end("stopped")], Some((0, Exit::Failed)));
        check(Until::SessionEnds, &[turn("completed")], None);
    }

    #[test]
    fn an_answer_is_the_turn_of_its_message() {
        let answer = || Until::AnswerTo { message: "m".into() };
        check(answer(), &[turn("completed"), user("m"), turn("completed")], Some((2, Exit::Done)));
        check(answer(), &[user("other"), turn("completed")], None);
        check(answer(), &[user("m"), turn("max_iterations")], Some((1, Exit::Limit)));
        check(answer(), &[end("expired")], Some((0, Exit::Failed)));
        check(Until::TurnEnds, &[user("x"), turn("completed")], Some((1, Exit::Done)));
    }
}
