//! The description of a tool, as it comes over the NATS services protocol.

use std::collections::BTreeMap;

use contract::limits::TOOL_SCHEMA_BYTES_MAX;
use contract::tool::{ASK_USER, DELEGATE, ToolSpec, metadata};
use contract::{Json, TenantId, ToolName, subject};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Bytes of a description or of instructions; a longer text is refused, since it would fill every prompt.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

const ENDPOINTS_MAX: usize = 256;

/// The words of an effect class, for errors.
const EFFECTS: &str = "pure, idempotent, at_most_once or reconcilable";

/// The used fields of an answer to `$SRV.INFO`. Some languages write `null` for absent ones.
#[derive(Deserialize)]
struct ServiceInfo {
    version: Option<String>,
    endpoints: Option<Vec<ServiceEndpoint>>,
}

#[derive(Deserialize)]
struct ServiceEndpoint {
    subject: String,
    queue_group: Option<String>,
    metadata: Option<BTreeMap<String, String>>,
}

/// One endpoint that describes itself as a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolDescription {
    /// The tool can be used.
    Tool(TenantId, ToolSpec),
    /// The tool cannot be used.
    Bad {
        /// Subject of the endpoint.
        subject: String,
        /// Description of the mistake and its remedy, for people.
        reason: String,
    },
}

/// Parses the tools among the endpoints of one service. Other services and malformed answers have none.
pub fn parse_service_info(answer: &[u8]) -> Vec<ToolDescription> {
    let Ok(info) = serde_json::from_slice::<ServiceInfo>(answer) else { return Vec::new() };
    let version = info.version.unwrap_or_default();
    let endpoints = info.endpoints.unwrap_or_default().into_iter().take(ENDPOINTS_MAX);
    endpoints.filter_map(|endpoint| endpoint.describe(&version)).collect()
}

impl ServiceEndpoint {
    fn describe(self, version: &str) -> Option<ToolDescription> {
        let metadata = self.metadata.unwrap_or_default();
        let name = metadata.get(metadata::TOOL)?;
        let queue = self.queue_group.unwrap_or_default();
        let description = parse_identity(&self.subject, name, &queue)
            .and_then(|(tenant, name)| Ok(ToolDescription::Tool(tenant, parse_spec(name, &metadata, version)?)));
        Some(description.unwrap_or_else(|reason| ToolDescription::Bad { subject: self.subject, reason }))
    }
}

/// Parses the tenant and the name of a tool from the subject of its calls.
fn parse_identity(subject: &str, declared: &str, queue: &str) -> Result<(TenantId, ToolName), String> {
    let shape = "the subject must be ai_tool.<tenant>.<tool>";
    let (tenant, tool) = subject.strip_prefix("ai_tool.").and_then(|rest| rest.split_once('.')).ok_or(shape)?;
    let tenant = TenantId::new(tenant).map_err(|error| error.to_string())?;
    let tool = ToolName::new(tool).map_err(|error| error.to_string())?;
    if tool.as_str() != declared {
        return Err(format!("{} says {declared:?}, but the subject is of {tool}", metadata::TOOL));
    }
    if [DELEGATE, ASK_USER].contains(&tool.as_str()) {
        return Err(format!("the loop itself performs {tool}: take another name"));
    }
    if queue != subject::TOOL_QUEUE {
        return Err(format!("the queue group must be {:?}: with {queue:?} a call may run twice", subject::TOOL_QUEUE));
    }
    Ok((tenant, tool))
}

fn parse_spec(name: ToolName, metadata: &BTreeMap<String, String>, version: &str) -> Result<ToolSpec, String> {
    let get = |key: &str| metadata.get(key).map(String::as_str).filter(|text| !text.is_empty());
    let text = |key: &str| match get(key) {
        Some(text) if text.len() > TEXT_BYTES_MAX => Err(format!("{key} has over {TEXT_BYTES_MAX} bytes")),
        found => Ok(found.map(str::to_owned)),
    };
    Ok(ToolSpec {
        name,
        description: text(metadata::DESCRIPTION)?.unwrap_or_default(),
        parameters: get(metadata::PARAMETERS).map_or_else(|| Ok(no_parameters()), parse_schema)?,
        effect: parse_word(metadata::EFFECT, EFFECTS, get(metadata::EFFECT))?,
        approval: parse_word(metadata::APPROVAL, "never or always", get(metadata::APPROVAL))?,
        timeout_ms: get(metadata::TIMEOUT).map(parse_timeout_ms).transpose()?,
        max_output: get(metadata::MAX_OUTPUT).map(parse_bytes).transpose()?,
        instructions: text(metadata::INSTRUCTIONS)?,
        version: version.to_owned(),
    })
}

fn no_parameters() -> Json {
    Json::of(&serde_json::json!({"type": "object", "properties": {}}))
}

fn parse_schema(text: &str) -> Result<Json, String> {
    let key = metadata::PARAMETERS;
    if text.len() > TOOL_SCHEMA_BYTES_MAX {
        return Err(format!("{key} has {} bytes, {TOOL_SCHEMA_BYTES_MAX} are allowed", text.len()));
    }
    match serde_json::from_str(text) {
        // Serialised again, which removes white space and repeated keys.
        Ok(object @ serde_json::Value::Object(_)) => Ok(Json::of(&object)),
        Ok(_) => Err(format!("{key} is not a JSON object")),
        Err(error) => Err(format!("{key} is not JSON: {error}")),
    }
}

