//! Makes arguments from a schema: small valid ones, and some invalid ones.

use serde_json::{Map, Value, json};

/// Depth to which a schema is followed, since it may refer to itself.
const DEPTH_MAX: usize = 16;
/// Most characters or items that are made to reach a minimum.
const LENGTH_MAX: u64 = 10_000;
/// Values for a property, at least one of which has another type than the property.
const WRONG_VALUES: [fn() -> Value; 5] = [
    || json!({"unexpected": true}),
    || json!([["unexpected"]]),
    || json!("unexpected"),
    || json!(-0.5),
    || Value::Null,
];

/// Makes arguments with the required properties only. They may be invalid, since a pattern, for example, is not
/// understood; the caller checks them.
pub(crate) fn make_smallest(schema: &Value) -> Value {
    Some(make_value(schema, schema, 0)).filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// Makes invalid arguments and says what is wrong with each: one of each kind that `is_valid` refuses.
pub(crate) fn make_invalid(schema: &Value, valid: &Value, is_valid: impl Fn(&Value) -> bool) -> Vec<(String, Value)> {
    let with = |name: &str, wrong: Value| {
        let mut made = valid.clone();
        made[name] = wrong;
        made
    };
    let with_wrong_type =
        |name: &str| WRONG_VALUES.iter().map(|wrong| with(name, wrong())).find(|made| !is_valid(made));
    let wrong_type = property_names(schema).into_iter().find_map(|name| {
        let made = with_wrong_type(&name)?;
        Some((format!("{name} of another type"), made))
    });
    let missing = required_names(schema).into_iter().find_map(|name| {
        let mut made = valid.clone();
        made.as_object_mut()?.remove(&name)?;
        (!is_valid(&made)).then(|| (format!("without {name}"), made))
    });
    wrong_type.into_iter().chain(missing).collect()
}

fn required_names(schema: &Value) -> Vec<String> {
    let list = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the names of properties, the required ones first, since a tool is most likely to check those.
fn property_names(schema: &Value) -> Vec<String> {
    let mut names = required_names(schema);
    let others = schema["properties"].as_object().into_iter().flat_map(Map::keys);
    names.extend(others.filter(|name| !required_names(schema).contains(name)).cloned().collect::<Vec<_>>());
    names
}

/// Makes a value of a schema; `$ref` is resolved in `root`.
fn make_value(schema: &Value, root: &Value, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    let schema = resolve_ref(schema, root);
    let presets = [schema.get("const"), schema.get("default"), schema["examples"].get(0), schema["enum"].get(0)];
    if let Some(preset) = presets.into_iter().flatten().next() {
        return preset.clone();
    }
    if let Some(one) = ["oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array()?.first()) {
        return merge(make_object(schema, root, depth), make_value(one, root, depth + 1));
    }
    if let Some(all) = schema["allOf"].as_array() {
        let made = all.iter().map(|part| make_value(part, root, depth + 1));
        return made.fold(make_object(schema, root, depth), merge);
    }
    match infer_type(schema) {
        "object" => make_object(schema, root, depth),
        "array" => make_array(schema, root, depth),
        "string" => json!(make_string(schema)),
        "integer" | "number" => make_number(schema),
        "boolean" => json!(false),
        _ => Value::Null,
    }
}

/// Follows a `$ref` within the schema; other references are left unresolved.
fn resolve_ref<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut at = schema;
    for _ in 0..DEPTH_MAX {
        let target = at["$ref"].as_str().and_then(|to| to.strip_prefix('#')).and_then(|path| root.pointer(path));
        let Some(target) = target else { break };
        at = target;
    }
    at
}

/// Returns the type, or the first of several that is not `null`; without a type it is inferred from keywords.
fn infer_type(schema: &Value) -> &str {
    let of = |value: &'_ Value| value.as_str().is_some_and(|word| word != "null");
    if let Some(one) = schema["type"].as_str() {
        return one;
    }
    if let Some(one) = schema["type"].as_array().and_then(|all| all.iter().find(|value| of(value))?.as_str()) {
        return one;
    }
    let about = [("properties", "object"), ("required", "object"), ("items", "array"), ("minLength", "string")];
    about.iter().find(|(key, _)| schema.get(*key).is_some()).map_or("string", |(_, kind)| kind)
}

fn make_object(schema: &Value, root: &Value, depth: usize) -> Value {
    let property = |name: &String| {
        let of = schema["properties"].get(name).map_or(Value::Null, |of| make_value(of, root, depth + 1));
        (name.clone(), of)
    };
    Value::Object(required_names(schema).iter().map(property).collect())
}

fn merge(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            one.extend(other);
            Value::Object(one)
        }
        (Value::Object(one), other) if one.is_empty() => other,
        (one, _) => one,
    }
}

fn make_array(schema: &Value, root: &Value, depth: usize) -> Value {
    let first = schema["prefixItems"].as_array().map(Vec::as_slice).unwrap_or_default();
    let least = usize::try_from(schema["minItems"].as_u64().unwrap_or(0).min(LENGTH_MAX)).unwrap_or(0);
    let item = |n: usize| make_value(first.get(n).unwrap_or(&schema["items"]), root, depth + 1);
    (0..least.max(first.len())).map(item).collect()
}

