//! Keeps the head and the tail of a stream of any length, in a fixed number of bytes.

use std::collections::VecDeque;

use super::truncate::escaped_len;

/// Bytes of the note between head and tail.
const NOTE_BYTES: usize = 64;

/// The kept bytes of a stream; the others are counted and dropped.
#[derive(Debug)]
pub(super) struct HeadTailBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    /// Bytes of the stream so far.
    total: u64,
}

impl HeadTailBuffer {
    /// A buffer of at most `max` bytes, a third of them for the tail.
    pub(super) fn new(max: usize) -> Self {
        let tail_max = max / 3;
        Self { head: Vec::new(), tail: VecDeque::new(), head_max: max - tail_max, tail_max, total: 0 }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_max)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Returns the kept bytes as text of at most `room` bytes of JSON; the second value says whether something is
    /// missing.
    pub(super) fn text(&self, room: usize) -> (String, bool) {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if (self.head.len() + tail.len()) as u64 == self.total {
            let whole = String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
            if escaped_len(&whole) <= room {
                return (whole, false);
            }
        }
        let room = room.saturating_sub(NOTE_BYTES);
        let (head, tail) =
            (String::from_utf8_lossy(trim_partial_end(&self.head)), String::from_utf8_lossy(trim_partial_start(&tail)));
        let (head, tail) = (take_head(&head, room - room / 3), take_tail(&tail, room / 3));
        let missing = self.total.saturating_sub((head.len() + tail.len()) as u64);
        (format!("{head}\n[… {missing} of {} bytes left out …]\n{tail}", self.total), true)
    }
}

/// Removes an incomplete character at the end.
fn trim_partial_end(bytes: &[u8]) -> &[u8] {
    let cut = (1..=3.min(bytes.len())).find(|back| bytes[bytes.len() - back] >= 0xC0);
    match cut.map(|back| bytes.split_at(bytes.len() - back)) {
        Some((whole, broken)) if std::str::from_utf8(broken).is_err() => whole,
        Some(_) | None => bytes,
    }
}

/// Removes an incomplete character at the beginning.
fn trim_partial_start(bytes: &[u8]) -> &[u8] {
    let broken = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    &bytes[broken..]
}

/// Returns the longest prefix that takes at most `room` bytes of JSON.
pub(super) fn take_head(text: &str, room: usize) -> &str {
    let end = text.char_indices().find(exceeds(room)).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// Returns the longest suffix that takes at most `room` bytes of JSON.
fn take_tail(text: &str, room: usize) -> &str {
    let start = text.char_indices().rev().find(exceeds(room)).map_or(0, |(at, c)| at + c.len_utf8());
    &text[start..]
}

/// Tells whether a character and those that were given before it take more than `room` bytes of JSON.
fn exceeds(room: usize) -> impl FnMut(&(usize, char)) -> bool {
    let mut left = Some(room);
    move |(_, c)| {
        left = left.and_then(|left| left.checked_sub(escaped_len(c.encode_utf8(&mut [0; 4]))));
        left.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(max: usize, pieces: &[&[u8]]) -> HeadTailBuffer {
        let mut buffer = HeadTailBuffer::new(max);
        for piece in pieces {
            buffer.add(piece);
        }
        buffer
    }

    #[test]
    fn stream_in_any_chunks_keeps_head_and_tail() {
        let whole: Vec<u8> = (b'a'..=b'z').collect();
        for size in 1..=26 {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            assert_eq!(fill(26, &pieces).text(1_000), ("abcdefghijklmnopqrstuvwxyz".to_owned(), false), "{size}");
            let (text, cut) = fill(9, &pieces).text(1_000);
            assert_eq!((text.as_str(), cut), ("abcdef\n[… 17 of 26 bytes left out …]\nxyz", true), "{size}");
        }
    }

    #[test]
    fn stream_truncated_cuts_no_character_and_fits_its_limit() {
        let text = "ä€😀".repeat(50);
        for max in 3..60 {
            let (cut, truncated) = fill(max, &[text.as_bytes()]).text(10_000);
            assert!(truncated && !cut.contains('\u{FFFD}'), "{max}: {cut}");
        }
        for sign in ["\u{0}", "\"", "ä", "x"] {
            for room in [64, 65, 100, 1_000] {
                let (cut, truncated) = fill(5_000, &[sign.repeat(5_000).as_bytes()]).text(room);
                assert!(truncated && escaped_len(&cut) <= room + 2, "{sign:?} {room}: {}", escaped_len(&cut));
            }
        }
    }

    #[test]
    fn stream_of_any_length_uses_constant_memory() {
        let mut buffer = HeadTailBuffer::new(30_000);
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..10_000 {
            buffer.add(&piece);
        }
        assert_eq!(buffer.total, 10_000 * (64 << 10));
        assert!(buffer.head.capacity() + buffer.tail.capacity() < 100_000);
    }
}
