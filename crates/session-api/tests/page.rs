//! The page of methods, docs/reference/methods.md, which is written from the table.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value};
use session_api::{Field, Method, ROUTES, fields_of, openapi::document};

const HEAD: &str = "# Methods

This page lists the methods of the session API, with their parameters and results.
The table of methods in [session-api](../../crates/session-api/src/method.rs) writes it; do not edit it.

A method has the same parameters and results over [JSON-RPC](json-rpc.md), [HTTP](http.md) and gRPC, and in the
[SDKs](../sdk.md).
A `?` marks a parameter that may be left out, and a field that may be absent.
";

fn definitions() -> &'static Map<String, Value> {
    document()["components"]["schemas"].as_object().unwrap()
}

/// Describes the type of a schema, with a link to that of an object.
fn type_of(schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap();
        return if definitions()[name].get("properties").is_some() {
            format!("[{name}](#{})", name.to_lowercase())
        } else {
            type_of(&definitions()[name])
        };
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| format!("`{}`", word.as_str().unwrap())).collect::<Vec<_>>().join(", ");
    }
    if let Some(choices) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
        return choices.iter().map(type_of).collect::<Vec<_>>().join(", or ");
    }
    let kind = &schema["type"];
    if let Some(kinds) = kind.as_array() {
        return kinds.iter().map(name_of).collect::<Vec<_>>().join(" or ");
    }
    if kind == "array" {
        let item = type_of(&schema["items"]);
        let is_word = item.ends_with(char::is_alphabetic);
        return format!("list of {item}{}", if is_word { "s" } else { "" });
    }
    if kind == "object" && schema["additionalProperties"].is_object() {
        return format!("object of {}", type_of(&schema["additionalProperties"]));
    }
    if kind == "string" && schema["format"] == "date-time" {
        return "time".to_owned();
    }
    name_of(kind)
}

fn name_of(kind: &Value) -> String {
    match kind.as_str() {
        Some("string") => "text",
        Some("integer") => "whole number",
        Some("boolean") => "flag",
        Some(other) => other,
        None => "JSON",
    }
    .to_owned()
}

fn row(name: &str, is_required: bool, schema: &Value, about: &str) -> String {
    let mark = if is_required { "" } else { "?" };
    format!("| `{name}`{mark} | {} | {} |\n", type_of(schema), about.replace('|', "\\|"))
}

fn method(method: Method) -> String {
    let mut text = format!("\n### `{}`\n\n{}\n", method.name(), method.about());
    let _ = writeln!(text, "Scope: {}.", method.list_scopes());
    if method.has_rpc() {
        let _ = writeln!(text, "gRPC: `{}`.", method.rpc());
    }
    for route in ROUTES.iter().filter(|route| route.method == method) {
        let _ = writeln!(text, "HTTP: `{} {}`.", route.verb.as_str().to_uppercase(), route.path);
    }
    let mut fields = fields_of(method);
    fields.sort_by_key(|field| !field.is_required);
    if !fields.is_empty() {
        text.push_str("\n| parameter | type | what it is |\n|---|---|---|\n");
        for Field { name, is_required, about, schema } in &fields {
            text.push_str(&row(name, *is_required, schema, about));
        }
    }
    if let Some(result) = method.result() {
        let _ = writeln!(text, "\nResult: [{result}](#{}).", result.to_lowercase());
    }
    text
}

fn object(name: &str, schema: &Value) -> String {
    let about = schema["description"].as_str().unwrap().replace(". ", ".\n");
    let mut text = format!("\n### {name}\n\n{about}\n\n");
    text.push_str("| field | type | what it is |\n|---|---|---|\n");
    for (field, of) in schema["properties"].as_object().unwrap() {
        let is_required = schema["required"].as_array().unwrap().iter().any(|one| one == field.as_str());
        text.push_str(&row(field, is_required, of, of["description"].as_str().unwrap_or_default()));
    }
    text
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the variable that writes golden files in every package")]
fn page_of_methods_is_that_of_the_table() {
    let mut page = format!("{HEAD}\n## Methods\n");
    for one in Method::ALL {
        page.push_str(&method(*one));
    }
    page.push_str("\n## Results and events\n");
    let objects = definitions().iter().filter(|(_, schema)| schema.get("properties").is_some());
    objects.for_each(|(name, schema)| page.push_str(&object(name, schema)));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/methods.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, page).unwrap();
        return;
    }
    let is_current = std::fs::read_to_string(path).is_ok_and(|written| written == page);
    assert!(is_current, "run UPDATE_GOLDEN=1 cargo test -p session-api");
}
