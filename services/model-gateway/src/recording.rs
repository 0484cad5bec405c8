//! What was said to a provider and what it answered, kept in a file: for tests, and for reports of what went wrong. Keys and
//! other secrets of the operator's do not stand in it; transcripts do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use contract::Timestamp;
use contract::model::FailureKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::models::ProviderKind;
use tokio::time::Instant;

use crate::failure::CallFailure;

/// Headers of an answer that are kept: what says how it is to be read, and how long to wait.
const RECORDED_HEADERS: &[&str] =
    &["content-type", "location", "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-request-id", "request-id"];
/// What takes the place of a secret.
const REDACTED: &str = "[secret]";
/// Bytes of an answer that are kept; what follows is left out.
const BYTES_MAX: usize = 32 << 20;

/// One request and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedExchange {
    /// When it was asked.
    pub(crate) at: Timestamp,
    /// How the provider is spoken to.
    pub(crate) kind: ProviderKind,
    /// What was asked.
    pub(crate) request: RecordedRequest,
    /// What came.
    #[serde(rename = "answer")]
    pub(crate) response: RecordedResponse,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedRequest {
    /// What follows the provider's address.
    pub(crate) path: String,
    /// The body.
    pub(crate) body: Value,
}

/// What came.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct RecordedResponse {
    /// The HTTP status; 0 where there was no answer.
    pub(crate) status: u16,
    /// Some of its headers.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Its body, cut as it came.
    #[serde(default, rename = "pieces")]
    pub(crate) chunks: Vec<RecordedChunk>,
    /// Why it ended, where that was not its proper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) broke_off: Option<String>,
}

/// Bytes that came together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedChunk {
    /// Milliseconds since the request.
    pub(crate) after_ms: u64,
    /// The bytes, where they are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// In hexadecimal, where they are not: a piece may be cut within a character.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hex: Option<String>,
}

impl RecordedChunk {
    fn new(after: Duration, bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
        let hex = text.is_none().then(|| to_hex(bytes));
        Self { after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX), text, hex }
    }

    /// Its bytes.
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

/// Takes down one exchange.
#[derive(Debug)]
pub(crate) struct ExchangeRecorder {
    began: Instant,
    bytes: usize,
    exchange: RecordedExchange,
    secrets: Vec<String>,
}

impl ExchangeRecorder {
    /// Begins with what is asked. None of the secrets will stand in the file.
    pub(crate) fn new(at: Timestamp, kind: ProviderKind, path: &str, body: &[u8], secrets: Vec<String>) -> Self {
        let request = RecordedRequest { path: path.to_owned(), body: serde_json::from_slice(body).unwrap_or_default() };
        let exchange = RecordedExchange { at, kind, request, response: RecordedResponse::default() };
        let secrets = secrets.into_iter().filter(|secret| !secret.is_empty()).collect();
        Self { began: Instant::now(), bytes: 0, exchange, secrets }
    }

    /// The answer's head.
    pub(crate) fn record_head<'a>(&mut self, status: u16, header: impl Fn(&str) -> Option<&'a str>) {
        self.exchange.response.status = status;
        let headers = RECORDED_HEADERS.iter().filter_map(|name| Some(((*name).to_owned(), header(name)?.to_owned())));
        self.exchange.response.headers = headers.collect();
    }

    /// More of its body.
    pub(crate) fn record_chunk(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        if self.bytes <= BYTES_MAX {
            self.exchange.response.chunks.push(RecordedChunk::new(self.began.elapsed(), bytes));
        }
    }

    /// Writes it down; a failure says why the exchange did not come to its end.
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

    /// The file, without secrets.
    fn text(mut self) -> String {
        let whole: Vec<u8> = self.exchange.response.chunks.iter().flat_map(|chunk| chunk.bytes().to_vec()).collect();
        let holds = |bytes: &[u8], secret: &str| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        // A secret may be cut in two by the pieces: then it is looked for in the whole.
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

/// Recordings that take the place of a provider, in the order of their names.
#[derive(Debug)]
pub(crate) struct Recording {
    exchanges: Vec<RecordedExchange>,
    next: AtomicUsize,
}

impl Recording {
    /// A file, or every `.json` of a directory.
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

    /// The next answer.
    pub(crate) fn next_response(&self) -> Result<&RecordedResponse, CallFailure> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.exchanges.get(number).map(|exchange| &exchange.response).ok_or_else(|| {
            let count = self.exchanges.len();
            CallFailure::new(
                FailureKind::BadRequest,
                format!("the recording has {count} answers, and all of them were given"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    #[tokio::test]
    async fn no_secret_stands_in_the_file_however_it_is_cut() {
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
    fn pieces_are_kept_as_they_were_cut() {
        for bytes in [b"abc".as_slice(), "\u{e4}".as_bytes(), &[0xC3], &[0, 255]] {
            let chunk: RecordedChunk =
                serde_json::from_str(&serde_json::to_string(&RecordedChunk::new(Duration::ZERO, bytes)).unwrap())
                    .unwrap();
            assert_eq!(chunk.bytes(), bytes);
        }
    }
}
