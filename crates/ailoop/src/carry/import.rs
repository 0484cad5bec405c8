//! Reads a session from a file. All of it is checked before anything is written; one commit then makes it visible, whole.

use std::io::{BufRead, Read as _, Seek, SeekFrom};

use bus::{Bus, Read};
use bytes::Bytes;
use contract::commit::Commit;
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::{ErrorCode, Timestamp};
use loop_orchestrator::{ImportOutcome, import_session};
use session::audit::Audit;

use super::{FORMAT, Header, Line, VERSION};
use crate::failure::Failure;

/// Bytes of one line: a commit of full size, with room for its JSON.
const LINE_BYTES_MAX: u64 = 80 << 20;

/// Takes in the session of a file; which, and how many commits it has. Where it breaks off nothing is to be seen, and it
/// can be done again.
pub async fn import(bus: &Bus, file: &mut (impl BufRead + Seek), now: Timestamp) -> Result<(SessionKey, u64), Failure> {
    let (header, audit, last) = check(file)?;
    let key = SessionKey { tenant: header.tenant.clone(), session: header.session_id.clone() };
    // Where there is a session of that id, it is another one, or this one from a former try, whose pages are there.
    if bus.head(&key, Read::Leader).await?.is_none() {
        write(bus, &key, &header, file).await?;
    }
    match import_session(bus, audit.session, &last, now, header.exported).await? {
        ImportOutcome::Imported => Ok((key, header.last - header.first + 1)),
        ImportOutcome::InTurn => Err(in_turn()),
        ImportOutcome::IdTaken => {
            Err(Failure::new(ErrorCode::SessionExists, format!("there is a session {} already", key.session)))
        }
    }
}

/// Writes the pages, where nobody looks for them yet.
async fn write(bus: &Bus, key: &SessionKey, header: &Header, file: &mut (impl BufRead + Seek)) -> Result<(), Failure> {
    file.seek(SeekFrom::Start(0)).map_err(|error| bad(0, error))?;
    let mut lines = Lines { file, number: 0 };
    lines.next()?;
    let mut page = Vec::new();
    for slot in header.first..=header.last {
        let line: Line = lines.parsed("a commit")?;
        page.push(Bytes::from(line.commit.get().to_owned()));
        if slot == header.last || (slot + 1).is_multiple_of(SLOTS_PER_PAGE) {
            bus.put_archived(key, slot / SLOTS_PER_PAGE, std::mem::take(&mut page)).await?;
        }
    }
    Ok(())
}

/// Folds the whole file: each commit must be what its writer saw. Returns the state and the last commit's id too.
fn check(file: &mut impl BufRead) -> Result<(Header, Audit, String), Failure> {
    let mut lines = Lines { file, number: 0 };
    let header: Header = lines.parsed("the header of an exported session")?;
    if header.format != FORMAT || header.version > VERSION {
        let message = format!("{:?} of version {} is nothing that can be read here", header.format, header.version);
        return Err(bad(1, message));
    }
    if !header.first.is_multiple_of(SLOTS_PER_PAGE) || header.first > header.last {
        return Err(bad(1, "no session begins and ends so"));
    }
    let key = SessionKey { tenant: header.tenant.clone(), session: header.session_id.clone() };
    let (mut audit, mut last) = (Audit::new(key.clone()), String::new());
    for slot in header.first..=header.last {
        let line: Line = lines.parsed("a commit")?;
        if line.slot != slot {
            return Err(bad(lines.number, format!("slot {} stands where {slot} is next", line.slot)));
        }
        let commit: Commit = serde_json::from_str(line.commit.get()).map_err(|error| bad(lines.number, error))?;
        if commit.is_newer() {
            return Err(bad(lines.number, "a newer version wrote it: import it there"));
        }
        if slot > 0 && slot == header.first && commit.snapshot.is_none() {
            return Err(bad(lines.number, "a page begins without its snapshot"));
        }
        if !audit.next(slot, &commit) {
            let what: Vec<&str> = audit.differs.iter().map(|difference| difference.what).collect();
            let what = what.join(", ");
            return Err(bad(lines.number, format!("slot {slot} is not what its events come to: {what} differs")));
        }
        last = commit.meta.commit;
    }
    if lines.next()?.is_some() {
        return Err(bad(lines.number, "nothing was to follow"));
    }
    if audit.session.key() != key {
        return Err(bad(1, "the commits are of another session"));
    }
    if audit.session.import(Timestamp::default(), Timestamp::default()).is_none() {
        return Err(in_turn());
    }
    Ok((header, audit, last))
}

struct Lines<'a, R> {
    file: &'a mut R,
    /// Of the line that was read last, from 1.
    number: u64,
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> Result<Option<String>, Failure> {
        self.number += 1;
        let mut line = String::new();
        let read = self.file.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        match read.map_err(|error| bad(self.number, error))? {
            0 => Ok(None),
            _ if line.ends_with('\n') => Ok(Some(line)),
            _ if line.len() as u64 >= LINE_BYTES_MAX => {
                let message = format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.number);
                Err(Failure::new(ErrorCode::TooLarge, message))
            }
            _ => Err(bad(self.number, "the line has no end: the file was cut")),
        }
    }

    fn parsed<T: serde::de::DeserializeOwned>(&mut self, what: &str) -> Result<T, Failure> {
        let line = self.next()?.ok_or_else(|| bad(self.number, format!("{what} is missing: the file was cut")))?;
        serde_json::from_str(&line).map_err(|error| bad(self.number, format!("not {what}: {error}")))
    }
}

fn bad(line: u64, why: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::BadRequest, format!("line {line}: {why}")).help("export the session again")
}

fn in_turn() -> Failure {
    let message = "the session was in a turn when it was exported, or never began: its calls would be open twice";
    Failure::new(ErrorCode::NotNow, message).help("wait until its turn is over, or stop it, and export it again")
}
