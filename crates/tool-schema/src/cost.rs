//! The cost of a JSON Schema, before anything is validated against it. Pure.
//!
//! References let a short schema stand for a huge one, and a validator follows every one of them. So a schema is
//! refused when its references expand to too much, and arguments are refused when validating them would take too many
//! steps. Both counts stop at a limit, so that counting itself is cheap.

use std::collections::{HashMap, HashSet};

use contract::limits::{TOOL_SCHEMA_EXPANSION_MAX, TOOL_SCHEMA_PATTERNS_MAX, VALIDATION_STEPS_MAX};
use serde_json::{Map, Value};

/// Depth of subschemas that apply to one value: the validator recurses over them.
const SAME_VALUE_DEPTH_MAX: u32 = 64;
/// Nesting of schemas and values that the validator recurses over; its thread has the stack for that.
pub(crate) const NESTING_MAX: u32 = 1_024;
/// Divisor of the steps for a schema whose patterns look around or back: the validator runs again for each match that
/// its backtracking did not finish.
const BACKTRACKING_SHARE: u64 = 16;
/// Additional steps of one match of such a pattern.
const BACKTRACKING_STEPS: u64 = 50;
/// Bytes of a text that count as one step: for a pattern, for a format, and otherwise.
const PATTERN_BYTES: usize = 4;
const FORMAT_BYTES: usize = 16;
const TEXT_BYTES: usize = 64;
/// Steps per value of a published meta-schema, whose subschemas are not counted.
const META_SCHEMA_STEPS: u64 = 64;

/// Meta-schemas that the validator has built in.
const META_SCHEMAS: [&str; 5] = [
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];
/// Keywords whose value is a list of schemas for the same value.
const SAME_VALUE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords whose value is a schema for the same value.
const SAME_VALUE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords whose value is a map of schemas for the same value.
const SAME_VALUE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose value is a schema for the parts of a value.
const PARTS: [&str; 7] = [
    "additionalProperties",
    "propertyNames",
    "additionalItems",
    "contains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "items",
];
/// Keywords whose value is a map of schemas for the parts of a value.
const PART_MAPS: [&str; 2] = ["properties", "patternProperties"];
/// Keywords whose value is a list of schemas for the parts of a value.
const PART_LISTS: [&str; 2] = ["prefixItems", "items"];
/// References whose target depends on the path to them.
const DYNAMIC_REFERENCES: [&str; 2] = ["$dynamicRef", "$recursiveRef"];

/// Cost of a schema that may be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaCost {
    /// Subschemas that apply to one value, references followed, summed over all subschemas.
    pub(crate) expansion: u64,
    /// Whether one of its patterns looks around or back.
    pub(crate) needs_backtracking: bool,
}

impl SchemaCost {
    /// Returns the steps that validating one value may take.
    pub(crate) fn steps_max(&self) -> u64 {
        if self.needs_backtracking { VALIDATION_STEPS_MAX / BACKTRACKING_SHARE } else { VALIDATION_STEPS_MAX }
    }
}

/// Steps of one validation, and how deep it nests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ValidationSteps {
    pub(crate) count: u64,
    pub(crate) nesting: u32,
}

/// Measures a schema; the error says why it must not be used, with cost and limit where it costs too much.
pub(crate) fn measure_cost(schema: &Value) -> Result<SchemaCost, String> {
    let mut meter = CostMeter { root: schema, extents: HashMap::new() };
    let (mut visited, mut open, mut patterns) = (HashSet::new(), vec![schema], HashSet::new());
    let mut expansion: u64 = 0;
    while let Some(schema) = open.pop() {
        if !visited.insert(schema_address(schema)) {
            continue;
        }
        expansion = expansion.saturating_add(meter.measure_extent(schema, 1)?.size);
        let Value::Object(keywords) = schema else { continue };
        if !std::ptr::eq(schema, meter.root) && has_base_id(keywords) {
            return Err("a subschema has an $id of its own: only references within one schema are followed".to_owned());
        }
        patterns.extend(keywords.get("pattern").and_then(Value::as_str));
        let keys = keywords.get("patternProperties").and_then(Value::as_object);
        patterns.extend(keys.into_iter().flat_map(Map::keys).map(String::as_str));
        open.extend(same_value_subschemas(keywords));
        open.extend(resolve_reference(meter.root, keywords)?);
        open.extend(part_subschemas(keywords));
    }
    if expansion > TOOL_SCHEMA_EXPANSION_MAX {
        return Err(format!(
            "its cost is {expansion} subschemas with references followed, {TOOL_SCHEMA_EXPANSION_MAX} are allowed: let \
             fewer references lead to the same subschema"
        ));
    }
    if patterns.len() > TOOL_SCHEMA_PATTERNS_MAX {
        return Err(format!("it has {} patterns, at most {TOOL_SCHEMA_PATTERNS_MAX} are allowed", patterns.len()));
    }
    Ok(SchemaCost { expansion, needs_backtracking: patterns.into_iter().any(needs_backtracking) })
}

