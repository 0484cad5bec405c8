//! Instructions of an application. They stand before a message of the user; the prompt of the agent stays as it is.

use contract::model::{Content, Message, Part};

/// Puts instructions before the first message of the user.
pub(super) fn add_instructions(history: &mut [Message], prompt: &mut Content, instructions: &str) {
    let first = history.iter_mut().find_map(|message| match message {
        Message::User { content } => Some(content),
        Message::System { .. } | Message::Assistant { .. } | Message::Tool { .. } => None,
    });
    let text = before_message(instructions);
    match first.unwrap_or(prompt) {
        Content::Text(message) => message.insert_str(0, &text),
        Content::Parts(parts) => parts.insert(0, Part::Text { text }),
    }
}

/// Returns the instructions as they stand before a message.
pub(super) fn before_message(instructions: &str) -> String {
    format!("Instructions of the application:\n{instructions}\n\nMessage of the user:\n")
}
