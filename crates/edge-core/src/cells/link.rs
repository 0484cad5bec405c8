//! The connection to one cell. It is made in the background, and kept for as long as the edge runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bus::{Bus, BusError, NatsConfig};
use contract::CellName;
use contract::backoff::Backoff;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::cell::{Cell, CellOpener};
use crate::api_error::ApiError;

/// Pauses between two tries to reach a cell that has not answered yet.
const CONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(8));
/// Pause between two pings of a cell, and the longest wait for the answer.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_MAX: Duration = Duration::from_secs(1);

/// Connects to the bus of a cell.
type ConnectBus = Arc<dyn Fn() -> BoxFuture<'static, Result<Bus, BusError>> + Send + Sync>;

/// Name of a cell, and the way to connect to its bus.
#[derive(Clone)]
pub struct CellConnection {
    pub(super) name: CellName,
    connect: ConnectBus,
    /// Whether the edge owns the bus, and closes it.
    pub(super) is_owned: bool,
}

impl CellConnection {
    /// The cell has this NATS, whose streams are verified.
    pub fn nats(name: CellName, nats: NatsConfig) -> Self {
        let connect = move || {
            let nats = nats.clone();
            async move {
                let bus = Bus::connect(&nats).await?;
                bus.verify().await.map(|()| bus)
            }
            .boxed()
        };
        Self { name, connect: Arc::new(connect), is_owned: true }
    }

    /// The cell has this bus.
    pub fn of_bus(name: CellName, bus: Bus) -> Self {
        let connect = move || std::future::ready(Ok(bus.clone())).boxed();
        Self { name, connect: Arc::new(connect), is_owned: false }
    }
}

/// One cell of the table.
#[derive(Debug)]
pub(super) struct CellLink {
    pub(super) name: CellName,
    pub(super) is_owned: bool,
    cell: OnceLock<Arc<Cell>>,
    is_reachable: AtomicBool,
    /// Reason why the last try of the first connection failed.
    failure: Mutex<Option<String>>,
}

/// State of the first connection of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstTry {
    Running,
    Failed,
    Connected,
}

impl CellLink {
    pub(super) fn new(name: CellName, is_owned: bool) -> Self {
        Self { name, is_owned, cell: OnceLock::new(), is_reachable: AtomicBool::new(false), failure: Mutex::default() }
    }

    /// A cell that is there, and whose bus is watched by its owner.
    pub(super) fn of_open(name: CellName, cell: Arc<Cell>) -> Self {
        let link = Self { is_reachable: AtomicBool::new(true), ..Self::new(name, false) };
        link.cell.get_or_init(|| cell);
        link
    }

    /// Returns the cell, or the error for requests that need it.
    pub(super) fn get(&self) -> Result<&Arc<Cell>, ApiError> {
        match self.cell.get() {
            Some(cell) if self.is_reachable() => Ok(cell),
            Some(_) | None => Err(unreachable_error(&self.name, self.failure().as_deref())),
        }
    }

    /// Returns the cell as long as it was reached once.
    pub(super) fn opened(&self) -> Option<&Arc<Cell>> {
        self.cell.get()
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.is_reachable.load(Ordering::Acquire)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_failure(&self, failure: Option<String>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Connects, for as long as it takes, and then watches whether the bus answers. The client of NATS reconnects
    /// itself. `first` shows how the first try went.
    pub(super) async fn run(&self, connection: CellConnection, opener: &CellOpener, first: watch::Sender<FirstTry>) {
        let mut tries = 0;
        loop {
            let outcome = match (connection.connect)().await {
                Ok(bus) => opener.open(bus).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(cell) => {
                    self.cell.get_or_init(|| Arc::new(cell));
                    self.set_failure(None);
                    if let (true, Some(cell)) = (self.is_owned, self.cell.get()) {
                        service::status::serve(cell.bus.clone(), "edge", opener.readiness.clone(), &opener.tasks);
                    }
                    break;
                }
                Err(error) => {
                    // A cell that refuses this edge may have other settings tomorrow; the others go on meanwhile.
                    tracing::warn!(cell = %self.name, %error, "the cell cannot be used yet; it is tried again");
                    self.set_failure(Some(error.to_string()));
                    self.note_ping(false);
                }
            }
            first.send_replace(FirstTry::Failed);
            tokio::time::sleep(CONNECT_BACKOFF.pause(tries)).await;
            tries += 1;
        }
        self.note_ping(true);
        first.send_replace(FirstTry::Connected);
        loop {
            tokio::time::sleep(PING_INTERVAL).await;
            let Some(cell) = self.cell.get() else { return };
            let answered = tokio::time::timeout(PING_MAX, cell.bus.ping()).await;
            self.note_ping(matches!(answered, Ok(Ok(()))));
        }
    }

    fn note_ping(&self, is_reachable: bool) {
        if self.is_reachable.swap(is_reachable, Ordering::AcqRel) != is_reachable {
            tracing::info!(cell = %self.name, is_reachable, "cell");
        }
        telemetry::metric::cell_reachable(self.name.as_str(), is_reachable);
    }
}

/// Error for a request that needs a cell which cannot be reached.
pub(super) fn unreachable_error(name: &CellName, why: Option<&str>) -> ApiError {
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    ApiError::unavailable(format!("cell {name} cannot be reached now{why}: try again"))
}
