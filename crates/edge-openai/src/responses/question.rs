//! Questions to a person, for clients that show text and requests for approval.

use contract::ToolName;
use contract::event::GateKind;
use contract::tool::GateQuestion;

/// Returns a question of the model as the text of a message.
pub(crate) fn text(arguments: &str) -> String {
    let Ok(GateQuestion { question, choices }) = serde_json::from_str(arguments) else {
        return "The agent asks a question that cannot be shown.".to_owned();
    };
    choices.iter().fold(question, |text, choice| format!("{text}\n- {choice}"))
}

/// Returns the name of what is to be allowed: a tool, or that the turn goes on.
pub(crate) fn name(tool: Option<&ToolName>, kind: GateKind) -> String {
    match (tool, kind) {
        (Some(tool), _) => tool.to_string(),
        (None, GateKind::Limit(limit)) => format!("go_on_after_{}", limit.as_str()),
        (None, GateKind::Error(_)) => "try_again_after_error".to_owned(),
        (None, GateKind::Approval | GateKind::Question) => "go_on".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_is_shown_with_its_choices() {
        assert_eq!(text(r#"{"question": "Which?", "choices": ["a", "b"], "default": "a"}"#), "Which?\n- a\n- b");
        assert_eq!(text("{}"), "The agent asks a question that cannot be shown.");
    }
}
