//! JSON of message bodies.

use bytes::Bytes;

use crate::BusError;

/// Parses JSON. The error has the position, never the content.
pub(crate) fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, BusError> {
    serde_json::from_slice(body).map_err(|e| BusError::Malformed(e.to_string()))
}

/// Serialises a value to JSON.
pub(crate) fn encode<T: serde::Serialize>(value: &T) -> Result<Bytes, BusError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|e| BusError::Malformed(e.to_string()))
}
