//! The answer of the edge to `fleet.status`, as `ailoop status` and `ailoop doctor` read it.

use std::collections::BTreeSet;
use std::time::Duration;

use contract::Timestamp;
use contract::fleet::ReplicaStatus;
use fleet_connection::client::{EdgeClient, SessionsApi, answer_json, read_answer};
use proto::GetStatusRequest;
use serde::Deserialize;
use serde_json::Value;
use terminal::failure::CommandFailure;

/// Status of a fleet, as its edge reports it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FleetStatus {
    pub(crate) now: Timestamp,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) dead_letters: u64,
    pub(crate) storage: Vec<Stored>,
    /// Cells that are missing from this status, since they did not answer.
    #[serde(default)]
    pub(crate) missing_cells: Vec<String>,
}

/// A process of the fleet.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Replica {
    #[serde(flatten)]
    pub(crate) status: ReplicaStatus,
    pub(crate) clock_ahead_ms: i64,
    /// Its cell, where the edge has several.
    pub(crate) cell: Option<String>,
}

/// A queue and who takes from it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Queue {
    #[serde(rename = "queue")]
    pub(crate) name: String,
    pub(crate) waiting: u64,
    pub(crate) held: u64,
    pub(crate) pullers: u64,
    pub(crate) oldest_ms: Option<u64>,
}

/// Sessions of the tenant, by phase.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Sessions {
    pub(crate) idle: u64,
    pub(crate) running: u64,
    pub(crate) paused: u64,
    pub(crate) ended: u64,
    pub(crate) with_gates: u64,
}

/// Messages and bytes in a stream or an object store.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl FleetStatus {
    /// Asks the edge. The second value is the answer as it came.
    pub(crate) async fn fetch(client: &EdgeClient) -> Result<(Self, Value), CommandFailure> {
        let reply = client.call(GetStatusRequest {}, SessionsApi::get_status).await?;
        Ok((read_answer(&reply)?, answer_json(&reply)?))
    }

    /// The cells that answered; one without a name if there is no table.
    pub(crate) fn cells(&self) -> BTreeSet<Option<&str>> {
        let cells: BTreeSet<Option<&str>> = self.replicas.iter().map(|replica| replica.cell.as_deref()).collect();
        if cells.is_empty() { BTreeSet::from([None]) } else { cells }
    }

    /// The processes that do the work of a service.
    pub(crate) fn replicas_of(&self, service: &str) -> impl Iterator<Item = &Replica> {
        self.replicas.iter().filter(move |replica| replica.status.serves(service))
    }
}

impl Replica {
    /// Version, with the beginning of the commit where it is known.
    pub(crate) fn build(&self) -> String {
        let ReplicaStatus { version, commit, .. } = &self.status;
        if commit == telemetry::build::UNKNOWN_COMMIT {
            return version.clone();
        }
        let short = &commit[..commit.floor_char_boundary(8)];
        let dirty = if commit.ends_with("-dirty") { "-dirty" } else { "" };
        format!("{version} ({short}{dirty})")
    }

    /// Service, host and process; a host that is named after the service is enough.
    pub(crate) fn name(&self) -> String {
        let ReplicaStatus { service, replica, .. } = &self.status;
        let name = if replica.starts_with(service.as_str()) { replica.clone() } else { format!("{service} {replica}") };
        match &self.cell {
            Some(cell) => format!("{name} in cell {cell}"),
            None => name,
        }
    }

    /// Returns the time since the start of the process.
    pub(crate) fn uptime(&self) -> Duration {
        self.status.now.since(self.status.started)
    }
}
