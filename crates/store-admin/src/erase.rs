//! Erases everything that a session left in NATS.

use bus::archive::objects_of_page;
use bus::nats::NatsTransport;
use bus::{Bus, BusError, Read, body};
use bytes::Bytes;
use contract::ErrorCode;
use contract::commit::Phase;
use contract::event::Event;
use contract::mail::MailEntry;
use contract::streams::{Bucket, Objects, Stream};
use contract::subject::{self, SessionKey, Subject};
use terminal::failure::CommandFailure;

/// Rounds in which a session is erased whose last orchestrator still writes.
const ROUNDS_MAX: u32 = 5;
/// Stores of the bodies of commits and pages.
const COMMIT_STORES: [Objects; 2] = [Objects::Blobs, Objects::Archive];

/// Erases one session. It can be interrupted and run again: what leads to other data is erased after it, and the end
/// of the log last.
pub struct Eraser<'a> {
    /// Connection for what the bus does not offer.
    pub nats: &'a NatsTransport,
    /// Connection to the bus of the session.
    pub bus: &'a Bus,
    /// The session that is erased.
    pub key: &'a SessionKey,
}

/// References from the commits of a session to data in other places.
#[derive(Default)]
struct Traces {
    /// Objects with long results.
    results: Vec<String>,
    /// Prefixes of the keys of its tool calls, `<session>-<call>`: a mail has the key of the call that sent it.
    calls: Vec<String>,
}

