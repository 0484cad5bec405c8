//! Finds the mistakes of a file by its JSON Schema: all of them, while a parser stops at the first one.

use std::collections::BTreeSet;

use configuration::TextFile;
use configuration::suggest::{closest, did_you_mean};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::{Map, Value};

use super::mistake::ConfigMistake;
use super::tree::{TextPosition, Tree, find_key};
use crate::config_file::ConfigFile;

/// Finds every mistake in the shape of a file. A file that is no YAML has none: its parser reports that.
pub(super) fn find_schema_mistakes(kind: ConfigFile, file: &TextFile) -> Vec<ConfigMistake> {
    let (Some(tree), Some(checker)) = (Tree::read(&file.text), SchemaChecker::new(kind)) else { return Vec::new() };
    let value = tree.to_json();
    if value.is_null() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for error in checker.validator.iter_errors(&value) {
        checker.explain(&error, &mut found);
    }
    // A key that was mistyped is missing for that reason alone.
    let mistyped: Vec<(String, String)> =
        found.iter().filter_map(|finding| Some((finding.pointer.clone(), finding.key.clone()?))).collect();
    let is_missing_too = |finding: &SchemaFinding| {
        let beside = mistyped.iter().filter(|(pointer, _)| *pointer == finding.pointer);
        finding
            .missing
            .as_deref()
            .is_none_or(|missing| beside.map(|(_, key)| closest(key, [missing])).all(|of| of.is_none()))
    };
    found.into_iter().filter(is_missing_too).map(|finding| finding.into_mistake(file, &tree)).collect()
}

/// Finds the mistakes in the name of a variable that sets a field. `path` is the name without the prefix. The value is
/// checked when its section is read.
pub(super) fn find_variable_mistakes(origin: &str, name: &str, path: &str) -> Vec<ConfigMistake> {
    let Some(checker) = SchemaChecker::new(ConfigFile::Ailoop) else { return Vec::new() };
    let wrap = |value: Value, part: &str| Value::Object(Map::from_iter([(part.to_owned(), value)]));
    let value = path.rsplit("__").fold(Value::String(String::new()), wrap);
    let mut found = Vec::new();
    for error in checker.validator.iter_errors(&value) {
        checker.explain(&error, &mut found);
    }
    let unknown = found.into_iter().filter(|finding| finding.key.is_some());
    unknown.map(|finding| ConfigMistake::new(origin, format!("{name}: {}", finding.message))).collect()
}

struct SchemaChecker {
    validator: Validator,
    /// All keys of the schema.
    keys: BTreeSet<String>,
}

/// A mistake at a JSON pointer.
struct SchemaFinding {
    pointer: String,
    /// The key, if the schema does not have it.
    key: Option<String>,
    /// The key that the schema wants here.
    missing: Option<String>,
    message: String,
}

impl SchemaFinding {
    /// Finds the position in the file.
    fn into_mistake(self, file: &TextFile, tree: &Tree) -> ConfigMistake {
        let value = tree.position(&self.pointer);
        // An entry is shown by its key: its value may begin a line below.
        let key = self.key.as_deref().or_else(|| self.pointer.rsplit('/').next().filter(|part| !part.is_empty()));
        let parent = match (&self.key, self.pointer.rsplit_once('/')) {
            (None, Some((parent, _))) => tree.position(parent),
            (Some(_), _) | (None, None) => value,
        };
        let is_scalar_line =
            |found: &TextPosition| self.key.is_some() || found.line == value.line || found.line + 1 == value.line;
        let found = key.and_then(|key| find_key(&file.text, parent, key)).filter(is_scalar_line);
        let position = match (found, &self.key) {
            (Some(found), Some(_)) => found,
            // The line of the key, and the column of the value where both share the line.
            (Some(key), None) if key.line != value.line => key,
            (Some(_), None) | (None, _) => value,
        };
        ConfigMistake::at(file, position, self.message)
    }
}

