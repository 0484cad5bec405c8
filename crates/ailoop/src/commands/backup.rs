//! `ailoop backup` and `ailoop restore`. They use NATS directly, since a fleet is as large as its streams, and since
//! there is no fleet while it is restored.

use std::io::{self, BufRead as _};

use bus::nats::NatsTransport;
use bus::{BusError, NatsConfig};
use contract::{Coded as _, ErrorCode};
use service::process::retry_while_away;
use store_admin::backup::{
    BackupRestore, Existing, Manifest, PartialDirectory, Source, check_files, read_manifest, write_backup,
};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::{Style, Terminal};

use super::fleet_location::nats_config;
use crate::args::{BackupArgs, RestoreArgs};
use crate::output::finish;
use crate::signals::Interrupts;

/// Seconds that a cluster may take to elect the leader that answers for JetStream.
const LEADER_SECONDS_MAX: u32 = 30;

/// Text that a person types to confirm the deletion of streams.
const CONFIRMATION: &str = "delete";

pub(super) async fn backup_streams(args: &BackupArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let sources = find_sources(&args.only)?;
    let nats_config = nats_config(&args.nats)?;
    let directory = PartialDirectory::create(&args.out)?;
    let mut interrupts = Interrupts::listen()?;
    let written = Box::pin(async {
        let nats = connect(&nats_config).await?;
        let written = write_backup(&nats, &directory, &sources, terminal).await;
        nats.disconnect().await;
        written.map_err(|failure| failure.at(nats_config.shown_url()))
    });
    let manifest = match interrupts.run_until_interrupted(written).await {
        Some(Ok(manifest)) => manifest,
        Some(Err(failure)) => {
            directory.discard();
            return Err(failure);
        }
        None => {
            directory.discard();
            return Ok(Exit::Interrupted);
        }
    };
    directory.complete()?;
    let (streams, bytes) = (format::plural(manifest.streams.len() as u64, "stream"), format::bytes(manifest.bytes()));
    let log = manifest.log_read_at();
    Ok(finish(terminal.print_data(&format!("{}\t{streams}\t{bytes}\tas of {log}\n", args.out.display()))))
}

pub(super) async fn restore_streams(args: &RestoreArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let manifest = read_manifest(&args.directory)?;
    terminal.note(Style::Faint, &format!("checking {}", format::bytes(manifest.bytes())));
    check_files(&args.directory, &manifest)?;
    let nats_config = nats_config(&args.nats)?;
    let nats = Box::pin(connect(&nats_config)).await?;
    let replicas = args.replicas.unwrap_or(nats_config.replicas.max(1) as u64);
    let restore = BackupRestore { nats: &nats, directory: &args.directory, manifest: &manifest, replicas, terminal };
    let at = |failure: CommandFailure| failure.at(nats_config.shown_url());
    let existing = Box::pin(restore.examine()).await.map_err(at)?;
    permit_deletion(args, &existing, &nats_config, terminal)?;
    let mut interrupts = Interrupts::listen()?;
    let restored = interrupts.run_until_interrupted(Box::pin(restore.run(&existing))).await;
    nats.disconnect().await;
    let Some(restored) = restored else {
        terminal.note(Style::Warn, "the restore is not complete: no service starts before you repeat the command");
        return Ok(Exit::Interrupted);
    };
    restored.map_err(at)?;
    terminal.note(Style::Plain, &next_steps(&manifest));
    let streams = format::plural(manifest.streams.len() as u64, "stream");
    Ok(finish(terminal.print_data(&format!("{streams} restored, as of {}\n", manifest.log_read_at()))))
}

/// Connects. A new cluster answers when it has elected a leader, so that is waited for.
async fn connect(config: &NatsConfig) -> Result<NatsTransport, CommandFailure> {
    let patient = NatsConfig { start_wait_seconds: LEADER_SECONDS_MAX, ..config.clone() };
    let has_no_leader = |error: &BusError| error.code() == ErrorCode::Unavailable;
    let connected = retry_while_away(&patient, has_no_leader, async || NatsTransport::connect(config).await).await;
    connected.map_err(|error| CommandFailure::from(error).at(config.shown_url()))
}

/// The streams to back up: those that were named, else all.
fn find_sources(only: &[String]) -> Result<Vec<Source>, CommandFailure> {
    if only.is_empty() {
        return Ok(Source::ORDER.to_vec());
    }
    let find = |name: &String| {
        Source::by_name(name).ok_or_else(|| {
            let names: Vec<String> = Source::ORDER.iter().map(|source| source.name()).collect();
            CommandFailure::usage(ErrorCode::BadRequest, format!("{name:?} is no stream of ailoop"))
                .help(format!("the streams are {}", names.join(", ")))
        })
    };
    only.iter().map(find).collect()
}

/// Streams with messages are deleted only if the caller wants that, and says so twice.
fn permit_deletion(
    args: &RestoreArgs,
    existing: &Existing,
    nats: &NatsConfig,
    terminal: &Terminal,
) -> Result<(), CommandFailure> {
    if existing.with_messages.is_empty() {
        return Ok(());
    }
    let line = |(name, messages): &(String, u64)| format!("{name}: {}", format::plural(*messages, "message"));
    let list: Vec<String> = existing.with_messages.iter().map(line).collect();
    if !args.force {
        let message = format!("nats-server has streams with messages ({})", list.join(", "));
        return Err(CommandFailure::new(ErrorCode::BadRequest, message)
            .at(nats.shown_url())
            .help("restore to an empty nats-server, or pass --force to delete these streams first"));
    }
    if args.yes {
        return Ok(());
    }
    terminal.note(Style::Warn, &format!("These streams of {} are deleted:\n{}", nats.shown_url(), list.join("\n")));
    terminal.note(Style::Warn, &format!("Nothing brings them back. Type `{CONFIRMATION}` to continue:"));
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    if read.is_ok() && typed.trim() == CONFIRMATION {
        return Ok(());
    }
    Err(CommandFailure::usage(ErrorCode::BadRequest, "nothing was deleted, since you did not confirm it")
        .help(format!("type `{CONFIRMATION}`, or pass --yes")))
}

fn next_steps(manifest: &Manifest) -> String {
    let others = if manifest.partial {
        "\nThe backup has only some of the streams: see that the others fit them, or make them with `ailoop bootstrap`."
    } else {
        ""
    };
    format!(
        "Next:\n\
         1. Run `ailoop bootstrap --fix` if this version or its configuration is not that of the backup.\n\
         2. Start the fleet.\n\
         3. Run `ailoop repair`, which performs again what the open sessions are owed.\n\
         4. What happened after {} is lost: users send it again, and `at_most_once` calls of that time may run once \
         more.{others}",
        manifest.log_read_at()
    )
}
