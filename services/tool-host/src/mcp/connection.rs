//! One open connection to an MCP server: it owns the calls that run over it, and checks that the server is alive.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Fuse, join};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rmcp::ServiceError;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, RoleClient, RunningServiceCancellationToken, Subscription};
use service::tasks::Tasks;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

use super::call_queue::{ConnectionHandle, ConnectionSignal, QueuedCall};
use super::config::McpConfig;
use super::failure::CallFailure;
use super::notifications::{NotificationHandler, ProgressRouter};
use super::observed_client::StreamObserver;
use super::pace::ReadPace;
use super::registration::ListedTool;
use super::server_process::ServerProcess;
use super::task_tools::TaskTools;
use super::transport::{OpenError, open};
use super::{config, tool_listing};
use crate::server_name::ServerName;

/// Interval at which a server is asked for its tools: to check that it is alive, and to find changes that it did not
/// report.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// The same for a server over HTTP while calls run: nothing else shows that it died.
const CHECK_CALLS_EVERY: Duration = Duration::from_secs(10);
/// Pause before the next check after one failure.
const RECHECK_AFTER: Duration = Duration::from_secs(1);
/// Time that the server has to answer.
const CHECK_MAX: Duration = Duration::from_secs(10);
/// Failures in a row after which the connection is closed.
const FAILURES_MAX: u32 = 2;
/// Time that the library has to close a connection.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the exit of a server's process after the end of its output.
const STATUS_WITHIN: Duration = Duration::from_millis(500);
/// Shortest pause between two lists of the tools, however often a server reports changes.
const LISTING_PAUSE: Duration = Duration::from_secs(1);

/// A connection. It makes progress only while its owner polls [`Connection::next`].
pub(super) struct Connection {
    server: ServerName,
    rules: Arc<config::ToolRules>,
    peer: Peer<RoleClient>,
    progress: ProgressRouter,
    changed: Arc<Notify>,
    ended: Fuse<BoxFuture<'static, ()>>,
    stop: RunningServiceCancellationToken,
    process: Option<ServerProcess>,
    handle: ConnectionHandle,
    queue: mpsc::Receiver<QueuedCall>,
    work: FuturesUnordered<BoxFuture<'static, FinishedWork>>,
    calls: usize,
    listing_state: ListingState,
    /// Time of the last request for its tools.
    last_listed_at: Instant,
    tasks_required: TaskTools,
    is_subscribed: bool,
    consecutive_failures: u32,
    last_response_at: Instant,
    check_at: Instant,
}

/// An event for the owner of a connection.
pub(super) enum ConnectionEvent {
    /// A new list of the tools.
    ToolsListed(Vec<ListedTool>),
    /// The connection is lost, with the reason.
    Lost(String),
}

/// State of the request for the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListingState {
    Idle,
    Running,
    /// A list is requested, and the tools have changed since.
    RunningStale,
}

enum FinishedWork {
    Called(ConnectionSignal),
    Listed(Result<Vec<ListedTool>, CallFailure>),
    /// The server reported a change, or the subscription ended.
    Changed(Option<Box<Subscription>>),
}

/// A new connection, and what the server said about itself.
pub(super) struct NewConnection {
    pub(super) connection: Connection,
    pub(super) tools: Vec<ListedTool>,
    pub(super) version: String,
}

impl Connection {
    /// Connects, and requests the tools.
    pub(super) async fn connect(
        server: &ServerName,
        config: &McpConfig,
        tasks: &Tasks,
        legacy: bool,
    ) -> Result<NewConnection, OpenError> {
        let listener = NotificationHandler::default();
        let observer = StreamObserver { pace: ReadPace::new(server.clone()), tasks: TaskTools::default() };
        let (service, process) = open(&config.transport, &listener, server, tasks, legacy, &observer).await?;
        let (handle, queue) = ConnectionHandle::new(server.clone(), config.concurrency, config.rules.call_timeout());
        let (peer, stop) = (service.peer().clone(), service.cancellation_token());
        let ended = service.waiting().map(|_| ()).boxed().fuse();
        let NotificationHandler { progress, changed } = listener;
        let now = Instant::now();
        let mut this = Self {
            server: server.clone(),
            rules: Arc::new(config.rules.clone()),
            peer,
            progress,
            changed,
            ended,
            stop,
            process,
            handle,
            queue,
            work: FuturesUnordered::new(),
            calls: 0,
            listing_state: ListingState::Idle,
            last_listed_at: now,
            tasks_required: observer.tasks,
            is_subscribed: false,
            consecutive_failures: 0,
            last_response_at: now,
            check_at: now + CHECK_EVERY,
        };
        // Subscribe before listing, so that no change is missed in between.
        this.subscribe().await;
        match list_with_timeout(this.peer.clone(), this.tasks_required.clone()).await {
            Ok(tools) => {
                let version = this.peer.peer_info().and_then(|info| Some(info.server_info.as_ref()?.version.clone()));
                Ok(NewConnection { connection: this, tools, version: version.unwrap_or_default() })
            }
            Err(failure) => {
                let reason = format!("it does not tell its tools: {failure:?}");
                Err(OpenError { reason, stderr: this.close().await })
            }
        }
    }

