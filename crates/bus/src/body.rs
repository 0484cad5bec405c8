//! Bodies over [`limits::INLINE_BYTES_MAX`] go to an object store and travel as a reference.

use bytes::Bytes;
use contract::Timestamp;
use contract::limits;
use contract::streams::Objects;
use contract::tool::sha256_hex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::json::{encode, parse};
use crate::{Bus, BusError, retry};

/// Bytes above which a body cannot be a reference: `meta` and a hash are far smaller.
const REFERENCE_BYTES_MAX: usize = 64 << 10;

/// Further looks for a blob that is not there.
const LATE_ROUNDS: u32 = 3;

/// Message sent in place of a large body. `meta` is a copy, which can be read without the body.
#[derive(Serialize, Deserialize)]
struct Reference<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
    #[serde(rename = "$blob")]
    blob: String,
    bytes: usize,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default)]
    meta: Option<&'a RawValue>,
}

impl Bus {
    /// Returns a body that can be published: the body itself, or, where it is over
    /// [`limits::INLINE_BYTES_MAX`], a reference to where it was stored.
    pub async fn offload_body(&self, store: Objects, body: Bytes) -> Result<Bytes, BusError> {
        if body.len() <= limits::INLINE_BYTES_MAX {
            return Ok(body);
        }
        let meta = parse::<Meta<'_>>(&body)?.meta;
        let reference = Reference { meta, blob: sha256_hex(&body), bytes: body.len() };
        let encoded = encode(&reference)?;
        self.transport().put_object(store, &reference.blob, body.clone()).await?;
        Ok(encoded)
    }

    /// Returns the body itself, also where a reference came. A blob that is not there (yet) is
    /// [`BusError::BodyMissing`]: try again, for a while.
    pub async fn open(&self, store: Objects, body: Bytes) -> Result<Bytes, BusError> {
        self.open_in(&[store], body).await
    }

    /// As [`Bus::open`], for a message that the server stored at `stored_at`: a blob that has been missing for too long
    /// is gone, which is [`BusError::Malformed`].
    pub async fn load_body(&self, store: Objects, body: Bytes, stored_at: Timestamp) -> Result<Bytes, BusError> {
        match self.open(store, body).await {
            Err(error @ BusError::BodyMissing { .. }) => {
                let now = self.transport().server_time().await?;
                Err(error.final_after(stored_at, now))
            }
            opened => opened,
        }
    }

    /// As [`Bus::open`], for a body that may have moved from one store to the next one.
    pub(crate) async fn open_in(&self, stores: &[Objects], body: Bytes) -> Result<Bytes, BusError> {
        let Some((blob, bytes)) = reference(&body) else { return Ok(body) };
        for round in 0..=LATE_ROUNDS {
            if round > 0 {
                // It was stored before its reference; a replica may be late.
                retry::wait(round, &blob).await;
            }
            for store in stores {
                let Some(found) = self.transport().get_object(*store, &blob).await? else { continue };
                if found.len() == bytes {
                    return Ok(found);
                }
                let why = format!("blob {blob} has {} bytes instead of {bytes}", found.len());
                return Err(BusError::Malformed(why));
            }
        }
        Err(BusError::BodyMissing { blob })
    }
}

/// The object that a body refers to; `None` for a body that stands in its message.
pub fn object_of(body: &[u8]) -> Option<String> {
    reference(body).map(|(blob, _)| blob)
}

/// Reads a reference; `None` for an inline body. Only top-level keys count, so that no content can look like one.
fn reference(body: &[u8]) -> Option<(String, usize)> {
    if body.len() > REFERENCE_BYTES_MAX || !std::str::from_utf8(body).ok()?.contains("\"$blob\"") {
        return None;
    }
    let reference: Reference<'_> = serde_json::from_slice(body).ok()?;
    Some((reference.blob, reference.bytes))
}
