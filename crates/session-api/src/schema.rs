//! Schemas of Rust types, in the form that clients read.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Description of the word that tells the forms of an object apart.
const TAG: &str = "Kind of the entry, which says what other fields it has.";
/// Place of the schemas of results in the document.
const DEFINITIONS: &str = "/components/schemas";

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

/// Returns a generator for schemas of what the edge writes, each of which has a name and a place of its own.
pub(crate) fn results_generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.meta_schema = None;
        settings.definitions_path = DEFINITIONS.into();
    });
    settings.into_generator()
}

/// Returns a generator for schemas of what clients send, each of which has a name and a place of its own.
pub(crate) fn params_generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None).into_generator()
}

/// Returns the schemas that a generator was asked for, by their names, with nulls and formats as in Rust. A choice
/// between objects is one object.
pub(crate) fn raw_definitions(mut generator: SchemaGenerator) -> Map<String, Value> {
    let mut definitions = generator.take_definitions(true);
    definitions
        .values_mut()
        .filter_map(|definition| <&mut Schema>::try_from(definition).ok())
        .for_each(join_all_objects);
    definitions
}

/// Joins the choices between objects in a schema.
pub(crate) fn join_all_objects(schema: &mut Schema) {
    transform_subschemas(&mut join_all_objects, schema);
    join_objects(schema);
}

/// Refers to a schema of results.
pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#{DEFINITIONS}/{name}")})
}

/// Returns the schemas that a generator was asked for, by their names.
pub(crate) fn definitions(mut generator: SchemaGenerator) -> Map<String, Value> {
    let mut definitions = generator.take_definitions(true);
    for definition in definitions.values_mut() {
        if let Ok(schema) = <&mut Schema>::try_from(definition) {
            Written.transform(schema);
            Plain.transform(schema);
        }
    }
    definitions
}

/// Leaves out of a schema what holds for readers of a value only: defaults, and null for fields that are absent.
#[derive(Debug, Clone)]
struct Written;

impl Transform for Written {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        join_objects(schema);
        schema.remove("default");
        let required = schema.get("required").cloned().unwrap_or_default();
        let is_required = |name: &String| required.as_array().is_some_and(|all| has(all, name));
        let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
        for (_, property) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
            *property = without_null(property);
        }
    }
}

fn has(required: &[Value], name: &str) -> bool {
    required.iter().any(|one| one == name)
}

/// Turns a choice between objects that a word in one field tells apart into one object with the fields of all of them,
/// as languages without such choices have it.
fn join_objects(schema: &mut Schema) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let choices: Option<Vec<_>> =
        choices.iter().map(|choice| Some((choice.get("properties")?.as_object()?, choice.get("required")?))).collect();
    let Some(choices) = choices.filter(|choices| !choices.is_empty()) else { return };
    // Fields that stand beside the choice are in all of them.
    let fields = |name: &str| schema.get(name).cloned().unwrap_or_default();
    let mut properties = fields("properties").as_object().cloned().unwrap_or_default();
    let common = fields("required").as_array().cloned().unwrap_or_default();
    for (name, property) in choices.iter().flat_map(|(fields, _)| fields.iter()) {
        let Some(word) = property.get("const") else {
            properties.entry(name).or_insert_with(|| property.clone());
            continue;
        };
        let words = properties.entry(name).or_insert_with(|| json!({"type": "string", "description": TAG, "enum": []}));
        words["enum"].as_array_mut().into_iter().for_each(|words| words.push(word.clone()));
    }
    let is_in_all = |name: &String| {
        has(&common, name) || choices.iter().all(|(_, required)| required.as_array().is_some_and(|all| has(all, name)))
    };
    let required: Vec<&String> = properties.keys().filter(|name| is_in_all(name)).collect();
    let (required, properties) = (json!(required), Value::Object(properties));
    schema.remove("oneOf");
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), required);
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
            *text = text.replace('\n', " ").replace("[`", "`").replace("`]", "`");
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

/// Turns single words of a choice, each with a description, into one list of words.
fn join_words(schema: &mut Schema) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let (mut words, mut others) = (Vec::new(), Vec::new());
    for choice in choices {
        // The words without a description are in one list already.
        match (choice.get("enum").and_then(Value::as_array), choice.get("const")) {
            (Some(list), _) => words.extend_from_slice(list),
            (None, Some(word)) => words.push(word.clone()),
            (None, None) => others.push(choice.clone()),
        }
    }
    if words.is_empty() {
        return;
    }
    if !others.is_empty() {
        others.insert(0, json!({"type": "string", "enum": words}));
        schema.insert("oneOf".to_owned(), Value::Array(others));
        return;
    }
    schema.remove("oneOf");
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), Value::Array(words));
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
