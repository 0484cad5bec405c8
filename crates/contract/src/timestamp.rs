//! An instant in whole milliseconds, written as RFC 3339 in UTC.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From milliseconds since the epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The instant `by` later; the far future saturates.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` to this instant; zero when `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Parses a time in RFC 3339; `None` where it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok().map(Self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(at) = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000) else {
            return f.write_str("9999-12-31T23:59:59.999Z");
        };
        // Every event has a time, so its digits are written in place.
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let parts = [
            (3, u32::try_from(at.year()).unwrap_or_default()),
            (6, u32::from(u8::from(at.month()))),
            (9, u32::from(at.day())),
            (12, u32::from(at.hour())),
            (15, u32::from(at.minute())),
            (18, u32::from(at.second())),
            (22, u32::from(at.millisecond())),
        ];
        for (end, mut number) in parts {
            let mut position = end;
            while number > 0 {
                if let Some(digit) = text.get_mut(position) {
                    *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
                }
                number /= 10;
                position = position.saturating_sub(1);
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimeVisitor)
    }
}

/// Reads a time out of the text that holds it, without a copy.
struct TimeVisitor;

impl de::Visitor<'_> for TimeVisitor {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an RFC 3339 time")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
        Timestamp::parse(text).ok_or_else(|| E::custom("not an RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_parsed_back_as_documented() {
        let at = Timestamp::parse("2024-01-15T10:30:45.123Z").unwrap();
        assert_eq!(at.as_millis(), 1_705_314_645_123);
        assert_eq!(at.to_string(), "2024-01-15T10:30:45.123Z");
        assert_eq!(serde_json::from_str::<Timestamp>("\"2024-01-15T11:30:45.123+01:00\"").unwrap(), at);
        assert_eq!(Timestamp::default().to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(951_827_696_007).to_string(), "2000-02-29T12:34:56.007Z");
        assert_eq!(Timestamp::from_millis(253_402_300_799_999).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::from_millis(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }
}
