//! Parameters that a session may send to a provider, by protocol. A parameter is refused if a budget does not count its
//! cost or if it is unknown. Operators may allow more.

use configuration::models::{ProviderEntry, RESERVED_PARAMETERS};
use contract::model::FailureKind;
use serde_json::{Map, Value};

use super::ProviderProtocol;
use crate::failure::CallFailure;

/// Maximum tokens of a reply that a session may request.
const TOKENS_MAX: u64 = 1 << 30;
/// Maximum number of stop texts.
const STOPS_MAX: usize = 16;
/// Maximum characters of a text.
const TEXT_CHARS_MAX: usize = 512;
/// Maximum entries of an object with free names, such as `logit_bias`.
const ENTRIES_MAX: usize = 1_024;
/// Maximum characters of a refused name in a message.
const REFUSED_NAME_CHARS_MAX: usize = 64;

/// A parameter that a protocol accepts.
#[derive(Debug, Clone, Copy)]
struct Rule {
    name: &'static str,
    shape: Shape,
}

/// Type and bounds of a value.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// A number between two bounds, inclusive.
    Number(f64, f64),
    Tokens,
    Integer,
    Flag,
    Text,
    /// A text or a list of texts.
    Stops,
    /// `auto`, `none`, `required`, or the name of a function.
    ToolChoice,
    /// An object of numbers with free names.
    Numbers,
    Object(&'static [Rule]),
}

const fn rule(name: &'static str, shape: Shape) -> Rule {
    Rule { name, shape }
}

const TEMPERATURE: Rule = rule("temperature", Shape::Number(0.0, 2.0));
const TOP_P: Rule = rule("top_p", Shape::Number(0.0, 1.0));
const TOP_K: Rule = rule("top_k", Shape::Integer);
const MAX_TOKENS: Rule = rule("max_tokens", Shape::Tokens);
const MAX_COMPLETION_TOKENS: Rule = rule("max_completion_tokens", Shape::Tokens);
const STOP: Rule = rule("stop", Shape::Stops);
const TOOL_CHOICE: Rule = rule("tool_choice", Shape::ToolChoice);
const SEED: Rule = rule("seed", Shape::Integer);
const FREQUENCY_PENALTY: Rule = rule("frequency_penalty", Shape::Number(-2.0, 2.0));
const PRESENCE_PENALTY: Rule = rule("presence_penalty", Shape::Number(-2.0, 2.0));
const REASONING_EFFORT: Rule = rule("reasoning_effort", Shape::Text);

const OPENAI_CHAT: &[Rule] = &[
    TEMPERATURE,
    TOP_P,
    MAX_TOKENS,
    MAX_COMPLETION_TOKENS,
    STOP,
    TOOL_CHOICE,
    SEED,
    FREQUENCY_PENALTY,
    PRESENCE_PENALTY,
    REASONING_EFFORT,
    rule("verbosity", Shape::Text),
    rule("logit_bias", Shape::Numbers),
    rule("user", Shape::Text),
];

const OPENAI_RESPONSES: &[Rule] = &[
    TEMPERATURE,
    TOP_P,
    MAX_TOKENS,
    MAX_COMPLETION_TOKENS,
    rule("max_output_tokens", Shape::Tokens),
    TOOL_CHOICE,
    REASONING_EFFORT,
    rule("reasoning", Shape::Object(&[rule("effort", Shape::Text), rule("summary", Shape::Text)])),
    rule("text", Shape::Object(&[rule("verbosity", Shape::Text)])),
    rule("user", Shape::Text),
];

const ANTHROPIC: &[Rule] = &[
    rule("temperature", Shape::Number(0.0, 1.0)),
    TOP_P,
    TOP_K,
    MAX_TOKENS,
    MAX_COMPLETION_TOKENS,
    STOP,
    rule("stop_sequences", Shape::Stops),
    TOOL_CHOICE,
    rule(
        "thinking",
        Shape::Object(&[rule("type", Shape::Text), rule("budget_tokens", Shape::Tokens), rule("display", Shape::Text)]),
    ),
    rule("output_config", Shape::Object(&[rule("effort", Shape::Text)])),
];

