//! `ailoop export` and `ailoop import`: they speak to NATS itself, like `ailoop bootstrap`, since no client of the edge may
//! read or write a history as it stands in the log.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use bus::Bus;
use contract::subject::SessionKey;
use contract::{ErrorCode, SessionId};
use loop_orchestrator::{Clock as _, SystemClock};

use crate::args::{ExportArgs, ImportArgs};
use crate::carry;
use crate::failure::{Exit, Failure};
use crate::terminal::{Style, Terminal};

pub(super) async fn export(args: &ExportArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let unknown = |_| Failure::usage(ErrorCode::BadRequest, format!("{:?} is no id of a session", args.session));
    let session = SessionId::new(&args.session).map_err(unknown)?;
    let key = SessionKey { tenant: super::tenant(&args.tenant)?, session };
    let nats = super::nats(args.nats.as_ref())?;
    let bus = Bus::connect(&nats).await.map_err(|error| Failure::from(error).at(&nats.url))?;
    let exported = match &args.out {
        Some(path) => to_file(&bus, &key, path).await,
        None => carry::export(&bus, &key, SystemClock.now(), &mut Printer(terminal)).await,
    };
    bus.close().await;
    let commits = exported?;
    terminal.note(Style::Plain, &format!("{commits} commits of session {}", key.session));
    Ok(Exit::Done)
}

/// Writes beside the file first, so that it is whole where it is there at all.
async fn to_file(bus: &Bus, key: &SessionKey, path: &Path) -> Result<u64, Failure> {
    let cannot = |error: io::Error| {
        Failure::new(ErrorCode::BadRequest, format!("{} cannot be written: {error}", path.display()))
    };
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let mut out = BufWriter::new(File::create(&part).map_err(cannot)?);
    let written = carry::export(bus, key, SystemClock.now(), &mut out).await;
    let kept = match written {
        Ok(commits) => out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .map(|()| commits)
            .map_err(cannot),
        Err(failure) => Err(failure),
    };
    match kept {
        Ok(commits) => std::fs::rename(&part, path).map(|()| commits).map_err(cannot),
        Err(failure) => {
            let _absent = std::fs::remove_file(&part);
            Err(failure)
        }
    }
}

pub(super) async fn import(args: &ImportArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let cannot =
        |error| Failure::usage(ErrorCode::BadRequest, format!("{} cannot be read: {error}", args.file.display()));
    let mut file = BufReader::new(File::open(&args.file).map_err(cannot)?);
    let nats = super::nats(args.nats.as_ref())?;
    let bus = Bus::connect(&nats).await.map_err(|error| Failure::from(error).at(&nats.url))?;
    let imported = carry::import(&bus, &mut file, SystemClock.now()).await;
    bus.close().await;
    let (key, commits) = imported.map_err(|failure| failure.at(args.file.display()))?;
    Ok(super::finish(terminal.data(&format!("{}\t{commits} commits\n", key.session))))
}

/// Standard output, as somewhere to write to.
struct Printer<'a>(&'a Terminal);

impl Write for Printer<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.json(&String::from_utf8_lossy(text)).map(|()| text.len()).map_err(gone)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
