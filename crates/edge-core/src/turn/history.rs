//! The history that a client keeps itself, and the turn that it asks for with it.

use std::collections::{HashMap, VecDeque};

use contract::model::{Content, HistoryCall, HistoryMessage, Part};

use super::instructions::{add_instructions, before_message, insert_before, instruction};

/// Prompt of a turn whose messages end with a reply, or with results of its calls.
const GO_ON: &str = "Go on from here.";

/// Turn that the messages of a client request from a session.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientTurn {
    /// Instructions of the application that hold for all messages. They are in none of them yet.
    pub instructions: Vec<String>,
    /// Last message, which begins the turn.
    pub prompt: Content,
    /// Messages and calls before the prompt, for a session that does not know them.
    pub history: Vec<HistoryMessage>,
}

impl ClientTurn {
    /// Puts the instructions before the first message of the user.
    #[must_use]
    pub fn with_instructions(mut self) -> Self {
        add_instructions(&mut self.prompt, &mut self.history, &std::mem::take(&mut self.instructions));
        self
    }
}

/// Messages of a client, taken in their order. Calls and results are matched by the ids that whichever server gave them.
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    /// Instructions of the application before the first message.
    instructions: Vec<String>,
    /// Instructions of the application after the last message.
    last_instructions: Vec<String>,
    messages: Vec<HistoryMessage>,
    /// Calls without a result by id: the index of the reply, and that of the call in it.
    open: HashMap<String, VecDeque<(usize, usize)>>,
    /// Whether the next call belongs to the last reply.
    is_reply_open: bool,
}

/// A result of a call that no reply before it asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct OrphanedResult;

impl HistoryBuilder {
    /// Adds instructions of the application. Those before the first message hold for all of them.
    pub fn push_instructions(&mut self, text: String) {
        let list = if self.messages.is_empty() { &mut self.instructions } else { &mut self.last_instructions };
        list.push(text);
    }

    /// Adds a message of the user.
    pub fn push_user(&mut self, content: Content) {
        self.place_instructions();
        self.is_reply_open = false;
        self.messages.push(HistoryMessage::User { content });
    }

    /// Begins a reply with its text; calls that follow belong to it.
    pub fn push_reply(&mut self, content: String) {
        self.place_instructions();
        self.is_reply_open = true;
        let (reasoning, tool_calls) = (String::new(), Vec::new());
        self.messages.push(HistoryMessage::Assistant { content, reasoning, tool_calls, replay: None });
    }

    /// Adds a call to the reply that is open, or to one of its own.
    pub fn push_call(&mut self, id: &str, name: &str, arguments: &str) {
        if !self.is_reply_open {
            self.push_reply(String::new());
        }
        let index = self.messages.len() - 1;
        let Some(HistoryMessage::Assistant { tool_calls, .. }) = self.messages.last_mut() else { return };
        let places = self.open.entry(id.to_owned()).or_default();
        // Some servers use the same ids in each reply.
        places.retain(|(reply, _)| *reply == index);
        places.push_back((index, tool_calls.len()));
        tool_calls.push(HistoryCall { name: name.to_owned(), arguments: arguments.to_owned(), result: None });
    }

    /// Adds the result of a call.
    pub fn push_result(&mut self, id: &str, content: String) -> Result<(), OrphanedResult> {
        self.is_reply_open = false;
        let (reply, call) = self.open.get_mut(id).and_then(VecDeque::pop_front).ok_or(OrphanedResult)?;
        if let Some(HistoryMessage::Assistant { tool_calls, .. }) = self.messages.get_mut(reply)
            && let Some(call) = tool_calls.get_mut(call)
        {
            call.result = Some(content);
        }
        Ok(())
    }

    /// Whether the last message is one of the user.
    pub fn ends_with_user(&self) -> bool {
        let last = self.messages.iter().rev().find(|message| !is_empty_reply(message));
        matches!(last, Some(HistoryMessage::User { .. }))
    }

    /// Returns the turn that the messages ask for; `None` if there is no message.
    pub fn into_turn(mut self) -> Option<ClientTurn> {
        let last = std::mem::take(&mut self.last_instructions).join("\n\n");
        let mut history = self.messages_with_content();
        let prompt = match history.pop() {
            Some(HistoryMessage::User { mut content }) => {
                if !last.is_empty() {
                    insert_before(&mut content, before_message(&last));
                }
                content
            }
            Some(reply) => {
                history.push(reply);
                Content::Text(if last.is_empty() { GO_ON.to_owned() } else { instruction(&last) })
            }
            None if self.instructions.is_empty() => return None,
            None => Content::Text(instruction(&std::mem::take(&mut self.instructions).join("\n\n"))),
        };
        Some(ClientTurn { instructions: self.instructions, prompt, history })
    }

    /// Returns all messages as the history of a session that begins without a turn.
    pub fn into_history(mut self) -> Vec<HistoryMessage> {
        self.place_instructions();
        let mut history = self.messages_with_content();
        let instructions = self.instructions.join("\n\n");
        if !instructions.is_empty() {
            history.insert(0, HistoryMessage::User { content: Content::Text(instruction(&instructions)) });
        }
        history
    }

    /// Gives instructions between two messages their place.
    fn place_instructions(&mut self) {
        if !self.last_instructions.is_empty() {
            let text = instruction(&std::mem::take(&mut self.last_instructions).join("\n\n"));
            self.messages.push(HistoryMessage::User { content: Content::Text(text) });
        }
    }

    /// Takes the messages but replies without text and calls.
    fn messages_with_content(&mut self) -> Vec<HistoryMessage> {
        let mut messages = std::mem::take(&mut self.messages);
        messages.retain(|message| !is_empty_reply(message));
        messages
    }
}

fn is_empty_reply(message: &HistoryMessage) -> bool {
    match message {
        HistoryMessage::User { .. } => false,
        HistoryMessage::Assistant { content, tool_calls, .. } => content.trim().is_empty() && tool_calls.is_empty(),
    }
}

/// Returns the result of a call as its model reads it.
pub fn result_text(content: &Content) -> String {
    let part = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::ImageUrl { .. } => describe_part("image"),
    };
    match content {
        Content::Text(text) => text.clone(),
        Content::Parts(parts) => parts.iter().map(part).collect::<Vec<_>>().join("\n"),
    }
}

/// Returns a part of a result as its model reads it: results of tools are texts, so that other parts are named only.
pub fn describe_part(kind: &str) -> String {
    let kind: String = kind.chars().take(40).collect();
    format!("[{kind}, not shown]")
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
