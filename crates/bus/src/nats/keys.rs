//! Key-value buckets, as every NATS client writes and reads them: a stream `KV_<bucket>` with one message per key.

use bytes::Bytes;
use contract::streams::Bucket;

use super::api::StreamInfo;
use super::connection::NatsTransport;
use crate::transport::{KV_OPERATION, ReadMany, header};
use crate::{BusError, Stored};

/// Keys of one direct read.
pub(super) const KEYS_PER_READ: usize = 512;

impl NatsTransport {
    pub(super) async fn read_keys(&self, bucket: Bucket, keys: Vec<String>) -> Result<Vec<(String, Bytes)>, BusError> {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Ok(match self.direct_last_many(&stream(bucket), &keys).await? {
            ReadMany::Messages(found) => entries(bucket, found),
            ReadMany::TooMany => Vec::new(),
        })
    }

    /// Every subject that matches, page by page.
    pub(super) async fn keys(&self, stream: &str, filter: &str) -> Result<Vec<String>, BusError> {
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

    /// Some of the subjects of a stream that match, and how many there are.
    pub(super) async fn key_page(&self, stream: &str, filter: &str, offset: usize) -> Result<StreamInfo, BusError> {
        let question = serde_json::json!({ "subjects_filter": filter, "offset": offset });
        self.stream_info(stream, Some(&question)).await
    }
}

/// The keys and values of the entries that are not deleted, in the order of the keys.
pub(super) fn entries(bucket: Bucket, found: Vec<Stored>) -> Vec<(String, Bytes)> {
    let prefix = subject(bucket, "");
    let alive = found.into_iter().filter(|found| !is_deleted(found));
    let mut entries: Vec<(String, Bytes)> =
        alive.filter_map(|f| Some((f.subject.strip_prefix(&prefix)?.to_owned(), f.payload))).collect();
    entries.sort();
    entries
}

pub(super) fn is_deleted(found: &Stored) -> bool {
    header(&found.headers, KV_OPERATION).is_some()
}

pub(super) fn stream(bucket: Bucket) -> String {
    format!("KV_{}", bucket.name())
}

pub(super) fn subject(bucket: Bucket, key: &str) -> String {
    format!("$KV.{}.{key}", bucket.name())
}
