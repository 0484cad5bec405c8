//! What a file's JSON Schema refuses: all of it at once, while a parser stops at its first mistake.

use std::collections::BTreeSet;

use configuration::TextFile;
use configuration::suggest::did_you_mean;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::{Map, Value};

use super::Mistake;
use super::tree::{Place, Tree, key_place};
use crate::schemas::ConfigFile;

/// Every mistake in the shape of a file; none where it cannot be read at all, which its parser tells.
pub(super) fn mistakes(kind: ConfigFile, file: &TextFile) -> Vec<Mistake> {
    let (Some(tree), Some(checker)) = (Tree::read(&file.text), Checker::of(kind)) else { return Vec::new() };
    let value = tree.value();
    if value.is_null() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for error in checker.validator.iter_errors(&value) {
        checker.explain(&error, &mut found);
    }
    found.into_iter().map(|finding| finding.place(file, &tree)).collect()
}

/// What is wrong with the name of a variable that sets a field, `path` being its parts behind the prefix. Whether its
/// value fits is told by whoever reads it.
pub(super) fn variable_mistakes(origin: &str, name: &str, path: &str) -> Vec<Mistake> {
    let Some(checker) = Checker::of(ConfigFile::Ailoop) else { return Vec::new() };
    let wrap = |value: Value, part: &str| Value::Object(Map::from_iter([(part.to_owned(), value)]));
    let value = path.rsplit("__").fold(Value::String(String::new()), wrap);
    let mut found = Vec::new();
    for error in checker.validator.iter_errors(&value) {
        checker.explain(&error, &mut found);
    }
    let unknown = found.into_iter().filter(|finding| finding.key.is_some());
    unknown.map(|finding| Mistake::new(origin, format!("{name}: {}", finding.message))).collect()
}

struct Checker {
    validator: Validator,
    /// Every key that the file may have somewhere.
    keys: BTreeSet<String>,
}

/// A mistake at a JSON pointer.
struct Finding {
    pointer: String,
    /// The key that should not be there.
    key: Option<String>,
    message: String,
}

impl Finding {
    fn place(self, file: &TextFile, tree: &Tree) -> Mistake {
        let value = tree.place(&self.pointer);
        // An entry is shown by its key: its value may begin a line below.
        let key = self.key.as_deref().or_else(|| self.pointer.rsplit('/').next().filter(|part| !part.is_empty()));
        let parent = match (&self.key, self.pointer.rsplit_once('/')) {
            (None, Some((parent, _))) => tree.place(parent),
            (Some(_), _) | (None, None) => value,
        };
        let is_scalar_line =
            |place: &Place| self.key.is_some() || place.line == value.line || place.line + 1 == value.line;
        let found = key.and_then(|key| key_place(&file.text, parent, key)).filter(is_scalar_line);
        let place = match (found, &self.key) {
            (Some(place), Some(_)) => place,
            // The line of the key, and the column of the value where both share the line.
            (Some(key), None) if key.line != value.line => key,
            (Some(_), None) | (None, _) => value,
        };
        Mistake::at(file, place, self.message)
    }
}

impl Checker {
    fn of(kind: ConfigFile) -> Option<Self> {
        let schema = kind.schema();
        let mut keys = BTreeSet::new();
        gather(&schema, &mut keys);
        Some(Self { validator: jsonschema::validator_for(&schema).ok()?, keys })
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "what our schemas do not use is told in the words of the library"
    )]
    fn explain(&self, error: &ValidationError<'_>, found: &mut Vec<Finding>) {
        let pointer = error.instance_path().to_string();
        let mut report = |key: Option<String>, message: String| {
            found.push(Finding { pointer: pointer.clone(), key, message });
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
                report(None, format!("the key {} is missing here", property.as_str().unwrap_or_default()));
            }
            ValidationErrorKind::Enum { options } => {
                let words: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                report(None, one_of(error, &words));
            }
            ValidationErrorKind::Minimum { limit } => report(None, format!("this must be at least {limit}")),
            ValidationErrorKind::Maximum { limit } => report(None, format!("this must be at most {limit}")),
            ValidationErrorKind::Type { kind } => {
                // YAML reads `model: 5` as a number; where a text is wanted, the parser takes it as one.
                let is_scalar = error.instance().is_number() || error.instance().is_boolean();
                if !(is_scalar && wants(kind, JsonType::String)) {
                    report(None, format!("this must be {}", article(kind)));
                }
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                let words = constants(context);
                if !words.is_empty() {
                    report(None, one_of(error, &words));
                    return;
                }
                // Of the ways to write it, the one that fits furthest is the one that was meant.
                let depth = |errors: &Vec<ValidationError<'static>>| {
                    errors.iter().map(|error| error.instance_path().to_string().matches('/').count()).max()
                };
                let is_unlike = |errors: &&Vec<ValidationError<'static>>| {
                    errors.iter().all(|inner| {
                        !(inner.instance_path().to_string() == pointer
                            && matches!(inner.kind(), ValidationErrorKind::Type { .. }))
                    })
                };
                let meant = context.iter().filter(is_unlike).max_by_key(|errors| depth(errors));
                match meant.or_else(|| context.first()) {
                    Some(errors) => errors.iter().for_each(|error| self.explain(error, found)),
                    None => report(None, error.masked().to_string()),
                }
            }
            _ => report(None, error.masked().to_string()),
        }
    }
}

/// The words of which a value must be one, where each of the ways to write it is a word.
fn constants<'a>(ways: &'a [Vec<ValidationError<'static>>]) -> Vec<&'a str> {
    let mut words = Vec::new();
    for error in ways.iter().flatten() {
        if let ValidationErrorKind::Constant { expected_value } = error.kind() {
            words.extend(expected_value.as_str());
        } else if let ValidationErrorKind::Enum { options } = error.kind() {
            words.extend(options.as_array().into_iter().flatten().filter_map(Value::as_str));
        }
    }
    let is_all = ways.iter().all(|errors| {
        errors.iter().all(|error| {
            let kind = error.kind();
            matches!(kind, ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. })
                || matches!(kind, ValidationErrorKind::Type { kind } if wants(kind, JsonType::Null))
        })
    });
    if is_all { words } else { Vec::new() }
}

fn one_of(error: &ValidationError<'_>, words: &[&str]) -> String {
    let got = error.instance().as_str().unwrap_or_default();
    let suggestion = did_you_mean(got, words.iter().copied());
    format!("this must be one of {}{suggestion}", words.join(", "))
}

/// Every name of a field that stands anywhere in a schema.
fn gather(schema: &Value, keys: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
                keys.extend(properties.keys().cloned());
            }
            fields.values().for_each(|below| gather(below, keys));
        }
        Value::Array(items) => items.iter().for_each(|below| gather(below, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn wants(kind: &TypeKind, wanted: JsonType) -> bool {
    match kind {
        TypeKind::Single(one) => *one == wanted,
        TypeKind::Multiple(several) => several.contains(wanted),
    }
}

fn article(kind: &TypeKind) -> String {
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
