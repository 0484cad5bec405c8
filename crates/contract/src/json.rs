//! JSON kept as the bytes that it came in: cheap to clone, never reformatted.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Size of a JSON text besides its bytes: a measure of the cost to parse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Levels of objects and lists within each other; 0 for a single value.
    pub depth: usize,
    /// Values and names in it; at least as many, never fewer.
    pub values: usize,
}

impl Size {
    /// Measures a text without parsing it. For a text that is not JSON the numbers mean nothing, but there is no error.
    pub fn of(text: &[u8]) -> Self {
        let mut size = Self { depth: 0, values: 1 };
        let (mut depth, mut rest) = (0_usize, text.iter());
        while let Some(byte) = rest.next() {
            match byte {
                b'"' => {
                    while let Some(byte) = rest.next() {
                        match byte {
                            b'"' => break,
                            b'\\' => drop(rest.next()),
                            _ => {}
                        }
                    }
                }
                b'[' | b'{' => {
                    depth += 1;
                    size.depth = size.depth.max(depth);
                    size.values += 1;
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                b',' | b':' => size.values += 1,
                _ => {}
            }
        }
        size
    }
}

/// Levels of objects and lists within each other in a value; 0 for a text, a number, a flag or null.
pub fn depth(value: &Value) -> usize {
    let deepest = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 0,
        Value::Array(list) => list.iter().map(depth).max(),
        Value::Object(map) => map.values().map(depth).max(),
    };
    1 + deepest.unwrap_or(0)
}

/// JSON text that is known to be valid, kept as it was written.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Json(Arc<RawValue>);

impl JsonSchema for Json {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}

impl Json {
    /// Checks and keeps a text.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Serialises a value. A value that cannot be JSON, such as a map with odd keys, becomes `null`.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::try_of(value).unwrap_or_default()
    }

    /// As [`Json::of`]; an error for a value that cannot be JSON.
    pub fn try_of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(|raw| Self(raw.into()))
    }

    /// Returns the reason why programs may read it differently; `None` if all read the same. Of a name that occurs
    /// twice in one object some programs take the first value and some the last, and `serde_json` parses a text under
    /// one of its private names as JSON.
    pub fn ambiguity(&self) -> Option<String> {
        let mut found = None;
        let mut text = serde_json::Deserializer::from_str(self.get());
        // It is JSON: nothing else can be wrong with it.
        let _read = Names(&mut found).deserialize(&mut text);
        found.map(|name| {
            let why = if name.starts_with(PRIVATE) { "is no name of arguments" } else { "stands twice" };
            format!("the name {name:?} {why}")
        })
    }

    /// Measures the cost to parse the text.
    pub fn size(&self) -> Size {
        Size::of(self.get().as_bytes())
    }

    /// The JSON text as it was parsed.
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

/// Prefix of names that `serde_json` reserves for itself.
const PRIVATE: &str = "$serde_json::private::";

/// Walks through a value and takes note of the first name that makes it ambiguous.
struct Names<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Names(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            map.next_value_seed(Names(self.0))?;
            if self.0.is_none() && (names.contains(&name) || name.starts_with(PRIVATE)) {
                *self.0 = Some(name);
            } else {
                names.insert(name);
            }
        }
        Ok(())
    }
}

impl Default for Json {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl PartialEq for Json {
    /// Compares texts, not meanings.
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(deserializer)?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_json_is_found_at_any_depth() {
        for (text, why) in [
            (r#"{"a":1,"b":{"a":[null,true,-1,1.5,"x"]}}"#, None),
            ("[1, 2, 2]", None),
            (r#"{"a":1,"a":1}"#, Some("the name \"a\" stands twice")),
            (r#"{"x":[{"b":{}},{"c":1,"d":2,"c":3}]}"#, Some("the name \"c\" stands twice")),
            // The same name in other letters.
            (r#"{"a":1,"\u0061":2}"#, Some("the name \"a\" stands twice")),
            (
                r#"[{"$serde_json::private::RawValue":"{\"a\":1}"}]"#,
                Some("the name \"$serde_json::private::RawValue\" is no name of arguments"),
            ),
            (r#"{"n":123456789012345678901234567890,"m":1e400}"#, None),
        ] {
            assert_eq!(Json::parse(text).unwrap().ambiguity().as_deref(), why, "{text}");
        }
        for (text, depth, values) in [
            ("1", 0, 1),
            (r#""[{,:\"[""#, 0, 1),
            ("{}", 1, 2),
            (r#"{"a":[1,{"b":[]}],"c":"}"}"#, 4, 10),
            ("[[[", 3, 4),
            ("]]]]", 0, 1),
            (r#""\"#, 0, 1),
        ] {
            let size = Size::of(text.as_bytes());
            assert_eq!((size.depth, size.values), (depth, values), "{text}");
            if let Ok(value) = serde_json::from_str::<Value>(text) {
                assert_eq!(super::depth(&value), depth, "{text}");
            }
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert_eq!(Json::parse(&deep).unwrap().ambiguity(), None);
    }
}