const GEMINI: &[Rule] = &[
    TEMPERATURE,
    TOP_P,
    TOP_K,
    MAX_TOKENS,
    MAX_COMPLETION_TOKENS,
    STOP,
    TOOL_CHOICE,
    SEED,
    FREQUENCY_PENALTY,
    PRESENCE_PENALTY,
    rule(
        "generationConfig",
        Shape::Object(&[
            TEMPERATURE,
            rule("topP", Shape::Number(0.0, 1.0)),
            rule("topK", Shape::Integer),
            rule("maxOutputTokens", Shape::Tokens),
            rule("stopSequences", Shape::Stops),
            SEED,
            rule("frequencyPenalty", Shape::Number(-2.0, 2.0)),
            rule("presencePenalty", Shape::Number(-2.0, 2.0)),
            rule(
                "thinkingConfig",
                Shape::Object(&[
                    rule("includeThoughts", Shape::Flag),
                    rule("thinkingBudget", Shape::Integer),
                    rule("thinkingLevel", Shape::Text),
                ]),
            ),
        ]),
    ),
];

fn rules_of(protocol: ProviderProtocol) -> &'static [Rule] {
    match protocol {
        ProviderProtocol::OpenaiChat => OPENAI_CHAT,
        ProviderProtocol::OpenaiResponses => OPENAI_RESPONSES,
        ProviderProtocol::Anthropic => ANTHROPIC,
        ProviderProtocol::Gemini => GEMINI,
    }
}

/// Merges the parameters of the operator with those of the session. A parameter of the session must be allowed by the
/// protocol or the operator; `null` counts as absent. Any other parameter fails the request, unless the operator drops
/// unknown ones.
pub(crate) fn check_parameters(
    protocol: ProviderProtocol,
    entry: &ProviderEntry,
    session: &Map<String, Value>,
) -> Result<Map<String, Value>, CallFailure> {
    let mut sent = entry.parameters.clone();
    for (name, value) in session {
        if RESERVED_PARAMETERS.contains(&name.as_str()) {
            return Err(refuse(name, "is refused: ailoop writes it itself"));
        }
        let known = rules_of(protocol).iter().find(|rule| rule.name == name);
        let allowed = entry.allow_parameters.iter().any(|allowed| allowed == name);
        match known {
            None if !allowed && entry.drop_unknown_parameters => {
                tracing::debug!(parameter = name, "parameter dropped: the protocol does not have it");
                continue;
            }
            None if !allowed => return Err(refuse_unknown(protocol, name)),
            _ if value.is_null() => continue,
            Some(rule) => rule.shape.check(value).map_err(|why| refuse(name, &why))?,
            None => {}
        }
        sent.insert(name.clone(), value.clone());
    }
    Ok(sent)
}

/// Maximum tokens of a reply in these parameters. Each protocol has its own name for it; the largest value counts.
pub(crate) fn output_max(parameters: &Map<String, Value>) -> Option<u64> {
    let names = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
    let nested = parameters.get("generationConfig").and_then(|config| config.get("maxOutputTokens"));
    names.iter().filter_map(|name| parameters.get(*name)).chain(nested).filter_map(Value::as_u64).max()
}

fn refuse(name: &str, why: &str) -> CallFailure {
    let name: String = name.chars().take(REFUSED_NAME_CHARS_MAX).collect();
    CallFailure::new(FailureKind::BadRequest, format!("parameter {name:?} {why}"))
}

fn refuse_unknown(protocol: ProviderProtocol, name: &str) -> CallFailure {
    let why = format!(
        "is refused: {} takes {}; an operator allows more with allow_parameters, or drops others with drop_unknown_parameters, of the provider in models.yaml",
        protocol.config_name(),
        list_names(rules_of(protocol))
    );
    refuse(name, &why)
}

fn list_names(rules: &[Rule]) -> String {
    rules.iter().map(|rule| rule.name).collect::<Vec<_>>().join(", ")
}

impl Shape {
    /// Checks a value. The error is the end of a sentence that begins with the parameter.
    fn check(self, value: &Value) -> Result<(), String> {
        let is_valid = match self {
            Self::Number(least, most) => value.as_f64().is_some_and(|number| (least..=most).contains(&number)),
            Self::Tokens => value.as_u64().is_some_and(|tokens| (1..=TOKENS_MAX).contains(&tokens)),
            Self::Integer => value.as_i64().is_some(),
            Self::Flag => value.is_boolean(),
            Self::Text => is_text(value),
            Self::Stops => {
                is_text(value)
                    || value.as_array().is_some_and(|stops| stops.len() <= STOPS_MAX && stops.iter().all(is_text))
            }
            Self::ToolChoice => is_tool_choice(value),
            Self::Numbers => value.as_object().is_some_and(|entries| {
                entries.len() <= ENTRIES_MAX && entries.values().all(|entry| entry.as_f64().is_some())
            }),
            Self::Object(fields) => return check_object(value, fields),
        };
        if is_valid { Ok(()) } else { Err(format!("must be {}, not {}", self.describe(), kind_of(value))) }
    }

