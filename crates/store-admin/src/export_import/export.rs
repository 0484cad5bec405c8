//! Writes a session line by line, with one page in memory at a time.

use std::io::Write;

use bus::{Bus, Read};
use contract::commit::{Commit, TranscriptPart};
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::{ErrorCode, Json, Timestamp};
use serde::Serialize;
use terminal::failure::CommandFailure;

use super::file_format::{CommitLine, FORMAT, FileHeader, VERSION};

/// Writes the session as it is now, from the archive and the log; returns the number of commits. The marker that an
/// archived session leaves in its log for late readers is not exported.
pub async fn export(bus: &Bus, key: &SessionKey, now: Timestamp, out: &mut impl Write) -> Result<u64, CommandFailure> {
    let unknown = || CommandFailure::new(ErrorCode::UnknownSession, format!("there is no session {}", key.session));
    let head = bus.head(key, Read::Leader).await?.ok_or_else(unknown)?;
    if let Some(cell) = &head.meta.moved {
        let message = format!("session {} was moved to cell {cell}", key.session);
        return Err(CommandFailure::new(ErrorCode::SessionMoved, message).help(format!("export it with --cell {cell}")));
    }
    let last = head.end();
    let mut written = 0;
    for page in 0..=last / SLOTS_PER_PAGE {
        let first = page * SLOTS_PER_PAGE;
        let bodies = bus.bodies(key, first, last.min(first + SLOTS_PER_PAGE - 1)).await?;
        let Some(bodies) = bodies else {
            if written == 0 {
                // The archive has deleted the beginning.
                continue;
            }
            return Err(CommandFailure::new(ErrorCode::Resync, format!("page {page} of {} is gone", key.session)));
        };
        if written == 0 {
            // A log that was compacted may have outlived the beginning of its page in the archive.
            let first = bodies.first().map_or(first, |(slot, _)| *slot);
            let SessionKey { tenant, session: session_id } = key.clone();
            let format = FORMAT.to_owned();
            let header = FileHeader { format, version: VERSION, tenant, session_id, first, last, exported: now };
            write_line(out, &header)?;
        }
        for (slot, body) in bodies.into_iter().take_while(|(slot, _)| *slot <= last) {
            let text = String::from_utf8_lossy(&body);
            let commit = Json::parse(&text).map_err(|error| read_failure(slot, &error))?;
            let earlier = if written == 0 { earlier_parts(bus, key, slot, &commit).await? } else { Vec::new() };
            write_line(out, &CommitLine { slot, commit, earlier })?;
            written += 1;
        }
    }
    if written == 0 {
        return Err(unknown());
    }
    out.flush().map_err(|error| write_failure(&error))?;
    Ok(written)
}

/// The parts of the transcript before that of the first commit of a file.
async fn earlier_parts(
    bus: &Bus,
    key: &SessionKey,
    slot: u64,
    commit: &Json,
) -> Result<Vec<TranscriptPart>, CommandFailure> {
    let mut commit: Commit = serde_json::from_str(commit.get()).map_err(|error| read_failure(slot, &error))?;
    bus.fill_earlier_parts(key, &mut commit).await?;
    let Some(part) = commit.transcript else { return Ok(Vec::new()) };
    if part.earlier.len() < part.before.len() {
        let message = format!("parts of the transcript before slot {slot} of {} are gone", key.session);
        return Err(CommandFailure::new(ErrorCode::Resync, message));
    }
    Ok(part.earlier)
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> Result<(), CommandFailure> {
    let mut text =
        serde_json::to_vec(line).map_err(|error| CommandFailure::new(ErrorCode::Internal, error.to_string()))?;
    text.push(b'\n');
    out.write_all(&text).map_err(|error| write_failure(&error))
}

fn read_failure(slot: u64, error: &serde_json::Error) -> CommandFailure {
    CommandFailure::new(ErrorCode::Internal, format!("slot {slot} cannot be read: {error}"))
}

fn write_failure(error: &std::io::Error) -> CommandFailure {
    CommandFailure::new(ErrorCode::BadRequest, format!("the file cannot be written: {error}"))
}
