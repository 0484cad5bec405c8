//! Tools with arguments of a Rust type: the schema for the model, and the errors for arguments that do not fit.

use futures::FutureExt;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Call, Reply, Tool, ToolError};

/// Most nested types that are inlined. If there are more, they are kept apart in `$defs`, since a type that is used
/// often would be repeated as often, and a schema has at most 32 KiB.
const INLINED_TYPES_MAX: usize = 8;

impl Tool {
    /// A tool whose arguments are a type: the schema is that of the type, with doc comments as descriptions, and the
    /// handler gets the value. The handler gets no arguments that do not fit; the error tells the model which part is
    /// wrong.
    ///
    /// With `#[serde(deny_unknown_fields)]` an invented argument is an error, and not ignored.
    ///
    /// ```
    /// use ailoop_tool::{Call, Tool, ToolError, schemars};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// #[serde(deny_unknown_fields)]
    /// struct Arguments {
    ///     /// The text to count in.
    ///     text: String,
    ///     /// Counts this letter only.
    ///     letter: Option<char>,
    /// }
    ///
    /// let tool = Tool::typed("letter_count", async |arguments: Arguments, _call: Call| {
    ///     let counts = |c: &char| arguments.letter.is_none_or(|letter| letter == *c);
    ///     Ok::<_, ToolError>(arguments.text.chars().filter(counts).count().to_string())
    /// });
    /// # let _ = tool;
    /// ```
    pub fn typed<A, F, Fut, R>(name: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        F: Fn(A, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
        R: Into<Reply> + Send + 'static,
    {
        Self::new(name).parameters(generate_schema::<A>()).handler(move |call: Call| {
            match parse_arguments(call.body()) {
                Ok(arguments) => handler(arguments, call).left_future(),
                Err(error) => std::future::ready(Err(error)).right_future(),
            }
        })
    }
}

/// Parses arguments. The error names the wrong part, such as `people[2].age`, so that a model can correct it.
fn parse_arguments<A: DeserializeOwned>(body: &[u8]) -> Result<A, ToolError> {
    let mismatch = |why: &dyn std::fmt::Display| ToolError::new(format!("the arguments do not fit: {why}"));
    let value: Value = serde_json::from_slice(body).map_err(|error| mismatch(&error))?;
    // Serde would read a struct from an array too, by position.
    if !value.is_object() {
        return Err(mismatch(&"they must be a JSON object"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string().as_str() {
        "." => mismatch(error.inner()),
        path => mismatch(&format_args!("{path}: {}", error.inner())),
    })
}

/// Generates the schema of a type, without keywords that are useless for a model.
fn generate_schema<A: JsonSchema>() -> Value {
    let generate = |inline: bool| {
        let settings = SchemaSettings::draft2020_12().for_deserialize().with(|settings| {
            settings.meta_schema = None;
            settings.inline_subschemas = inline;
        });
        settings.into_generator().into_root_schema_for::<A>()
    };
    let with_references = generate(false);
    let definitions = with_references.get("$defs").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    let mut schema = if (1..=INLINED_TYPES_MAX).contains(&definitions) { generate(true) } else { with_references };
    // The name of the Rust type means nothing to a model.
    schema.remove("title");
    // Arguments are an object, also for an enum of objects; some providers require the keyword.
    schema.ensure_object().entry("type").or_insert_with(|| json!("object"));
    RecursiveTransform(remove_number_formats).transform(&mut schema);
    schema.to_value()
}

/// Removes formats such as `uint32`, which only schemars knows: some providers refuse unknown formats.
fn remove_number_formats(schema: &mut Schema) {
    let is_number_format =
        |format: &str| ["int", "uint", "float", "double"].iter().any(|start| format.starts_with(start));
    if schema.get("format").and_then(Value::as_str).is_some_and(is_number_format) {
        schema.remove("format");
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// A greeting of people.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Greeting {
        /// The people to greet.
        people: Vec<Person>,
        #[serde(default)]
        tone: Tone,
        note: Option<String>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Person {
        name: String,
        age: u32,
    }

    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Tone {
        #[default]
        Warm,
        Cool,
    }

    /// A tree of trees.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Tree {
        below: Vec<Tree>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "shape", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its shape matters")]
    enum Shape {
        Circle { radius: f64 },
        Point,
    }

    #[test]
    fn schema_of_a_type_has_only_what_a_model_needs() {
        let person = json!({"type": "object", "required": ["name", "age"],
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}});
        let expected = json!({"type": "object", "description": "A greeting of people.", "additionalProperties": false,
        "required": ["people"],
        "properties": {
            "people": {"type": "array", "description": "The people to greet.", "items": person},
            "tone": {"type": "string", "enum": ["warm", "cool"]},
            "note": {"type": ["string", "null"]},
        }});
        assert_eq!(generate_schema::<Greeting>(), expected);
    }

    #[test]
    fn schema_of_a_recursive_type_stays_a_reference() {
        let schema = generate_schema::<Tree>();
        assert_eq!(schema["properties"]["below"]["items"], json!({"$ref": "#"}), "{schema}");
    }

    #[test]
    fn schema_of_an_enum_of_objects_is_an_object() {
        let schema = generate_schema::<Shape>();
        assert_eq!((&schema["type"], schema["oneOf"].as_array().map(Vec::len)), (&json!("object"), Some(2)));
        assert_eq!(schema.get("title"), None);
    }

    #[test]
    fn arguments_invalid_error_names_the_place() {
        for (body, expected) in [
            (r#"{"people": [{"name": "a", "age": 1}, {"name": "b", "age": "old"}]}"#, "people[1].age: invalid type"),
            (r#"{"people": [{"name": "a"}]}"#, "people[0]: missing field `age`"),
            (r#"{"people": [], "tone": "hot"}"#, "tone: unknown variant `hot`, expected `warm` or `cool`"),
            (r#"{"people": [], "extra": 1}"#, "extra: unknown field `extra`"),
            ("{}", "fit: missing field `people`"),
            (r#"[[], "warm", null]"#, "must be a JSON object"),
            ("no json", "expected ident at line 1"),
            ("{", "EOF while parsing"),
            (r#"{"people": []} {"#, "trailing characters"),
        ] {
            let error = parse_arguments::<Greeting>(body.as_bytes()).unwrap_err();
            let message = error.message();
            assert!(
                message.starts_with("the arguments do not fit: ") && message.contains(expected),
                "{body}: {message}"
            );
        }
        assert_eq!(parse_arguments::<Greeting>(br#"{"people": []} "#).unwrap().people.len(), 0);
    }
}
