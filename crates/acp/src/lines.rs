//! Lines of a stream, with a limit on the length of each line.

use std::io;

use contract::limits::FRAME_BYTES_MAX;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Bytes of one message of the client: as many as in a frame of any other client.
const LINE_BYTES_MAX: usize = FRAME_BYTES_MAX;

/// Result of reading a line from the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its end.
    Text(Vec<u8>),
    /// A line was skipped.
    TooLong { bytes_max: usize },
    /// The stream has ended.
    End,
}

/// Reads the next line that is not empty.
pub(super) async fn read_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Line> {
    read_bounded_line(input, LINE_BYTES_MAX).await
}

async fn read_bounded_line(input: &mut (impl AsyncBufRead + Unpin), bytes_max: usize) -> io::Result<Line> {
    let (mut line, mut is_too_long) = (Vec::new(), false);
    loop {
        let available = input.fill_buf().await?;
        if available.is_empty() {
            return Ok(match (line.is_empty(), is_too_long) {
                (true, false) => Line::End,
                (_, true) => Line::TooLong { bytes_max },
                (false, false) => Line::Text(line),
            });
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
        is_too_long |= line.len() + part.len() > bytes_max;
        if is_too_long {
            line.clear();
        } else {
            line.extend_from_slice(part);
        }
        let read = part.len() + usize::from(end.is_some());
        input.consume(read);
        if end.is_none() {
            continue;
        }
        if is_too_long {
            return Ok(Line::TooLong { bytes_max });
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Line::Text(line));
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[tokio::test]
    async fn line_longer_than_the_limit_is_skipped_as_a_whole() {
        let text = b"one\n\n  \r\n12345678\nfour\n123456789abc\nlast";
        let mut input = BufReader::with_capacity(3, &text[..]);
        let mut lines = Vec::new();
        loop {
            match read_bounded_line(&mut input, 8).await.unwrap() {
                Line::Text(line) => lines.push(String::from_utf8(line).unwrap()),
                Line::TooLong { bytes_max } => lines.push(format!("more than {bytes_max}")),
                Line::End => break,
            }
        }
        assert_eq!(lines, ["one", "12345678", "four", "more than 8", "last"]);
    }
}
