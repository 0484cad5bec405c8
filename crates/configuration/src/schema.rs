//! JSON Schemas of configuration files, generated from the types that read them, so that editors know the files too.

use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Value;

/// The schema of a file, draft 2020-12.
pub fn of<T: JsonSchema>(title: &str) -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    let mut schema = schema.to_value();
    clean(&mut schema);
    schema
}

/// Drops defaults that are null, and joins the lines of descriptions, which are lines of the source.
fn clean(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|key, value| key != "default" || !value.is_null());
            if let Some(Value::String(text)) = fields.get_mut("description") {
                let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
                *text = paragraphs.collect::<Vec<_>>().join("\n\n");
            }
            fields.values_mut().for_each(clean);
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The schema of an enum of plain words, or of none of them: for types that know nothing of schemas.
pub fn words_or_none<T: for<'de> Deserialize<'de>>(_: &mut SchemaGenerator) -> Schema {
    let words = names_of::<T>().iter().map(|word| Value::from(*word)).chain([Value::Null]);
    json_schema!({"enum": words.collect::<Vec<_>>()})
}

/// The names by which a type is read: the words of an enum, or the fields of a struct, as serde's derived code asks for
/// them.
pub fn names_of<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(NamesProbe) {
        Ok(_) => &[],
        Err(Names(names)) => names,
    }
}

/// A deserializer without a value: its error has the names that were requested.
struct NamesProbe;

#[derive(Debug)]
struct Names(&'static [&'static str]);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Names {}

impl serde::de::Error for Names {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for NamesProbe {
    type Error = Names;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Names> {
        Err(Names::custom("neither an enum nor a struct"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Names> {
        Err(Names(words))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Names> {
        Err(Names(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::settings::{LimitAction, Limits};

    #[test]
    fn names_come_from_the_derived_code() {
        assert_eq!(names_of::<LimitAction>(), ["answer", "end", "ask"]);
        assert_eq!(names_of::<Limits>(), ["tokens", "cost_usd", "tool_calls", "repetition", "no_progress"]);
        assert_eq!(names_of::<u8>(), [] as [&str; 0]);
    }
}
