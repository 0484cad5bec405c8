//! Instructions of an application: agents keep their own prompts, so they stand before a message of the user.

use contract::model::{Content, HistoryMessage, Part};

/// Texts before the instructions, and between them and the message.
const BEFORE: &str = "Instructions of the application:\n";
const BETWEEN: &str = "\n\nMessage of the user:\n";
/// Text before an instruction that is a message by itself.
const ALONE: &str = "Instruction of the application:\n";

/// Puts instructions of the application before the first message of the user. The prompt of the agent stays as it is.
pub fn add_instructions(prompt: &mut Content, history: &mut [HistoryMessage], instructions: &[String]) {
    if instructions.is_empty() {
        return;
    }
    let first = history.iter_mut().find_map(|message| match message {
        HistoryMessage::User { content } => Some(content),
        HistoryMessage::Assistant { .. } => None,
    });
    insert_before(first.unwrap_or(prompt), before_message(&instructions.join("\n\n")));
}

/// Puts a text before a message.
pub(super) fn insert_before(message: &mut Content, text: String) {
    match message {
        Content::Text(message) => message.insert_str(0, &text),
        Content::Parts(parts) => parts.insert(0, Part::Text { text }),
    }
}

/// Returns an instruction as a message by itself.
pub(super) fn instruction(text: &str) -> String {
    format!("{ALONE}{text}")
}

/// Returns instructions as they stand before a message.
pub fn before_message(instructions: &str) -> String {
    format!("{BEFORE}{instructions}{BETWEEN}")
}

/// Returns a message as the user wrote it, for its readers.
pub fn without_instructions(text: &str) -> &str {
    let rest = text.strip_prefix(BEFORE).and_then(|rest| rest.split_once(BETWEEN));
    rest.map_or(text, |(_, message)| message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_stand_before_the_first_message_of_the_user_and_are_not_shown() {
        let mut prompt = Content::Text("Hi".to_owned());
        add_instructions(&mut prompt, &mut [], &["Be brief.".to_owned(), "Be kind.".to_owned()]);
        let text = prompt.text();
        assert_eq!(text, "Instructions of the application:\nBe brief.\n\nBe kind.\n\nMessage of the user:\nHi");
        assert_eq!(without_instructions(&text), "Hi");
        let mut history = [HistoryMessage::User { content: prompt.clone() }];
        add_instructions(&mut Content::Text("later".to_owned()), &mut history, &[]);
        assert_eq!(history, [HistoryMessage::User { content: prompt }]);
        assert_eq!(
            without_instructions("Instructions of the application: none"),
            "Instructions of the application: none"
        );
    }
}
