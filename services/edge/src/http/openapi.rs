//! The `OpenAPI` document of the session API, made of its routes.

use std::sync::OnceLock;

use contract::limits::CLIENT_TOOLS_MAX;
use serde_json::{Map, Value, json};

use super::results::{event_data, reference, result_of, schemas};
use super::route::{Field, FieldKind, HttpVerb, Route};
use super::routes::ROUTES;
use crate::method::Method;

/// Description of the event stream of a session.
const EVENTS: &str = "Server-sent events: `id` is the `seq`, `event` the topic, and `data` the event, whose `data` \
    `x-event-data` describes by topic. `watch.failed` ends a stream that failed; its data are a `Problem`.";

/// Returns the document, which is built once.
pub(super) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(build)
}

fn build() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.verb.as_str()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ailoop",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Sessions of AI agents. The same methods are served by JSON-RPC over WebSocket and by gRPC.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"apiKey": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or `edge.token`."},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": schemas(),
            "responses": {"Problem": {
                "description": "The request failed: problem details of RFC 9457.",
                "content": {"application/problem+json": {"schema": reference("Problem")}},
            }},
        },
    })
}

fn operation(route: &Route) -> Value {
    let variables = route
        .variables()
        .map(|(name, kind)| json!({"name": name, "in": "path", "required": true, "schema": schema(kind)}));
    let mut parameters: Vec<Value> = variables.collect();
    let mut operation = json!({
        "operationId": route.method.name().replace('.', "_"),
        "summary": route.about,
        "description": format!("Needs the scope {}. JSON-RPC: `{}`.", route.method.list_scopes(), route.method.name()),
        "tags": [route.method.name().split('.').next().unwrap_or_default()],
        "responses": responses(route),
    });
    // What waits in all sessions and in one is one method.
    if matches!(route.path, "/v1/gates" | "/v1/calls") {
        operation["operationId"] = json!(format!("{}_all", route.method.name().replace('.', "_")));
    }
    match route.verb {
        HttpVerb::Get | HttpVerb::Delete => parameters.extend(route.fields.iter().map(query_parameter)),
        HttpVerb::Post if route.fields.is_empty() => {}
        HttpVerb::Post => {
            let is_required = route.fields.iter().any(|field| field.is_required);
            operation["requestBody"] =
                json!({"required": is_required, "content": {"application/json": {"schema": body(route.fields)}}});
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    operation
}

fn responses(route: &Route) -> Value {
    let problem = json!({"$ref": "#/components/responses/Problem"});
    let mut responses = Map::new();
    if let Some(result) = result_of(route.method) {
        let content = json!({"application/json": {"schema": reference(result)}});
        if route.method.is_command() {
            let done = if route.method == Method::StartSession { "201" } else { "200" };
            responses.insert(done.to_owned(), json!({"description": "The commit is in the log.", "content": content}));
            let stored = "The command is stored, and will be handled.";
            responses.insert("202".to_owned(), json!({"description": stored, "content": content}));
        } else {
            responses.insert("200".to_owned(), json!({"description": "The result.", "content": content}));
        }
    } else {
        let frames = json!({"schema": {"type": "string"}, "x-event-data": event_data()});
        let content = json!({"text/event-stream": frames});
        responses.insert("200".to_owned(), json!({"description": EVENTS, "content": content}));
    }
    for status in ["400", "401", "403", "404", "409", "410", "413", "429", "500", "503"] {
        responses.insert(status.to_owned(), problem.clone());
    }
    Value::Object(responses)
}

fn query_parameter(field: &Field) -> Value {
    json!({
        "name": field.name, "in": "query", "required": field.is_required, "description": field.about,
        "schema": schema(field.kind),
    })
}

fn body(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    for field in fields {
        let of_kind = schema(field.kind);
        // Null is as absent.
        let mut property = if field.is_required { of_kind } else { json!({"anyOf": [of_kind, {"type": "null"}]}) };
        property["description"] = json!(field.about);
        properties.insert(field.name.to_owned(), property);
    }
    let required: Vec<&str> = fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn schema(kind: FieldKind) -> Value {
    match kind {
        FieldKind::Text | FieldKind::Cursor => json!({"type": "string"}),
        FieldKind::Words => json!({"type": "string", "pattern": "\\S"}),
        FieldKind::Id => json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}),
        FieldKind::Agent => json!({"type": "string", "pattern": "^[a-z0-9_-]{1,32}$"}),
        FieldKind::Sha256 => json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
        FieldKind::Count => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
        FieldKind::Amount => json!({"type": "number", "minimum": 0}),
        FieldKind::Flag => json!({"type": "boolean"}),
        FieldKind::Time => json!({"type": "string", "format": "date-time"}),
        FieldKind::SessionPoint => json!({
            "type": "object",
            "properties": {"session_id": schema(FieldKind::Id), "at": {"type": ["integer", "null"], "minimum": 0}},
            "required": ["session_id"],
            "additionalProperties": false,
        }),
        FieldKind::Content => content(),
        FieldKind::Object => json!({"type": "object"}),
        FieldKind::ClientTools => json!({"type": "array", "maxItems": CLIENT_TOOLS_MAX, "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                "description": {"type": "string"},
                "parameters": {"type": "object", "description": "JSON Schema of the arguments."},
                "effect": {"enum": ["pure", "idempotent", "at_most_once"]},
                "timeout_ms": {"type": ["integer", "null"], "minimum": 0},
                "max_output": {"type": ["integer", "null"], "minimum": 0},
            },
            "required": ["name"],
            "additionalProperties": false,
        }}),
        FieldKind::Messages => json!({"type": "array", "items": {
            "type": "object",
            "properties": {"role": {"enum": ["user", "assistant"]}, "content": {"type": "string", "pattern": "\\S"}},
            "required": ["role", "content"],
            "additionalProperties": false,
        }}),
        FieldKind::Names => json!({"type": "array", "items": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}}),
        FieldKind::OneOf(words) => json!({"type": "string", "enum": words}),
    }
}

/// A message: a text, or texts and images in their order, of which one at least is not empty.
fn content() -> Value {
    let part = |kind: &str, field: &str, schema: Value| json!({"type": "object", "properties": {"type": {"const": kind}, field: schema}, "required": ["type", field]});
    let text = json!({"type": "string", "pattern": "\\S"});
    let url = json!({"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]});
    let image = part("image_url", "image_url", url);
    let parts = json!({
        "type": "array",
        "items": {"oneOf": [part("text", "text", json!({"type": "string"})), image]},
        "contains": {"oneOf": [part("text", "text", text.clone()), image]},
    });
    json!({"oneOf": [text, parts]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_has_each_route_once() {
        let paths = document()["paths"].as_object().unwrap();
        let operations: Vec<&Value> = paths.values().flat_map(|path| path.as_object().unwrap().values()).collect();
        assert_eq!(operations.len(), ROUTES.len());
        let ids: std::collections::BTreeSet<&str> =
            operations.iter().map(|operation| operation["operationId"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), operations.len(), "an operation id is used twice");
    }
}
