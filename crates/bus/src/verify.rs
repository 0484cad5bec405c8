//! Writes of which the server's answer does not tell whether they stand: what is stored tells, as the leader knows it.

use contract::subject::Subject;

use crate::transport::Appended;
use crate::{BusError, retry};

/// What the server's answer to a write tells.
pub(crate) enum Write<T> {
    /// What became of it.
    Known(T),
    /// Not whether it stands; the error for a caller if nobody ever learns more.
    Doubtful(BusError),
}

impl<T> Write<T> {
    /// Another writer was faster.
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

/// A write and how it is verified, until it is known what became of it.
pub(crate) struct Verified<'a> {
    /// What is written, for the error when nobody knows.
    pub(crate) what: &'a str,
    /// Parts writers that meet: the pauses of two salts differ.
    pub(crate) salt: &'a str,
    /// How often it is tried.
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

    /// Writes where each try looks itself at what is stored, or where writing twice changes nothing.
    pub(crate) async fn repeat<T, W>(self, write: impl Fn(u32) -> W) -> Result<T, BusError>
    where
        W: Future<Output = Result<Write<T>, BusError>>,
    {
        self.write(write, || std::future::ready(Ok(None))).await
    }

    /// Writes, and asks what is stored where the answer does not tell; `write` gets the round, from 1. Neither is asked again
    /// after an error that is final.
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
