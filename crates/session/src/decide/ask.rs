//! `ask_user`: a call that a person answers, through a gate.

use contract::ids::ToolName;
use contract::limits::{QUESTION_BYTES_MAX, QUESTION_CHOICES_MAX};
use contract::tool::{ASK_USER, ApprovalPolicy, EffectClass, ToolSpec};
use contract::{ErrorCode, Json};
use serde::Deserialize;

/// Arguments of `ask_user` as the model writes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    question: String,
    #[serde(default)]
    choices: Vec<String>,
    /// Answer that is used if nobody answers in time.
    #[serde(default)]
    pub(super) default: Option<String>,
}

/// `ask_user` as it is listed with the tools.
pub fn ask_user_spec() -> ToolSpec {
    let parameters = serde_json::json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1, "description": "All that is needed to answer it."},
            "choices": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": QUESTION_CHOICES_MAX,
                "description": "Answers to choose from; another one may be given all the same."
            },
            "default": {"type": "string", "description": "What counts when nobody answers in time."}
        },
        "required": ["question"],
        "additionalProperties": false
    });
    ToolSpec {
        name: ToolName::new(ASK_USER).unwrap_or_else(|_| unreachable!("a valid name")),
        description:
            "Asks the user a question and waits for the answer, which may take long. Ask only what you cannot \
                      find out yourself and cannot decide without."
                .to_owned(),
        parameters: Json::of(&parameters),
        effect: EffectClass::Pure,
        approval: ApprovalPolicy::Never,
        timeout_ms: None,
        max_output: None,
        instructions: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Whether a person can be asked this.
pub(super) fn askable(arguments: &str) -> Result<(), (ErrorCode, String)> {
    let Arguments { question, choices, default } =
        serde_json::from_str(arguments).map_err(|error| (ErrorCode::InvalidArguments, error.to_string()))?;
    if question.trim().is_empty() {
        return Err((ErrorCode::InvalidArguments, "the question is empty".to_owned()));
    }
    if choices.len() > QUESTION_CHOICES_MAX {
        return Err((ErrorCode::TooLarge, format!("{} choices; at most {QUESTION_CHOICES_MAX}", choices.len())));
    }
    let texts = [question].into_iter().chain(choices).chain(default);
    match texts.map(|text| text.len()).max() {
        Some(bytes) if bytes > QUESTION_BYTES_MAX => {
            Err((ErrorCode::TooLarge, format!("a text of {bytes} bytes; at most {QUESTION_BYTES_MAX}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the answer that is used if nobody answers in time.
pub(super) fn default_of(arguments: &Json) -> Option<String> {
    serde_json::from_str::<Arguments>(arguments.get()).ok().and_then(|arguments| arguments.default)
}
