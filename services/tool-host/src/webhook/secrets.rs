//! Keeps what was put into headers out of what is read of an answer, wherever the pieces of it end.

use regex::bytes::{NoExpand, Regex};

use crate::kept::Kept;

/// Characters from which on a value is kept out.
const MIN: usize = 8;
/// What stands in its place.
const INSTEAD: &str = "[secret]";

/// The values that nobody reads.
#[derive(Debug)]
pub(super) struct Secrets {
    any: Option<Regex>,
    longest: usize,
}

impl Secrets {
    /// Of the words of the headers' values, and of their parts: an endpoint that shows the `abc` of `Bearer abc` alone shows the secret.
    pub(super) fn of_headers<'v>(values: impl Iterator<Item = &'v str>) -> Result<Self, regex::Error> {
        let parts = |value: &'v str| {
            let words = value.split(|c: char| c.is_whitespace() || ";,=\"".contains(c));
            value.split_whitespace().chain(words)
        };
        let mut words: Vec<&str> = values.flat_map(parts).filter(|word| word.len() >= MIN).collect();
        // One that begins with another is looked for before that one.
        words.sort_unstable_by_key(|word| (std::cmp::Reverse(word.len()), *word));
        words.dedup();
        let longest = words.first().map_or(0, |word| word.len());
        let any = words.iter().map(|word| regex::escape(word)).collect::<Vec<_>>().join("|");
        Ok(Self { any: (longest > 0).then(|| Regex::new(&any)).transpose()?, longest })
    }

    /// `text` without them.
    pub(super) fn without(&self, text: &str) -> String {
        let Some(any) = &self.any else { return text.to_owned() };
        String::from_utf8_lossy(&any.replace_all(text.as_bytes(), NoExpand(INSTEAD.as_bytes()))).into_owned()
    }
}

/// A stream without its secrets. What may be the beginning of one is held back until more is known.
#[derive(Debug)]
pub(super) struct Hiding<'s> {
    secrets: &'s Secrets,
    held: Vec<u8>,
    into: Kept,
}

impl<'s> Hiding<'s> {
    pub(super) fn new(secrets: &'s Secrets, into: Kept) -> Self {
        Self { secrets, held: Vec::new(), into }
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
        // What begins before this is there to its end, however long it is.
        self.hand_on(self.held.len().saturating_sub(self.secrets.longest.saturating_sub(1)));
    }

    fn hand_on(&mut self, until: usize) {
        let mut at = 0;
        for found in self.secrets.any.iter().flat_map(|any| any.find_iter(&self.held)) {
            if found.start() >= until {
                break;
            }
            self.into.add(&self.held[at..found.start()]);
            self.into.add(INSTEAD.as_bytes());
            at = found.end();
        }
        if at < until {
            self.into.add(&self.held[at..until]);
            at = until;
        }
        self.held.drain(..at);
    }

    /// What was kept; `whole` says that nothing would have followed: what was held back of a stream that was cut stays unread.
    pub(super) fn end(mut self, whole: bool) -> Kept {
        if whole {
            self.hand_on(self.held.len());
        }
        self.into
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(secrets: &Secrets, max: usize, whole: bool, pieces: &[&[u8]]) -> String {
        let mut hiding = Hiding::new(secrets, Kept::new(max));
        for piece in pieces {
            hiding.add(piece);
        }
        hiding.end(whole).text(usize::MAX).0
    }

    #[test]
    fn a_secret_is_found_wherever_a_piece_or_the_kept_part_ends() {
        let secrets = Secrets::of_headers(["Bearer abcdefgh", "abcdefgh.longer", "short"].into_iter()).unwrap();
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
    fn every_part_of_a_value_is_hidden() {
        let values = ["Bearer abcdefgh", "sid=0123456789; theme=dark", "tokentoken v1", "dXNlcjpwYXNzd29yZA=="];
        let secrets = Secrets::of_headers(values.into_iter()).unwrap();
        let said = "abcdefgh, sid=0123456789, 0123456789, tokentoken; dXNlcjpwYXNzd29yZA==, Bearer abcdefgh, dark v1";
        assert_eq!(
            secrets.without(said),
            "[secret], sid=[secret], [secret], [secret]; [secret], Bearer [secret], dark v1"
        );
    }

    #[test]
    fn without_secrets_nothing_is_held_back() {
        let none = Secrets::of_headers(["Key abc"].into_iter()).unwrap();
        assert_eq!(read(&none, 100, false, &[b"Key ", b"abc"]), "Key abc");
        assert_eq!(none.without("Key abc"), "Key abc");
    }
}