/// Counts the steps of validating a value, up to a limit; `None` where there are more, or the nesting is too deep.
pub(crate) fn count_steps(schema: &Value, value: &Value, max: u64, nesting_max: u32) -> Option<ValidationSteps> {
    let mut counter = StepCounter { root: schema, steps: ValidationSteps::default(), max, nesting_max };
    counter.apply(schema, value, 1, 1).then_some(counter.steps)
}

/// Measures how many subschemas apply to one value.
struct CostMeter<'a> {
    root: &'a Value,
    /// Extents by address of the subschema; `None` while one is being measured.
    extents: HashMap<usize, Option<SubschemaExtent>>,
}

/// The subschemas that apply to the same value as a given one, itself included.
#[derive(Debug, Clone, Copy)]
struct SubschemaExtent {
    /// Number of these subschemas.
    size: u64,
    /// Depth to which they are nested.
    depth: u32,
}

impl CostMeter<'_> {
    fn measure_extent(&mut self, schema: &Value, level: u32) -> Result<SubschemaExtent, String> {
        let too_deep = || format!("its subschemas apply to one value in over {SAME_VALUE_DEPTH_MAX} levels");
        if level > SAME_VALUE_DEPTH_MAX {
            return Err(too_deep());
        }
        let mut extent = SubschemaExtent { size: 1, depth: 1 };
        let Value::Object(keywords) = schema else { return Ok(extent) };
        match self.extents.get(&schema_address(schema)) {
            None => self.extents.insert(schema_address(schema), None),
            Some(None) => return Err("a subschema refers to itself for the same value, without an end".to_owned()),
            Some(Some(known)) => return Ok(*known),
        };
        for schema in same_value_subschemas(keywords).chain(resolve_reference(self.root, keywords)?) {
            let inner = self.measure_extent(schema, level + 1)?;
            extent.size = extent.size.saturating_add(inner.size);
            extent.depth = extent.depth.max(inner.depth + 1);
        }
        if extent.depth > SAME_VALUE_DEPTH_MAX {
            return Err(too_deep());
        }
        self.extents.insert(schema_address(schema), Some(extent));
        Ok(extent)
    }
}

/// Follows a validator over schema and value; the validator visits at most the same pairs.
struct StepCounter<'a> {
    root: &'a Value,
    steps: ValidationSteps,
    max: u64,
    nesting_max: u32,
}

impl<'a> StepCounter<'a> {
    fn add(&mut self, steps: u64, weight: u64) -> bool {
        self.steps.count = self.steps.count.saturating_add(steps.saturating_mul(weight));
        self.steps.count <= self.max
    }

    /// Applies a schema to a value, `weight` times; `false` where the limit is exceeded.
    fn apply(&mut self, schema: &'a Value, value: &Value, weight: u64, nesting: u32) -> bool {
        self.steps.nesting = self.steps.nesting.max(nesting);
        if nesting > self.nesting_max || !self.add(1, weight) {
            return false;
        }
        let Value::Object(keywords) = schema else { return true };
        self.add(count_own_steps(keywords, value), weight)
            && self.apply_to_same(keywords, value, weight, nesting + 1)
            && self.apply_to_parts(keywords, value, weight, nesting + 1)
    }

