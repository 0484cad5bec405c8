//! Messages of the NATS protocol: read as a whole, classified, and forwarded unchanged.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// One protocol line, with its payload if it has one.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// The bytes of the frame, forwarded unchanged.
    pub(crate) bytes: Bytes,
    /// Subject; empty for protocol lines that are no messages.
    pub(crate) subject: String,
    /// Reply subject, if the sender expects an answer.
    pub(crate) reply: Option<String>,
    payload: usize,
}

impl Frame {
    /// Reads the next frame; `None` at the end of the connection.
    pub(crate) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Self>> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // Subject, subscription id (from the server only), reply subject (optional), lengths.
        let (subject, reply, length) = match words.as_slice() {
            ["PUB", subject, length] | ["HPUB" | "MSG", subject, _, length] | ["HMSG", subject, _, _, length] => {
                (*subject, None, *length)
            }
            ["PUB", subject, reply, length]
            | ["HPUB", subject, reply, _, length]
            | ["MSG", subject, _, reply, length]
            | ["HMSG", subject, _, reply, _, length] => (*subject, Some(*reply), *length),
            _ => ("", None, ""),
        };
        let length = length.parse::<usize>().map_or(0, |length| length + 2);
        let start = line.len();
        let mut bytes = BytesMut::from(line.as_slice());
        bytes.resize(start + length, 0);
        from.read_exact(&mut bytes[start..]).await?;
        Ok(Some(Self {
            bytes: bytes.freeze(),
            subject: subject.to_owned(),
            reply: reply.map(str::to_owned),
            payload: start,
        }))
    }

    /// Headers and body as one slice.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[self.payload..]
    }

    /// Whether headers or body contain a text.
    pub(crate) fn holds(&self, text: &str) -> bool {
        self.payload().windows(text.len()).any(|part| part == text.as_bytes())
    }
}

#[tokio::test]
async fn frames_in_one_buffer_are_read_one_by_one() -> anyhow::Result<()> {
    let text = b"INFO {\"a\": 1}\r\nPUB a.b 3\r\nx\r\n\r\nHPUB a.b r 2 4\r\nHHpp\r\nMSG c 1 r 2\r\nhi\r\n+OK\r\n";
    let mut from = tokio::io::BufReader::new(&text[..]);
    let mut read = Vec::new();
    while let Some(frame) = Frame::read(&mut from).await? {
        read.push(frame);
    }
    let subjects: Vec<&str> = read.iter().map(|frame| frame.subject.as_str()).collect();
    assert_eq!(subjects, ["", "a.b", "a.b", "c", ""]);
    let replies: Vec<Option<&str>> = read.iter().map(|frame| frame.reply.as_deref()).collect();
    assert_eq!(replies, [None, None, Some("r"), Some("r"), None]);
    assert!(read[2].holds("pp") && !read[2].holds("HPUB"));
    let all: Vec<u8> = read.iter().flat_map(|frame| frame.bytes.to_vec()).collect();
    assert_eq!(all, text, "nothing is lost or changed");
    Ok(())
}
