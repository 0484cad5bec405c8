//! The state that all methods of the client API share.

use std::sync::Arc;
use std::time::Duration;

use contract::subject::SessionKey;
use contract::{CommandId, ErrorCode};
use service::connections::ByteBudget;
use service::tasks::Tasks;
use tokio_util::sync::CancellationToken;

use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::cells::{Cell, Cells};
use crate::client_queue::{CLIENT_BYTES_MAX, ClientQueue};
use crate::config::EdgeConfig;
use crate::fair_queue::{FairQueue, RequestCost, RequestPermit};
use crate::fleet_metrics;
use crate::params::{CommandBody, CommandRequest, UnvalidatedCommand};

/// Reconnect delay for a client of a draining replica.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// The methods of the client API, and what they share. Clones are the same API.
#[derive(Debug, Clone)]
pub struct SessionApi {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cells: Cells,
    replica_id: CommandId,
    tasks: Tasks,
    draining: CancellationToken,
    command_wait: Duration,
    client_queue: usize,
    budget: ByteBudget,
    fair_queue: FairQueue,
    check_queue: FairQueue,
    trace_url: Option<String>,
}

impl SessionApi {
    /// Clients run in `tasks`, and what they share in `shared_tasks`. Queues of clients take bytes from `budget`.
    pub fn new(
        config: &EdgeConfig,
        cells: Cells,
        replica_id: CommandId,
        budget: ByteBudget,
        tasks: Tasks,
        shared_tasks: &Tasks,
    ) -> Self {
        shared_tasks.spawn_until_end("fleet metrics", fleet_metrics::follow(cells.clone()));
        let (draining, command_wait) = (CancellationToken::new(), config.command_wait());
        Self {
            inner: Arc::new(Inner {
                cells,
                replica_id,
                tasks,
                draining,
                command_wait,
                client_queue: config.client_queue,
                budget,
                fair_queue: FairQueue::default(),
                check_queue: FairQueue::new(RequestCost::Light.units()),
                trace_url: config.trace_url.clone(),
            }),
        }
    }

    /// Error for clients of a draining replica.
    pub fn draining_error() -> ApiError {
        ApiError::new(ErrorCode::Draining, "this replica is draining: connect again").with_retry_after(RECONNECT_AFTER)
    }

    pub(crate) fn unknown_session(key: &SessionKey) -> ApiError {
        ApiError::new(ErrorCode::UnknownSession, format!("there is no session {}", key.session))
    }

    /// The cells of this edge.
    pub fn cells(&self) -> &Cells {
        &self.inner.cells
    }

    /// Returns a cell of the caller's tenant, for what all its cells have alike.
    pub(crate) fn any_cell(&self, caller: &ApiCaller) -> Result<Arc<Cell>, ApiError> {
        self.inner.cells.any_of(&caller.tenant)
    }

    /// Waits until the fair queue lets a request of this caller run.
    pub async fn acquire_permit(&self, caller: &ApiCaller, cost: RequestCost) -> Result<RequestPermit, ApiError> {
        self.inner.fair_queue.acquire(&caller.flow, cost).await
    }

    /// Validates a command. Costly validations run one at a time, and not on a thread that serves clients.
    pub(crate) async fn validate_command<T>(
        &self,
        caller: &ApiCaller,
        command: UnvalidatedCommand<T>,
    ) -> Result<CommandRequest<T>, ApiError>
    where
        T: CommandBody + Send + 'static,
    {
        if !command.is_costly() {
            return command.validate();
        }
        self.run_costly_check(caller, move || command.validate()).await
    }

    /// Runs a check that takes milliseconds, off the threads that serve other clients and in their queue.
    pub(super) async fn run_costly_check<T: Send + 'static>(
        &self,
        caller: &ApiCaller,
        check: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = self.inner.check_queue.acquire(&caller.flow, RequestCost::Light).await?;
        let checked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            check()
        });
        checked.await.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal, "the validation failed")))
    }

    /// Budget of the bytes that wait for clients and from them.
    pub fn budget(&self) -> &ByteBudget {
        &self.inner.budget
    }

    /// Returns the id of this replica.
    pub fn replica_id(&self) -> &CommandId {
        &self.inner.replica_id
    }

    /// Returns the number of sessions that clients of this replica watch.
    pub fn watched_session_count(&self) -> usize {
        self.inner.cells.opened().map(|cell| cell.feeds.open_count()).sum()
    }

    /// Returns the tasks that end with the clients.
    pub fn tasks(&self) -> &Tasks {
        &self.inner.tasks
    }

    /// Cancelled when this replica drains and clients must reconnect to another one.
    pub fn draining(&self) -> &CancellationToken {
        &self.inner.draining
    }

    /// Creates the queue of one more client.
    pub fn client_queue(&self) -> ClientQueue {
        ClientQueue::new(self.inner.client_queue, CLIENT_BYTES_MAX, self.inner.budget.clone())
    }

    /// Address of a trace for people, with a place for its id.
    pub(super) fn trace_url(&self) -> Option<&str> {
        self.inner.trace_url.as_deref()
    }

    pub(crate) fn command_wait(&self) -> Duration {
        self.inner.command_wait
    }
}