    fn apply_to_same(&mut self, keywords: &'a Map<String, Value>, value: &Value, weight: u64, nesting: u32) -> bool {
        // Unevaluated parts are found by applying everything else once more, for each part.
        let parts = match value {
            Value::Object(fields) if keywords.contains_key("unevaluatedProperties") => fields.len() as u64 + 2,
            Value::Array(items) if keywords.contains_key("unevaluatedItems") => items.len() as u64 + 2,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                1
            }
        };
        let weight = weight.saturating_mul(parts);
        let targets = match resolve_reference(self.root, keywords) {
            Ok(Some(target)) => Some(target),
            Ok(None) if keywords.contains_key("$ref") => {
                return self.add(count_values(value).saturating_mul(META_SCHEMA_STEPS), weight);
            }
            Ok(None) | Err(_) => None,
        };
        same_value_subschemas(keywords).chain(targets).all(|schema| self.apply(schema, value, weight, nesting))
    }

    fn apply_to_parts(&mut self, keywords: &'a Map<String, Value>, value: &Value, weight: u64, nesting: u32) -> bool {
        let schema = |name: &str| keywords.get(name).filter(|schema| schema.is_object() || schema.is_boolean());
        match value {
            Value::Object(fields) => {
                let properties = keywords.get("properties").and_then(Value::as_object);
                let by_pattern = keywords.get("patternProperties").and_then(Value::as_object);
                let others = [schema("additionalProperties"), schema("unevaluatedProperties")];
                let names = schema("propertyNames");
                fields.iter().all(|(name, part)| {
                    let matched = by_pattern.into_iter().flatten().all(|(pattern, schema)| {
                        self.add(count_match_steps(pattern, name), weight) && self.apply(schema, part, weight, nesting)
                    });
                    let property = properties.and_then(|properties| properties.get(name));
                    matched
                        && property.is_none_or(|schema| self.apply(schema, part, weight, nesting))
                        && others.iter().flatten().all(|schema| self.apply(schema, part, weight, nesting))
                        && names.is_none_or(|schema| {
                            self.add(count_text_steps(name.len(), TEXT_BYTES), weight)
                                && self.apply(schema, &Value::String(name.clone()), weight, nesting)
                        })
                })
            }
            Value::Array(items) => {
                let list = |name: &str| keywords.get(name).and_then(Value::as_array);
                let each = ["items", "additionalItems", "contains", "unevaluatedItems"].map(schema);
                items.iter().enumerate().all(|(index, part)| {
                    let placed = PART_LISTS.iter().filter_map(|name| list(name)?.get(index)).collect::<Vec<_>>();
                    placed.into_iter().all(|schema| self.apply(schema, part, weight, nesting))
                        && each.iter().flatten().all(|schema| self.apply(schema, part, weight, nesting))
                })
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
}

/// Counts the steps of the keywords of one schema, without its subschemas.
fn count_own_steps(keywords: &Map<String, Value>, value: &Value) -> u64 {
    let mut steps: u64 = 0;
    for (name, keyword) in keywords {
        steps = steps.saturating_add(match (name.as_str(), keyword, value) {
            ("pattern", Value::String(pattern), Value::String(text)) => count_match_steps(pattern, text),
            ("format", _, Value::String(text)) => count_text_steps(text.len(), FORMAT_BYTES),
            ("minLength" | "maxLength", _, Value::String(text)) => count_text_steps(text.len(), TEXT_BYTES),
            ("enum", Value::Array(options), Value::Array(_) | Value::Object(_)) => {
                count_values(value).min(count_values(keyword)).saturating_mul(options.len() as u64)
            }
            ("enum", Value::Array(options), _) => options.len() as u64,
            ("const", _, _) => count_values(value).min(count_values(keyword)),
            ("uniqueItems", Value::Bool(true), Value::Array(_)) => count_values(value).saturating_mul(2),
            ("required", Value::Array(names), Value::Object(_)) => names.len() as u64,
            ("properties" | "dependentRequired", Value::Object(names), Value::Object(_)) => names.len() as u64,
            _ => 0,
        });
    }
    steps
}

/// Returns the subschemas that apply to the same value, without references.
fn same_value_subschemas(keywords: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let lists = SAME_VALUE_LISTS.iter().filter_map(|name| keywords.get(*name)?.as_array()).flatten();
    let maps = SAME_VALUE_MAPS.iter().filter_map(|name| keywords.get(*name)?.as_object()).flat_map(Map::values);
    lists.chain(SAME_VALUE.iter().filter_map(|name| keywords.get(*name))).chain(maps)
}

/// Returns the subschemas that apply to parts of a value.
fn part_subschemas(keywords: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let lists = PART_LISTS.iter().filter_map(|name| keywords.get(*name)?.as_array()).flatten();
    let maps = PART_MAPS.iter().filter_map(|name| keywords.get(*name)?.as_object()).flat_map(Map::values);
    PARTS.iter().filter_map(|name| keywords.get(*name)).chain(lists).chain(maps)
}

/// Resolves the reference of a subschema; `None` also for one to a published meta-schema.
fn resolve_reference<'a>(root: &'a Value, keywords: &Map<String, Value>) -> Result<Option<&'a Value>, String> {
    if let Some(name) = DYNAMIC_REFERENCES.iter().find(|name| keywords.contains_key(**name)) {
        return Err(format!("{name} is not supported: use $ref"));
    }
    let Some(Value::String(reference)) = keywords.get("$ref") else { return Ok(None) };
    let id = root.get("$id").and_then(Value::as_str).unwrap_or_default().trim_end_matches('#');
    let local = reference.strip_prefix(id).filter(|rest| rest.is_empty() || rest.starts_with('#'));
    let Some(local) = local.or_else(|| reference.starts_with('#').then_some(reference.as_str())) else {
        // A subschema could have that id.
        if META_SCHEMAS.contains(&reference.trim_end_matches('#')) && !has_inner_id(root) {
            return Ok(None);
        }
        return Err(format!("it refers to {reference:?}: only references within the schema (#/…) are followed"));
    };
    let pointer = decode_fragment(local.trim_start_matches('#'));
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(format!("it refers to {reference:?}: name the place (#/…), not an anchor"));
    }
    match root.pointer(&pointer) {
        Some(target) => Ok(Some(target)),
        None => Err(format!("it refers to {reference:?}, which is not there")),
    }
}

