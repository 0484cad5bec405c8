//! Writes a backup: snapshot after snapshot, in the order of [`Source::ORDER`].

use std::time::{Duration, Instant};

use bus::nats::{NatsTransport, StreamState};
use contract::ErrorCode;
use service::clock::{Clock as _, SystemClock};
use terminal::failure::CommandFailure;
use terminal::format;
use terminal::{Style, Terminal};

use super::directory::{MANIFEST, PartialDirectory};
use super::manifest::{FORMAT, Manifest, StreamEntry, TailEntry, snapshot_file, tail_file};
use super::source::Source;

/// Interval between the progress notes of a long snapshot.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Advice if the server does not answer a request.
const HELP: &str = "if nats-server has users, this one may lack the permission: use the credentials of role `admin` \
                    (AILOOP__NATS__CREDENTIALS); else see whether nats-server is busy, and try again";

/// Writes the streams and the manifest to a directory. The directory is not complete yet.
pub async fn write_backup(
    nats: &NatsTransport,
    directory: &PartialDirectory,
    sources: &[Source],
    terminal: &Terminal,
) -> Result<Manifest, CommandFailure> {
    let began = SystemClock.now();
    let mut streams = Vec::with_capacity(sources.len());
    for source in Source::ORDER.into_iter().filter(|source| sources.contains(source)) {
        let entry = write_stream(nats, directory, source, terminal).await?;
        let (messages, bytes) = (format::plural(entry.state.messages, "message"), format::bytes(entry.snapshot.bytes));
        terminal.note(Style::Faint, &format!("{}: {messages}, {bytes}", entry.name));
        streams.push(entry);
    }
    let manifest = Manifest {
        format: FORMAT,
        id: uuid::Uuid::now_v7().simple().to_string(),
        ailoop: env!("CARGO_PKG_VERSION").to_owned(),
        nats_server: nats.server_version(),
        began,
        ended: SystemClock.now(),
        partial: sources.len() < Source::ORDER.len(),
        streams,
    };
    let text = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| CommandFailure::new(ErrorCode::Internal, format!("the manifest: {error}")))?;
    let mut file = directory.file(MANIFEST)?;
    file.write(&text)?;
    file.complete()?;
    Ok(manifest)
}

async fn write_stream(
    nats: &NatsTransport,
    directory: &PartialDirectory,
    source: Source,
    terminal: &Terminal,
) -> Result<StreamEntry, CommandFailure> {
    let name = source.name();
    if nats.stream(&name).await.map_err(explain)?.is_none() {
        let message = format!("nats-server has no stream {name}");
        return Err(CommandFailure::new(ErrorCode::Unavailable, message)
            .help("see that --nats names the nats-server of the fleet; `ailoop bootstrap` makes missing streams"));
    }
    let at = SystemClock.now();
    let (begun, mut chunks) = nats.snapshot(&name, source.has_consumers()).await.map_err(explain)?;
    let mut file = directory.file(&snapshot_file(source))?;
    let mut shown = Instant::now();
    while let Some(chunk) = chunks.next().await.map_err(explain)? {
        file.write(&chunk)?;
        if shown.elapsed() >= PROGRESS_EVERY {
            shown = Instant::now();
            terminal.note(Style::Faint, &format!("{name}: {} so far", format::bytes(file.bytes())));
        }
    }
    drop(chunks);
    let snapshot = file.complete()?;
    let gone = || CommandFailure::new(ErrorCode::Unavailable, format!("{name} was deleted during the backup"));
    let after = nats.stream(&name).await.map_err(explain)?.ok_or_else(gone)?.state;
    let tail = match source.tail_filter() {
        Some(filter) => Some(write_tail(nats, directory, source, filter, &begun.state, after.last_seq).await?),
        None => None,
    };
    let messages_min = in_snapshot_for_certain(&begun.state, &after);
    Ok(StreamEntry { name, at, config: begun.config, state: begun.state, messages_min, snapshot, tail })
}

/// Writes the messages behind the end of a snapshot, up to sequence `last`.
async fn write_tail(
    nats: &NatsTransport,
    directory: &PartialDirectory,
    source: Source,
    filter: &str,
    begun: &StreamState,
    last: u64,
) -> Result<TailEntry, CommandFailure> {
    let (name, mut file, mut messages) = (source.name(), directory.file(&tail_file(source))?, 0);
    let mut seq = begun.last_seq + 1;
    while seq <= last {
        let Some(message) = nats.message_from(&name, seq, filter).await.map_err(explain)? else { break };
        if message.seq > last {
            break;
        }
        seq = message.seq + 1;
        let mut line = serde_json::to_vec(&message)
            .map_err(|error| CommandFailure::new(ErrorCode::Internal, format!("a message of {name}: {error}")))?;
        line.push(b'\n');
        file.write(&line)?;
        messages += 1;
    }
    Ok(TailEntry { messages, file: file.complete()? })
}

/// Returns the least number of messages of `begun` that are still in the stream at the end: all messages at the end,
/// without those that may have been stored since.
fn in_snapshot_for_certain(begun: &StreamState, after: &StreamState) -> u64 {
    after.messages.saturating_sub(after.last_seq.saturating_sub(begun.last_seq)).min(begun.messages)
}

fn explain(error: bus::BusError) -> CommandFailure {
    let is_silent = matches!(error, bus::BusError::Timeout { .. });
    let failure = CommandFailure::from(error);
    if is_silent { failure.help(HELP) } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(messages: u64, last_seq: u64) -> StreamState {
        StreamState { messages, bytes: 0, first_seq: 1, last_seq, more: serde_json::Map::default() }
    }

    #[test]
    fn messages_for_certain_are_those_that_nothing_replaced() {
        for (begun, after, certain) in [
            ((10, 10), (10, 10), 10),
            ((10, 10), (15, 15), 10),
            // Two were removed, or replaced.
            ((10, 10), (8, 10), 8),
            ((10, 10), (10, 12), 8),
            ((10, 10), (2, 40), 0),
            ((0, 0), (5, 5), 0),
        ] {
            assert_eq!(in_snapshot_for_certain(&state(begun.0, begun.1), &state(after.0, after.1)), certain);
        }
    }
}
