//! The `OpenAPI` document of the session API, made of its routes.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::method::Method;

use crate::route::{Field, HttpRoute, ROUTES};
use crate::schema::reference;
use crate::schemas::ResultSchemas;
use crate::verb::HttpVerb;

/// Description of the event stream of a session.
const EVENTS: &str = "Server-sent events: `id` is the `seq`, `event` the topic, and `data` the event, whose `data` \
    `x-event-data` describes by topic. `watch.failed` ends a stream that failed; its data are a `Problem`.";

/// Returns the document, which is built once.
pub fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(build);
    &DOCUMENT
}

fn build() -> Value {
    let ResultSchemas { definitions, event_data } = ResultSchemas::collect();
    let mut paths = Map::new();
    for route in ROUTES.iter() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.verb.as_str()] = operation(route, &event_data);
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
            "schemas": definitions,
            "responses": {"Problem": {
                "description": "The request failed: problem details of RFC 9457.",
                "content": {"application/problem+json": {"schema": reference("Problem")}},
            }},
        },
    })
}

fn operation(route: &HttpRoute, event_data: &Map<String, Value>) -> Value {
    let mut parameters: Vec<Value> = route.variables.iter().map(|field| parameter(field, "path")).collect();
    let mut operation = json!({
        "operationId": route.method.name().replace('.', "_"),
        "summary": route.about,
        "description": format!("Needs the scope {}. JSON-RPC: `{}`.", route.method.list_scopes(), route.method.name()),
        "tags": [route.method.name().split('.').next().unwrap_or_default()],
        "responses": responses(route, event_data),
    });
    // What waits in all sessions and in one is one method.
    if route.path != route.method.routes()[0].path {
        operation["operationId"] = json!(format!("{}_all", route.method.name().replace('.', "_")));
    }
    match route.verb {
        HttpVerb::Get | HttpVerb::Delete => {
            parameters.extend(route.fields.iter().map(|field| parameter(field, "query")));
        }
        HttpVerb::Post if route.fields.is_empty() => {}
        HttpVerb::Post => {
            let is_required = route.fields.iter().any(|field| field.is_required);
            operation["requestBody"] =
                json!({"required": is_required, "content": {"application/json": {"schema": body(&route.fields)}}});
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    operation
}

fn responses(route: &HttpRoute, event_data: &Map<String, Value>) -> Value {
    let problem = json!({"$ref": "#/components/responses/Problem"});
    let mut responses = Map::new();
    if route.method.is_stream() {
        let frames = json!({"schema": {"type": "string"}, "x-event-data": event_data});
        let content = json!({"text/event-stream": frames});
        responses.insert("200".to_owned(), json!({"description": EVENTS, "content": content}));
    } else {
        let content = json!({"application/json": {"schema": reference(&route.method.result_name())}});
        if route.method.is_command() {
            let done = if route.method == Method::StartSession { "201" } else { "200" };
            responses.insert(done.to_owned(), json!({"description": "The commit is in the log.", "content": content}));
            let stored = "The command is stored, and will be handled.";
            responses.insert("202".to_owned(), json!({"description": stored, "content": content}));
        } else {
            responses.insert("200".to_owned(), json!({"description": "The result.", "content": content}));
        }
    }
    for status in ["400", "401", "403", "404", "409", "410", "413", "429", "500", "503"] {
        responses.insert(status.to_owned(), problem.clone());
    }
    Value::Object(responses)
}

fn parameter(field: &Field, place: &str) -> Value {
    let is_required = field.is_required || place == "path";
    json!({
        "name": field.name, "in": place, "required": is_required, "description": field.about, "schema": field.schema,
    })
}

fn body(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    for field in fields {
        let schema = &field.schema;
        // Null is as absent.
        let mut property =
            if field.is_required { schema.clone() } else { json!({"anyOf": [schema, {"type": "null"}]}) };
        property["description"] = json!(field.about);
        properties.insert(field.name.clone(), property);
    }
    let required: Vec<&str> = fields.iter().filter(|field| field.is_required).map(|field| &*field.name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
