//! The history that a start brings, as messages of a transcript.

use contract::model::{HistoryMessage, Message, ToolCall};

/// Result of a call of which the history has none.
const NO_RESULT: &str = "no result";

/// Makes messages of a history. A call gets an id that no call of a session has, and its result stands behind its
/// reply (I3).
pub(crate) fn to_messages(history: &[HistoryMessage]) -> impl Iterator<Item = Message> {
    (1..).zip(history).flat_map(|(number, message)| to_reply_and_results(number, message))
}

fn to_reply_and_results(number: usize, message: &HistoryMessage) -> Vec<Message> {
    let (content, reasoning, calls, parts) = match message {
        HistoryMessage::User { content } => return vec![Message::User { content: content.clone() }],
        HistoryMessage::Assistant { content, reasoning, tool_calls, replay } => {
            (content.clone(), reasoning.clone(), tool_calls, replay.clone())
        }
    };
    // Like the ids of the loop, they end with the position of the call in its reply.
    let id = |position: usize| format!("h{number}-{position}");
    let tool_calls = (1..).zip(calls).map(|(position, call)| ToolCall::new(&id(position), &call.name, &call.arguments));
    let reply = Message::Assistant { content, reasoning, tool_calls: tool_calls.collect(), replay: parts };
    let results = (1..).zip(calls).map(|(position, call)| Message::Tool {
        tool_call_id: id(position),
        content: call.result.clone().unwrap_or_else(|| NO_RESULT.to_owned()),
    });
    [reply].into_iter().chain(results).collect()
}
