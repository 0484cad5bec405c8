//! Reading of objects, whose names are the hashes of their bodies.

use async_nats::jetstream::object_store::ObjectInfo;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE as URL_SAFE;
use bytes::Bytes;
use contract::hash::sha256;
use contract::streams::Objects;

use super::connection::NatsTransport;
use super::object_stores::{settled, unread};
use crate::BusError;
use crate::transport::OBJECT_BYTES_MAX;

impl NatsTransport {
    /// Reads an object by direct reads, which any replica answers. A consumer would also deliver to any subject.
    pub(super) async fn object_get(&self, of: Objects, name: &str) -> Result<Option<Bytes>, BusError> {
        settled(name, || async move {
            let (stream, bucket) = (format!("OBJ_{}", of.name()), of.name());
            let about = format!("$O.{bucket}.M.{}", URL_SAFE.encode(name));
            let Some(about) = self.direct_last(&stream, &about).await? else { return Ok(None) };
            let info: ObjectInfo = crate::json::parse(&about.payload)?;
            if info.deleted {
                return Ok(None);
            }
            let chunks = self.direct_all(&stream, &format!("$O.{bucket}.C.{}", info.nuid)).await?;
            let mut body = Vec::with_capacity(info.size.min(OBJECT_BYTES_MAX));
            for chunk in chunks {
                body.extend_from_slice(&chunk.payload);
            }
            let digest = || format!("SHA-256={}", URL_SAFE.encode(sha256(&body)));
            // A replica that lags has fewer chunks; another object of the name may take them away meanwhile.
            if body.len() != info.size || info.digest.as_ref().is_some_and(|known| *known != digest()) {
                let why = format!("{} of {} bytes, or others than its digest says", body.len(), info.size);
                return Err(unread(name, &why));
            }
            Ok(Some(body.into()))
        })
        .await
    }
}
