//! A client of server-sent events that costs little: it reads frames from a plain connection.

use anyhow::{Context, bail, ensure};
use contract::event::Topic;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Bytes of the head of a response, at most.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// One event of a stream.
#[derive(Debug, Default)]
pub(super) struct SseFrame {
    /// Its `seq`; a chunk has none.
    pub(super) seq: Option<u64>,
    pub(super) topic: String,
    pub(super) data: String,
}

impl SseFrame {
    pub(super) fn is(&self, topic: Topic) -> bool {
        self.topic == topic.as_str()
    }
}

/// A connection that answers with events.
#[derive(Debug)]
pub(super) struct SseConnection {
    stream: TcpStream,
    read: Vec<u8>,
    /// Offset of the line that is read next.
    at: usize,
}

impl SseConnection {
    /// Connects to the address of an edge and sends nothing yet.
    pub(super) async fn connect(edge: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(edge).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new(), at: 0 })
    }

    /// Watches a session after an event of its log.
    pub(super) async fn watch(edge: &str, session: &str, after: u64) -> anyhow::Result<Self> {
        Self::connect(edge).await?.watching(edge, session, after).await
    }

    /// Watches a session by a connection for which the kernel keeps few bytes.
    pub(super) async fn watch_with_small_window(edge: &str, session: &str, bytes: usize) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(u32::try_from(bytes)?)?;
        let stream = socket.connect(edge.parse()?).await?;
        Self { stream, read: Vec::new(), at: 0 }.watching(edge, session, 0).await
    }

    async fn watching(mut self, edge: &str, session: &str, after: u64) -> anyhow::Result<Self> {
        let request =
            format!("GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: {edge}\r\nlast-event-id: {after}\r\n\r\n");
        self.send(&request).await?;
        Ok(self)
    }

    /// Sends a request, and returns once the head of its successful response was read.
    pub(super) async fn send(&mut self, request: &str) -> anyhow::Result<()> {
        self.stream.write_all(request.as_bytes()).await?;
        loop {
            if let Some(end) = self.read[self.at..].windows(4).position(|four| four == b"\r\n\r\n") {
                let head = &self.read[self.at..self.at + end];
                ensure!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&self.read[self.at..]));
                self.at += end + 4;
                return Ok(());
            }
            ensure!(self.read.len() < HEAD_BYTES_MAX, "the head of the response is too long");
            self.fill().await?;
        }
    }

    /// Reads the next event. What frames the chunks of HTTP lies between events and is no line of one.
    pub(super) async fn next(&mut self) -> anyhow::Result<SseFrame> {
        let mut frame = SseFrame::default();
        loop {
            let line = self.line().await?;
            let Some((field, value)) = line.split_once(": ") else {
                if line.is_empty() && !frame.data.is_empty() {
                    return Ok(frame);
                }
                continue;
            };
            match field {
                "id" => frame.seq = Some(value.parse().context("id of an event")?),
                "event" => value.clone_into(&mut frame.topic),
                "data" => frame.data.push_str(value),
                _ => {}
            }
        }
    }

    /// Reads the end of the body, so that the connection can be used again.
    pub(super) async fn end_body(&mut self) -> anyhow::Result<()> {
        while self.line().await? != "0" {}
        ensure!(self.line().await?.is_empty(), "the body of the response has trailers");
        Ok(())
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let mut searched = self.at;
        loop {
            if let Some(end) = self.read[searched..].iter().position(|byte| *byte == b'\n') {
                let end = searched + end;
                let line = String::from_utf8_lossy(&self.read[self.at..end]).trim_end_matches('\r').to_owned();
                self.at = end + 1;
                return Ok(line);
            }
            searched = self.read.len() - self.at;
            self.fill().await?;
        }
    }

    /// Reads more bytes, in place of those that were used.
    async fn fill(&mut self) -> anyhow::Result<()> {
        self.read.drain(..self.at);
        self.at = 0;
        self.read.reserve(4 << 10);
        if self.stream.read_buf(&mut self.read).await? == 0 {
            bail!("the edge closed the connection");
        }
        Ok(())
    }

    /// Reads so many bytes, and says whether the connection is still open.
    pub(super) async fn skip(&mut self, bytes: usize) -> anyhow::Result<bool> {
        let mut skipped = vec![0; bytes];
        Ok(self.stream.read(&mut skipped).await? > 0)
    }
}