fn make_string(schema: &Value) -> String {
    let text = match schema["format"].as_str().unwrap_or_default() {
        "date-time" => "2026-01-15T10:30:45Z",
        "date" => "2026-01-15",
        "time" => "10:30:45Z",
        "email" => "someone@example.com",
        "uri" | "url" => "https://example.com/",
        "hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uuid" => "00000000-0000-4000-8000-000000000000",
        _ => "x",
    };
    let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0).min(LENGTH_MAX)).unwrap_or(0);
    let most = schema["maxLength"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let filled = text.chars().chain(std::iter::repeat('x'));
    filled.take(text.len().max(least).min(most)).collect()
}

/// Makes the valid number nearest to zero.
fn make_number(schema: &Value) -> Value {
    let whole = infer_type(schema) == "integer";
    let step = schema["multipleOf"].as_f64().filter(|step| *step > 0.0).unwrap_or(if whole { 1.0 } else { 0.5 });
    let above = |at: f64| (at / step).floor().mul_add(step, step);
    let below = |at: f64| (at / step).ceil().mul_add(step, -step);
    let low = schema["minimum"].as_f64().map(|at| (at / step).ceil() * step);
    let low = low.or_else(|| schema["exclusiveMinimum"].as_f64().map(above));
    let high = schema["maximum"].as_f64().map(|at| (at / step).floor() * step);
    let high = high.or_else(|| schema["exclusiveMaximum"].as_f64().map(below));
    let made = 0.0_f64.max(low.unwrap_or(f64::MIN)).min(high.unwrap_or(f64::MAX));
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a number that is too large is refused when the caller checks it against the schema"
    )]
    let integer = made as i64;
    if made.fract() == 0.0 { json!(integer) } else { json!(made) }
}

#[cfg(test)]
mod tests {
    use tool_schema::Schema;

    use super::*;

    fn is_valid(schema: &Value, arguments: &Value) -> bool {
        let schema = Schema::compile(&contract::Json::of(schema)).unwrap();
        schema.check(&contract::Json::of(arguments)).is_ok()
    }

    #[test]
    fn smallest_arguments_of_schema_are_valid() {
        let person = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
        for (property, made) in [
            (json!({"type": "string"}), json!("x")),
            (json!({"type": "string", "minLength": 3, "maxLength": 4}), json!("xxx")),
            (json!({"type": "string", "maxLength": 0}), json!("")),
            (json!({"type": "string", "enum": ["b", "a"]}), json!("b")),
            (json!({"const": 7}), json!(7)),
            (json!({"type": "integer", "default": 5}), json!(5)),
            (json!({"type": "string", "pattern": "^a+$", "examples": ["aaa"]}), json!("aaa")),
            (json!({"type": "string", "format": "date-time"}), json!("2026-01-15T10:30:45Z")),
            (json!({"type": "integer"}), json!(0)),
            (json!({"type": "integer", "minimum": 3, "maximum": 9}), json!(3)),
            (json!({"type": "integer", "exclusiveMinimum": 3}), json!(4)),
            (json!({"type": "integer", "maximum": -2}), json!(-2)),
            (json!({"type": "number", "minimum": 0.25, "multipleOf": 0.25}), json!(0.25)),
            (json!({"type": "integer", "minimum": 10, "multipleOf": 4}), json!(12)),
            (json!({"type": ["null", "integer"], "minimum": 1}), json!(1)),
            (json!({"type": "boolean"}), json!(false)),
            (json!({"type": "array", "items": {"type": "string"}}), json!([])),
            (json!({"type": "array", "items": {"type": "integer"}, "minItems": 2}), json!([0, 0])),
            (person.clone(), json!({"name": "x"})),
            (json!({"anyOf": [person, {"type": "null"}]}), json!({"name": "x"})),
            (
                json!({"allOf": [{"type": "object", "required": ["a"], "properties": {"a": {"const": 1}}}]}),
                json!({"a": 1}),
            ),
            (json!({"$ref": "#/$defs/tree"}), json!({"below": []})),
        ] {
            let schema = json!({"type": "object", "properties": {"it": property, "other": {"type": "string"}},
                "required": ["it"], "additionalProperties": false, "$defs": {"tree": {"type": "object",
                "required": ["below"], "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}}});
            let arguments = make_smallest(&schema);
            assert_eq!(arguments, json!({"it": made}), "{property}");
            assert!(is_valid(&schema, &arguments), "{property}");
        }
        assert_eq!(make_smallest(&json!({})), json!({}));
        assert_eq!(make_smallest(&json!({"type": "string"})), json!({}));
    }

    #[test]
    fn smallest_arguments_of_recursive_schema_are_finite() {
        let endless = json!({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}});
        assert!(make_smallest(&endless).is_object());
        let itself = json!({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/properties/a"}}});
        assert!(make_smallest(&itself).is_object());
    }

    #[test]
    fn invalid_arguments_are_refused_by_schema() {
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let free = json!({"type": "object", "properties": {}});
        let optional = json!({"type": "object", "properties": {"n": {"type": ["integer", "null"]}}});
        for (schema, what) in
            [(&text, &["text of another type", "without text"][..]), (&free, &[]), (&optional, &["n of another type"])]
        {
            let invalid = make_invalid(schema, &make_smallest(schema), |made| is_valid(schema, made));
            assert!(invalid.iter().all(|(_, made)| !is_valid(schema, made)), "{invalid:?}");
            assert_eq!(invalid.iter().map(|(what, _)| what.as_str()).collect::<Vec<_>>(), what);
        }
    }
}
