//! Records exchanges with a provider in files, for tests and for reports of failures. The files have transcripts, but
//! no keys and no other secrets of the operator.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use configuration::models::ProviderKind;
use contract::Timestamp;
use contract::model::FailureKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use crate::failure::CallFailure;

/// Response headers that are recorded: those that say how to read the body and how long to wait.
const RECORDED_HEADERS: &[&str] =
    &["content-type", "location", "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-request-id", "request-id"];
const REDACTED: &str = "[secret]";
/// Maximum recorded bytes of a response body; the rest is dropped.
const BYTES_MAX: usize = 32 << 20;

/// One request and its response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedExchange {
    /// Time of the request.
    pub(crate) at: Timestamp,
    /// Kind of the provider.
    pub(crate) kind: ProviderKind,
    pub(crate) request: RecordedRequest,
    #[serde(rename = "answer")]
    pub(crate) response: RecordedResponse,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedRequest {
    /// Path after the base URL of the provider.
    pub(crate) path: String,
    pub(crate) body: Value,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct RecordedResponse {
    /// The HTTP status; 0 without a response.
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The body, in chunks as it arrived.
    #[serde(default, rename = "pieces")]
    pub(crate) chunks: Vec<RecordedChunk>,
    /// Reason why the exchange failed; `None` if it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) broke_off: Option<String>,
}

/// Bytes of a response that arrived together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedChunk {
    pub(crate) after_ms: u64,
    /// The bytes, if they are valid UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The bytes in hexadecimal, if they are no valid UTF-8: a chunk may end within a character.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hex: Option<String>,
}

impl RecordedChunk {
    fn new(after: Duration, bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
        let hex = text.is_none().then(|| to_hex(bytes));
        Self { after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX), text, hex }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let hex = |hex: &String| {
            let digits: Vec<u8> =
                hex.bytes().filter_map(|digit| char::from(digit).to_digit(16)?.try_into().ok()).collect();
            digits.chunks_exact(2).map(|two| two[0] << 4 | two[1]).collect::<Vec<u8>>()
        };
        match (&self.text, &self.hex) {
            (Some(text), _) => Bytes::from(text.clone().into_bytes()),
            (None, Some(digits)) => Bytes::from(hex(digits)),
            (None, None) => Bytes::new(),
        }
    }
}

/// Records one exchange in a file, without secrets.
#[derive(Debug)]
pub(crate) struct ExchangeRecorder {
    began: Instant,
    bytes: usize,
    exchange: RecordedExchange,
    secrets: Vec<String>,
}

impl ExchangeRecorder {
    /// Starts with the request. The file will have none of the secrets.
    pub(crate) fn new(at: Timestamp, kind: ProviderKind, path: &str, body: &[u8], secrets: Vec<String>) -> Self {
        let request = RecordedRequest { path: path.to_owned(), body: serde_json::from_slice(body).unwrap_or_default() };
        let exchange = RecordedExchange { at, kind, request, response: RecordedResponse::default() };
        let secrets = secrets.into_iter().filter(|secret| !secret.is_empty()).collect();
        Self { began: Instant::now(), bytes: 0, exchange, secrets }
    }

