//! Settings of one session, as fields of `session.start` and `session.configure`.

use std::time::Duration;

use contract::ErrorCode;
use serde_json::{Map, Value, json};
use terminal::failure::CommandFailure;

use crate::args::SessionSettings;

/// Builds the fields that the command line sets.
pub(super) fn session_options(
    settings: &SessionSettings,
    max_iterations: Option<u32>,
    timeout: Option<Duration>,
) -> Result<Map<String, Value>, CommandFailure> {
    let refuse = |why: String| CommandFailure::usage(ErrorCode::BadRequest, why);
    let mut set: Map<String, Value> = match &settings.set {
        Some(text) => {
            serde_json::from_str(text).map_err(|error| refuse(format!("--set is not a JSON object: {error}")))?
        }
        None => Map::new(),
    };
    match settings.continuation.as_deref() {
        Some(switch @ ("on" | "off")) => drop(set.insert("enabled".to_owned(), Value::Bool(switch == "on"))),
        Some(template) => drop(set.insert("template".to_owned(), template.into())),
        None => {}
    }
    set.extend(max_iterations.map(|steps| ("max_iterations".to_owned(), Value::from(steps))));
    set.extend(timeout.map(|timeout| ("timeout".to_owned(), Value::from(timeout.as_secs()))));
    let mut options = Map::new();
    if !set.is_empty() {
        options.insert("continuation".to_owned(), Value::Object(set));
    }
    if !settings.feature.is_empty() || !settings.without.is_empty() {
        options.insert("features".to_owned(), json!({"enable": settings.feature, "disable": settings.without}));
    }
    let ai_config = ai_config(settings);
    if !ai_config.is_empty() {
        options.insert("ai_config".to_owned(), Value::Object(ai_config));
    }
    Ok(options)
}

fn ai_config(settings: &SessionSettings) -> Map<String, Value> {
    let mut config = Map::new();
    // "0.2" is a number and "true" a boolean; a value that is not JSON is a string.
    let value = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()));
    for (field, pairs) in [("parameters", &settings.param), ("streaming", &settings.streaming)] {
        if !pairs.is_empty() {
            let values = pairs.iter().map(|(name, text)| (name.clone(), value(text)));
            config.insert(field.to_owned(), Value::Object(values.collect()));
        }
    }
    if !settings.prompt_param.is_empty() {
        let texts = settings.prompt_param.iter().map(|(name, text)| (name.clone(), Value::String(text.clone())));
        config.insert("prompt_parameters".to_owned(), Value::Object(texts.collect()));
    }
    if let Some(prompt) = &settings.system_prompt {
        config.insert("system_prompt".to_owned(), Value::String(prompt.clone()));
    }
    if !settings.tool_choice.is_empty() {
        let choices = settings.tool_choice.iter().map(|choice| match choice.as_str() {
            "auto" | "none" | "required" => Value::String(choice.clone()),
            name => json!({"type": "function", "function": {"name": name}}),
        });
        config.insert("tool_choice".to_owned(), Value::Array(choices.collect()));
    }
    config
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn session_options_hold_settings_of_the_command_line() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let settings = SessionSettings {
            param: vec![pair("temperature", "0.2"), pair("user", "me")],
            prompt_param: vec![pair("city", "7")],
            system_prompt: Some("Be brief.".to_owned()),
            tool_choice: vec!["required".to_owned(), "look".to_owned()],
            streaming: vec![pair("enabled", "false"), pair("idle", "90")],
            feature: vec!["mailbox".to_owned()],
            without: Vec::new(),
            continuation: Some("plain_words".to_owned()),
            set: Some(r#"{"retries": 1}"#.to_owned()),
        };
        let timeout = Some(Duration::from_secs(9));
        let expected = json!({
            "continuation": {"retries": 1, "template": "plain_words", "max_iterations": 3, "timeout": 9},
            "features": {"enable": ["mailbox"], "disable": []},
            "ai_config": {
                "parameters": {"temperature": 0.2, "user": "me"},
                "streaming": {"enabled": false, "idle": 90},
                "prompt_parameters": {"city": "7"},
                "system_prompt": "Be brief.",
                "tool_choice": ["required", {"type": "function", "function": {"name": "look"}}],
            },
        });
        assert_eq!(Value::Object(session_options(&settings, Some(3), timeout).unwrap()), expected);
        let switched = |word: &str| {
            let settings = SessionSettings { continuation: Some(word.to_owned()), ..SessionSettings::default() };
            session_options(&settings, None, None).unwrap()["continuation"].clone()
        };
        assert_eq!((switched("on"), switched("off")), (json!({"enabled": true}), json!({"enabled": false})));
        assert_eq!(session_options(&SessionSettings::default(), None, None).unwrap(), Map::new());
        let invalid = SessionSettings { set: Some("{".to_owned()), ..SessionSettings::default() };
        assert!(session_options(&invalid, None, None).is_err());
    }
}
