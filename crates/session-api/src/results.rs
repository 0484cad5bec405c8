//! Results of the methods, and data of events: their schemas by name.

use contract::event::Topic;
use serde_json::{Map, Value, json};

/// Schemas by name. `make sdk` and `make clients` compare them with what a fleet returns.
const SCHEMAS: &str = include_str!("schemas.json");

/// The schemas of the data of events. Other topics have data without a schema.
const EVENT_DATA: [(Topic, &str); 8] = [
    (Topic::AiChunkReceived, "AiChunk"),
    (Topic::AiFullReceived, "AiReply"),
    (Topic::AiCutReceived, "AiCut"),
    (Topic::ToolCallWaiting, "CallWaiting"),
    (Topic::ToolCallResult, "CallResult"),
    (Topic::GateOpened, "GateOpened"),
    (Topic::TurnCompleted, "TurnCompleted"),
    (Topic::SessionEnded, "SessionEnded"),
];

/// Returns every schema by its name.
pub(crate) fn schemas() -> Map<String, Value> {
    serde_json::from_str(SCHEMAS).unwrap_or_default()
}

/// Refers to a schema of the document.
pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns the schema of the data of each event that has one, by topic.
pub(crate) fn event_data() -> Map<String, Value> {
    EVENT_DATA.into_iter().map(|(topic, name)| (topic.as_str().to_owned(), reference(name))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;
    use crate::openapi::document;

    /// Collects the names of the schemas that a value refers to.
    fn collect_references(value: &Value, names: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                    names.extend(target.strip_prefix("#/components/schemas/").map(str::to_owned));
                }
                fields.values().for_each(|field| collect_references(field, names));
            }
            Value::Array(items) => items.iter().for_each(|item| collect_references(item, names)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn document_refers_to_every_schema_and_to_no_other() {
        let mut used = Vec::new();
        collect_references(document(), &mut used);
        used.sort_unstable();
        used.dedup();
        let defined: Vec<String> = schemas().into_iter().map(|(name, _)| name).collect();
        assert_eq!(used, defined);
    }

    #[test]
    fn schema_of_an_object_has_the_fields_that_it_requires() {
        for (name, schema) in schemas() {
            let Some(required) = schema["required"].as_array() else { continue };
            let missing = required.iter().find(|field| schema["properties"].get(field.as_str().unwrap()).is_none());
            assert_eq!(missing, None, "{name}");
        }
    }
}