    /// The handle that sends calls to this connection.
    pub(super) fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }

    /// Runs until the next event. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> ConnectionEvent {
        loop {
            let event = tokio::select! {
                Some(call) = self.queue.recv() => {
                    self.begin(call);
                    None
                }
                Some(done) = self.work.next() => self.handle_finished(done),
                () = self.changed.notified() => {
                    self.schedule_listing();
                    None
                }
                () = sleep_until(self.check_at) => {
                    self.check();
                    None
                }
                () = &mut self.ended => Some(ConnectionEvent::Lost(self.describe_end().await)),
                why = wait_for_exit(self.process.as_mut()) => Some(ConnectionEvent::Lost(why)),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    fn begin(&mut self, call: QueuedCall) {
        self.calls += 1;
        let execution = call.execute(self.peer.clone(), self.progress.clone(), self.server.clone(), self.rules.clone());
        self.work.push(execution.map(FinishedWork::Called).boxed());
        self.check_at = self.check_at.min(Instant::now() + self.check_interval());
    }

    fn handle_finished(&mut self, done: FinishedWork) -> Option<ConnectionEvent> {
        match done {
            FinishedWork::Called(signal) => {
                self.calls -= 1;
                match signal {
                    ConnectionSignal::Alive => self.record_success(),
                    ConnectionSignal::Ignored => {}
                    ConnectionSignal::Broken(why) => return self.record_failure(&why),
                }
                None
            }
            FinishedWork::Listed(listed) => {
                if std::mem::replace(&mut self.listing_state, ListingState::Idle) == ListingState::RunningStale {
                    self.schedule_listing();
                }
                match listed {
                    Ok(tools) => {
                        self.record_success();
                        Some(ConnectionEvent::ToolsListed(tools))
                    }
                    Err(failure) if failure.is_timeout() && self.is_busy() => None,
                    Err(failure) if failure.is_transport_failure() => self.record_failure(&format!("{failure:?}")),
                    Err(failure) => {
                        tracing::warn!(server = %self.server, ?failure, "an MCP server does not tell its tools");
                        self.record_success();
                        None
                    }
                }
            }
            FinishedWork::Changed(subscription) => {
                self.is_subscribed = subscription.is_some();
                if let Some(subscription) = subscription {
                    self.await_change(*subscription);
                    self.schedule_listing();
                }
                None
            }
        }
    }

    fn record_success(&mut self) {
        self.consecutive_failures = 0;
        self.last_response_at = Instant::now();
    }

    fn record_failure(&mut self, why: &str) -> Option<ConnectionEvent> {
        self.consecutive_failures += 1;
        if self.consecutive_failures >= FAILURES_MAX {
            return Some(ConnectionEvent::Lost(format!("it failed {FAILURES_MAX} times in a row: {why}")));
        }
        tracing::debug!(server = %self.server, why, "the connection to an MCP server failed once");
        self.check_at = Instant::now() + RECHECK_AFTER;
        None
    }

    /// A server that does one thing at a time is silent while a call runs: its silence counts when the call is over, or
    /// has exceeded its timeout.
    fn is_busy(&self) -> bool {
        self.calls > 0 && self.last_response_at.elapsed() < self.rules.call_timeout() + CHECK_MAX
    }

    fn check_interval(&self) -> Duration {
        if self.process.is_none() && self.calls > 0 { CHECK_CALLS_EVERY } else { CHECK_EVERY }
    }

    fn check(&mut self) {
        self.check_at = Instant::now() + self.check_interval();
        self.list_tools();
        if !self.is_subscribed && self.has_subscribed_changes() {
            self.is_subscribed = true;
            let (peer, filter) = (self.peer.clone(), tools_changed_filter());
            let subscription = async move { timeout(CHECK_MAX, peer.listen(filter)).await.ok()?.ok().map(Box::new) };
            self.work.push(subscription.map(FinishedWork::Changed).boxed());
        }
    }

    /// Requests the tools, now or when the shortest pause is over.
    fn schedule_listing(&mut self) {
        if self.last_listed_at.elapsed() >= LISTING_PAUSE {
            self.list_tools();
        } else {
            self.check_at = self.check_at.min(self.last_listed_at + LISTING_PAUSE);
        }
    }

    /// Requests the tools, one request at a time.
    fn list_tools(&mut self) {
        self.last_listed_at = Instant::now();
        if self.listing_state == ListingState::Idle {
            self.listing_state = ListingState::Running;
            self.work.push(
                list_with_timeout(self.peer.clone(), self.tasks_required.clone()).map(FinishedWork::Listed).boxed(),
            );
        } else {
            self.listing_state = ListingState::RunningStale;
        }
    }

    /// Servers of the newest protocol report changes to subscribers only; older ones to every client.
    async fn subscribe(&mut self) {
        if !self.has_subscribed_changes() {
            return;
        }
        match timeout(CHECK_MAX, self.peer.listen(tools_changed_filter())).await {
            Ok(Ok(subscription)) => {
                self.is_subscribed = true;
                self.await_change(subscription);
            }
            Ok(Err(error)) => {
                tracing::debug!(server = %self.server, %error, "the server does not report changes of its tools");
            }
            Err(_) => {
                tracing::debug!(server = %self.server, "the server did not confirm in time that it reports changes of its tools");
            }
        }
    }

    fn await_change(&self, mut subscription: Subscription) {
        let change = async move {
            match subscription.next().await {
                Ok(Some(_)) => FinishedWork::Changed(Some(Box::new(subscription))),
                Ok(None) | Err(_) => FinishedWork::Changed(None),
            }
        };
        self.work.push(change.boxed());
    }

    fn has_subscribed_changes(&self) -> bool {
        let info = self.peer.peer_info();
        info.is_some_and(|info| {
            let tools = info.capabilities.tools.as_ref();
            !info.protocol_version.has_initialize() && tools.and_then(|tools| tools.list_changed) == Some(true)
        })
    }

    async fn describe_end(&mut self) -> String {
        let exited = timeout(STATUS_WITHIN, wait_for_exit(self.process.as_mut())).await;
        exited.unwrap_or_else(|_| "its connection ended".to_owned())
    }

    /// Closes the connection, and stops the process of the server. Running calls get an answer. Returns the last lines
    /// of the process's stderr.
    pub(super) async fn close(mut self) -> Vec<String> {
        self.queue.close();
        while let Ok(call) = self.queue.try_recv() {
            call.refuse(&self.server, "it went down");
        }
        self.stop.cancel();
        let answered = async { while self.work.next().await.is_some() {} };
        let over = async {
            if !futures::future::FusedFuture::is_terminated(&self.ended) {
                (&mut self.ended).await;
            }
        };
        if timeout(CLOSE_MAX, join(answered, over)).await.is_err() {
            tracing::debug!(server = %self.server, "the connection does not end");
        }
        match self.process {
            Some(process) => process.stop().await,
            None => Vec::new(),
        }
    }
}

async fn wait_for_exit(process: Option<&mut ServerProcess>) -> String {
    match process {
        Some(process) => process.wait().await,
        None => std::future::pending().await,
    }
}

async fn list_with_timeout(peer: Peer<RoleClient>, tasks: TaskTools) -> Result<Vec<ListedTool>, CallFailure> {
    match timeout(CHECK_MAX, tool_listing::list_tools(peer, tasks)).await {
        Ok(Ok(tools)) => Ok(tools),
        // The server answered with another kind of result.
        Ok(Err(ServiceError::UnexpectedResponse)) => Err(CallFailure::Refused("no list of tools".to_owned())),
        Ok(Err(error)) => Err(CallFailure::from_error(&error)),
        Err(_) => Err(CallFailure::TimedOut(CHECK_MAX)),
    }
}

fn tools_changed_filter() -> SubscriptionFilter {
    SubscriptionFilter::builder().tools_list_changed().build()
}
