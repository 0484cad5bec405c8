//! Replaces oversized answers of a server over its standard output with errors.
//!
//! The library drops a line over its limit and continues, so its caller would wait until the deadline. So the line is
//! counted as it passes, and a short line follows it that answers the same request with an error. Only the two ends of
//! the line are kept: one of them has the id of the request, as every implementation writes it.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use regex::bytes::Regex;
use serde_json::json;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::observed_client::StreamObserver;

/// Bytes of one message of a server; a longer result is replaced with an error.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of each end of a line that are kept.
const END_BYTES: usize = 128;
/// Bytes of a line that is parsed for tools that must be called as tasks.
const PARSED_BYTES_MAX: usize = 4 << 20;

/// Finds the id at the beginning of a line: only these fields may precede it, so it is that of the message.
static ID_AT_START: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,19})\s*,"#).ok());
/// Finds the id at the end of a line: the last brace closes the message itself.
static ID_AT_END: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"[,{]\s*"id"\s*:\s*(\d{1,19})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$"#).ok());

/// The output of a server, with an error after each line that is too long.
pub(super) struct OversizeFilter<R> {
    inner: R,
    /// Bytes above which a line is too long.
    max: usize,
    line: MeasuredLine,
    /// An error that is returned before anything else.
    answer: Bytes,
    /// Bytes after the line that the error follows, not measured yet.
    unread: Bytes,
    observer: StreamObserver,
    /// Pause of the rate limit, during which nothing is read.
    pause: Option<Pin<Box<Sleep>>>,
}

#[derive(Default)]
struct MeasuredLine {
    length: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    /// The whole line, up to [`PARSED_BYTES_MAX`].
    whole: Vec<u8>,
}

impl<R: AsyncRead + Unpin> OversizeFilter<R> {
    pub(super) fn new(inner: R, max: usize, observer: StreamObserver) -> Self {
        Self {
            inner,
            max,
            line: MeasuredLine::default(),
            answer: Bytes::new(),
            unread: Bytes::new(),
            observer,
            pause: None,
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buffer);
        }
        fill(&mut self.unread, buffer);
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for OversizeFilter<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if !self.answer.is_empty() {
            fill(&mut self.answer, buffer);
            return Poll::Ready(Ok(()));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let mut from = buffer.filled().len();
        ready!(self.poll_fill(cx, buffer))?;
        let (began, mut lines) = (from, 0);
        for part in buffer.filled()[from..].split_inclusive(|byte| *byte == b'\n') {
            from += part.len();
            self.line.add(part);
            if !part.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            lines += 1;
            if line.length == line.whole.len() {
                self.observer.tasks.read(&line.whole);
            }
            if line.length > self.max
                && let Some(answer) = line.build_refusal()
            {
                self.answer = answer.into();
                break;
            }
        }
        if from < buffer.filled().len() {
            self.unread = [&buffer.filled()[from..], &self.unread].concat().into();
            buffer.set_filled(from);
        }
        let pause = self.observer.pace.count(lines, from - began);
        self.pause = (!pause.is_zero()).then(|| Box::pin(sleep(pause)));
        Poll::Ready(Ok(()))
    }
}

fn fill(bytes: &mut Bytes, buffer: &mut ReadBuf<'_>) {
    let length = bytes.len().min(buffer.remaining());
    buffer.put_slice(&bytes.split_to(length));
}