/// Parses one of the words that a key may have; without one it is the careful default.
fn parse_word<T: DeserializeOwned + Default>(key: &str, words: &str, given: Option<&str>) -> Result<T, String> {
    let Some(word) = given else { return Ok(T::default()) };
    serde_json::from_value(word.into()).map_err(|_| format!("{key} is {words}, not {word:?}"))
}

fn parse_timeout_ms(text: &str) -> Result<u64, String> {
    let wanted = text.parse::<f64>().ok().and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
    match wanted.map(|timeout| timeout.min(contract::limits::TOOL_TIMEOUT_MAX).as_millis()) {
        Some(ms) if ms > 0 => Ok(u64::try_from(ms).unwrap_or(u64::MAX)),
        Some(_) | None => Err(format!("{} is a number of seconds above 0, not {text:?}", metadata::TIMEOUT)),
    }
}

fn parse_bytes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        Ok(_) | Err(_) => Err(format!("{} is a number of bytes above 0, not {text:?}", metadata::MAX_OUTPUT)),
    }
}

#[cfg(test)]
mod tests {
    use contract::tool::{ApprovalPolicy, EffectClass};

    use super::*;
    use serde_json::{Value, json};

    fn describe(subject: &str, queue: &str, metadata: &Value) -> Vec<ToolDescription> {
        let info = json!({"type": "io.nats.micro.v1.info_response", "name": "x", "id": "1", "version": "1.2.3",
            "description": null, "endpoints": [{"name": "x", "subject": subject, "queue_group": queue, "metadata": metadata}]});
        parse_service_info(info.to_string().as_bytes())
    }

    fn find_reason(subject: &str, queue: &str, metadata: &Value) -> String {
        match describe(subject, queue, metadata).pop() {
            Some(ToolDescription::Bad { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn description_with_all_fields_is_parsed() {
        let metadata = json!({"ailoop.tool": "look", "ailoop.description": "Looks.", "ailoop.effect": "pure",
            "ailoop.parameters": "{\"type\": \"object\"}", "ailoop.approval": "always", "ailoop.timeout": "1.5",
            "ailoop.max_output": "100", "ailoop.instructions": "Look twice."});
        let spec = ToolSpec {
            name: ToolName::new("look").unwrap(),
            description: "Looks.".to_owned(),
            parameters: Json::parse(r#"{"type":"object"}"#).unwrap(),
            effect: EffectClass::Pure,
            approval: ApprovalPolicy::Always,
            timeout_ms: Some(1_500),
            max_output: Some(100),
            instructions: Some("Look twice.".to_owned()),
            version: "1.2.3".to_owned(),
        };
        let tenant = TenantId::new("acme").unwrap();
        assert_eq!(describe("ai_tool.acme.look", "tools", &metadata), [ToolDescription::Tool(tenant, spec)]);
    }

    #[test]
    fn description_without_fields_has_careful_defaults() {
        let Some(ToolDescription::Tool(_, spec)) = describe("ai_tool.a.x", "tools", &json!({"ailoop.tool": "x"})).pop()
        else {
            panic!("not read")
        };
        assert_eq!(
            (spec.effect, spec.approval, spec.timeout_ms),
            (EffectClass::AtMostOnce, ApprovalPolicy::Never, None)
        );
        assert_eq!(spec.parameters.get(), r#"{"properties":{},"type":"object"}"#);
    }

    #[test]
    fn service_that_is_no_tool_is_ignored() {
        assert_eq!(describe("other.service", "q", &Value::Null), []);
        assert_eq!(describe("other.service", "q", &json!({"a": "b"})), []);
        for garbage in ["", "[]", "null", "{\"endpoints\": 3}", "\u{0}"] {
            assert_eq!(parse_service_info(garbage.as_bytes()), []);
        }
        assert_eq!(parse_service_info(br#"{"endpoints": null}"#), []);
    }

    #[test]
    fn tool_invalid_is_refused_with_advice() {
        let with = |key: &str, value: &str| json!({"ailoop.tool": "x", key: value});
        let long = "x".repeat(TOOL_SCHEMA_BYTES_MAX + 1);
        for (subject, queue, metadata, part) in [
            ("tools.x", "tools", with("a", "b"), "must be ai_tool.<tenant>.<tool>"),
            ("ai_tool.A.x", "tools", with("a", "b"), "tenant must be"),
            ("ai_tool.a.b.x", "tools", with("a", "b"), "tool name must be"),
            ("ai_tool.a.y", "tools", with("a", "b"), "the subject is of y"),
            ("ai_tool.a.x", "q", with("a", "b"), "queue group"),
            ("ai_tool.a.x", "tools", with("ailoop.parameters", "[]"), "not a JSON object"),
            ("ai_tool.a.x", "tools", with("ailoop.parameters", "{"), "not JSON"),
            ("ai_tool.a.x", "tools", with("ailoop.parameters", &long), "32768 are allowed"),
            ("ai_tool.a.x", "tools", with("ailoop.description", &long), "over 16384 bytes"),
            ("ai_tool.a.x", "tools", with("ailoop.effect", "Pure"), "reconcilable, not \"Pure\""),
            ("ai_tool.a.x", "tools", with("ailoop.approval", "sometimes"), "never or always"),
            ("ai_tool.a.x", "tools", with("ailoop.timeout", "-1"), "seconds above 0"),
            ("ai_tool.a.x", "tools", with("ailoop.timeout", "NaN"), "seconds above 0"),
            ("ai_tool.a.x", "tools", with("ailoop.max_output", "0"), "bytes above 0"),
        ] {
            let reason = find_reason(subject, queue, &metadata);
            assert!(reason.contains(part), "{reason:?} lacks {part:?}");
        }
    }
}