impl Eraser<'_> {
    /// Erases the session; returns the number of messages and objects that were erased.
    pub async fn erase(&self) -> Result<u64, CommandFailure> {
        let head = self.bus.head(self.key, Read::Leader).await?;
        if head.is_some_and(|head| head.meta.phase != Phase::Ended) {
            let message = format!("session {} has not ended", self.key.session);
            return Err(CommandFailure::new(ErrorCode::NotNow, message)
                .help(format!("end it with `ailoop stop {}`, and repeat the command", self.key.session)));
        }
        let mut erased = 0;
        for _ in 0..ROUNDS_MAX {
            let found = self.erase_once().await?;
            if found == 0 {
                return Ok(erased);
            }
            erased += found;
        }
        let message = format!("session {} is written to while it is erased", self.key.session);
        Err(CommandFailure::new(ErrorCode::NotNow, message).help("repeat the command in a minute"))
    }

    async fn erase_once(&self) -> Result<u64, BusError> {
        let key = self.key;
        let traces = self.read_traces().await?;
        // First what could make somebody write to the session again.
        let mut erased = 0;
        for (stream, filter) in [
            (Stream::Timer, subject::timer_set(key)),
            (Stream::Timer, subject::timer_due(key)),
            (Stream::Control, subject::control_inbox(key)),
            (Stream::Model, subject::model_items_of_session(key)),
            (Stream::Tool, subject::tool_items_of_session(key)),
            (Stream::Dead, subject::dead_of_session(key)),
        ] {
            erased += self.nats.erase_messages(stream.name(), filter.as_str()).await?;
        }
        for object in &traces.results {
            erased += u64::from(self.nats.erase_object(Objects::Results, object).await?);
        }
        erased += self.erase_mails(&traces.calls).await?;
        erased += self.purge_bucket(Bucket::Claims, &subject::claims_of(key)).await?;
        erased += self.erase_index_entry().await?;
        erased += self.erase_commits(Stream::Archive, &subject::archive_session(key)).await?;
        erased += self.erase_commits(Stream::Log, &subject::log_session(key)).await?;
        Ok(erased)
    }

    /// Erases the mails that calls of the session sent, in every mailbox.
    async fn erase_mails(&self, calls: &[String]) -> Result<u64, BusError> {
        if calls.is_empty() {
            return Ok(0);
        }
        let (stream, filter) = (Stream::Mail.name(), subject::mail_of(&self.key.tenant));
        let (mut erased, mut seq) = (0, 1);
        while let Some(message) = self.nats.message_from(stream, seq, filter.as_str()).await? {
            seq = message.seq + 1;
            // Of a newer version: it cannot be read, and stays until it expires.
            let Ok(entry) = serde_json::from_slice::<MailEntry>(&message.body()?) else { continue };
            if calls.iter().any(|call| is_key_of(entry.sent_by(), call)) {
                self.nats.erase_message(stream, message.seq).await?;
                erased += 1;
            }
        }
        Ok(erased)
    }

    /// Edges drop a line of the index that is deleted, and learn nothing of one that is purged: hence both.
    async fn erase_index_entry(&self) -> Result<u64, BusError> {
        let entry = subject::index_entry(self.key);
        let is_there = self.nats.message_from(&format!("KV_{}", Bucket::Sessions.name()), 1, entry.as_str()).await?;
        if is_there.is_none() {
            return Ok(0);
        }
        let name = format!("{}.{}", self.key.tenant, self.key.session);
        self.bus.transport().kv_delete(Bucket::Sessions, &name).await?;
        self.purge_bucket(Bucket::Sessions, &entry).await
    }

    async fn purge_bucket(&self, bucket: Bucket, filter: &Subject) -> Result<u64, BusError> {
        self.nats.purge_messages(&format!("KV_{}", bucket.name()), filter.as_str()).await
    }

    /// Erases messages that are commits or pages, the oldest first, and before each one the bodies that it refers to.
    async fn erase_commits(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError> {
        let (mut erased, mut seq) = (0, 1);
        while let Some(message) = self.nats.message_from(stream.name(), seq, filter.as_str()).await? {
            let payload = Bytes::from(message.body()?);
            erased += self.erase_bodies(stream, payload).await?;
            self.nats.erase_message(stream.name(), message.seq).await?;
            (erased, seq) = (erased + 1, message.seq + 1);
        }
        Ok(erased)
    }

    async fn erase_bodies(&self, stream: Stream, payload: Bytes) -> Result<u64, BusError> {
        let mut objects: Vec<String> = body::object_of(&payload).into_iter().collect();
        if stream == Stream::Archive {
            let page = match objects.first() {
                Some(object) => self.bus.transport().get_object(Objects::Archive, object).await?,
                None => Some(payload),
            };
            let of_commits = page.as_deref().map(objects_of_page).transpose()?.unwrap_or_default();
            // The page last: as long as it is there, an interrupted run finds the others.
            objects = [of_commits, objects].concat();
        }
        let mut erased = 0;
        for object in objects {
            for store in COMMIT_STORES {
                erased += u64::from(self.nats.erase_object(store, &object).await?);
            }
        }
        Ok(erased)
    }

    /// Reads the log and the archive. What cannot be read any more leads to nothing.
    async fn read_traces(&self) -> Result<Traces, BusError> {
        let commits = match self.bus.history(self.key, 0).await {
            Ok(commits) => commits,
            // An interrupted run has erased a part of it, from the beginning on, or it has two histories.
            Err(
                BusError::Malformed(_)
                | BusError::BodyMissing { .. }
                | BusError::Unavailable(_)
                | BusError::TwoHistories { .. },
            ) => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut traces = Traces::default();
        for event in commits.iter().flat_map(|(_, commit)| &commit.events) {
            if let Event::ToolCallResult(result) = event {
                traces.results.extend(result.whole.as_ref().map(|whole| whole.object.clone()));
                traces.calls.push(format!("{}-{}", self.key.session, result.call));
            }
        }
        Ok(traces)
    }
}

/// Whether a key is that of a call: `<session>-<call>`, and where its commit is known, `-` and hexadecimal digits. So the
/// key of a session whose id begins in the same way is another one.
fn is_key_of(key: &str, call: &str) -> bool {
    let digest = key.strip_prefix(call).map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    digest.is_some_and(|digest| digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_call_is_not_that_of_another_session() {
        assert!(is_key_of("s-c1-1-1-0123abcd", "s-c1-1-1") && is_key_of("s-c1-1-1", "s-c1-1-1"));
        assert!(!is_key_of("s-c1-1-1-c1-1-1-0123abcd", "s-c1-1-1"), "of session s-c1-1-1");
        assert!(!is_key_of("s2-c1-1-1-0123abcd", "s-c1-1-1"));
    }
}
