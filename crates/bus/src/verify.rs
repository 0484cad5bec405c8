//! Writes whose answer leaves open whether they are stored: a read from the leader settles that.

use bytes::Bytes;
use contract::subject::Subject;

use crate::transport::{Appended, EXPECTED_LAST};
use crate::{Bus, BusError, Headers, retry};

/// The outcome of a write, as far as its answer shows.
pub(crate) enum Write<T> {
    /// The outcome is known.
    Known(T),
    /// The outcome is unknown; the error for the caller if it stays so.
    Doubtful(BusError),
}

impl<T> Write<T> {
    /// Another writer may have been faster.
    pub(crate) fn beaten(what: &str) -> Self {
        Self::Doubtful(BusError::Timeout { what: what.to_owned() })
    }

    /// The answer to an append.
    pub(crate) fn of(appended: Appended, stored: impl FnOnce(u64) -> T) -> Self {
        match appended {
            Appended::Stored(seq) => Self::Known(stored(seq)),
            Appended::Doubtful(doubt) => Self::Doubtful(doubt.into_error()),
        }
    }
}

impl Bus {
    /// Appends over the message with sequence `expected`, 0 for none.
    pub(crate) async fn append_over(
        &self,
        subject: &Subject,
        expected: u64,
        mut headers: Headers,
        body: Bytes,
    ) -> Result<Appended, BusError> {
        headers.push((EXPECTED_LAST.to_owned(), expected.to_string()));
        self.transport().append(subject, false, headers, body).await
    }
}

/// A write that is repeated and verified until its outcome is known.
pub(crate) struct Verified<'a> {
    /// Description of the write, for the error of an unknown outcome.
    pub(crate) what: &'a str,
    /// Spreads the pauses, so that two writers do not collide again.
    pub(crate) salt: &'a str,
    /// Most attempts of the write.
    pub(crate) rounds: u32,
}

impl<'a> Verified<'a> {
    /// A write to a subject.
    pub(crate) fn at(subject: &'a Subject) -> Self {
        Self::new(subject.as_str(), subject.as_str())
    }

    /// A write that is tried as often as usual.
    pub(crate) fn new(what: &'a str, salt: &'a str) -> Self {
        Self { what, salt, rounds: retry::ROUNDS_MAX }
    }

    /// Repeats a write that reads the stored state itself, or that changes nothing when it is repeated.
    pub(crate) async fn repeat<T, W>(self, write: impl Fn(u32) -> W) -> Result<T, BusError>
    where
        W: Future<Output = Result<Write<T>, BusError>>,
    {
        self.write(write, || std::future::ready(Ok(None))).await
    }

    /// Writes, and verifies where the answer leaves the outcome open; `write` gets the round, from 1. A final error
    /// ends this.
    pub(crate) async fn write<T, W, V>(self, write: impl Fn(u32) -> W, verify: impl Fn() -> V) -> Result<T, BusError>
    where
        W: Future<Output = Result<Write<T>, BusError>>,
        V: Future<Output = Result<Option<T>, BusError>>,
    {
        let mut doubt = BusError::Timeout { what: self.what.to_owned() };
        for round in 1..=self.rounds {
            match write(round).await {
                Ok(Write::Known(known)) => return Ok(known),
                Ok(Write::Doubtful(why)) => doubt = why,
                Err(error) if error.is_final() => return Err(error),
                Err(error) => doubt = error,
            }
            match verify().await {
                Ok(Some(known)) => return Ok(known),
                Ok(None) => {}
                Err(error) if error.is_final() => return Err(error),
                Err(error) => doubt = error,
            }
            retry::wait(round, self.salt).await;
        }
        Err(doubt)
    }
}
