//! JSON kept as the bytes that it came in: cheap to clone, never reformatted.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Valid JSON text.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Json(Arc<RawValue>);

impl Json {
    /// Checks and keeps a text.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Serialises a value. A value that cannot be JSON, such as a map with odd keys, becomes `null`.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        serde_json::value::to_raw_value(value).map_or_else(|_| Self::default(), |raw| Self(raw.into()))
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl Default for Json {
    /// `null`
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