    fn describe(self) -> String {
        match self {
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Tokens => format!("a whole number from 1 to {TOKENS_MAX}"),
            Self::Integer => "a whole number".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Text => format!("a text of at most {TEXT_CHARS_MAX} characters"),
            Self::Stops => format!("a text of at most {TEXT_CHARS_MAX} characters, or at most {STOPS_MAX} of them"),
            Self::ToolChoice => {
                "\"auto\", \"none\", \"required\" or {\"type\":\"function\",\"function\":{\"name\":\"…\"}}".to_owned()
            }
            Self::Numbers => format!("an object of at most {ENTRIES_MAX} numbers"),
            Self::Object(fields) => format!("an object of {}", list_names(fields)),
        }
    }
}

fn check_object(value: &Value, fields: &'static [Rule]) -> Result<(), String> {
    let Some(given) = value.as_object() else {
        return Err(format!("must be an object of {}, not {}", list_names(fields), kind_of(value)));
    };
    for (name, field) in given {
        let Some(rule) = fields.iter().find(|rule| rule.name == name) else {
            let name: String = name.chars().take(REFUSED_NAME_CHARS_MAX).collect();
            return Err(format!("holds {name:?}, which is refused: it takes {}", list_names(fields)));
        };
        rule.shape.check(field).map_err(|why| format!("holds {name:?}, which {why}"))?;
    }
    Ok(())
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.chars().count() <= TEXT_CHARS_MAX)
}

fn is_tool_choice(value: &Value) -> bool {
    match value.as_str() {
        Some(word) => matches!(word, "auto" | "none" | "required" | "any"),
        None => is_text(&value["function"]["name"]),
    }
}

/// Type of a value, without its content.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "this number",
        Value::String(_) => "this text",
        Value::Array(_) => "this list",
        Value::Object(_) => "this object",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use configuration::TextFile;
    use configuration::models;
    use serde_json::json;

    use super::*;

    fn check(entry: &str, session: &Value) -> Result<Value, String> {
        let text = format!("providers: {{p: {{kind: openai_chat, base_url: 'http://p'{entry}}}}}");
        let models = models::parse(&TextFile { origin: "models.yaml".to_owned(), text }).unwrap();
        let session = session.as_object().unwrap();
        let sent = check_parameters(ProviderProtocol::OpenaiChat, &models.providers["p"], session);
        sent.map(Value::Object).map_err(|failure| failure.message)
    }

    #[test]
    fn operator_parameter_is_sent_and_a_session_replaces_only_allowed_ones() {
        let entry = ", parameters: {temperature: 1.0, service_tier: flex, min_p: 0.1}, allow_parameters: [top_k]";
        let sent = check(entry, &json!({"temperature": 0.5, "top_k": {"any": 1}})).unwrap();
        assert_eq!(sent, json!({"temperature": 0.5, "service_tier": "flex", "min_p": 0.1, "top_k": {"any": 1}}));
        let refusal = check(entry, &json!({"service_tier": "priority"})).unwrap_err();
        assert!(refusal.starts_with("parameter \"service_tier\" is refused"), "{refusal}");
        assert_eq!(check(entry, &json!({"temperature": null})).unwrap()["temperature"], 1.0);
    }

    #[test]
    fn unknown_parameter_with_drop_unknown_parameters_is_dropped() {
        let sent = check(", drop_unknown_parameters: true", &json!({"temperature": 0.5, "foo": 1})).unwrap();
        assert_eq!(sent, json!({"temperature": 0.5}));
        // A known parameter with a wrong value is still refused, and so is one that ailoop sets itself.
        for wrong in [json!({"temperature": "hot"}), json!({"messages": []})] {
            assert!(check(", drop_unknown_parameters: true", &wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn refusal_of_a_long_name_fits_into_a_message() {
        for protocol in [
            ProviderProtocol::OpenaiChat,
            ProviderProtocol::OpenaiResponses,
            ProviderProtocol::Anthropic,
            ProviderProtocol::Gemini,
        ] {
            let long = "x".repeat(500);
            let message = refuse_unknown(protocol, &long).message;
            assert!(message.ends_with("in models.yaml"), "{message}");
        }
    }
}
