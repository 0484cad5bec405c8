//! Writes a session line by line, a page in memory at a time.

use std::io::Write;

use bus::{Bus, Read};
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::{ErrorCode, Json, Timestamp};
use serde::Serialize;

use super::{FORMAT, Header, Line, VERSION};
use crate::failure::Failure;

/// Writes the session as it is now, from the archive and the log; returns how many commits. What an archived session
/// left behind for those who are late is not part of it.
pub async fn export(bus: &Bus, key: &SessionKey, now: Timestamp, out: &mut impl Write) -> Result<u64, Failure> {
    let unknown = || Failure::new(ErrorCode::UnknownSession, format!("there is no session {}", key.session));
    let head = bus.head(key, Read::Leader).await?.ok_or_else(unknown)?;
    let last = head.end();
    let mut written = 0;
    for page in 0..=last / SLOTS_PER_PAGE {
        let begins = page * SLOTS_PER_PAGE;
        let bodies = bus.bodies(key, begins, last.min(begins + SLOTS_PER_PAGE - 1)).await?;
        let Some(bodies) = bodies else {
            if written == 0 {
                // The archive no longer has the beginning.
                continue;
            }
            return Err(Failure::new(ErrorCode::Resync, format!("page {page} of {} is gone", key.session)));
        };
        if written == 0 {
            let SessionKey { tenant, session: session_id } = key.clone();
            let format = FORMAT.to_owned();
            let header = Header { format, version: VERSION, tenant, session_id, first: begins, last, exported: now };
            line(out, &header)?;
        }
        for (slot, body) in bodies.into_iter().take_while(|(slot, _)| *slot <= last) {
            let text = String::from_utf8_lossy(&body);
            let commit = Json::parse(&text).map_err(|error| damaged(slot, &error))?;
            line(out, &Line { slot, commit })?;
            written += 1;
        }
    }
    if written == 0 {
        return Err(unknown());
    }
    out.flush().map_err(|error| unwritten(&error))?;
    Ok(written)
}

fn line(out: &mut impl Write, line: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec(line).map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    text.push(b'\n');
    out.write_all(&text).map_err(|error| unwritten(&error))
}

fn damaged(slot: u64, error: &serde_json::Error) -> Failure {
    Failure::new(ErrorCode::Internal, format!("slot {slot} cannot be read: {error}"))
}

fn unwritten(error: &std::io::Error) -> Failure {
    Failure::new(ErrorCode::BadRequest, format!("the file cannot be written: {error}"))
}
