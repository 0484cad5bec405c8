//! The messages that the model sees. Valid by construction (I3): a reply's results are collected beside it and enter
//! in the order of its calls, each exactly once.

use contract::command::MessageMode;
use contract::commit::TranscriptPart;
use contract::event::{AiCutReceived, AiFullReceived, ContextPruned, Event, GateKind, GateOpened, ToolCallResult};
use contract::ids::{CallId, CommandId};
use contract::model::{AfterPart, Content, Message, ToolCall};
use contract::tool::Outcome;
use contract::{CallId as Id, Json};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use crate::check;
use crate::message_list::MessageList;
use crate::parts::StoredParts;
use crate::shorten::{cut, shorten};
use crate::tokens::TokenMeasurement;

/// End of the text of a reply that was cut off, for its model.
const CUT_MARK: &str = "[The reply was cut off here.]";

/// Messages, each serialised once.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Transcript {
    system: Option<Json>,
    #[serde(default, skip_serializing_if = "MessageList::is_empty")]
    messages: MessageList,
    /// Positions of the messages. An older fold had none: [`Transcript::migrate_positions`].
    #[serde(default, rename = "places", skip_serializing_if = "Vec::is_empty")]
    positions: Vec<MessagePosition>,
    /// Parts in the log that hold the messages, from the first one on.
    #[serde(default, skip_serializing_if = "StoredParts::is_plain")]
    parts: StoredParts,
    /// The turn and step to which new messages belong.
    #[serde(default)]
    at: (u32, u32),
    /// Bytes of the tools that go along.
    #[serde(default)]
    tools: usize,
    /// Bytes of the tools of clients that go along.
    #[serde(default, skip_serializing_if = "is_zero")]
    client_tools: usize,
    /// Bytes of the request that is open, or was last.
    #[serde(default)]
    sent: usize,
    /// Tokens that the provider counted for a request.
    #[serde(default)]
    pub(crate) measured: Option<TokenMeasurement>,
    /// Results of the last reply's calls, in their order.
    results: Vec<Expected>,
    /// Message of the loop to the model at the start of the next step.
    nudge: Option<String>,
    /// User messages that have no place yet.
    waiting: Vec<UnplacedMessage>,
    /// Whether the running turn ends with its next step, which the user's messages do not reach any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_last_step: bool,
}

/// Turn and step of a message, and its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MessagePosition {
    /// Its turn; 0: before the first one.
    pub(crate) turn: u32,
    pub(crate) step: u32,
    pub(crate) kind: MessageKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageKind {
    /// A message that the user sent.
    #[serde(rename = "said")]
    User,
    /// The loop, to the model.
    Nudge,
    Reply,
    Result,
}

