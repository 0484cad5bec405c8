//! Decodes server-sent events from a stream of bytes, in linear time and bounded memory, without IO.

/// Decoder of one stream. Line ends may be LF, CR or CRLF; a byte order mark and comments are skipped.
#[derive(Debug)]
pub(crate) struct SseDecoder {
    max: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    at_start: bool,
}

/// An event or a line exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is over the limit of {max} bytes")]
pub(crate) struct EventTooLarge {
    max: usize,
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

impl SseDecoder {
    /// A decoder that refuses events over `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, line: Vec::new(), data: Vec::new(), has_data: false, after_cr: false, at_start: true }
    }

    /// Decodes the next bytes, and appends the data of each event that they complete to `events`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], events: &mut Vec<String>) -> Result<(), EventTooLarge> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                return self.extend_line(bytes);
            };
            self.extend_line(&bytes[..end])?;
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line(events);
        }
        Ok(())
    }

    /// Ends the stream, and appends a last event even without its blank line. Such an event may be cut.
    pub(crate) fn finish(&mut self, events: &mut Vec<String>) {
        if !self.line.is_empty() {
            self.end_line(events);
        }
        self.dispatch(events);
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        if self.line.len() + self.data.len() + bytes.len() > self.max {
            return Err(EventTooLarge { max: self.max });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<String>) {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            text = text.strip_prefix(BOM).unwrap_or(text);
        }
        if text.is_empty() {
            self.dispatch(events);
        } else {
            self.read_field(text);
        }
        // Reuse the allocation for the next line, unless it is huge.
        self.line = line;
        self.line.clear();
        self.line.shrink_to(64 << 10);
    }

    /// Reads only `data`: the JSON of a chat stream repeats the name and the id of an event.
    fn read_field(&mut self, line: &[u8]) {
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[][..],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            Some(_) | None => return,
        };
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
    }

    fn dispatch(&mut self, events: &mut Vec<String>) {
        if std::mem::take(&mut self.has_data) {
            events.push(String::from_utf8_lossy(&self.data).into_owned());
            self.data.clear();
            self.data.shrink_to(64 << 10);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::new(1 << 20);
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut events).unwrap();
        }
        decoder.finish(&mut events);
        events
    }

    /// Checks that the events are the same for each way to split the bytes: at each byte, at each pair of bytes, and
    /// byte by byte.
    fn check(stream: &[u8], expected: &[&str]) {
        assert_eq!(decode(&[stream]), expected, "whole");
        for a in 0..=stream.len() {
            assert_eq!(decode(&[&stream[..a], &stream[a..]]), expected, "cut at {a}");
            for b in a..=stream.len() {
                assert_eq!(decode(&[&stream[..a], &stream[a..b], &stream[b..]]), expected, "cut at {a} and {b}");
            }
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decode(&bytes), expected, "byte by byte");
    }

    #[test]
    fn stream_with_each_line_end_and_field_is_decoded() {
        check(b"", &[]);
        check(b"data: a\n\ndata: b\n\n", &["a", "b"]);
        check(b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check(b"data: a\r\rdata: b\r\r", &["a", "b"]);
        check(b"data: a\r\n\ndata: b\n\r\n", &["a", "b"]);
        check(b"\xEF\xBB\xBFdata: a\n\n", &["a"]);
        check(b"data: a\n\n\xEF\xBB\xBFdata: b\n\n", &["a"]);
        check(b": comment\n\n:\n\ndata: a\n: in between\ndata: b\n\n", &["a\nb"]);
        check(b"data\n\ndata:\n\ndata: \n\ndata:  x\n\n", &["", "", "", " x"]);
        check(b"event: message\nid: 7\nretry: 5\ndata:{\"a\":1}\n\n", &["{\"a\":1}"]);
        check(b"database: no\n\ndata: yes\n\n", &["yes"]);
        check("data: \u{e4}\u{1f980}\n\n".as_bytes(), &["\u{e4}\u{1f980}"]);
        check(b"data: \xFF\n\n", &["\u{fffd}"]);
        check(b"data: no blank line\n", &["no blank line"]);
        check(b"data: no line end", &["no line end"]);
        check(b"\n\n\r\n\r\rdata: a\n\n\n\n", &["a"]);
    }

    #[test]
    fn event_over_the_limit_is_refused_before_it_is_buffered() {
        let long = vec![b'x'; 100];
        let mut events = Vec::new();
        let mut decoder = SseDecoder::new(64);
        assert_eq!(decoder.push(&long, &mut events), Err(EventTooLarge { max: 64 }));
        let mut decoder = SseDecoder::new(64);
        let many = b"data: xxxxxxxxxx\n".repeat(8);
        assert_eq!(decoder.push(&many, &mut events), Err(EventTooLarge { max: 64 }));
        let mut decoder = SseDecoder::new(64);
        let fine = b"data: xxxxxxxxxx\n\n".repeat(1_000);
        decoder.push(&fine, &mut events).unwrap();
        assert_eq!(events.len(), 1_000);
    }

    #[test]
    fn long_line_in_small_chunks_decodes_in_linear_time() {
        let mut decoder = SseDecoder::new(16 << 20);
        let mut events = Vec::new();
        decoder.push(b"data: ", &mut events).unwrap();
        // With quadratic time this test would not end.
        for _ in 0..(1 << 18) {
            decoder.push(&[b'x'; 32], &mut events).unwrap();
        }
        decoder.push(b"\n\n", &mut events).unwrap();
        assert_eq!(events[0].len(), 8 << 20);
    }
}
