//! The one timer of a session: a scheduled message that the server delivers when it is due.

use bytes::Bytes;
use contract::Timestamp;
use contract::streams::Stream;
use contract::subject::{self, SessionKey};
use serde::{Deserialize, Serialize};

use crate::headers::trace_headers;
use crate::json::encode;
use crate::transport::{Appended, SCHEDULE, SCHEDULE_TARGET, header};
use crate::verify::{Verified, Write};
use crate::written::SetTimer;
use crate::{Bus, BusError, Headers, Read};

/// The body of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Number of the setting of the session's timer that is due.
    pub number: u64,
}

impl Bus {
    /// Sets the session's timer, in place of an earlier setting, never of a later one: a writer with
    /// an old state changes nothing. A time in the past is due at once, by the clock of the server.
    pub async fn set_timer(&self, key: &SessionKey, number: u64, at: Timestamp) -> Result<(), BusError> {
        let mut headers = trace_headers();
        headers.push((SCHEDULE.to_owned(), format!("@at {at}")));
        headers.push((SCHEDULE_TARGET.to_owned(), subject::timer_due(key).to_string()));
        let (subject, body) = (subject::timer_set(key), encode(&Due { number })?);
        let generation = self.transport().generation();
        let note = |seq| self.set_timers.note(key, generation, SetTimer { number, seq });
        // Before the first setting there is usually no timer to compare with, and before another one usually the last
        // one that was set here.
        let earlier = || self.set_timers.get(key, generation).filter(|set| set.number < number);
        let before = if number == 1 { Some(0) } else { earlier().map(|set| set.seq) };
        if let Some(before) = before
            && let Ok(Appended::Stored(seq)) = self.append_over(&subject, before, headers.clone(), body.clone()).await
        {
            note(seq);
            return Ok(());
        }
        // Each try reads the current timer first.
        let set = Verified::at(&subject).repeat(|_| self.set_over(key, number, &headers, &body)).await?;
        if let Some(seq) = set {
            note(seq);
        }
        Ok(())
    }

    /// Sets a timer over what is set now, unless that is a later one. Returns the sequence of its message, if it was
    /// stored.
    async fn set_over(
        &self,
        key: &SessionKey,
        number: u64,
        headers: &Headers,
        body: &Bytes,
    ) -> Result<Write<Option<u64>>, BusError> {
        let subject = subject::timer_set(key);
        let Some(set) = self.transport().last(Stream::Timer, &subject, Read::Leader).await? else {
            return Ok(Write::of(self.append_over(&subject, 0, headers.clone(), body.clone()).await?, Some));
        };
        let is_later = match serde_json::from_slice::<Due>(&set.payload) {
            Ok(due) if due.number > number => self.has_set_timer(key, due.number).await?,
            // Of the same setting there is one time only; another one is of a history that the log does not have.
            Ok(due) if due.number == number => header(headers, SCHEDULE) == header(&set.headers, SCHEDULE),
            Ok(_) | Err(_) => false,
        };
        if is_later {
            return Ok(Write::Known(None));
        }
        Ok(Write::of(self.append_over(&subject, set.seq, headers.clone(), body.clone()).await?, Some))
    }

    /// Whether the log, as the leader has it, holds this setting of the session's timer. It does not where the log was
    /// put back to an older state and the timers were not. A head that an older version wrote does not tell, and is
    /// believed.
    async fn has_set_timer(&self, key: &SessionKey, number: u64) -> Result<bool, BusError> {
        let head = self.head(key, Read::Leader).await?;
        Ok(head.is_none_or(|head| head.meta.timers == 0 || head.meta.timers >= number))
    }

    /// Cancels the session's timer; one that is due already is delivered all the same.
    pub async fn cancel_timer(&self, key: &SessionKey) -> Result<(), BusError> {
        self.transport().purge(Stream::Timer, &subject::timer_set(key)).await.map(drop)
    }
}
