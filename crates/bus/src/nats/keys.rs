//! Key-value buckets, as every NATS client writes and reads them: a stream `KV_<bucket>` with one message per key.

use std::time::Duration;

use bytes::Bytes;
use contract::streams::Bucket;
use futures::{Stream, StreamExt, TryStreamExt};

use super::api::{StreamInfo, StreamState};
use super::connection::NatsTransport;
use crate::transport::{Appended, KV_OPERATION, ReadMany, StorageSize, header, ttl_header};
use crate::{BusError, Headers, Stored};

/// Keys of one direct read.
const KEYS_PER_READ: usize = 512;

impl NatsTransport {
    pub(super) async fn key_put(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<(), BusError> {
        self.key_write(bucket, key, ttl.map(ttl_header).into_iter().collect(), value).await
    }

    pub(super) async fn key_delete(&self, bucket: Bucket, key: &str) -> Result<(), BusError> {
        let mark = vec![(KV_OPERATION.to_owned(), "DEL".to_owned())];
        self.key_write(bucket, key, mark, Bytes::new()).await
    }

    pub(super) async fn key_create(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        let subject = subject(bucket, key);
        let headers: Headers = ttl.map(ttl_header).into_iter().collect();
        let mut expected = 0;
        // A deleted key is free as well: the entry replaces its marker.
        for _ in 0..2 {
            let doubt = match self.js_append(&subject, Some(expected), headers.clone(), value.clone()).await? {
                Appended::Stored(revision) => return Ok(Some(revision)),
                Appended::Doubtful(doubt) => doubt,
            };
            match self.leader_last(&stream(bucket), &subject).await? {
                Some(mark) if is_deleted(&mark) && mark.seq != expected => expected = mark.seq,
                Some(found) if !is_deleted(&found) => return Ok(None),
                // The leader shows no other writer, so the outcome is unknown.
                Some(_) | None => return Err(doubt.into_error()),
            }
        }
        Ok(None)
    }

    pub(super) async fn key_update(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        revision: u64,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        let headers = ttl.map(ttl_header).into_iter().collect();
        match self.js_append(&subject(bucket, key), Some(revision), headers, value).await? {
            Appended::Stored(revision) => Ok(Some(revision)),
            Appended::Doubtful(_) => Ok(None),
        }
    }

    pub(super) async fn key_entry(&self, bucket: Bucket, key: &str) -> Result<Option<(u64, Bytes)>, BusError> {
        let found = self.leader_last(&stream(bucket), &subject(bucket, key)).await?;
        Ok(found.filter(|found| !is_deleted(found)).map(|found| (found.seq, found.payload)))
    }

    pub(super) async fn key_list(&self, bucket: Bucket, filter: &str) -> Result<Vec<(String, Bytes)>, BusError> {
        let (stream, all) = (stream(bucket), subject(bucket, filter));
        let found = match self.direct_last_many(&stream, &[&all]).await? {
            ReadMany::Messages(found) => found,
            ReadMany::TooMany => {
                let mut entries: Vec<(String, Bytes)> = self.key_pages(bucket, filter).try_concat().await?;
                entries.sort();
                return Ok(entries);
            }
        };
        Ok(entries(bucket, found))
    }

    /// The entries of a bucket, at most [`KEYS_PER_READ`] at once.
    pub(super) fn key_pages<'a>(
        &'a self,
        bucket: Bucket,
        filter: &'a str,
    ) -> impl Stream<Item = Result<Vec<(String, Bytes)>, BusError>> + Send + 'a {
        let pages = async move {
            let keys = self.keys(&stream(bucket), &subject(bucket, filter)).await?;
            let pages: Vec<Vec<String>> = keys.chunks(KEYS_PER_READ).map(<[String]>::to_vec).collect();
            Ok(futures::stream::iter(pages).then(move |keys| self.read_keys(bucket, keys)))
        };
        futures::stream::once(pages).try_flatten()
    }

    async fn read_keys(&self, bucket: Bucket, keys: Vec<String>) -> Result<Vec<(String, Bytes)>, BusError> {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Ok(match self.direct_last_many(&stream(bucket), &keys).await? {
            ReadMany::Messages(found) => entries(bucket, found),
            ReadMany::TooMany => Vec::new(),
        })
    }

    /// Every subject that matches, page by page.
    async fn keys(&self, stream: &str, filter: &str) -> Result<Vec<String>, BusError> {
        let mut keys = Vec::new();
        loop {
            let page = self.key_page(stream, filter, keys.len()).await?;
            let subjects = page.state.subjects.unwrap_or_default();
            let more = !subjects.is_empty();
            keys.extend(subjects.into_keys());
            if !more || keys.len() >= page.total {
                return Ok(keys);
            }
        }
    }

    /// How many subjects of a stream match.
    pub(super) async fn js_count(&self, stream: &str, filter: &str) -> Result<u64, BusError> {
        self.key_page(stream, filter, 0).await.map(|page| page.total as u64)
    }

    /// Messages and bytes of a stream.
    pub(super) async fn js_size(&self, stream: &str) -> Result<StorageSize, BusError> {
        let StreamState { messages, bytes, .. } = self.stream_info(stream, None).await?.state;
        Ok(StorageSize { messages, bytes })
    }

    async fn key_page(&self, stream: &str, filter: &str, offset: usize) -> Result<StreamInfo, BusError> {
        let question = serde_json::json!({ "subjects_filter": filter, "offset": offset });
        self.stream_info(stream, Some(&question)).await
    }

    async fn key_write(&self, bucket: Bucket, key: &str, headers: Headers, value: Bytes) -> Result<(), BusError> {
        match self.js_append(&subject(bucket, key), None, headers, value).await? {
            Appended::Stored(_) => Ok(()),
            Appended::Doubtful(doubt) => Err(doubt.into_error()),
        }
    }
}

/// The keys and values of the entries that are not deleted, in the order of the keys.
fn entries(bucket: Bucket, found: Vec<Stored>) -> Vec<(String, Bytes)> {
    let prefix = subject(bucket, "");
    let alive = found.into_iter().filter(|found| !is_deleted(found));
    let mut entries: Vec<(String, Bytes)> =
        alive.filter_map(|f| Some((f.subject.strip_prefix(&prefix)?.to_owned(), f.payload))).collect();
    entries.sort();
    entries
}

fn is_deleted(found: &Stored) -> bool {
    header(&found.headers, KV_OPERATION).is_some()
}

fn stream(bucket: Bucket) -> String {
    format!("KV_{}", bucket.name())
}

fn subject(bucket: Bucket, key: &str) -> String {
    format!("$KV.{}.{key}", bucket.name())
}