    /// Records the status and the headers.
    pub(crate) fn record_head<'a>(&mut self, status: u16, header: impl Fn(&str) -> Option<&'a str>) {
        self.exchange.response.status = status;
        let headers = RECORDED_HEADERS.iter().filter_map(|name| Some(((*name).to_owned(), header(name)?.to_owned())));
        self.exchange.response.headers = headers.collect();
    }

    /// Records more of the body.
    pub(crate) fn record_chunk(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        if self.bytes <= BYTES_MAX {
            self.exchange.response.chunks.push(RecordedChunk::new(self.began.elapsed(), bytes));
        }
    }

    /// Writes the file; `failure` says why the exchange was not complete.
    pub(crate) async fn write(mut self, dir: &Path, model: &str, failure: Option<&CallFailure>) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        self.exchange.response.broke_off = failure.map(ToString::to_string);
        let name = format!(
            "{}-{}-{}.json",
            self.exchange.at.as_millis(),
            model.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_"),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let path = dir.join(name);
        let text = self.text();
        let written = async {
            tokio::fs::create_dir_all(dir).await?;
            tokio::fs::write(&path, text).await
        };
        if let Err(error) = written.await {
            tracing::warn!(path = %path.display(), %error, "exchange not recorded");
        }
    }

    /// Text of the file, without secrets.
    fn text(mut self) -> String {
        let whole: Vec<u8> = self.exchange.response.chunks.iter().flat_map(|chunk| chunk.bytes().to_vec()).collect();
        let holds = |bytes: &[u8], secret: &str| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        // A secret may be split between two chunks, so look for it in the whole body.
        if self.secrets.iter().any(|secret| holds(&whole, secret)) {
            let after = self.exchange.response.chunks.last().map_or(0, |chunk| chunk.after_ms);
            let text = redact(&self.secrets, &String::from_utf8_lossy(&whole));
            self.exchange.response.chunks = vec![RecordedChunk { after_ms: after, text: Some(text), hex: None }];
        }
        let text = serde_json::to_string_pretty(&self.exchange).unwrap_or_default() + "\n";
        redact(&self.secrets, &text)
    }
}

fn redact(secrets: &[String], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), REDACTED))
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Recorded exchanges that replace a provider, in the order of their file names.
#[derive(Debug)]
pub(crate) struct Recording {
    exchanges: Vec<RecordedExchange>,
    next: AtomicUsize,
}

impl Recording {
    /// Reads a file, or every `.json` file of a directory.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let describe =
            |error: &dyn std::fmt::Display| format!("the recording {} cannot be read: {error}", path.display());
        let mut files = vec![path.to_owned()];
        if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(|error| describe(&error))?;
            files = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
            files.sort();
        }
        let read = files.iter().map(|file| {
            let text = std::fs::read_to_string(file).map_err(|error| describe(&error))?;
            serde_json::from_str(&text).map_err(|error| describe(&error))
        });
        Ok(Self { exchanges: read.collect::<Result<_, _>>()?, next: AtomicUsize::new(0) })
    }

    /// The next recorded response.
    pub(crate) fn next_response(&self) -> Result<&RecordedResponse, CallFailure> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.exchanges.get(number).map(|exchange| &exchange.response).ok_or_else(|| {
            let count = self.exchanges.len();
            CallFailure::new(
                FailureKind::BadRequest,
                format!("the recording has {count} responses, and all of them were replayed"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    #[tokio::test]
    async fn secret_split_between_chunks_is_not_in_the_recording() {
        let body = br#"{"messages":[{"content":"my key is sk-1234"}]}"#;
        let secrets = vec!["sk-1234".to_owned(), String::new()];
        let mut recorder =
            ExchangeRecorder::new(Timestamp::from_millis(7), ProviderKind::OpenaiChat, "/x", body, secrets);
        recorder.record_head(401, |name| (name == "content-type").then_some("application/json"));
        recorder.record_chunk(b"wrong key: sk-");
        recorder.record_chunk("1234 \u{e4}".as_bytes().split_last().unwrap().1);
        let dir = tempfile::tempdir().unwrap();
        recorder.write(dir.path(), "a.b", Some(&CallFailure::new(FailureKind::Auth, "wrong key: sk-1234"))).await;
        let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("1234") && text.matches(REDACTED).count() == 3, "{text}");
        let recording = Recording::read(dir.path()).unwrap();
        assert_eq!(
            (recording.next_response().unwrap().status, recording.next_response().unwrap_err().kind),
            (401, FailureKind::BadRequest)
        );
    }

    #[test]
    fn chunk_recorded_and_read_has_the_same_bytes() {
        for bytes in [b"abc".as_slice(), "\u{e4}".as_bytes(), &[0xC3], &[0, 255]] {
            let chunk: RecordedChunk =
                serde_json::from_str(&serde_json::to_string(&RecordedChunk::new(Duration::ZERO, bytes)).unwrap())
                    .unwrap();
            assert_eq!(chunk.bytes(), bytes);
        }
    }
}
