//! Messages of a transcript, and the parts of which they consist.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One message of a transcript, as the gateway maps it to a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// The system prompt that the composer wrote.
    System {
        /// Text of the system prompt.
        content: String,
    },
    /// Message of the user, or of the loop on the user's behalf.
    User {
        /// The message, as text or as parts.
        content: Content,
    },
    /// A reply of the model.
    Assistant {
        /// Its text as the model wrote it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        content: String,
        /// Its reasoning, where the provider shows it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning: String,
        /// The calls that it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// Parts that its provider wants to see again in later requests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replay: Option<ReasoningParts>,
    },
    /// The one result of one call.
    Tool {
        /// Id of the call that this is the result of.
        tool_call_id: String,
        /// Text that the model reads.
        content: String,
    },
}

/// A message of the history with which a session begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum HistoryMessage {
    /// A message of the user.
    User {
        /// The message, as text or as parts.
        content: Content,
    },
    /// A reply of a model, with the calls that it asked for.
    Assistant {
        /// Its text as the model wrote it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        content: String,
        /// Its reasoning, where the provider shows it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning: String,
        /// Its calls in their order, each with its result.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<HistoryCall>,
        /// Parts that its provider wants to see again in later requests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replay: Option<ReasoningParts>,
    },
}

/// A call of a tool that was performed before the session began. It has no id: the session gives it one of its own.
/// Versions of a fold below 13 cannot read it, and leave the command to newer ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryCall {
    /// Name of the tool.
    pub name: String,
    /// JSON text as the model wrote it, valid or not.
    #[serde(default)]
    pub arguments: String,
    /// Result that the model reads; `None` if nobody knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// Parts of a reply that its provider wants to see again, unchanged, in the requests that follow: reasoning that it
/// signed or encrypted. Only gateways look into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReasoningParts {
    /// The protocol whose parts these are.
    pub family: String,
    /// The model that wrote them, in the provider's words: another one cannot read them.
    pub model: String,
    /// The parts, in the order of the reply.
    pub parts: Vec<serde_json::Value>,
    /// Position of each part among text and calls. Empty from older gateways: all their parts come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<ReplayPosition>,
}

/// Position in a reply of a part that is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
pub struct ReplayPosition {
    /// Whether text came before it.
    #[serde(default)]
    pub after_text: bool,
    /// Number of the reply's calls that came before it.
    #[serde(default)]
    pub calls: u32,
}

/// Content of a user message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// A message of plain text.
    Text(String),
    /// A message of texts and images, in order.
    Parts(Vec<Part>),
}

impl JsonSchema for HistoryMessage {
    fn schema_name() -> Cow<'static, str> {
        "HistoryMessage".into()
    }

    /// A message of the user, or a reply of a model. A reply without text has calls.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (content, calls) = (generator.subschema_for::<Content>(), generator.subschema_for::<Vec<HistoryCall>>());
        let replay = generator.subschema_for::<Option<ReasoningParts>>();
        let form = |role: &str, fields: Value| {
            let mut properties = json!({"role": {"const": role}});
            properties
                .as_object_mut()
                .into_iter()
                .for_each(|all| all.extend(fields.as_object().cloned().unwrap_or_default()));
            json!({"type": "object", "properties": properties, "required": ["role", "content"], "additionalProperties": false})
        };
        let text = json!({"type": "string", "pattern": "\\S"});
        let of_model = json!({"content": text, "reasoning": {"type": "string"}, "tool_calls": calls, "replay": replay});
        json_schema!({"oneOf": [form("user", json!({"content": content})), form("assistant", of_model)]})
    }
}

impl JsonSchema for Content {
    fn schema_name() -> Cow<'static, str> {
        "Content".into()
    }

    /// A text, or texts and images in their order, of which one at least is not empty.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let part = |kind: &str, field: &str, of: &Value| {
            let properties = json!({"type": {"const": kind}, field: of});
            json!({"type": "object", "properties": properties, "required": ["type", field]})
        };
        let words = json!({"type": "string", "pattern": "\\S"});
        let url = json!({"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]});
        let image = part("image_url", "image_url", &url);
        let parts = json!({
            "type": "array",
            "items": {"oneOf": [part("text", "text", &json!({"type": "string"})), image]},
            "contains": {"oneOf": [part("text", "text", &words), image]},
        });
        json_schema!({"oneOf": [words, parts]})
    }
}

impl Content {
    /// Whether there is nothing in it that a model could read.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::Parts(parts) => parts.iter().all(|part| match part {
                Part::Text { text } => text.trim().is_empty(),
                Part::ImageUrl { .. } => false,
            }),
        }
    }

    /// Bytes of its texts and addresses.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Parts(parts) => parts.iter().map(Part::bytes).sum(),
        }
    }

    /// Number of images that it contains.
    pub fn images(&self) -> usize {
        match self {
            Self::Text(_) => 0,
            Self::Parts(parts) => parts.iter().filter(|part| matches!(part, Part::ImageUrl { .. })).count(),
        }
    }

    /// Its text; parts are joined by line ends, images left out.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts
                    .iter()
                    .filter_map(|part| match part {
                        Part::Text { text } => Some(text.as_str()),
                        Part::ImageUrl { .. } => None,
                    })
                    .collect();
                texts.join("\n")
            }
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A part of a user message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// A part of plain text.
    Text {
        /// Text of the part, or of the reply so far.
        text: String,
    },
    /// An image by address; `data:` addresses carry it inline.
    ImageUrl {
        /// Address of the image.
        image_url: ImageUrl,
    },
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::ImageUrl { image_url } => image_url.url.len(),
        }
    }
}

/// Address of an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageUrl {
    /// An `https:` or `data:` address.
    pub url: String,
}

/// The name of the pseudo-tool by which a model says whether it goes on.
pub const SIGNAL_TOOL: &str = "continuation";

/// A tool call as a model writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// Its id: the provider's in a reply, ours in a transcript.
    #[serde(default)]
    pub id: String,
    /// The protocol's type of call: always `function`.
    #[serde(rename = "type", default = "function_kind")]
    pub kind: String,
    /// Name and arguments of the function.
    pub function: Function,
}

impl ToolCall {
    /// A call of `name` with `arguments`, JSON text as received.
    pub fn new(id: &str, name: &str, arguments: &str) -> Self {
        let function = Function { name: name.to_owned(), arguments: arguments.to_owned() };
        Self { id: id.to_owned(), kind: function_kind(), function }
    }

    /// Whether it is the pseudo-call, which only signals.
    pub fn is_signal(&self) -> bool {
        self.function.name == SIGNAL_TOOL
    }
}

fn function_kind() -> String {
    "function".to_owned()
}

/// Name and arguments of a called function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    /// Name of the tool, as the model wrote it.
    #[serde(default)]
    pub name: String,
    /// JSON text as received, valid or not.
    #[serde(default)]
    pub arguments: String,
}
