//! Redacts the values of request headers in answers, wherever the chunks of an answer end.

use regex::bytes::{NoExpand, Regex};

use crate::head_tail_buffer::HeadTailBuffer;

/// Characters of the shortest value that is redacted.
const SECRET_CHARS_MIN: usize = 8;
/// Replacement of a secret.
const REPLACEMENT: &str = "[secret]";

/// The values that are redacted.
#[derive(Debug)]
pub(super) struct HeaderSecrets {
    pattern: Option<Regex>,
    longest_bytes: usize,
}

impl HeaderSecrets {
    /// Collects the words of the headers' values, and their parts: an endpoint that returns the `abc` of `Bearer abc`
    /// reveals the secret.
    pub(super) fn from_headers<'v>(values: impl Iterator<Item = &'v str>) -> Result<Self, regex::Error> {
        let parts = |value: &'v str| {
            let words = value.split(|c: char| c.is_whitespace() || ";,=\"".contains(c));
            value.split_whitespace().chain(words)
        };
        let mut words: Vec<&str> = values.flat_map(parts).filter(|word| word.len() >= SECRET_CHARS_MIN).collect();
        // Longer words come first, since a word may begin with another one.
        words.sort_unstable_by_key(|word| (std::cmp::Reverse(word.len()), *word));
        words.dedup();
        let longest_bytes = words.first().map_or(0, |word| word.len());
        let pattern = words.iter().map(|word| regex::escape(word)).collect::<Vec<_>>().join("|");
        Ok(Self { pattern: (longest_bytes > 0).then(|| Regex::new(&pattern)).transpose()?, longest_bytes })
    }

    /// Redacts the secrets in a text.
    pub(super) fn redact(&self, text: &str) -> String {
        let Some(pattern) = &self.pattern else { return text.to_owned() };
        String::from_utf8_lossy(&pattern.replace_all(text.as_bytes(), NoExpand(REPLACEMENT.as_bytes()))).into_owned()
    }
}

/// A stream without its secrets. Bytes that may be the beginning of a secret are held back until more is known.
#[derive(Debug)]
pub(super) struct RedactingBuffer<'s> {
    secrets: &'s HeaderSecrets,
    pending: Vec<u8>,
    into: HeadTailBuffer,
}

impl<'s> RedactingBuffer<'s> {
    pub(super) fn new(secrets: &'s HeaderSecrets, into: HeadTailBuffer) -> Self {
        Self { secrets, pending: Vec::new(), into }
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
        // A secret that begins before this position is complete.
        self.flush_until(self.pending.len().saturating_sub(self.secrets.longest_bytes.saturating_sub(1)));
    }

    fn flush_until(&mut self, until: usize) {
        let mut at = 0;
        for found in self.secrets.pattern.iter().flat_map(|pattern| pattern.find_iter(&self.pending)) {
            if found.start() >= until {
                break;
            }
            self.into.add(&self.pending[at..found.start()]);
            self.into.add(REPLACEMENT.as_bytes());
            at = found.end();
        }
        if at < until {
            self.into.add(&self.pending[at..until]);
            at = until;
        }
        self.pending.drain(..at);
    }

    /// Returns the kept bytes. `whole`: the stream is complete; of a stream that was cut, the bytes that were held back
    /// are dropped.
    pub(super) fn finish(mut self, whole: bool) -> HeadTailBuffer {
        if whole {
            self.flush_until(self.pending.len());
        }
        self.into
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(secrets: &HeaderSecrets, max: usize, whole: bool, pieces: &[&[u8]]) -> String {
        let mut buffer = RedactingBuffer::new(secrets, HeadTailBuffer::new(max));
        for piece in pieces {
            buffer.add(piece);
        }
        buffer.finish(whole).text(usize::MAX).0
    }

    #[test]
    fn secret_across_chunks_or_at_the_cut_is_redacted() {
        let secrets = HeaderSecrets::from_headers(["Bearer abcdefgh", "abcdefgh.longer", "short"].into_iter()).unwrap();
        let text = b"one abcdefgh two abcdefgh.longer three short abcdefg";
        for size in 1..=text.len() {
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            let hidden = "one [secret] two [secret] three short abcdefg";
            assert_eq!(read(&secrets, 1_000, true, &pieces), hidden, "{size}");
            assert!(!read(&secrets, 1_000, false, &pieces).contains("abc"), "{size}");
            for max in 3..60 {
                let cut = read(&secrets, max, false, &pieces);
                assert!(!cut.contains("abc") && !cut.contains("fgh") && !cut.contains("longer"), "{size} {max}: {cut}");
            }
        }
    }

    #[test]
    fn header_value_every_part_is_redacted() {
        let values = ["Bearer abcdefgh", "sid=0123456789; theme=dark", "tokentoken v1", "dXNlcjpwYXNzd29yZA=="];
        let secrets = HeaderSecrets::from_headers(values.into_iter()).unwrap();
        let text = "abcdefgh, sid=0123456789, 0123456789, tokentoken; dXNlcjpwYXNzd29yZA==, Bearer abcdefgh, dark v1";
        assert_eq!(
            secrets.redact(text),
            "[secret], sid=[secret], [secret], [secret]; [secret], Bearer [secret], dark v1"
        );
    }

    #[test]
    fn stream_without_secrets_is_not_delayed() {
        let none = HeaderSecrets::from_headers(["Key abc"].into_iter()).unwrap();
        assert_eq!(read(&none, 100, false, &[b"Key ", b"abc"]), "Key abc");
        assert_eq!(none.redact("Key abc"), "Key abc");
    }
}
