//! `ailoop describe`: why a session does not move.

use std::time::Duration;

use contract::Timestamp;
use fleet_connection::client::{SessionsApi, answer_json};
use proto::{
    DeadLetterName, DescribeSessionRequest, Finding, QueueStatus, SessionDescription, SessionError, SessionWait,
};
use terminal::Terminal;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::printable::one_line;

use super::reading::read_session;
use crate::args::DescribeArgs;
use crate::output::{finish, shorten};

pub(super) async fn describe_session(args: &DescribeArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let reply = read_session(&args.target, &args.session, terminal, async |client, session_id| {
        client.call(DescribeSessionRequest { session_id }, SessionsApi::describe_session).await
    })
    .await?;
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&format!("{}\n", answer_json(&reply)?))));
    }
    let now = EdgeTime(Timestamp::parse(&reply.now).unwrap_or_default());
    Ok(finish(terminal.print_data(&now.draw(&reply))))
}

/// Time of the edge's clock, to which the other times are relative.
struct EdgeTime(Timestamp);

impl EdgeTime {
    fn draw(&self, session: &SessionDescription) -> String {
        let mut lines = vec![
            format!("session   {}: {}", session.session_id, session.phase),
            format!("about     {}", shorten(&session.title)),
            format!("agent     {} with {}", session.agent, session.model),
            format!(
                "position  turn {}, step {}; last commit {}",
                session.turn,
                session.step,
                self.ago(&session.updated)
            ),
        ];
        lines.extend(session.stop_reason.iter().map(|reason| format!("last turn {reason}")));
        lines.push(String::new());
        if session.waits.is_empty() {
            let why =
                if session.phase == "ended" { "nothing: it has ended" } else { "an orchestrator, for its next step" };
            lines.push(format!("waits for {why}"));
        }
        for wait in &session.waits {
            lines.push(format!("waits for {}", self.describe(wait)));
            lines.extend(self.worker(wait));
        }
        if session.waiting_inputs > 0 {
            lines.push(format!(
                "inputs    {} not handled yet",
                format::plural(session.waiting_inputs, "command or result")
            ));
        }
        lines.extend(session.timer.iter().map(|at| format!("timer     due {}", self.until(at))));
        for QueueStatus { queue, waiting, held, pullers, .. } in &session.queues {
            lines.push(format!("queue     {queue}: {waiting} waiting, {held} held, {pullers} requests of workers"));
        }
        for error in &session.errors {
            let SessionError { time, code, message, during, .. } = error;
            lines.push(format!("error     {}: {code} in {}: {}", self.ago(time), one_line(during), one_line(message)));
        }
        for DeadLetterName { name, code, reason } in &session.dead_letters {
            lines.push(format!("dead      {name}: {code}: {}", one_line(reason)));
        }
        for Finding { what, advice } in &session.findings {
            lines.push(String::new());
            lines.push(format!("! {}", one_line(what)));
            lines.push(format!("  {}", one_line(advice)));
        }
        lines.push(String::new());
        lines.join("\n")
    }

    fn describe(&self, wait: &SessionWait) -> String {
        let (call, attempt) = (wait.call(), wait.attempt());
        let until = |time: &Option<String>| time.as_ref().map_or_else(|| "-".to_owned(), |at| self.until(at));
        match wait.kind.as_str() {
            "user" => "the next message of its user".to_owned(),
            "resume" => "`resume`".to_owned(),
            "gate" => {
                let about = wait.tool.as_ref().map_or_else(String::new, |tool| format!(" about {tool}"));
                format!("a person, gate {}{about}; closes {}", wait.gate(), until(&wait.expires))
            }
            "model_call" => {
                let purpose = if wait.purpose() == "step" { String::new() } else { format!(" ({})", wait.purpose()) };
                let deadline = until(&wait.deadline);
                format!("model {}{purpose}, call {call}, attempt {attempt}; deadline {deadline}", wait.model())
            }
            "retry" => format!("the next attempt of call {call} after attempt {attempt}, {}", until(&wait.at)),
            "tool_call" => {
                let who = match &wait.child {
                    Some(child) => format!("session {child}"),
                    None => format!("tool {} ({})", wait.tool(), wait.effect()),
                };
                format!("{who}, call {call}, attempt {attempt}; deadline {}", until(&wait.deadline))
            }
            "client_call" => {
                let tool = wait.tool();
                let since = wait.since.as_ref().map_or_else(|| "-".to_owned(), |at| self.ago(at));
                format!("the client: call {call} of tool {tool}, opened {since}; deadline {}", until(&wait.deadline))
            }
            "pending_calls" => format!("{} that begin after others", format::plural(wait.count(), "call")),
            other => other.to_owned(),
        }
    }

    /// A line on the worker of a call.
    fn worker(&self, wait: &SessionWait) -> Option<String> {
        if !["model_call", "tool_call"].contains(&wait.kind.as_str()) || wait.child.is_some() {
            return None;
        }
        let since = wait.since.as_ref().map_or_else(|| "on an older page".to_owned(), |at| self.ago(at));
        let Some(holder) = &wait.holder else {
            return Some(format!("          opened {since}; no worker says that it has the call"));
        };
        let held = format::duration(Duration::from_millis(holder.held_ms));
        let mut line = format!(
            "          opened {since}; held by {} for {held}, delivery {}",
            if holder.replica.is_empty() { "a worker" } else { &holder.replica },
            holder.delivery
        );
        if let Some(note) = &holder.note {
            line.push_str("; ");
            line.push_str(&one_line(note));
        }
        Some(line)
    }

    fn ago(&self, at: &str) -> String {
        Timestamp::parse(at).map_or_else(|| at.to_owned(), |at| format!("{} ago", format::duration(self.0.since(at))))
    }

    fn until(&self, at: &str) -> String {
        match Timestamp::parse(at) {
            Some(at) if at > self.0 => format!("in {}", format::duration(at.since(self.0))),
            Some(_) | None => self.ago(at),
        }
    }
}
