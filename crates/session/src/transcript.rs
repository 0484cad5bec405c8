//! The messages that the model sees. Valid by construction (I3): a reply's results are collected beside it and enter
//! in the order of its calls, each exactly once.

use contract::command::Mode;
use contract::event::{AiFullReceived, Event, GateKind, GateOpened, ToolCallResult};
use contract::ids::{CallId, CommandId};
use contract::model::{Content, Message, ToolCall};
use contract::tool::Outcome;
use contract::{CallId as Id, Json};
use serde::{Deserialize, Serialize};

/// Messages, each serialised once.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Transcript {
    system: Option<Json>,
    messages: Vec<Json>,
    /// Results of the last reply's calls, in their order.
    results: Vec<Expected>,
    /// What the loop says at the start of the next step.
    nudge: Option<String>,
    /// User messages that have no place yet.
    waiting: Vec<Unplaced>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Expected {
    call: CallId,
    content: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Unplaced {
    id: CommandId,
    message: Json,
    steers: bool,
}

impl Transcript {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::SessionStarted(started) => {
                self.system = Some(Json::of(&Message::System { content: started.prompt.clone() }));
                self.messages = started.messages.iter().map(Json::of).collect();
            }
            Event::UserProcessed(user) => self.waiting.push(Unplaced {
                id: user.message_id.clone(),
                message: Json::of(&Message::User { content: user.content.clone() }),
                steers: match user.mode {
                    Mode::Steer | Mode::Interrupt => true,
                    Mode::Queue => false,
                },
            }),
            Event::TurnStarted(turn) => self.place(|unplaced| turn.messages.contains(&unplaced.id)),
            Event::ModelCallOpened(opened) if opened.attempt == 1 => {
                self.close_step();
                if let Some(nudge) = self.nudge.take() {
                    self.messages.push(Json::of(&Message::User { content: Content::Text(nudge) }));
                }
                self.place(|unplaced| unplaced.steers);
            }
            Event::AiFullReceived(reply) => self.reply(reply),
            Event::ToolCallResult(result) => self.result(result),
            Event::ContinuationProgress(progress) => self.nudge.clone_from(&progress.nudge),
            // Taken back at the turn's end, when the answer is no.
            Event::GateOpened(GateOpened { kind: GateKind::Limit(_), .. }) => self.nudge = Some("Go on.".to_owned()),
            Event::TurnCompleted(_) => {
                self.close_step();
                self.nudge = None;
            }
            Event::ContextCleared(_) => {
                self.messages.clear();
                self.results.clear();
            }
            Event::InputHandled(_)
            | Event::InputIgnored(_)
            | Event::SessionEnded(_)
            | Event::ToolsResolved(_)
            | Event::ModelCallOpened(_)
            | Event::ModelCallFailed(_)
            | Event::CallCancelled(_)
            | Event::ModelCallInterrupted(_)
            | Event::ToolCallIdentified(_)
            | Event::ToolCallOpened(_)
            | Event::StatusPaused(_)
            | Event::StatusResumed(_)
            | Event::GateOpened(_)
            | Event::GateClosed(_)
            | Event::TimerSet(_)
            | Event::Error(_)
            | Event::Unknown => {}
        }
    }

    /// The request's messages. Results that are still missing are left out, which only a reader between two steps
    /// can see.
    pub(crate) fn messages(&self) -> Vec<Json> {
        let known = self.results.iter().filter_map(|expected| {
            expected.content.as_ref().map(|content| tool_message(&expected.call, content.clone()))
        });
        self.system.iter().cloned().chain(self.messages.iter().cloned()).chain(known).collect()
    }

    /// The same for another session: each call has a result, messages without a place come last, and ids are told from
    /// those that the other session will make.
    pub(crate) fn taken_over(&self) -> Vec<Message> {
        let mut closed = self.clone();
        closed.close_step();
        closed.place(|_| true);
        let read = |message: &Json| serde_json::from_str::<Message>(message.get()).ok();
        let theirs = |message| match message {
            Message::Assistant { content, reasoning, tool_calls } => {
                let tool_calls = tool_calls.into_iter().map(|call| ToolCall { id: taken(&call.id), ..call }).collect();
                Message::Assistant { content, reasoning, tool_calls }
            }
            Message::Tool { tool_call_id, content } => Message::Tool { tool_call_id: taken(&tool_call_id), content },
            Message::System { .. } | Message::User { .. } => message,
        };
        closed.messages.iter().filter_map(read).map(theirs).collect()
    }

    fn place(&mut self, chosen: impl Fn(&Unplaced) -> bool) {
        let (placed, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(chosen);
        self.waiting = waiting;
        let placed: Vec<Unplaced> = placed;
        self.messages.extend(placed.into_iter().map(|unplaced| unplaced.message));
    }

    fn reply(&mut self, reply: &AiFullReceived) {
        self.close_step();
        let content = reply.raw.clone().unwrap_or_else(|| reply.text.clone());
        if content.is_empty() && reply.reasoning.is_empty() && reply.tool_calls.is_empty() {
            return;
        }
        let reasoning = reply.reasoning.clone();
        let tool_calls = reply.tool_calls.clone();
        self.results = tool_calls
            .iter()
            .filter_map(|call| {
                let content = reply::is_signal(call).then(|| "noted".to_owned());
                Some(Expected { call: Id::new(&call.id).ok()?, content })
            })
            .collect();
        self.messages.push(Json::of(&Message::Assistant { content, reasoning, tool_calls }));
    }

    fn result(&mut self, result: &ToolCallResult) {
        if let Some(expected) = self.results.iter_mut().find(|expected| expected.call == result.call) {
            expected.content = Some(as_read(result));
        }
    }

    /// Moves the results behind their reply; one that is missing is said to be unknown, never left out.
    fn close_step(&mut self) {
        for Expected { call, content } in std::mem::take(&mut self.results) {
            let content = content.unwrap_or_else(|| "unknown: nobody knows what became of this call".to_owned());
            self.messages.push(tool_message(&call, content));
        }
    }
}

/// A call's id in a session that takes the transcript over.
fn taken(id: &str) -> String {
    format!("p-{id}")
}

fn tool_message(call: &CallId, content: String) -> Json {
    Json::of(&Message::Tool { tool_call_id: call.to_string(), content })
}

/// A result as the model reads it: what is not `ok` says so first.
fn as_read(result: &ToolCallResult) -> String {
    let word = match result.outcome {
        Outcome::Ok => return result.content.clone(),
        Outcome::Error => "error",
        Outcome::Denied => "denied",
        Outcome::Timeout => "timeout",
        Outcome::Cancelled => "cancelled",
        Outcome::Unknown => "unknown",
    };
    let code = result.code.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
    format!("{word}{code}: {}", result.content)
}
