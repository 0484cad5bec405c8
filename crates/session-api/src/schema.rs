//! Schemas of Rust types, in the form that clients read.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Returns the schema of a type of parameters, with every schema in its place.
pub(crate) fn params_schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    Plain.transform(&mut schema);
    schema
}

/// Writes a schema as a person would: words as one `enum`, descriptions as one line, and no formats of Rust.
#[derive(Debug, Clone)]
pub(crate) struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        join_words(schema);
        let Some(object) = schema.as_object_mut() else { return };
        object.remove("title");
        // Objects take more fields unless they say otherwise.
        if object.get("additionalProperties") == Some(&Value::Bool(true)) {
            object.remove("additionalProperties");
        }
        if let Some(Value::String(text)) = object.get_mut("description") {
            *text = text.replace('\n', " ");
        }
        match object.get("format").and_then(Value::as_str) {
            Some("uint32") => {
                object.remove("format");
                object.insert("maximum".to_owned(), json!(u32::MAX));
            }
            Some("uint" | "uint8" | "uint16" | "uint64" | "int32" | "int64" | "float" | "double") => {
                object.remove("format");
            }
            Some(_) | None => {}
        }
    }
}

/// Turns a choice between single words, each with a description, into one list of words.
fn join_words(schema: &mut Schema) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    // The words without a description are in one list already.
    let listed = |choice: &Value| choice.get("enum").and_then(Value::as_array).cloned();
    let words = choices.iter().map(|choice| listed(choice).or_else(|| Some(vec![choice.get("const")?.clone()])));
    if let Some(lists) = words.collect::<Option<Vec<_>>>() {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), Value::Array(lists.concat()));
    }
}

/// Returns a schema without the value null, which stands for an absent value.
pub(crate) fn without_null(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let Some(object) = schema.as_object_mut() else { return schema };
    object.remove("default");
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|of| of != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|of| of != "null"));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            for (name, value) in only {
                object.entry(name).or_insert(value);
            }
        }
    }
    schema
}
