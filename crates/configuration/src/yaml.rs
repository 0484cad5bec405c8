//! Strict YAML: an error names file, line and column.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::error::ConfigError;
use crate::text_file::TextFile;

/// Parses a whole file.
pub fn parse<T: for<'de> Deserialize<'de>>(file: &TextFile) -> Result<T, ConfigError> {
    serde_saphyr::from_str(&file.text).map_err(|error| refused(file, &error))
}

/// A file of sections as JSON, for the layers, so that one parser of YAML decides what a file means. An empty file has
/// no sections.
pub(crate) fn to_json(file: &TextFile) -> Result<String, ConfigError> {
    let sections: Option<serde_json::Map<String, serde_json::Value>> = parse(file)?;
    Ok(serde_json::Value::Object(sections.unwrap_or_default()).to_string())
}

/// A finding about a value that was read with [`serde_saphyr::Spanned`].
pub fn at(file: &TextFile, location: serde_saphyr::Location, message: impl fmt::Display) -> ConfigError {
    let message = message.to_string();
    ConfigError::Bad { origin: file.origin.clone(), line: location.line(), column: location.column(), message }
}

/// Tries one section of a file alone; the error says where it is wrong.
pub(crate) fn check_section<T: for<'de> Deserialize<'de>>(file: &TextFile, name: &str) -> Result<(), ConfigError> {
    let seed = Section::<T> { name, shape: PhantomData };
    let checked = serde_saphyr::with_deserializer_from_str(&file.text, |deserializer| seed.deserialize(deserializer));
    checked.map_err(|error| refused(file, &error))
}

fn refused(file: &TextFile, error: &serde_saphyr::Error) -> ConfigError {
    let message = error.without_snippet().to_string();
    match error.location() {
        Some(location) => {
            // The place is a part of the error already.
            let place = format!(" at line {}, column {}", location.line(), location.column());
            at(file, location, message.strip_suffix(&place).unwrap_or(&message))
        }
        None => ConfigError::Bad { origin: file.origin.clone(), line: 0, column: 0, message },
    }
}

/// One key of the top-level mapping; the others are skipped.
struct Section<'a, T> {
    name: &'a str,
    shape: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Section<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Section<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of sections")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == self.name {
                map.next_value::<Option<T>>()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}
