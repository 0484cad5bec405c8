//! Answers that were given before, known by the bytes of their requests.
//!
//! A request holds everything that an answer depends on but the book, and each book has answers of its own: a new reading
//! of the files begins without any. Bytes are compared rather than fields, since telling that forty tools are the same costs
//! more than composing with them. Two requests that mean the same and are written differently are answered twice.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Answers of one book; when there would be more, all are forgotten.
pub const ANSWERS_MAX: usize = 256;
/// Bytes of all requests and answers that are kept, together; as above.
pub const ANSWERS_BYTES_MAX: usize = 16 << 20;
/// Bytes at either end of a request by which it is looked up.
const PROBE_BYTES: usize = 256;

/// An answer, and what is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    pub(crate) agent: String,
    pub(crate) fingerprint: String,
    pub(crate) prompt_bytes: usize,
    pub(crate) components: usize,
}

/// A lock since it is held for a look only.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_request: HashMap<Request, Answer>,
    bytes: usize,
}

/// A request, hashed by its length and its ends, where agent, features and parameters stand, and compared by all of it: that
/// runs at the speed of memory, and hashing does not.
#[derive(Debug, PartialEq, Eq)]
struct Request(Bytes);

impl Hash for Request {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bytes = &self.0;
        bytes.len().hash(state);
        bytes.get(..PROBE_BYTES).unwrap_or(bytes).hash(state);
        bytes.get(bytes.len().saturating_sub(PROBE_BYTES)..).unwrap_or(bytes).hash(state);
    }
}

impl Answers {
    /// The answer to a request of just these bytes.
    pub(crate) fn get(&self, request: &Bytes) -> Option<Answer> {
        self.kept().by_request.get(&Request(request.clone())).cloned()
    }

    /// Keeps an answer, where there is room for one of its size.
    pub(crate) fn keep(&self, request: &Bytes, answer: Answer) {
        let size = request.len() + answer.body.len();
        if size > ANSWERS_BYTES_MAX {
            return;
        }
        let mut kept = self.kept();
        let before = kept.bytes;
        if kept.by_request.len() >= ANSWERS_MAX || kept.bytes + size > ANSWERS_BYTES_MAX {
            *kept = Kept::default();
        }
        // A copy: what came from the network is a part of a larger buffer.
        let request = Request(Bytes::copy_from_slice(request));
        if kept.by_request.insert(request, answer).is_none() {
            kept.bytes += size;
        }
        show(before, kept.bytes);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Answers {
    /// Each reading of the files has answers of its own; they go with it.
    fn drop(&mut self) {
        show(self.kept().bytes, 0);
    }
}

/// Brings the metric up to date.
fn show(before: usize, now: usize) {
    let bytes = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
    telemetry::metric::cache_bytes("answers", bytes(now) - bytes(before));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> Answer {
        let (agent, fingerprint) = (String::new(), String::new());
        Answer { body: Bytes::copy_from_slice(body.as_bytes()), agent, fingerprint, prompt_bytes: 0, components: 0 }
    }

    #[test]
    fn only_the_same_bytes_are_the_same_request() {
        let answers = Answers::default();
        let text = "x".repeat(3 * PROBE_BYTES);
        let at = |place: usize| {
            let mut other = text.clone().into_bytes();
            other[place] = b'y';
            Bytes::from(other)
        };
        answers.keep(&Bytes::from(text.clone()), answer("same"));
        assert_eq!(answers.get(&Bytes::from(text.clone())), Some(answer("same")));
        // In front, at the end, and between, where the hash does not look.
        for place in [0, text.len() - 1, text.len() / 2] {
            assert_eq!(answers.get(&at(place)), None, "{place}");
            answers.keep(&at(place), answer("other"));
        }
        assert_eq!(answers.get(&Bytes::from(text.clone())), Some(answer("same")));
        assert_eq!(answers.get(&at(text.len() / 2)), Some(answer("other")));
        assert_eq!(answers.get(&Bytes::from(text[1..].to_owned())), None);
    }

    #[test]
    fn there_is_an_end_of_keeping() {
        let answers = Answers::default();
        let request = |n: usize| Bytes::from(n.to_string());
        for n in 0..10 * ANSWERS_MAX {
            answers.keep(&request(n), answer("a"));
            assert_eq!(answers.get(&request(n)), Some(answer("a")));
            assert!(answers.kept().by_request.len() <= ANSWERS_MAX);
        }
        let large = "x".repeat(ANSWERS_BYTES_MAX / 3);
        for n in 0..10 {
            answers.keep(&request(n), answer(&large));
            answers.keep(&request(n), answer(&large));
            let kept = answers.kept();
            let really: usize =
                kept.by_request.iter().map(|(request, answer)| request.0.len() + answer.body.len()).sum();
            assert!(kept.bytes <= ANSWERS_BYTES_MAX && kept.bytes == really, "{} {really}", kept.bytes);
        }
        answers.keep(&request(99), answer(&large.repeat(4)));
        assert_eq!(answers.get(&request(99)), None);
    }
}
