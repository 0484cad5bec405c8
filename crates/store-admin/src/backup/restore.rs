//! Restores a backup. It can be repeated: until all streams are there, each of them has a mark, with which no service
//! starts and by which the next attempt replaces it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use bus::nats::{CHUNK_BYTES, EncodedMessage, NatsTransport, RESTORE_MARK, StreamState};
use bus::{BusError, Transport as _};
use bytes::Bytes;
use contract::ErrorCode;
use contract::streams::Queue;
use serde_json::{Map, Value, json};
use terminal::failure::CommandFailure;
use terminal::format;
use terminal::{Style, Terminal};
use tokio::time::Instant;

use super::manifest::{Manifest, StreamEntry, snapshot_file, tail_file};
use super::source::Source;

/// Longest time that nats-server may hold a restore whose client has gone: it gives up after 5 s without a chunk.
const ABANDONED_MAX: Duration = Duration::from_secs(20);
/// Pause between two attempts to begin a restore.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// Interval between the progress notes of a long restore.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Advice if the server does not answer a request.
const HELP: &str = "if nats-server has users, this one may lack the permission: use the credentials of role `restorer` \
                    (AILOOP__NATS__CREDENTIALS); else see whether nats-server is busy, and repeat the command";

/// A restore of a backup to a nats-server.
pub struct BackupRestore<'a> {
    /// The server that gets the streams.
    pub nats: &'a NatsTransport,
    /// The directory of the backup.
    pub directory: &'a Path,
    /// The manifest of the backup.
    pub manifest: &'a Manifest,
    /// Replicas that each stream gets.
    pub replicas: u64,
    /// The terminal for notes of progress.
    pub terminal: &'a Terminal,
}

/// The streams of a backup that the server has already.
#[derive(Debug, Default)]
pub struct Existing {
    /// Streams that nobody misses: they are empty, a cache, or of a restore that did not end.
    pub(crate) disposable: Vec<String>,
    /// Streams with messages, and how many.
    pub with_messages: Vec<(String, u64)>,
}