/// Whether references within the schema are relative to it, and not to the root. An id that begins with `#` is an
/// anchor.
fn has_base_id(keywords: &Map<String, Value>) -> bool {
    let is_id = |id: &Value| id.as_str().is_some_and(|id| !id.starts_with('#'));
    ["$id", "id"].iter().any(|name| keywords.get(*name).is_some_and(is_id))
}

/// Whether a value contains a schema with an id of its own.
fn has_inner_id(value: &Value) -> bool {
    let inner = |value: &Value| value.as_object().is_some_and(has_base_id) || has_inner_id(value);
    match value {
        Value::Array(items) => items.iter().any(inner),
        Value::Object(fields) => fields.values().any(inner),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Decodes the escapes of a URI fragment.
fn decode_fragment(fragment: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(fragment.len()), fragment.as_bytes());
    while let [first, after @ ..] = rest {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(byte) = escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a pattern needs an engine that backtracks: it looks around or back.
fn needs_backtracking(pattern: &str) -> bool {
    let has_back_reference =
        pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && (b'1'..=b'9').contains(&pair[1]));
    has_back_reference || ["(?=", "(?!", "(?<=", "(?<!", "(?>", "\\k"].iter().any(|part| pattern.contains(part))
}

fn count_match_steps(pattern: &str, text: &str) -> u64 {
    let extra = if needs_backtracking(pattern) { BACKTRACKING_STEPS } else { 0 };
    count_text_steps(text.len(), PATTERN_BYTES).saturating_add(extra)
}

fn count_text_steps(bytes: usize, per_step: usize) -> u64 {
    (bytes / per_step) as u64 + 1
}

/// Counts the values in a value, itself included; a long text counts as more.
fn count_values(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => count_text_steps(text.len(), TEXT_BYTES),
        Value::Array(items) => items.iter().map(count_values).sum::<u64>() + 1,
        Value::Object(fields) => fields.values().map(count_values).sum::<u64>() + fields.len() as u64 + 1,
    }
}

fn schema_address(schema: &Value) -> usize {
    std::ptr::from_ref(schema).addr()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Builds a schema whose `levels` definitions each refer twice to the next one, by `two`.
    pub(crate) fn doubling(levels: usize, two: impl Fn(Value) -> Value) -> Value {
        let mut definitions = Map::new();
        for level in 0..levels {
            definitions.insert(format!("d{level}"), two(json!({"$ref": format!("#/$defs/d{}", level + 1)})));
        }
        definitions.insert(format!("d{levels}"), json!({"type": "object"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    }

    #[test]
    fn schema_with_doubling_references_is_refused_with_cost_and_limit() {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let schema = doubling(30, |next| json!({keyword: [next, next]}));
            let reason = measure_cost(&schema).unwrap_err();
            assert!(
                reason.contains("subschemas") && reason.contains(&TOOL_SCHEMA_EXPANSION_MAX.to_string()),
                "{reason}"
            );
        }
        let small = doubling(8, |next| json!({"anyOf": [next, next]}));
        assert!(measure_cost(&small).is_ok_and(|cost| cost.expansion > 1_000));
    }

    #[test]
    fn schema_that_cannot_be_measured_is_refused() {
        for (schema, part) in [
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}), "without an end"),
            (json!({"allOf": [{"$ref": "#"}]}), "without an end"),
            (json!({"$ref": "http://127.0.0.1:1/x"}), "only references within the schema"),
            (json!({"$ref": "#/$defs/none"}), "not there"),
            (json!({"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}}), "not an anchor"),
            (json!({"properties": {"a": {"$dynamicRef": "#a"}}}), "$dynamicRef is not supported"),
            (json!({"properties": {"a": {"$id": "b", "$ref": "#"}}}), "an $id of its own"),
            (json!({"properties": {"a": {"id": "http://b/", "items": {"$ref": "#"}}}}), "an $id of its own"),
            (
                json!({"$ref": "http://json-schema.org/draft-07/schema#", "$defs": {
                    "a": {"$id": "http://json-schema.org/draft-07/schema"}}}),
                "only references within the schema",
            ),
            (json!({"$ref": "http://json-schema.org/draft-07/other"}), "only references within the schema"),
        ] {
            let reason = measure_cost(&schema).unwrap_err();
            assert!(reason.contains(part), "{reason:?} lacks {part:?}");
        }
        let many: Map<String, Value> =
            (0..=TOOL_SCHEMA_PATTERNS_MAX).map(|n| (format!("p{n}"), json!({"pattern": format!("^{n}$")}))).collect();
        assert!(measure_cost(&json!({"properties": many})).unwrap_err().contains("patterns"));
    }

    #[test]
    fn schema_of_ordinary_tools_costs_little() {
        let tree = json!({"type": "object", "properties": {"node": {"$ref": "#/$defs/node"}}, "$defs": {
        "node": {"type": "object", "properties": {
            "name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        }}}});
        assert_eq!(measure_cost(&tree).unwrap().expansion, 8);
        let value = json!({"node": {"name": "a", "children": [{"name": "b", "children": []}]}});
        assert!(count_steps(&tree, &value, 50, NESTING_MAX).is_some());
        let id = json!({"$id": "http://a/b", "$ref": "http://a/b#/$defs/x%20y", "$defs": {"x y": {"type": "object"}}});
        assert!(measure_cost(&id).is_ok());
        let anchors = json!({"properties": {"a": {"$id": "#/properties/a", "type": "string"}}});
        assert!(measure_cost(&anchors).is_ok());
        let meta = json!({"properties": {"schema": {"$ref": "http://json-schema.org/draft-07/schema#"}}});
        assert!(measure_cost(&meta).is_ok());
    }

    #[test]
    fn steps_grow_with_what_the_validator_visits() {
        // The depth of the value decides: its cost doubles with each level.
        let schema = doubling(20, |next| json!({"allOf": [{"properties": {"a": next}}, {"properties": {"a": next}}]}));
        assert!(measure_cost(&schema).is_ok());
        let nested = |levels: usize| (0..levels).fold(json!({}), |value, _| json!({"a": value}));
        assert!(count_steps(&schema, &nested(5), VALIDATION_STEPS_MAX, NESTING_MAX).is_some());
        assert_eq!(count_steps(&schema, &nested(20), VALIDATION_STEPS_MAX, NESTING_MAX), None);
        let text = json!({"pattern": "^a*$"});
        let long = count_steps(&text, &json!("a".repeat(4_000)), VALIDATION_STEPS_MAX, NESTING_MAX).unwrap();
        assert!(long.count >= 1_000, "{long:?}");
        let open = json!({"unevaluatedProperties": false, "allOf": [{"properties": {}}]});
        let wide: Map<String, Value> = (0..100).map(|n| (n.to_string(), json!(n))).collect();
        assert!(count_steps(&open, &Value::Object(wide), 150, NESTING_MAX).is_none());
    }
}
