//! Schemas of the results of the routes, for the `OpenAPI` document.

use contract::event::Topic;
use serde_json::{Map, Value, json};

use crate::method::Method;

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
pub(super) fn schemas() -> Map<String, Value> {
    serde_json::from_str(SCHEMAS).unwrap_or_default()
}

/// Refers to a schema of the document.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns the schema of the data of each event that has one, by topic.
pub(super) fn event_data() -> Map<String, Value> {
    EVENT_DATA.into_iter().map(|(topic, name)| (topic.as_str().to_owned(), reference(name))).collect()
}

/// Returns the name of the schema of a method's result; `None` for events.
pub(super) const fn result_of(method: Method) -> Option<&'static str> {
    Some(match method {
        Method::StartSession
        | Method::SendMessage
        | Method::PauseSession
        | Method::ResumeSession
        | Method::StopSession
        | Method::CancelTurn
        | Method::AnswerGate
        | Method::AnswerToolCall
        | Method::ClearSession
        | Method::ConfigureSession => "CommandReply",
        Method::GetHistory => "History",
        Method::GetTranscript => "Transcript",
        Method::GetSession => "SessionSummary",
        Method::ListSessions => "SessionPage",
        Method::ReplaySession => "ReplayReport",
        Method::TraceSession => "SessionTrace",
        Method::DescribeSession => "SessionDescription",
        Method::GetStats => "StatsList",
        Method::RepairSession => "RepairReport",
        Method::WatchSession | Method::UnwatchSession => return None,
        Method::GetCaller => "Caller",
        Method::ListAgents => "AgentList",
        Method::DescribeAgent => "AgentDescription",
        Method::TestReply => "ReplyDecision",
        Method::ListModels => "ModelList",
        Method::ListTools => "FleetToolList",
        Method::ListToolReplicas => "ToolReplicaList",
        Method::TryTool => "TriedTool",
        Method::GetFullResult => "FullResult",
        Method::ListGates => "GateList",
        Method::ListClientCalls => "CallList",
        Method::ListMail => "MailList",
        Method::SendMail => "SentMail",
        Method::ReplyMail => "ClosedMail",
        Method::ListBudgets | Method::ResetBudget => "BudgetList",
        Method::GetQueues => "QueueList",
        Method::GetStatus => "FleetStatus",
        Method::ListDeadLetters => "DeadLetterList",
        Method::GetDeadLetter | Method::DropDeadLetter => "DeadLetter",
        Method::RetryDeadLetter => "DeadLetterRetry",
    })
}

#[cfg(test)]
mod tests {
    use super::super::openapi::document;
    use super::*;

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