impl BackupRestore<'_> {
    /// Checks that the server can restore the backup and that no service is connected to it, and returns the streams
    /// that are in the way. It changes nothing.
    pub async fn examine(&self) -> Result<Existing, CommandFailure> {
        let (made_by, found) = (&self.manifest.nats_server, self.nats.server_version());
        if version(&found) < version(made_by) {
            let message = format!("the backup is of nats-server {made_by}, and this one is {found}");
            return Err(CommandFailure::new(ErrorCode::NatsTooOld, message)
                .help(format!("restore it to nats-server {made_by} or newer: an older one may not read it")));
        }
        for queue in Queue::ALL {
            // Without its stream or consumer, a queue has nobody who pulls.
            let pullers = self.nats.queue_state(*queue).await.map_or(0, |state| state.pullers);
            if pullers > 0 {
                let message = format!("services are connected: {pullers} of them pull from {}", queue.stream().name());
                return Err(CommandFailure::new(ErrorCode::NotNow, message)
                    .help("stop every orchestrator, gateway and executor, and repeat the command"));
            }
        }
        let (mut existing, mut is_repeated) = (Existing::default(), false);
        for entry in &self.manifest.streams {
            let Some(found) = self.nats.stream(&entry.name).await.map_err(explain)? else { continue };
            let mark = mark_of(&found.config);
            is_repeated |= mark == Some(self.manifest.id.as_str());
            if found.state.messages == 0 || entry.source()?.is_cache() || mark.is_some() {
                existing.disposable.push(entry.name.clone());
            } else {
                existing.with_messages.push((entry.name.clone(), found.state.messages));
            }
        }
        // The interrupted attempt had deleted what was there, and no service has started since. It was removing the
        // marks.
        if is_repeated {
            existing.disposable.extend(existing.with_messages.drain(..).map(|(name, _)| name));
        }
        Ok(existing)
    }

    /// Deletes the streams that are in the way, and restores all of the backup.
    pub async fn run(&self, existing: &Existing) -> Result<(), CommandFailure> {
        let with_messages = existing.with_messages.iter().map(|(name, _)| name);
        for name in existing.disposable.iter().chain(with_messages) {
            self.nats.delete_stream(name).await.map_err(explain)?;
        }
        for entry in &self.manifest.streams {
            self.restore_stream(entry).await?;
        }
        // From here on the fleet may start.
        for entry in &self.manifest.streams {
            self.nats.update_stream(&entry.name, &self.config_of(entry, false)).await.map_err(explain)?;
        }
        Ok(())
    }

    async fn restore_stream(&self, entry: &StreamEntry) -> Result<(), CommandFailure> {
        let source = entry.source()?;
        let mut writer = self.begin(entry).await?;
        let path = self.directory.join(snapshot_file(source));
        let unreadable = |error: std::io::Error| {
            CommandFailure::new(ErrorCode::BadRequest, format!("{} cannot be read: {error}", path.display()))
        };
        let mut file = File::open(&path).map_err(unreadable)?;
        let (mut sent, mut shown) = (0, Instant::now());
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let read = file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk).map_err(unreadable)?;
            if read == 0 {
                break;
            }
            writer.write(Bytes::from(chunk)).await.map_err(explain)?;
            sent += read as u64;
            if shown.elapsed() >= PROGRESS_EVERY {
                shown = Instant::now();
                let (done, all) = (format::bytes(sent), format::bytes(entry.snapshot.bytes));
                self.terminal.note(Style::Faint, &format!("{}: {done} of {all}", entry.name));
            }
        }
        writer.finish().await.map_err(explain)?;
        let missing = || incomplete(&entry.name, "nats-server does not have it");
        let restored = self.nats.stream(&entry.name).await.map_err(explain)?.ok_or_else(missing)?.state;
        let expired = compare(entry, &restored)?;
        let later = self.restore_tail(source, entry).await?;
        let later = (later > 0).then(|| format!("{} of the time of the backup", format::plural(later, "message")));
        let expired = (expired > 0).then(|| format!("{} expired since then", format::count(expired)));
        let parts = [Some(format::plural(restored.messages, "message")), later, expired];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        self.terminal.note(Style::Faint, &format!("{}: {}", entry.name, parts.join(", ")));
        Ok(())
    }

    /// Begins the restore of a stream. An attempt that was interrupted may hold its name for some seconds more.
    async fn begin<'b>(&'b self, entry: &'b StreamEntry) -> Result<bus::nats::RestoreWriter<'b>, CommandFailure> {
        let (config, deadline) = (self.config_of(entry, true), Instant::now() + ABANDONED_MAX);
        loop {
            match self.nats.restore(&entry.name, &config, &entry.state).await {
                Ok(writer) => return Ok(writer),
                Err(BusError::Unusable { message, .. }) if message.contains("already") && Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_EVERY).await;
                    self.nats.delete_stream(&entry.name).await.map_err(explain)?;
                }
                Err(error) => return Err(explain(error)),
            }
        }
    }

    /// Stores the messages again that came during the backup; returns how many.
    async fn restore_tail(&self, source: Source, entry: &StreamEntry) -> Result<u64, CommandFailure> {
        let Some(tail) = &entry.tail else { return Ok(0) };
        let path = self.directory.join(tail_file(source));
        let unreadable = |error: &dyn std::fmt::Display| {
            CommandFailure::new(ErrorCode::BadRequest, format!("{} cannot be read: {error}", path.display()))
        };
        let file = File::open(&path).map_err(|error| unreadable(&error))?;
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|error| unreadable(&error))?;
            let message: EncodedMessage = serde_json::from_str(&line).map_err(|error| unreadable(&error))?;
            self.nats.store_message(&message).await.map_err(explain)?;
        }
        Ok(tail.messages)
    }

    /// The settings of a stream: as they were, with another number of replicas, and with or without the mark.
    fn config_of(&self, entry: &StreamEntry, is_marked: bool) -> Map<String, Value> {
        let mut config = entry.config.clone();
        config.insert("num_replicas".to_owned(), json!(self.replicas));
        let mut metadata = config.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        metadata.remove(RESTORE_MARK);
        if is_marked {
            metadata.insert(RESTORE_MARK.to_owned(), json!(self.manifest.id));
        }
        config.insert("metadata".to_owned(), Value::Object(metadata));
        config
    }
}