impl MeasuredLine {
    fn add(&mut self, part: &[u8]) {
        self.length += part.len();
        if self.length <= PARSED_BYTES_MAX {
            self.whole.extend_from_slice(part);
        }
        let room = END_BYTES - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        self.tail.extend_from_slice(&part[part.len().saturating_sub(END_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(END_BYTES));
    }

    /// Builds the error for the request that the line answers; `None` where its id is not found.
    fn build_refusal(&self) -> Option<String> {
        let number = |ends: &Option<Regex>, text| {
            let found = ends.as_ref()?.captures(text)?.get(1)?;
            std::str::from_utf8(found.as_bytes()).ok()?.parse::<u64>().ok()
        };
        let id = number(&ID_AT_START, &self.head).or_else(|| number(&ID_AT_END, &self.tail))?;
        let text = format!("the call was answered, but the answer of {} bytes is too long to be read", self.length);
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": text}});
        Some(format!("{answer}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::pace::ReadPace;
    use super::super::task_tools::TaskTools;
    use super::*;
    use crate::server_name::ServerName;
    use tokio::io::AsyncReadExt;

    /// A reader that returns a text in pieces.
    struct Pieces<'a>(std::slice::Chunks<'a, u8>);

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            if let Some(piece) = self.0.next() {
                buffer.put_slice(piece);
            }
            Poll::Ready(Ok(()))
        }
    }

    fn observer() -> StreamObserver {
        let server = ServerName::try_from("s".to_owned()).unwrap();
        StreamObserver { pace: ReadPace::new(server), tasks: TaskTools::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_floods_is_read_at_the_rate_limit() {
        let text = "{\"method\":\"notifications/message\"}\n".repeat(10_000);
        let began = tokio::time::Instant::now();
        let pieces = Pieces(text.as_bytes().chunks(8 << 10));
        let mut all = String::new();
        let measured = OversizeFilter::new(pieces, 300, observer());
        tokio::io::BufReader::with_capacity(64 << 10, measured).read_to_string(&mut all).await.unwrap();
        assert_eq!(all, text);
        assert!((17..21).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn tools_that_require_tasks_are_found_in_the_list() {
        let observer = observer();
        let list = |support: &str| {
            let tool = json!({"name": "slow", "inputSchema": {}, "execution": {"taskSupport": support}});
            format!("{}\n", json!({"id": 1, "result": {"tools": [tool, {"name": "quick"}]}}))
        };
        for (support, required) in [("required", true), ("optional", false), ("required", true), ("forbidden", false)] {
            let text = list(support);
            let mut all = String::new();
            let pieces = Pieces(text.as_bytes().chunks(7));
            OversizeFilter::new(pieces, 3_000, observer.clone()).read_to_string(&mut all).await.unwrap();
            assert_eq!(
                (observer.tasks.contains("slow"), observer.tasks.contains("quick")),
                (required, false),
                "{support}"
            );
        }
    }

    async fn read(text: &str, max: usize, step: usize) -> String {
        let mut reader = tokio::io::BufReader::with_capacity(
            64 << 10,
            OversizeFilter::new(Pieces(text.as_bytes().chunks(step)), max, observer()),
        );
        let mut all = String::new();
        reader.read_to_string(&mut all).await.unwrap();
        all
    }

    #[tokio::test(start_paused = true)]
    async fn line_too_long_in_any_chunks_is_followed_by_an_error() {
        let long = "x".repeat(400);
        let head = format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{long}"}}"#);
        let tail = format!(r#"{{"result":{{"id":1,"text":"{long}"}},"jsonrpc":"2.0","id":8}}"#);
        let inner = format!(r#"{{"result":{{"text":"{long}","id":9}}}}"#);
        let text = format!("{{\"id\":1}}\n{head}\n{{\"id\":2}}\n{tail}\n{inner}\n{{\"id\":3}}\n");
        for step in [1, 2, 3, 7, 64, 1_000, 16_000] {
            let all = read(&text, 300, step).await;
            let lines: Vec<&str> = all.lines().filter(|line| !line.contains(&long)).collect();
            let answer = |id: u32, length: usize| {
                format!(
                    r#"{{"error":{{"code":-32603,"message":"the call was answered, but the answer of {length} bytes is too long to be read"}},"id":{id},"jsonrpc":"2.0"}}"#
                )
            };
            let (seven, eight) = (answer(7, head.len() + 1), answer(8, tail.len() + 1));
            assert_eq!(lines, [r#"{"id":1}"#, &seven, r#"{"id":2}"#, &eight, r#"{"id":3}"#], "{step}");
            assert_eq!(all.lines().count(), 8);
        }
    }
}