impl SchemaChecker {
    fn new(kind: ConfigFile) -> Option<Self> {
        let schema = kind.schema();
        let mut keys = BTreeSet::new();
        collect_keys(&schema, &mut keys);
        Some(Self { validator: jsonschema::validator_for(&schema).ok()?, keys })
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "for what our schemas do not use, the message of the library is enough"
    )]
    fn explain(&self, error: &ValidationError<'_>, found: &mut Vec<SchemaFinding>) {
        let pointer = error.instance_path().to_string();
        let mut report = |key: Option<String>, message: String| {
            found.push(SchemaFinding { pointer: pointer.clone(), key, missing: None, message });
        };
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                for key in unexpected {
                    let suggestion = if self.keys.contains(key) {
                        "; it belongs elsewhere in this file".to_owned()
                    } else {
                        did_you_mean(key, self.keys.iter().map(String::as_str))
                    };
                    report(Some(key.clone()), format!("there is no key {key:?} here{suggestion}"));
                }
            }
            ValidationErrorKind::Required { property } => {
                let missing = property.as_str().unwrap_or_default();
                let message = format!("the key {missing} is missing here");
                found.push(SchemaFinding { pointer, key: None, missing: Some(missing.to_owned()), message });
            }
            ValidationErrorKind::Enum { options } => {
                let words: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                report(None, format_choices(error, &words));
            }
            ValidationErrorKind::Minimum { limit } => report(None, format!("this must be at least {limit}")),
            ValidationErrorKind::Maximum { limit } => report(None, format!("this must be at most {limit}")),
            ValidationErrorKind::Type { kind } => {
                // YAML reads `model: 5` as a number, and the parser accepts it as a text.
                let is_scalar = error.instance().is_number() || error.instance().is_boolean();
                if !(is_scalar && includes_type(kind, JsonType::String)) {
                    report(None, format!("this must be {}", describe_type(kind)));
                }
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                let words = collect_words(context);
                if !words.is_empty() {
                    report(None, format_choices(error, &words));
                    return;
                }
                // Explain the variant that fits deepest, since it is most likely the intended one.
                let depth = |errors: &Vec<ValidationError<'static>>| {
                    errors.iter().map(|error| error.instance_path().to_string().matches('/').count()).max()
                };
                let has_this_type = |errors: &&Vec<ValidationError<'static>>| {
                    errors.iter().all(|inner| {
                        !(inner.instance_path().to_string() == pointer
                            && matches!(inner.kind(), ValidationErrorKind::Type { .. }))
                    })
                };
                let intended = context.iter().filter(has_this_type).max_by_key(|errors| depth(errors));
                match intended.or_else(|| context.first()) {
                    Some(errors) => errors.iter().for_each(|error| self.explain(error, found)),
                    None => report(None, error.masked().to_string()),
                }
            }
            _ => report(None, error.masked().to_string()),
        }
    }
}

/// Returns the allowed words of a value, if each variant is a word.
fn collect_words<'a>(variants: &'a [Vec<ValidationError<'static>>]) -> Vec<&'a str> {
    let mut words = Vec::new();
    for error in variants.iter().flatten() {
        if let ValidationErrorKind::Constant { expected_value } = error.kind() {
            words.extend(expected_value.as_str());
        } else if let ValidationErrorKind::Enum { options } = error.kind() {
            words.extend(options.as_array().into_iter().flatten().filter_map(Value::as_str));
        }
    }
    let has_only_words = variants.iter().all(|errors| {
        errors.iter().all(|error| {
            let kind = error.kind();
            matches!(kind, ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. })
                || matches!(kind, ValidationErrorKind::Type { kind } if includes_type(kind, JsonType::Null))
        })
    });
    if has_only_words { words } else { Vec::new() }
}

fn format_choices(error: &ValidationError<'_>, words: &[&str]) -> String {
    let got = error.instance().as_str().unwrap_or_default();
    let suggestion = did_you_mean(got, words.iter().copied());
    format!("this must be one of {}{suggestion}", words.join(", "))
}

/// Collects the names of all fields in a schema.
fn collect_keys(schema: &Value, keys: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
                keys.extend(properties.keys().cloned());
            }
            fields.values().for_each(|below| collect_keys(below, keys));
        }
        Value::Array(items) => items.iter().for_each(|below| collect_keys(below, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn includes_type(kind: &TypeKind, wanted: JsonType) -> bool {
    match kind {
        TypeKind::Single(one) => *one == wanted,
        TypeKind::Multiple(several) => several.contains(wanted),
    }
}

fn describe_type(kind: &TypeKind) -> String {
    let word = |of: JsonType| match of {
        JsonType::Array => "a list",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "a whole number",
        JsonType::Null => "empty",
        JsonType::Number => "a number",
        JsonType::Object => "a mapping of keys",
        JsonType::String => "a text",
    };
    match kind {
        TypeKind::Single(one) => word(*one).to_owned(),
        TypeKind::Multiple(several) => several.iter().map(word).collect::<Vec<_>>().join(" or "),
    }
}
