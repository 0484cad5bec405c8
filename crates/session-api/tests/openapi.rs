//! The `OpenAPI` document: the committed one is this one, and it has every name that clients rely on.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Serializer, Value};
use session_api::{ROUTES, openapi::document};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the variable that writes golden files in every package")]
fn committed_document_is_that_of_the_table() {
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    document().serialize(&mut serializer).unwrap();
    text.push(b'\n');
    let committed = path("sdk/openapi.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(committed, text).unwrap();
        return;
    }
    let is_current = std::fs::read(committed).unwrap() == text;
    assert!(is_current, "run UPDATE_GOLDEN=1 cargo test -p session-api, then python3 sdk/generate.py");
}

#[test]
fn document_has_each_route_once() {
    let paths = document()["paths"].as_object().unwrap();
    let operations: Vec<&Value> = paths.values().flat_map(|path| path.as_object().unwrap().values()).collect();
    assert_eq!(operations.len(), ROUTES.len());
    let ids: BTreeSet<&str> = operations.iter().map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), operations.len(), "an operation id is used twice");
}

/// Names of an operation, and of what it takes and returns, each on a line of its own.
fn names(document: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (path, operations) in object(&document["paths"]) {
        for (verb, operation) in object(&operations) {
            let route = format!("{verb} {path}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                names.insert(format!("{route} {} {}", parameter["in"], parameter["name"]));
            }
            let body = &operation["requestBody"]["content"]["application/json"]["schema"]["properties"];
            names.extend(object(body).keys().map(|field| format!("{route} body {field}")));
            let (id, responses) = (&operation["operationId"], object(&operation["responses"]));
            names.extend(responses.keys().map(|status| format!("{route} {id} {status}")));
        }
    }
    for (name, schema) in object(&document["components"]["schemas"]) {
        names.extend(object(&schema["properties"]).keys().map(|field| format!("{name}.{field}")));
    }
    names
}

#[test]
fn names_that_clients_rely_on_stay() {
    let known = std::fs::read_to_string(path("crates/session-api/tests/names.txt")).unwrap();
    let names = names(document());
    let gone: Vec<&str> = known.lines().filter(|name| !names.contains(*name)).collect();
    assert!(gone.is_empty(), "{gone:#?}");
}
