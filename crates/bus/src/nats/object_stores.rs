//! Object stores, as every NATS client writes them. An object's name is the hash of its body.

use std::time::{Duration, SystemTime};

use async_nats::jetstream::object_store::{InfoErrorKind, ObjectInfo, ObjectStore};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE as URL_SAFE;
use bytes::Bytes;
use contract::hash::sha256;
use contract::streams::Objects;

use super::connection::NatsTransport;
use super::refusal::full;
use crate::transport::OBJECT_BYTES_MAX;
use crate::{BusError, retry};

/// Timeout of an operation on one object.
pub(super) const OBJECT_MAX: Duration = Duration::from_secs(30);

impl NatsTransport {
    pub(super) async fn object_put(&self, of: Objects, name: &str, body: Bytes) -> Result<(), BusError> {
        if body.len() > OBJECT_BYTES_MAX {
            return Err(BusError::TooLarge { bytes: body.len(), max: OBJECT_BYTES_MAX });
        }
        let body = &body;
        settled(name, || async move {
            let store = self.object_store(of).await?;
            // The same name is the same body. Writing it again takes its chunks from under a reader, so a young one stays.
            let stored = store.info(name).await.ok().filter(|info| !info.deleted);
            if stored.is_some_and(|info| !must_renew(info.modified.map(SystemTime::from), of.max_age())) {
                return Ok(());
            }
            let put = store.put(name, &mut &body[..]).await;
            put.map(drop).map_err(|error| {
                let text = format!("JetStream did not store object {name}: {error}");
                full(&text).unwrap_or(BusError::Unavailable(text))
            })
        })
        .await
    }

    /// Returns the subject of an object's chunks and the subject of its metadata; `None` if there is no such object.
    pub(super) async fn object_subjects(&self, of: Objects, name: &str) -> Result<Option<[String; 2]>, BusError> {
        settled(name, || async move {
            let bucket = of.name();
            match self.object_store(of).await?.info(name).await {
                Ok(info) => {
                    let about = format!("$O.{bucket}.M.{}", URL_SAFE.encode(name));
                    Ok(Some([format!("$O.{bucket}.C.{}", info.nuid), about]))
                }
                Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(None),
                Err(error) => Err(unread(name, &error)),
            }
        })
        .await
    }

    async fn object_store(&self, of: Objects) -> Result<&ObjectStore, BusError> {
        let cell = match of {
            Objects::Work => &self.stores.work,
            Objects::Blobs => &self.stores.blobs,
            Objects::Archive => &self.stores.archive,
            Objects::Results => &self.stores.results,
        };
        let open = || self.jetstream.get_object_store(of.name());
        cell.get_or_try_init(open).await.map_err(|e| BusError::Unavailable(format!("store {}: {e}", of.name())))
    }

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

/// Whether an object must be written again for a message that refers to it now: it would expire before such a message.
fn must_renew(stored_at: Option<SystemTime>, max_age: Option<Duration>) -> bool {
    let age = stored_at.and_then(|at| at.elapsed().ok());
    age.zip(max_age).is_some_and(|(age, max_age)| age > max_age / 2)
}

fn unread(name: &str, error: &impl std::fmt::Display) -> BusError {
    BusError::Unavailable(format!("object {name} not read: {error}"))
}

/// Retries for a while where a store has no leader: a caller that fails would repeat all of its work before the body.
async fn settled<T, F>(name: &str, ask: impl Fn() -> F) -> Result<T, BusError>
where
    F: Future<Output = Result<T, BusError>>,
{
    let may_pass = |error: &BusError| matches!(error, BusError::Unavailable(_));
    let rounds = retry::repeat(retry::ROUNDS_MAX, name, may_pass, ask);
    let late = |_| Err(BusError::Timeout { what: format!("object {name}") });
    tokio::time::timeout(OBJECT_MAX, rounds).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_written_again_in_the_second_half_of_its_life() {
        let max_age = Objects::Work.max_age();
        let stored = |age: Duration| SystemTime::now().checked_sub(age);
        let hours = Duration::from_hours;
        assert_eq!(max_age, Some(hours(24)));
        assert!(must_renew(stored(hours(13)), max_age) && !must_renew(stored(hours(11)), max_age));
        assert!(!must_renew(stored(hours(100)), None), "it does not expire");
        assert!(!must_renew(None, max_age));
    }
}
