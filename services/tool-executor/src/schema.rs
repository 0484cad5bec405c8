//! The schemas of the tools that are known: arguments are checked against them before a tool is called.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use contract::{Json, TenantId, ToolName};
use jsonschema::{PatternOptions, Validator};

/// Violations that are told; the model mends them and the next call shows the others.
const VIOLATIONS_MAX: usize = 5;
/// Bytes of one violation's text, which quotes the arguments.
const VIOLATION_BYTES_MAX: usize = 300;
/// Bytes of a compiled pattern of a schema.
const PATTERN_BYTES_MAX: usize = 1 << 20;

type Key = (TenantId, ToolName);

/// Compiled schemas by tool; shared by the catalogue, which learns them, and the calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schemas(Arc<RwLock<HashMap<Key, Schema>>>);

/// One tool's schema, compiled.
#[derive(Debug, Clone)]
pub struct Schema {
    text: Json,
    validator: Arc<Validator>,
}

impl Schema {
    /// Compiles a schema; the error says why it cannot be used. Nothing is fetched for it.
    pub fn compile(schema: &Json) -> Result<Self, String> {
        Ok(Self { text: schema.clone(), validator: Arc::new(compile(schema)?) })
    }

    /// Checks arguments; the error is for the model.
    pub fn check(&self, arguments: &Json) -> Result<(), String> {
        self.fit(&object(arguments)?)
    }

    fn fit(&self, arguments: &serde_json::Value) -> Result<(), String> {
        let violations: Vec<String> = self.validator.iter_errors(arguments).take(VIOLATIONS_MAX).map(said).collect();
        if violations.is_empty() {
            return Ok(());
        }
        Err(format!("the arguments do not fit the tool's schema:\n{}", violations.join("\n")))
    }
}

impl Schemas {
    /// Learns a tool's schema, unless it is known already; the error says why it cannot be used.
    pub(crate) fn learn(&self, key: &Key, schema: &Json) -> Result<(), String> {
        if self.get(key).is_some_and(|known| known.text == *schema) {
            return Ok(());
        }
        let compiled = Schema::compile(schema)?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), compiled);
        Ok(())
    }

    /// Whether the tool is in the catalogue now.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// Forgets a tool.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Checks arguments; the error is for the model. What is not known is left to the tool itself.
    pub(crate) fn check(&self, key: &Key, arguments: &Json) -> Result<(), String> {
        let arguments = object(arguments)?;
        self.get(key).map_or(Ok(()), |known| known.fit(&arguments))
    }

    // A lock, since it is held for one access to the map only.
    fn get(&self, key: &Key) -> Option<Schema> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

fn object(arguments: &Json) -> Result<serde_json::Value, String> {
    let value: serde_json::Value =
        serde_json::from_str(arguments.get()).map_err(|error| format!("the arguments are not JSON: {error}"))?;
    if value.is_object() { Ok(value) } else { Err("the arguments must be a JSON object".to_owned()) }
}

/// Whether a schema can be used; the error says why not.
pub(crate) fn check(schema: &str) -> Result<(), String> {
    let schema = Json::parse(schema).map_err(|error| error.to_string())?;
    compile(&schema).map(drop)
}

fn compile(schema: &Json) -> Result<Validator, String> {
    let schema: serde_json::Value = serde_json::from_str(schema.get()).map_err(|error| error.to_string())?;
    let patterns = PatternOptions::fancy_regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    jsonschema::options()
        .with_pattern_options(patterns)
        .build(&schema)
        .map_err(|error| format!("the schema cannot be used: {error}"))
}

#[allow(clippy::needless_pass_by_value, reason = "as `map` gives it")]
fn said(violation: jsonschema::ValidationError<'_>) -> String {
    let (path, text) = (violation.instance_path().to_string(), violation.to_string());
    let at = if path.is_empty() { "at the top".to_owned() } else { format!("at {path}") };
    format!("- {at}: {}", &text[..text.floor_char_boundary(VIOLATION_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        (TenantId::default(), ToolName::new("act").unwrap())
    }

    fn learn(schema: &str) -> Result<Schemas, String> {
        let schemas = Schemas::default();
        schemas.learn(&key(), &Json::parse(schema).unwrap()).map(|()| schemas)
    }

    fn check(schemas: &Schemas, arguments: &str) -> String {
        schemas.check(&key(), &Json::parse(arguments).unwrap()).err().unwrap_or_default()
    }

    #[test]
    fn a_violation_says_where() {
        let schemas = learn(
            r#"{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"array","items":{"minimum":1}}},
                "required":["text"],"additionalProperties":false}"#,
        )
        .unwrap();
        assert_eq!(check(&schemas, r#"{"text":"a","n":[1,2]}"#), "");
        for (arguments, part) in [
            ("[]", "must be a JSON object"),
            ("\"text\"", "must be a JSON object"),
            ("{}", "- at the top: \"text\" is a required property"),
            (r#"{"text":1}"#, "- at /text: 1 is not of type \"string\""),
            (r#"{"text":"","n":[1,0]}"#, "- at /n/1: 0 is less than the minimum of 1"),
            (r#"{"text":"","x":1}"#, "'x' was unexpected"),
        ] {
            let said = check(&schemas, arguments);
            assert!(said.contains(part), "{said:?} lacks {part:?}");
        }
        schemas.forget(&key());
        assert_eq!(check(&schemas, "{}"), "");
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_refused_and_nothing_is_fetched() {
        for bad in [
            r#"{"type":"thing"}"#,
            r#"{"$ref":"http://127.0.0.1:1/x"}"#,
            r#"{"$ref":"file:///etc/passwd"}"#,
            r#"{"properties":{"a":{"pattern":"("}}}"#,
        ] {
            assert!(learn(bad).unwrap_err().starts_with("the schema cannot be used"), "{bad}");
        }
    }
}
