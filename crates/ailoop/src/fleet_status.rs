//! The answer of the edge to `fleet.status`, as `ailoop status` and `ailoop doctor` read it.

use std::collections::BTreeSet;
use std::time::Duration;

use contract::Timestamp;
use contract::fleet::ALL_SERVICES;
use fleet_connection::client::{EdgeClient, SessionsApi};
use proto::{FleetStatus, GetStatusRequest, Replica};
use terminal::failure::CommandFailure;

/// Asks the edge for the status of its fleet.
pub(crate) async fn fetch_status(client: &EdgeClient) -> Result<FleetStatus, CommandFailure> {
    client.call(GetStatusRequest {}, SessionsApi::get_status).await
}

/// Returns the cells that answered; one without a name if there is no table.
pub(crate) fn cells(status: &FleetStatus) -> BTreeSet<Option<&str>> {
    let cells: BTreeSet<Option<&str>> = status.replicas.iter().map(|replica| replica.cell.as_deref()).collect();
    if cells.is_empty() { BTreeSet::from([None]) } else { cells }
}

/// Returns the processes that do the work of a service.
pub(crate) fn replicas_of<'a>(status: &'a FleetStatus, service: &str) -> impl Iterator<Item = &'a Replica> {
    status.replicas.iter().filter(move |replica| [service, ALL_SERVICES].contains(&replica.service.as_str()))
}

/// Returns the version of a process, with the beginning of the commit where it is known.
pub(crate) fn build_of(replica: &Replica) -> String {
    let Replica { version, commit, .. } = replica;
    if commit == telemetry::build::UNKNOWN_COMMIT {
        return version.clone();
    }
    let short = &commit[..commit.floor_char_boundary(8)];
    let dirty = if commit.ends_with("-dirty") { "-dirty" } else { "" };
    format!("{version} ({short}{dirty})")
}

/// Returns service, host and process; a host that is named after the service is enough.
pub(crate) fn name_of(replica: &Replica) -> String {
    let Replica { service, replica: host, cell, .. } = replica;
    let name = if host.starts_with(service.as_str()) { host.clone() } else { format!("{service} {host}") };
    cell.as_ref().map_or_else(|| name.clone(), |cell| format!("{name} in cell {cell}"))
}

/// Returns the time since the start of a process.
pub(crate) fn uptime(replica: &Replica) -> Duration {
    let times = Timestamp::parse(&replica.now).zip(Timestamp::parse(&replica.started));
    times.map(|(now, started)| now.since(started)).unwrap_or_default()
}
