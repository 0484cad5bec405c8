//! Helpers that the subcommands share: the clock, the keys of `--keys`, and the connection to the servers.

use std::io::Read as _;
use std::path::PathBuf;

use contract::ErrorCode;
use nats_auth::{Installation, Lifetime, Manifests, Store, SystemConnection};
use nats_permissions::roles;
use service::clock::{Clock as _, SystemClock};
use terminal::Terminal;
use terminal::failure::{CommandFailure, Exit};

use crate::args::{NatsArgs, NatsAuthKeys, NatsAuthServerArgs};
use crate::commands::fleet_location::nats_config;
use crate::output::finish;

/// Bytes of the Secrets on stdin: Kubernetes allows 1 MiB for each.
const STDIN_BYTES_MAX: u64 = 8 << 20;
/// Lifetime of the credential by which this command connects.
const OPERATOR_VALID_FOR: std::time::Duration = std::time::Duration::from_hours(1);

/// Now, in seconds since 1970.
pub(super) fn now() -> i64 {
    i64::try_from(SystemClock.now().as_millis() / 1_000).unwrap_or(i64::MAX)
}

/// Opens the keys of `--keys`.
pub(super) fn open(keys: &NatsAuthKeys) -> Result<Installation, CommandFailure> {
    let store = if keys.keys == "-" {
        let mut text = String::new();
        let unreadable = |error| CommandFailure::usage(ErrorCode::BadRequest, format!("stdin cannot be read: {error}"));
        std::io::stdin().take(STDIN_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
        Store::Manifests(Manifests::parse(&text)?)
    } else {
        Store::Directory(PathBuf::from(&keys.keys))
    };
    Ok(Installation::open(store, roles())?)
}

/// Connects to the servers as an operator, by a credential that only this command has.
pub(super) async fn connect(
    args: &NatsAuthServerArgs,
    installation: &Installation,
) -> Result<SystemConnection, CommandFailure> {
    let lifetime = Lifetime { now: now(), valid_for: Some(OPERATOR_VALID_FOR) };
    let user = installation.authority().role_user("operator", lifetime)?;
    let nats = nats_config(&NatsArgs { nats: args.nats.clone(), cell: args.cell.clone() })?;
    Ok(SystemConnection::connect(&nats.shown_url(), &user, &nats.tls.files()).await?)
}

/// Prints the Secrets that changed.
pub(super) fn finish_with_changes(installation: &Installation, terminal: &Terminal) -> Exit {
    finish(terminal.print_data(&installation.store().changed_manifests()))
}
