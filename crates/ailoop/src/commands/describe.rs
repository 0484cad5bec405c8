//! `ailoop describe`: why a session does not move.

use std::time::Duration;

use contract::Timestamp;
use contract::fleet::CallHolder;
use fleet_connection::client::{SessionsApi, answer_json, read_answer};
use proto::DescribeSessionRequest;
use serde::Deserialize;
use terminal::Terminal;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::printable::one_line;

use super::reading::read_session;
use crate::args::DescribeArgs;
use crate::fleet_status::Queue;
use crate::output::{finish, shorten};

/// The printed fields of the answer of the edge.
#[derive(Deserialize)]
struct Description {
    now: Timestamp,
    session_id: String,
    phase: String,
    agent: String,
    model: String,
    title: String,
    turn: u32,
    step: u32,
    updated: Timestamp,
    stop_reason: Option<String>,
    waits: Vec<Wait>,
    waiting_inputs: u64,
    timer: Option<Timestamp>,
    queues: Vec<Queue>,
    errors: Vec<LoggedError>,
    dead_letters: Vec<DeadLetterName>,
    findings: Vec<Finding>,
}

/// Something that the session waits for; which fields there are depends on `kind`.
#[derive(Deserialize)]
struct Wait {
    kind: String,
    since: Option<Timestamp>,
    holder: Option<CallHolder>,
    #[serde(default)]
    call: String,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    model: String,
    #[serde(default)]
    purpose: String,
    tool: Option<String>,
    #[serde(default)]
    effect: String,
    child: Option<String>,
    #[serde(default)]
    gate: String,
    deadline: Option<Timestamp>,
    expires: Option<Timestamp>,
    at: Option<Timestamp>,
    #[serde(default)]
    count: u64,
}

#[derive(Deserialize)]
struct LoggedError {
    time: Timestamp,
    code: String,
    message: String,
    during: String,
}

#[derive(Deserialize)]
struct DeadLetterName {
    name: String,
    code: String,
    reason: String,
}

#[derive(Deserialize)]
struct Finding {
    what: String,
    advice: String,
}

pub(super) async fn describe_session(args: &DescribeArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let reply = read_session(&args.target, &args.session, terminal, async |client, session_id| {
        client.call(DescribeSessionRequest { session_id }, SessionsApi::describe_session).await
    })
    .await?;
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&format!("{}\n", answer_json(&reply)?))));
    }
    let description: Description = read_answer(&reply)?;
    Ok(finish(terminal.print_data(&description.draw())))
}

impl Description {
    fn draw(&self) -> String {
        let mut lines = vec![
            format!("session   {}: {}", self.session_id, self.phase),
            format!("about     {}", shorten(&self.title)),
            format!("agent     {} with {}", self.agent, self.model),
            format!("position  turn {}, step {}; last commit {}", self.turn, self.step, self.ago(self.updated)),
        ];
        lines.extend(self.stop_reason.iter().map(|reason| format!("last turn {reason}")));
        lines.push(String::new());
        if self.waits.is_empty() {
            let why =
                if self.phase == "ended" { "nothing: it has ended" } else { "an orchestrator, for its next step" };
            lines.push(format!("waits for {why}"));
        }
        for wait in &self.waits {
            lines.push(format!("waits for {}", self.describe(wait)));
            lines.extend(self.worker(wait));
        }
        if self.waiting_inputs > 0 {
            lines.push(format!(
                "inputs    {} not handled yet",
                format::plural(self.waiting_inputs, "command or result")
            ));
        }
        lines.extend(self.timer.map(|at| format!("timer     due {}", self.until(at))));
        for Queue { name, waiting, held, pullers, .. } in &self.queues {
            lines.push(format!("queue     {name}: {waiting} waiting, {held} held, {pullers} requests of workers"));
        }
        for error in &self.errors {
            let LoggedError { time, code, message, during } = error;
            lines.push(format!("error     {}: {code} in {}: {}", self.ago(*time), one_line(during), one_line(message)));
        }
        for DeadLetterName { name, code, reason } in &self.dead_letters {
            lines.push(format!("dead      {name}: {code}: {}", one_line(reason)));
        }
        for Finding { what, advice } in &self.findings {
            lines.push(String::new());
            lines.push(format!("! {}", one_line(what)));
            lines.push(format!("  {}", one_line(advice)));
        }
        lines.push(String::new());
        lines.join("\n")
    }

    fn describe(&self, wait: &Wait) -> String {
        let Wait { call, attempt, .. } = wait;
        let until = |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), |at| self.until(at));
        match wait.kind.as_str() {
            "user" => "the next message of its user".to_owned(),
            "resume" => "`resume`".to_owned(),
            "gate" => {
                let about = wait.tool.as_ref().map_or_else(String::new, |tool| format!(" about {tool}"));
                format!("a person, gate {}{about}; closes {}", wait.gate, until(wait.expires))
            }
            "model_call" => {
                let purpose = if wait.purpose == "step" { String::new() } else { format!(" ({})", wait.purpose) };
                let deadline = until(wait.deadline);
                format!("model {}{purpose}, call {call}, attempt {attempt}; deadline {deadline}", wait.model)
            }
            "retry" => format!("the next attempt of call {call} after attempt {attempt}, {}", until(wait.at)),
            "tool_call" => {
                let who = match &wait.child {
                    Some(child) => format!("session {child}"),
                    None => format!("tool {} ({})", wait.tool.as_deref().unwrap_or_default(), wait.effect),
                };
                format!("{who}, call {call}, attempt {attempt}; deadline {}", until(wait.deadline))
            }
            "client_call" => {
                let tool = wait.tool.as_deref().unwrap_or_default();
                let since = wait.since.map_or_else(|| "-".to_owned(), |at| self.ago(at));
                format!("the client: call {call} of tool {tool}, opened {since}; deadline {}", until(wait.deadline))
            }
            "pending_calls" => format!("{} that begin after others", format::plural(wait.count, "call")),
            other => other.to_owned(),
        }
    }

    /// A line on the worker of a call.
    fn worker(&self, wait: &Wait) -> Option<String> {
        if !["model_call", "tool_call"].contains(&wait.kind.as_str()) || wait.child.is_some() {
            return None;
        }
        let since = wait.since.map_or_else(|| "on an older page".to_owned(), |at| self.ago(at));
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

    fn ago(&self, at: Timestamp) -> String {
        format!("{} ago", format::duration(self.now.since(at)))
    }

    fn until(&self, at: Timestamp) -> String {
        if at <= self.now {
            return format!("{} ago", format::duration(self.now.since(at)));
        }
        format!("in {}", format::duration(at.since(self.now)))
    }
}