/// Compares what was restored with what the backup has; returns how many messages have expired since.
fn compare(entry: &StreamEntry, restored: &StreamState) -> Result<u64, CommandFailure> {
    let (name, saved) = (&entry.name, &entry.state);
    if restored.last_seq < saved.last_seq {
        let why = format!("it ends at sequence {}, and the backup at {}", restored.last_seq, saved.last_seq);
        return Err(incomplete(name, &why));
    }
    // nats-server before 2.15 also puts messages into a snapshot that are stored while it is made.
    let messages_max = saved.messages + (restored.last_seq - saved.last_seq);
    if restored.messages > messages_max {
        let why = format!("it has {} messages, and the backup at most {messages_max}", restored.messages);
        return Err(incomplete(name, &why));
    }
    let lost = entry.messages_min.saturating_sub(restored.messages);
    if lost > 0 && !entry.expires() {
        let why = format!("it has {} messages, and the backup at least {}", restored.messages, entry.messages_min);
        return Err(incomplete(name, &why));
    }
    Ok(lost)
}

fn incomplete(stream: &str, why: &str) -> CommandFailure {
    CommandFailure::new(ErrorCode::Internal, format!("{stream} was not restored as it was: {why}"))
        .help("repeat the command; if the message is the same, keep the backup and report it")
}

/// The backup whose restore has not ended; none if the stream is complete.
fn mark_of(config: &Map<String, Value>) -> Option<&str> {
    config.get("metadata")?.get(RESTORE_MARK)?.as_str()
}

/// Major and minor version; (0, 0) where they cannot be read.
fn version(text: &str) -> (u64, u64) {
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
}

fn explain(error: BusError) -> CommandFailure {
    let is_silent = matches!(error, BusError::Timeout { .. });
    let failure = CommandFailure::from(error);
    if is_silent { failure.help(HELP) } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(messages: u64, last_seq: u64) -> StreamState {
        StreamState { messages, bytes: 0, first_seq: 1, last_seq, more: Map::default() }
    }

    fn check(max_age: u64, messages_min: u64, restored: (u64, u64)) -> Option<u64> {
        let entry = json!({
            "name": "AI_LOOP_MAIL", "at": contract::Timestamp::default(), "config": {"max_age": max_age},
            "state": state(10, 20), "messages_min": messages_min, "snapshot": {"bytes": 0, "sha256": ""}, "tail": null,
        });
        compare(&serde_json::from_value(entry).unwrap(), &state(restored.0, restored.1)).ok()
    }

    #[test]
    fn restored_stream_is_compared_with_its_backup() {
        assert_eq!(check(0, 10, (10, 20)), Some(0));
        assert_eq!(check(0, 10, (9, 20)), None, "a message is missing");
        assert_eq!(check(0, 8, (9, 20)), Some(0), "one left the stream during the backup");
        assert_eq!(check(60, 10, (4, 20)), Some(6), "the others have expired");
        assert_eq!(check(0, 10, (10, 19)), None, "the sequences would begin again");
        assert_eq!(check(0, 10, (11, 20)), None, "a message is there twice");
        assert_eq!(check(0, 10, (11, 21)), Some(0), "the snapshot has a later message");
    }

    #[test]
    fn versions_are_compared_without_their_patch() {
        assert!(version("2.14.5") < version("2.15.0") && version("2.15.1") == version("2.15.0-RC.1"));
        assert!(version("2.9.25") < version("2.12.0"));
    }
}
