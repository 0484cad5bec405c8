//! Reads a session from a file. The whole file is checked before anything is written; one commit then makes the session
//! visible.

use std::io::{BufRead, Read as _, Seek, SeekFrom};

use bus::{Bus, Read};
use bytes::Bytes;
use contract::commit::Commit;
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::{ErrorCode, Timestamp};
use loop_orchestrator::{ImportOutcome, import_session};
use session::audit::Audit;
use terminal::failure::CommandFailure;

use super::file_format::{CommitLine, FORMAT, FileHeader, VERSION};

/// Bytes of one line: a commit of the largest size, with a margin for its JSON.
const LINE_BYTES_MAX: u64 = 80 << 20;

/// Imports the session of a file; returns its key and the number of its commits. After a failure nothing is visible,
/// and the import can be repeated.
pub async fn import(
    bus: &Bus,
    file: &mut (impl BufRead + Seek),
    now: Timestamp,
) -> Result<(SessionKey, u64), CommandFailure> {
    let (header, audit, last) = check_file(file)?;
    let key = SessionKey { tenant: header.tenant.clone(), session: header.session_id.clone() };
    // A session of this id is either another session, or this one from an earlier import, which wrote the pages.
    if bus.head(&key, Read::Leader).await?.is_none() {
        write_pages(bus, &key, &header, file).await?;
    }
    match Box::pin(import_session(bus, audit.session, &last, now, header.exported, None)).await? {
        ImportOutcome::Imported => Ok((key, header.last - header.first + 1)),
        ImportOutcome::InTurn => Err(session_in_turn()),
        ImportOutcome::IdTaken => {
            Err(CommandFailure::new(ErrorCode::SessionExists, format!("there is a session {} already", key.session)))
        }
    }
}

/// Writes the pages to the archive; nothing refers to them yet.
async fn write_pages(
    bus: &Bus,
    key: &SessionKey,
    header: &FileHeader,
    file: &mut (impl BufRead + Seek),
) -> Result<(), CommandFailure> {
    file.seek(SeekFrom::Start(0)).map_err(|error| invalid_line(0, error))?;
    let mut lines = LineReader { file, number: 0 };
    lines.read_line()?;
    let (mut first, mut page) = (header.first, Vec::new());
    for slot in header.first..=header.last {
        let line: CommitLine = lines.parse_line("a commit")?;
        page.push(Bytes::from(line.commit.get().to_owned()));
        if slot == header.last || (slot + 1).is_multiple_of(SLOTS_PER_PAGE) {
            bus.put_archived(key, first, std::mem::take(&mut page)).await?;
            first = slot + 1;
        }
    }
    Ok(())
}

/// Folds the whole file and compares each commit with the stored state. Returns the header, the state and the id of the
/// last commit.
fn check_file(file: &mut impl BufRead) -> Result<(FileHeader, Audit, String), CommandFailure> {
    let mut lines = LineReader { file, number: 0 };
    let header: FileHeader = lines.parse_line("the header of an exported session")?;
    if header.format != FORMAT || header.version > VERSION {
        let message = format!("{:?} of version {} cannot be read by this version", header.format, header.version);
        return Err(invalid_line(1, message));
    }
    if header.first > header.last {
        return Err(invalid_line(1, "the range of slots is invalid"));
    }
    let key = SessionKey { tenant: header.tenant.clone(), session: header.session_id.clone() };
    let (mut audit, mut last) = (Audit::new(key.clone()), String::new());
    for slot in header.first..=header.last {
        let line: CommitLine = lines.parse_line("a commit")?;
        if line.slot != slot {
            return Err(invalid_line(lines.number, format!("slot {} follows where {slot} is expected", line.slot)));
        }
        let mut commit: Commit =
            serde_json::from_str(line.commit.get()).map_err(|error| invalid_line(lines.number, error))?;
        if let Some(part) = &mut commit.transcript {
            part.earlier = line.earlier;
        }
        if commit.is_newer() {
            return Err(invalid_line(lines.number, "a newer version wrote it: import it there"));
        }
        if slot > 0 && slot == header.first && commit.snapshot.is_none() {
            return Err(invalid_line(lines.number, "the first commit has no snapshot, and is not the session's first"));
        }
        if !audit.next(slot, &commit) {
            let what: Vec<&str> = audit.differs.iter().map(|difference| difference.what).collect();
            let what = what.join(", ");
            return Err(invalid_line(lines.number, format!("slot {slot} differs from the fold of its events: {what}")));
        }
        last = commit.meta.commit;
    }
    if lines.read_line()?.is_some() {
        return Err(invalid_line(lines.number, "there are lines after the last commit"));
    }
    if audit.session.key() != key {
        return Err(invalid_line(1, "the commits are of another session"));
    }
    if audit.session.import(Timestamp::default(), Timestamp::default()).is_none() {
        return Err(session_in_turn());
    }
    Ok((header, audit, last))
}

/// Reads the lines of a file, and counts them for failures.
struct LineReader<'a, R> {
    file: &'a mut R,
    /// Number of the line that was read last, from 1.
    number: u64,
}

impl<R: BufRead> LineReader<'_, R> {
    fn read_line(&mut self) -> Result<Option<String>, CommandFailure> {
        self.number += 1;
        let mut line = String::new();
        let read = self.file.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        match read.map_err(|error| invalid_line(self.number, error))? {
            0 => Ok(None),
            _ if line.ends_with('\n') => Ok(Some(line)),
            _ if line.len() as u64 >= LINE_BYTES_MAX => {
                let message = format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.number);
                Err(CommandFailure::new(ErrorCode::TooLarge, message))
            }
            _ => Err(invalid_line(self.number, "the line has no end: the file was cut")),
        }
    }

    fn parse_line<T: serde::de::DeserializeOwned>(&mut self, what: &str) -> Result<T, CommandFailure> {
        let line = self
            .read_line()?
            .ok_or_else(|| invalid_line(self.number, format!("{what} is missing: the file was cut")))?;
        serde_json::from_str(&line).map_err(|error| invalid_line(self.number, format!("not {what}: {error}")))
    }
}

fn invalid_line(line: u64, why: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::new(ErrorCode::BadRequest, format!("line {line}: {why}")).help("export the session again")
}

fn session_in_turn() -> CommandFailure {
    let message = "the session was in a turn when it was exported, or never began: its calls would be open twice";
    CommandFailure::new(ErrorCode::NotNow, message).help("wait until its turn is over, or stop it, and export it again")
}