impl MessageKind {
    /// Returns the kind of a message from before the session began. Folds below 13 took all of them for messages of the
    /// user.
    fn of(message: &Message) -> Self {
        match message {
            Message::System { .. } | Message::User { .. } => Self::User,
            Message::Assistant { .. } => Self::Reply,
            Message::Tool { .. } => Self::Result,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Expected {
    call: CallId,
    content: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct UnplacedMessage {
    id: CommandId,
    message: Json,
    steers: bool,
    /// Bytes of the tools of clients that go along from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_tools: Option<usize>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(bytes: &usize) -> bool {
    *bytes == 0
}

impl Transcript {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::SessionStarted(started) => {
                self.system = Some(Json::of(&Message::System { content: started.prompt.clone() }));
                for message in &started.messages {
                    self.push(Json::of(message), MessageKind::of(message));
                }
                self.client_tools = check::client_tools_bytes(Some(&started.client_tools));
            }
            Event::UserProcessed(user) => self.waiting.push(UnplacedMessage {
                id: user.message_id.clone(),
                message: Json::of(&Message::User { content: user.content.clone() }),
                steers: match user.mode {
                    MessageMode::Steer | MessageMode::Interrupt => true,
                    MessageMode::Queue => false,
                },
                client_tools: user.client_tools.as_deref().map(|tools| check::client_tools_bytes(Some(tools))),
            }),
            Event::TurnStarted(turn) | Event::PrivateTurnStarted(turn) => {
                self.at = (turn.turn, 0);
                self.insert_waiting(|unplaced| turn.messages.contains(&unplaced.id));
            }
            Event::ToolsResolved(tools) => self.tools = Json::of(&tools.tools).get().len(),
            Event::ModelCallOpened(opened) if opened.attempt == 1 => {
                self.close_step();
                self.at = (opened.turn, opened.step);
                if let Some(nudge) = self.nudge.take() {
                    self.push(Json::of(&Message::User { content: Content::Text(nudge) }), MessageKind::Nudge);
                }
                if !self.is_last_step {
                    self.insert_waiting(|unplaced| unplaced.steers);
                }
                self.sent = self.bytes();
            }
            // Another attempt: what goes out may have been cut since.
            Event::ModelCallOpened(_) => self.sent = self.bytes(),
            Event::AiFullReceived(reply) => self.reply(reply),
            Event::AiCutReceived(cut) => self.cut_reply(cut),
            Event::ToolCallResult(result) => self.result(result),
            Event::ContinuationProgress(progress) => self.nudge.clone_from(&progress.nudge),
            // Taken back at the turn's end, when the answer is no.
            Event::GateOpened(GateOpened { kind: GateKind::Limit(_), .. }) => self.nudge = Some("Go on.".to_owned()),
            Event::LimitReached(reached) => {
                self.is_last_step = true;
                self.nudge = Some(reached.nudge.clone());
            }
            Event::TurnCompleted(_) => {
                self.close_step();
                self.nudge = None;
                self.is_last_step = false;
            }
            Event::ContextCleared(_) => {
                self.parts.release();
                self.messages.clear();
                self.positions.clear();
                self.results.clear();
            }
            Event::Configured(configured) => {
                if let Some(prompt) = &configured.prompt {
                    self.system = Some(Json::of(&Message::System { content: prompt.text.clone() }));
                }
                if let Some(tools) = &configured.client_tools {
                    self.client_tools = check::client_tools_bytes(Some(tools));
                }
            }
            Event::ContextPruned(pruned) => self.prune(pruned),
            Event::InputHandled(_)
            | Event::InputIgnored(_)
            | Event::SessionEnded(_)
            | Event::ModelFellBack(_)
            | Event::SummaryOpened(_)
            | Event::JudgeOpened(_)
            | Event::ChildCommanded(_)
            | Event::ModelCallFailed(_)
            | Event::CallCancelled(_)
            | Event::ModelCallInterrupted(_)
            | Event::ToolCallIdentified(_)
            | Event::ToolCallOpened(_)
            | Event::ClientCallOpened(_)
            | Event::ToolCallExtended(_)
            | Event::StatusPaused(_)
            | Event::StatusResumed(_)
            | Event::GateOpened(_)
            | Event::GateClosed(_)
            | Event::TimerSet(_)
            | Event::SessionArchived(_)
            | Event::SessionImported(_)
            | Event::LogCompacted(_)
            | Event::SessionMoved(_)
            | Event::Error(_)
            | Event::Unknown => {}
        }
    }

    /// The request's messages. Results that are still missing are left out, which only a reader between two steps
    /// can see.
    pub(crate) fn messages(&self) -> Vec<Json> {
        self.system.iter().cloned().chain(self.messages.iter().cloned()).chain(self.known_results()).collect()
    }

    /// Results that are not behind their reply yet.
    fn known_results(&self) -> impl Iterator<Item = Json> {
        self.results.iter().filter_map(|expected| {
            expected.content.as_ref().map(|content| tool_message(&expected.call, content.clone()))
        })
    }

    /// The request's messages without those that the log has in parts; `None` where it has none.
    pub(crate) fn after_parts(&self) -> Option<AfterPart> {
        let (part, system) = (self.parts.last()?.clone(), self.system.clone()?);
        let rest = self.messages.iter().skip(self.parts.messages()).cloned();
        Some(AfterPart { part, system, messages: rest.chain(self.known_results()).collect() })
    }

    /// Bytes of the messages that the log has in no part.
    pub(crate) fn bytes_after_parts(&self) -> usize {
        self.messages.iter().skip(self.parts.messages()).map(|message| message.get().len()).sum()
    }

    /// Returns the messages that are in no part yet, as the next part.
    pub(crate) fn next_part(&self) -> TranscriptPart {
        let stored = self.parts.messages().min(self.messages.len());
        TranscriptPart {
            before: self.parts.all().to_vec(),
            messages: self.messages.iter().skip(stored).cloned().collect(),
            positions: Json::of(&self.positions[stored..]),
            earlier: Vec::new(),
        }
    }

    /// Takes note of the commit that has the next part. Its events are not folded yet.
    pub(crate) fn add_part(&mut self, slot: u64, commit: &str, part: &TranscriptPart) {
        self.parts.add(slot, commit, part, self.messages.len());
    }

    /// The same without its messages, for a snapshot, and the next part, which stands beside it. If the snapshot
    /// `begins_log`, there are no parts before it.
    pub(crate) fn split(&self, begins_log: bool) -> (Self, TranscriptPart) {
        let mut rest = self.clone();
        if begins_log {
            rest.parts.forget();
        }
        let part = rest.next_part();
        rest.messages.clear();
        rest.positions.clear();
        (rest, part)
    }

    /// Puts the messages into what was stored without them: those of `part`, and before it those of its earlier parts,
    /// or else those of the state that was folded until here.
    pub(crate) fn fill(&mut self, part: &TranscriptPart, folded: &Self) -> Result<(), serde_json::Error> {
        let missing = || serde_json::Error::custom("parts of the transcript before it are not there");
        let before: usize = part.before.iter().map(|part| part.messages).sum();
        if part.before.is_empty() {
            self.messages.clear();
            self.positions.clear();
        } else if part.earlier.is_empty() {
            if folded.parts.all() != part.before {
                return Err(missing());
            }
            self.messages = folded.messages.iter().take(before).cloned().collect();
            self.positions = folded.positions[..before].to_vec();
        } else {
            for part in &part.earlier {
                self.messages.extend(part.messages.iter().cloned());
                self.positions.extend(read_positions(part)?);
            }
        }
        if self.messages.len() != before || self.positions.len() != before {
            return Err(missing());
        }
        self.messages.extend(part.messages.iter().cloned());
        self.positions.extend(read_positions(part)?);
        self.parts.set(part.before.clone());
        Ok(())
    }

    /// Returns the parts that commits of the log hold.
    pub(crate) fn parts(&self) -> &StoredParts {
        &self.parts
    }

    pub(crate) fn parts_mut(&mut self) -> &mut StoredParts {
        &mut self.parts
    }

    /// Whether the transcript has the result of a call.
    pub(crate) fn has_result_of(&self, call: &CallId) -> bool {
        let mut results = self.positioned_messages().filter(|(_, place)| place.kind == MessageKind::Result);
        // The last ones are not behind their reply until the next step begins.
        self.results.iter().any(|expected| expected.call == *call && expected.content.is_some())
            || results.any(|(message, _)| is_result_of(message, |id| id == call.as_str()))
    }

    /// Text of the last user message.
    pub(crate) fn asked_last(&self) -> String {
        let user_message = self.positioned_messages().filter(|(_, place)| place.kind == MessageKind::User).last();
        let message = user_message.and_then(|(message, _)| serde_json::from_str::<Message>(message.get()).ok());
        match message {
            Some(Message::User { content }) => content.text(),
            Some(Message::System { .. } | Message::Assistant { .. } | Message::Tool { .. }) | None => String::new(),
        }
    }

    /// The same for another session: each call has a result, messages without a place come last, and ids differ from
    /// those that the other session will make.
    pub(crate) fn export_transcript(&self) -> Vec<Message> {
        let mut closed = self.clone();
        closed.close_step();
        closed.insert_waiting(|_| true);
        let read = |message: &Json| serde_json::from_str::<Message>(message.get()).ok();
        let theirs = |message| match message {
            Message::Assistant { content, reasoning, tool_calls, replay } => {
                let tool_calls =
                    tool_calls.into_iter().map(|call| ToolCall { id: foreign_call_id(&call.id), ..call }).collect();
                Message::Assistant { content, reasoning, tool_calls, replay }
            }
            Message::Tool { tool_call_id, content } => {
                Message::Tool { tool_call_id: foreign_call_id(&tool_call_id), content }
            }
            Message::System { .. } | Message::User { .. } => message,
        };
        closed.messages.iter().filter_map(read).map(theirs).collect()
    }

    fn push(&mut self, message: Json, kind: MessageKind) {
        let (turn, step) = self.at;
        self.messages.push(message);
        self.positions.push(MessagePosition { turn, step, kind });
    }

    /// Leaves out what an event says; a summary takes its place.
    pub(crate) fn prune(&mut self, pruned: &ContextPruned) {
        let goes = |place: &MessagePosition| {
            let older = place.turn == pruned.turn && place.step < pruned.before_step;
            place.turn < pruned.before_turn || (older && place.kind != MessageKind::User)
        };
        let summary = pruned.summary.as_ref().map(|text| {
            let content = Content::Text(format!("Summary of what was said and done before:\n{text}"));
            (Json::of(&Message::User { content }), MessagePosition { turn: 0, step: 0, kind: MessageKind::User })
        });
        let kept = self.positioned_messages().filter(|(_, place)| !goes(place)).map(|(message, place)| {
            let wanted = |id: &str| pruned.cut.iter().any(|cut| cut == id);
            let shorter = (place.kind == MessageKind::Result && is_result_of(message, wanted))
                .then(|| cut(message, pruned.keep_bytes))
                .flatten();
            (shorter.unwrap_or_else(|| message.clone()), place)
        });
        let kept: Vec<(Json, MessagePosition)> = summary.into_iter().chain(kept).collect();
        (self.messages, self.positions) = kept.into_iter().unzip();
        self.parts.release();
        // The last results are not behind their reply yet.
        for expected in &mut self.results {
            if pruned.cut.iter().any(|cut| cut == expected.call.as_str())
                && let Some(content) = &expected.content
                && let Some(shorter) = shorten(content, pruned.keep_bytes)
            {
                expected.content = Some(shorter);
            }
        }
    }

    /// Takes all messages for messages of the user, as folds below 13 took a history.
    pub(crate) fn take_history_for_the_users(&mut self) {
        for place in &mut self.positions {
            place.kind = MessageKind::User;
        }
    }

    /// Gives positions to messages of an older fold, which had none: those from the last user message on belong to
    /// the turn that runs, or ran last.
    pub(crate) fn migrate_positions(&mut self, turn: u32) {
        let unknown = self.messages.len().saturating_sub(self.positions.len());
        let texts: Vec<&Json> = self.messages.iter().take(unknown).collect();
        let role = |message: &Json| message.get().split('"').nth(3).unwrap_or_default().to_owned();
        let asked = texts.iter().rposition(|message| role(message) == "user").unwrap_or(0);
        let place = |(index, message): (usize, &Json)| {
            let kind = match role(message).as_str() {
                "assistant" => MessageKind::Reply,
                "tool" => MessageKind::Result,
                _ => MessageKind::User,
            };
            if index < asked {
                MessagePosition { turn: 0, step: 0, kind }
            } else {
                MessagePosition { turn, step: 1, kind }
            }
        };
        let positions: Vec<MessagePosition> = texts.into_iter().enumerate().map(place).collect();
        self.positions.splice(0..0, positions);
        self.drop_silent_replies();
    }

    /// Leaves out replies of reasoning alone, which an older fold kept and which providers refuse.
    fn drop_silent_replies(&mut self) {
        // A look tells of most: a quote within a text is escaped, so that this is the key.
        let looks_silent = |message: &Json| !message.get().contains(r#""content":"#);
        let says = |message: &Json| match serde_json::from_str::<Message>(message.get()) {
            Ok(Message::Assistant { content, reasoning, tool_calls, .. }) => {
                reasoning.is_empty() || !content.trim().is_empty() || !tool_calls.is_empty()
            }
            Ok(Message::System { .. } | Message::User { .. } | Message::Tool { .. }) | Err(_) => true,
        };
        let silent = |message: &Json, place: MessagePosition| {
            place.kind == MessageKind::Reply && looks_silent(message) && !says(message)
        };
        if self.positioned_messages().any(|(message, place)| silent(message, place)) {
            let kept = self.positioned_messages().filter(|(message, place)| !silent(message, *place));
            (self.messages, self.positions) = kept.map(|(message, place)| (message.clone(), place)).unzip();
            self.parts.release();
        }
    }

    pub(crate) fn system(&self) -> Option<&Json> {
        self.system.as_ref()
    }

    /// Every message that stands, with its place.
    pub(crate) fn positioned_messages(&self) -> impl Iterator<Item = (&Json, MessagePosition)> {
        self.messages.iter().zip(self.positions())
    }

    pub(crate) fn positions(&self) -> impl Iterator<Item = MessagePosition> {
        self.positions.iter().copied()
    }

    /// Bytes of all that a request would hold now.
    pub(crate) fn bytes(&self) -> usize {
        const FRAME: usize = 64;
        let texts = self.system.as_ref().map_or(0, |system| system.get().len()) + self.messages.bytes();
        let results: usize = self.results.iter().map(|r| FRAME + r.content.as_ref().map_or(0, String::len)).sum();
        let waiting: usize = self.waiting.iter().map(|unplaced| unplaced.message.get().len()).sum();
        let nudge = self.nudge.as_ref().map_or(0, |nudge| FRAME + nudge.len());
        texts + results + waiting + nudge + self.tools + self.client_tools
    }

    /// Bytes of memory that it takes, about.
    pub(crate) fn weight(&self) -> usize {
        /// Memory of one message besides its text, in bytes.
        const ENTRY_BYTES: usize = 64;
        let entries = self.messages.len() + self.results.len() + self.waiting.len() + 1;
        self.bytes().saturating_sub(self.tools + self.client_tools) + entries * ENTRY_BYTES
    }

    fn insert_waiting(&mut self, chosen: impl Fn(&UnplacedMessage) -> bool) {
        let (placed, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(chosen);
        self.waiting = waiting;
        let placed: Vec<UnplacedMessage> = placed;
        for unplaced in placed {
            self.client_tools = unplaced.client_tools.unwrap_or(self.client_tools);
            self.push(unplaced.message, MessageKind::User);
        }
    }

    fn reply(&mut self, reply: &AiFullReceived) {
        self.close_step();
        self.measured = TokenMeasurement::new(self.sent, reply.spent).or(self.measured);
        let content = reply.raw.clone().unwrap_or_else(|| reply.text.clone());
        if content.trim().is_empty() && reply.tool_calls.is_empty() {
            return;
        }
        let reasoning = reply.reasoning.clone();
        let tool_calls = reply.tool_calls.clone();
        self.results = tool_calls
            .iter()
            .filter_map(|call| {
                let content = call.is_signal().then(|| "noted".to_owned());
                Some(Expected { call: Id::new(&call.id).ok()?, content })
            })
            .collect();
        let user_message = Message::Assistant { content, reasoning, tool_calls, replay: reply.replay.clone() };
        self.push(Json::of(&user_message), MessageKind::Reply);
    }

    /// Puts what had come of a reply where the reply would stand: its turn may be over. It stays out where nothing of its
    /// turn is left.
    fn cut_reply(&mut self, cut: &AiCutReceived) {
        let is_before = |place: &MessagePosition| place.turn == cut.turn && place.step <= cut.step;
        let Some(last) = self.positions.iter().rposition(is_before).filter(|_| !cut.text.trim().is_empty()) else {
            return;
        };
        let content = format!("{}\n{CUT_MARK}", cut.text);
        let (reasoning, tool_calls) = (String::new(), Vec::new());
        let message = Json::of(&Message::Assistant { content, reasoning, tool_calls, replay: None });
        let place = MessagePosition { turn: cut.turn, step: cut.step, kind: MessageKind::Reply };
        self.messages.insert(last + 1, message);
        self.positions.insert(last + 1, place);
        if last + 1 < self.parts.messages() {
            self.parts.release();
        }
    }

    /// The last result of a turn, as the model read it.
    pub(crate) fn last_result(&self, turn: u32) -> Option<String> {
        let mut placed = self.messages.iter().zip(&self.positions).rev();
        let (message, _) = placed.find(|(_, place)| place.turn == turn && place.kind == MessageKind::Result)?;
        match serde_json::from_str(message.get()) {
            Ok(Message::Tool { content, .. }) => Some(content),
            Ok(Message::System { .. } | Message::User { .. } | Message::Assistant { .. }) | Err(_) => None,
        }
    }

    fn result(&mut self, result: &ToolCallResult) {
        if let Some(expected) = self.results.iter_mut().find(|expected| expected.call == result.call) {
            expected.content = Some(as_read(result));
        }
    }

    /// Moves the results behind their reply; a missing one is reported as unknown, never left out.
    fn close_step(&mut self) {
        for Expected { call, content } in std::mem::take(&mut self.results) {
            let content = content.unwrap_or_else(|| "unknown: nobody knows what became of this call".to_owned());
            self.push(tool_message(&call, content), MessageKind::Result);
        }
    }
}

/// Whether a message is the result of a wanted call. The id stands first; the text after it may be long.
fn is_result_of(message: &Json, wanted: impl Fn(&str) -> bool) -> bool {
    let id = message.get().split_once("\"tool_call_id\":\"").and_then(|(_, rest)| rest.split_once('"'));
    id.is_some_and(|(id, _)| wanted(id))
}

fn read_positions(part: &TranscriptPart) -> Result<Vec<MessagePosition>, serde_json::Error> {
    let positions: Vec<MessagePosition> = serde_json::from_str(part.positions.get())?;
    if positions.len() == part.messages.len() {
        return Ok(positions);
    }
    Err(serde_json::Error::custom("a part of the transcript has not one position for each message"))
}

/// A call's id in a session that takes the transcript over.
fn foreign_call_id(id: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_of_an_older_fold_with_reasoning_alone_is_read_without_it() {
        let message = |text: &str| Json::parse(text).unwrap();
        let mut transcript = Transcript { at: (1, 1), ..Transcript::default() };
        let replies = [
            r#"{"role":"assistant","reasoning":"It says \"content\": nothing."}"#,
            r#"{"role":"assistant","content":"One.","reasoning":"hm"}"#,
            r#"{"role":"assistant","reasoning":"hm","tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{}"}}]}"#,
        ];
        for text in replies {
            transcript.push(message(text), MessageKind::Reply);
        }
        transcript.migrate_positions(1);
        let kept: Vec<&str> = transcript.positioned_messages().map(|(message, _)| message.get()).collect();
        assert_eq!(kept, replies[1..]);
    }

    #[test]
    fn messages_of_an_older_fold_get_positions() {
        let message = |text: &str| Json::parse(text).unwrap();
        let mut transcript = Transcript::default();
        for text in [
            r#"{"role":"user","content":"One."}"#,
            r#"{"role":"assistant","content":"1"}"#,
            r#"{"role":"user","content":"Two."}"#,
            r#"{"role":"assistant","tool_calls":[]}"#,
            r#"{"role":"tool","tool_call_id":"c","content":"x"}"#,
        ] {
            transcript.messages.push(message(text));
        }
        // One that came since has its place already.
        transcript.at = (7, 2);
        transcript.push(message(r#"{"role":"assistant","content":"2"}"#), MessageKind::Reply);
        transcript.migrate_positions(7);
        let positions: Vec<_> = transcript.positions().map(|place| (place.turn, place.step, place.kind)).collect();
        let wanted = [
            (0, 0, MessageKind::User),
            (0, 0, MessageKind::Reply),
            (7, 1, MessageKind::User),
            (7, 1, MessageKind::Reply),
            (7, 1, MessageKind::Result),
            (7, 2, MessageKind::Reply),
        ];
        assert_eq!(positions, wanted);
        let before = transcript.positions.len();
        transcript.migrate_positions(9);
        assert_eq!(transcript.positions.len(), before, "nothing is left to place");
    }
}
