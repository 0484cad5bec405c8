//! `ailoop export` and `ailoop import`. They use NATS directly, like `ailoop bootstrap`, since no client of the edge
//! may read or write commits as they stand in the log.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use bus::Bus;
use contract::ErrorCode;
use contract::subject::SessionKey;
use loop_orchestrator::{Clock as _, SystemClock};
use store_admin::export_import;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::cells::nats_of_session;
use super::fleet_location::{nats_config, with_bus};
use super::reading::read_bus;
use super::session_reference::parse_whole_id;
use crate::args::{ExportArgs, ImportArgs};
use crate::compose::parse_tenant;
use crate::output::finish;

pub(super) async fn export_session(args: &ExportArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let key = SessionKey { tenant: parse_tenant(&args.tenant)?, session: parse_whole_id(&args.session)? };
    let nats = nats_of_session(&args.nats, &key).await?;
    read_bus(&args.nats, nats, terminal, async |bus| {
        let commits = match &args.out {
            Some(path) => export_to_file(bus, &key, path).await?,
            None => export_import::export(bus, &key, SystemClock.now(), &mut StdoutWriter(terminal)).await?,
        };
        terminal.note(Style::Plain, &format!("{commits} commits of session {}", key.session));
        Ok(Exit::Done)
    })
    .await
}

/// Writes to a file beside `path` first and renames it, so that the file at `path` is always complete.
async fn export_to_file(bus: &Bus, key: &SessionKey, path: &Path) -> Result<u64, CommandFailure> {
    let cannot = |error: io::Error| {
        CommandFailure::new(ErrorCode::BadRequest, format!("{} cannot be written: {error}", path.display()))
    };
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let mut out = BufWriter::new(File::create(&part).map_err(cannot)?);
    let written = export_import::export(bus, key, SystemClock.now(), &mut out).await;
    let stored = match written {
        Ok(commits) => out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .map(|()| commits)
            .map_err(cannot),
        Err(failure) => Err(failure),
    };
    match stored {
        Ok(commits) => std::fs::rename(&part, path).map(|()| commits).map_err(cannot),
        Err(failure) => {
            let _absent = std::fs::remove_file(&part);
            Err(failure)
        }
    }
}

pub(super) async fn import_session(args: &ImportArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let cannot = |error| {
        CommandFailure::usage(ErrorCode::BadRequest, format!("{} cannot be read: {error}", args.file.display()))
    };
    let mut file = BufReader::new(File::open(&args.file).map_err(cannot)?);
    let nats = nats_config(&args.nats)?;
    let imported = with_bus(&nats, async |bus| {
        let imported = export_import::import(bus, &mut file, SystemClock.now()).await;
        imported.map_err(|failure| failure.at(args.file.display()))
    });
    let (key, commits) = imported.await?;
    Ok(finish(terminal.print_data(&format!("{}\t{commits} commits\n", key.session))))
}

/// Writes to standard output.
struct StdoutWriter<'a>(&'a Terminal);

impl Write for StdoutWriter<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.print_json(&String::from_utf8_lossy(text)).map(|()| text.len()).map_err(closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
