//! Serves tools over one connection, from the first call to the drain.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, HeaderMap, Message, Subscriber};
use bytes::Bytes;
use futures::stream::SelectAll;
use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;

use crate::connect::connect;
use crate::intake::Intake;
use crate::running_calls::RunningCalls;
use crate::services::Service;
use crate::wire::{self, header};
use crate::{Call, Effect, Reply, ServeError, Tool, ToolError};

/// Name of the connection in the lists of nats-server.
const CONNECTION_NAME: &str = "ailoop-tool";
/// Default of [`Tools::concurrency`]; further calls wait.
const CONCURRENCY_DEFAULT: usize = 16;
/// Time for running calls after a signal to end.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Time to send the last replies at the end: while NATS is away, a process must end all the same.
const FLUSH_MAX: Duration = Duration::from_secs(2);
/// Time after its deadline at which a call is dropped: the caller has given up by then, with a better message.
const OVERDUE_AFTER: Duration = Duration::from_secs(1);
/// Calls of one tool that wait for a permit: they can be cancelled, and are not begun after their deadline.
const WAITING_MAX: usize = 1_024;
/// Probes that are answered at the same time.
const PROBES_MAX: usize = 16;
/// Timeout of one probe: after it nothing waits for the answer, and the probe is repeated.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// Time after which a call sends its receipt; most calls have ended by then.
const RECEIPT_AFTER: Duration = Duration::from_millis(500);
/// Bytes of the header of an error; the body has the whole text.
const ERROR_HEADER_BYTES_MAX: usize = 512;
/// Upper bound for the names and line ends of all headers.
const HEADERS_BYTES_MAX: usize = 1 << 10;

/// Tools that are about to be served over one connection.
pub struct Tools {
    client: Client,
    tenant: String,
    concurrency: usize,
    served: Vec<Tool>,
}

impl Tools {
    /// Serves tools over a connection of yours.
    pub fn new(client: Client) -> Self {
        Self { client, tenant: "default".to_owned(), concurrency: CONCURRENCY_DEFAULT, served: Vec::new() }
    }

    /// Connects, for example to `nats://127.0.0.1:4222`; several servers of a cluster are separated by commas.
    pub async fn connect(url: &str) -> Result<Self, ServeError> {
        Ok(Self::new(connect(url, CONNECTION_NAME, None).await?))
    }

    /// As [`Tools::connect`], as the user of a credentials file, which `ailoop nats-auth user add` makes. The file is
    /// read again at every connect.
    pub async fn connect_with_credentials(url: &str, credentials: impl AsRef<Path>) -> Result<Self, ServeError> {
        Ok(Self::new(connect(url, CONNECTION_NAME, Some(credentials.as_ref())).await?))
    }

    /// Sets the tenant whose sessions may use the tools; `default` if it is not set.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Sets how many calls of each tool run at the same time, at least one.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls.max(1);
        self
    }

    /// Adds a tool to those that are served.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.served.push(tool);
        self
    }

    /// Subscribes for every tool and announces them; they are served until the result is stopped or dropped.
    pub async fn serve(self) -> Result<Serving, ServeError> {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        check_name(&self.tenant, 32, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))?;
        for tool in self.served {
            check_name(tool.name(), 64, |byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')?;
            if tool.effect == Effect::Reconcilable && tool.probe.is_none() {
                return Err(ServeError::NoProbe(tool.name().to_owned()));
            }
            let service = Service::new(&self.client, &tool, &self.tenant);
            let calls = wire::call_subject(&self.tenant, tool.name());
            let cancels = wire::cancel_subject(&self.tenant, tool.name());
            let mut probes = SelectAll::new();
            if tool.probe.is_some() {
                let subject = wire::probe_subject(&self.tenant, tool.name());
                probes.push(self.client.queue_subscribe(subject, wire::QUEUE.to_owned()).await?);
            }
            let server = Server {
                probes,
                calls: Intake::new(self.client.queue_subscribe(calls, wire::QUEUE.to_owned()).await?),
                cancels: self.client.subscribe(cancels).await?,
                service_queries: service.subscribe(&self.client).await?,
                call_queries: service.subscribe_for_calls(&self.client).await?,
                client: self.client.clone(),
                permits: Arc::new(Semaphore::new(self.concurrency)),
                in_flight_max: self.concurrency + WAITING_MAX,
                running: RunningCalls::default(),
                service,
                tool: Arc::new(tool),
            };
            tasks.spawn(server.run(stopped.clone()));
        }
        let serving = Serving { client: self.client, tenant: self.tenant, stop, tasks };
        serving.announce("up").await;
        Ok(serving)
    }
}

fn check_name(name: &str, max: usize, is_allowed: impl Fn(u8) -> bool) -> Result<(), ServeError> {
    let is_valid = (1..=max).contains(&name.len()) && name.bytes().all(is_allowed);
    if is_valid { Ok(()) } else { Err(ServeError::Name(name.to_owned())) }
}

/// Tools that are being served. Dropping it ends them at once and cancels their calls.
pub struct Serving {
    client: Client,
    tenant: String,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Serving {
    /// Takes no more calls, finishes the running ones within `timeout`, and announces the end to the fleet.
    pub async fn stop(mut self, timeout: Duration) {
        self.stop.send_replace(true);
        let _in_time = tokio::time::timeout(timeout, async { while self.tasks.join_next().await.is_some() {} }).await;
        self.tasks.shutdown().await;
        let sent = tokio::time::timeout(FLUSH_MAX, async {
            self.announce("down").await;
            self.client.flush().await
        });
        match sent.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the last replies may be lost"),
            Err(_) => tracing::warn!("the last replies may be lost: NATS does not answer"),
        }
    }

    /// Serves until the process gets SIGINT or SIGTERM, or the connection is closed for good; then stops.
    pub async fn until_ctrl_c(mut self) {
        tokio::select! {
            () = wait_for_signal() => {}
            () = async { while self.tasks.join_next().await.is_some() {} } => {}
        }
        self.stop(DRAIN_MAX).await;
    }

    // Best effort: the tool's NATS user may lack the permission, and polls find the change too.
    async fn announce(&self, state: &str) {
        let body = Bytes::from(json!({"tenant": self.tenant, "state": state}).to_string());
        if let Err(error) = self.client.publish(wire::ANNOUNCE, body).await {
            tracing::debug!(%error, "not announced");
        }
    }
}

#[cfg(unix)]
async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return wait_for_interrupt().await;
    };
    tokio::select! {
        () = wait_for_interrupt() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn wait_for_signal() {
    wait_for_interrupt().await;
}

async fn wait_for_interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The server of one tool: it owns the subscriptions and the calls.
struct Server {
    client: Client,
    tool: Arc<Tool>,
    service: Service,
    calls: Intake,
    cancels: Subscriber,
    service_queries: SelectAll<Subscriber>,
    /// Probes of lost calls; empty where the tool has no probe.
    probes: SelectAll<Subscriber>,
    /// Queries whether this replica is alive, and which replica has a call: answered as long as a call runs here.
    call_queries: SelectAll<Subscriber>,
    permits: Arc<Semaphore>,
    /// Calls that run or wait for a permit.
    in_flight_max: usize,
    running: RunningCalls,
}

/// Statistics of one call.
struct CallStats {
    took: Duration,
    error: Option<String>,
}

impl Server {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut tasks: JoinSet<CallStats> = JoinSet::new();
        let mut probe_tasks: JoinSet<()> = JoinSet::new();
        let mut is_draining = false;
        while !self.calls.is_ended() || !tasks.is_empty() {
            tokio::select! {
                Some(cancel) = self.cancels.next() => self.cancel(&cancel),
                Some(done) = tasks.join_next() => if let Ok(done) = done {
                    self.service.record_call(done.took, done.error);
                },
                () = wait_for_stop(&mut stopped), if !is_draining => {
                    is_draining = true;
                    self.service_queries.clear();
                    // The subscription ends after the calls that the server has sent already.
                    self.calls.end().await;
                }
                Some(query) = self.service_queries.next() => self.answer_query(&query).await,
                // A replica that drains is no longer found, but still reports its running calls.
                Some(query) = self.call_queries.next() => if !is_draining || !is_description_query(&query) {
                    self.answer_query(&query).await;
                },
                Some(probe) = self.probes.next(), if probe_tasks.len() < PROBES_MAX => self.probe(probe, &mut probe_tasks),
                Some(_) = probe_tasks.join_next() => {}
                message = self.calls.next(), if !self.calls.is_ended() && tasks.len() < self.in_flight_max => {
                    if let Some(message) = message {
                        self.begin(message, &mut tasks);
                    }
                }
            }
        }
    }

    fn begin(&self, message: Message, tasks: &mut JoinSet<CallStats>) {
        let call = Call::new(self.client.clone(), message, &self.service.instance(), self.tool.timeout_or_default());
        let (guard, cancelled) = self.running.register(call.id());
        let (client, tool, permits) = (self.client.clone(), self.tool.clone(), self.permits.clone());
        tasks.spawn(async move {
            let began = Instant::now();
            let reply = call.reply.clone();
            let result = run_call(&tool, call, &permits, cancelled).await;
            drop(guard);
            let error = result.as_ref().err().map(|error| error.message().to_owned());
            if let Some(reply) = reply {
                respond(&client, reply, result, tool.takes_effect()).await;
            }
            CallStats { took: began.elapsed(), error }
        });
    }

    /// Answers a probe with the outcome of the call. While the call runs here, its outcome is unknown.
    fn probe(&self, message: Message, probe_tasks: &mut JoinSet<()>) {
        let call = Call::new(self.client.clone(), message, &self.service.instance(), self.tool.timeout_or_default());
        let (client, tool, running) = (self.client.clone(), self.tool.clone(), self.running.is_running(call.id()));
        probe_tasks.spawn(async move {
            let Some(reply) = call.reply.clone() else { return };
            let found = if running {
                Err(ToolError::unknown("it still works on the call"))
            } else {
                let outcome = AssertUnwindSafe(async { tool.run_probe(call).await }).catch_unwind();
                match tokio::time::timeout(PROBE_MAX, outcome).await {
                    Ok(Ok(outcome)) => outcome,
                    Ok(Err(_)) => Err(ToolError::unknown("the tool's probe failed badly (it panicked)")),
                    Err(_) => {
                        Err(ToolError::unknown(format!("the tool's probe took over {} seconds", PROBE_MAX.as_secs())))
                    }
                }
            };
            match found {
                Ok(Some(done)) => respond(&client, reply, Ok(done), true).await,
                Ok(None) => {
                    let mut headers = HeaderMap::new();
                    headers.insert(header::OUTCOME, wire::OUTCOME_NONE);
                    if let Err(error) = client.publish_with_headers(reply, headers, Bytes::new()).await {
                        tracing::warn!(%error, "the answer to a probe was not sent");
                    }
                }
                Err(error) => respond(&client, reply, Err(ToolError::unknown(error.message())), true).await,
            }
        });
    }

    fn cancel(&self, message: &Message) {
        let id = message.headers.as_ref().and_then(|headers| headers.get(header::CALL));
        if let Some(id) = id {
            let tries = self.running.cancel(id.as_str());
            tracing::debug!(tool = self.tool.name(), call = id.as_str(), tries, "cancelled");
        }
    }

    async fn answer_query(&self, query: &Message) {
        let (Some(reply), Some(answer)) = (query.reply.clone(), self.service.build_answer(query)) else { return };
        let call = query.headers.as_ref().and_then(|headers| headers.get(header::CALL));
        let sent = match call {
            Some(call) => {
                let mut headers = HeaderMap::new();
                headers.insert(header::RUNNING, if self.running.is_running(call.as_str()) { "1" } else { "0" });
                self.client.publish_with_headers(reply, headers, answer).await
            }
            None => self.client.publish(reply, answer).await,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a query of the services protocol stays unanswered");
        }
    }
}

/// Whether a query asks for the description of the tool, and not for a call.
fn is_description_query(query: &Message) -> bool {
    let names_call = query.headers.as_ref().is_some_and(|headers| headers.get(header::CALL).is_some());
    query.subject.starts_with("$SRV.INFO.") && !names_call
}

async fn wait_for_stop(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender is dropped, which ends this task too.
    let _gone = stopped.wait_for(|stop| *stop).await.is_err();
}

/// Waits for a permit and runs the handler until it answers, is cancelled, or its deadline passes. An interrupted call
/// may have taken effect, unless the tool is pure.
async fn run_call(
    tool: &Tool,
    call: Call,
    permits: &Semaphore,
    cancelled: oneshot::Receiver<()>,
) -> Result<Reply, ToolError> {
    let watched = call.clone();
    let has_begun = AtomicBool::new(false);
    let interrupted_error = |why: &str| match (has_begun.load(Ordering::Relaxed), tool.takes_effect()) {
        (true, true) => ToolError::unknown(why),
        (true | false, _) => ToolError::new(why),
    };
    let work = async {
        // The semaphore is never closed; without a permit the call would just run.
        let _permit = permits.acquire().await.ok();
        if call.time_left().is_some_and(|left| left.is_zero()) {
            return Err(ToolError::new(
                "the deadline has passed: nobody waits for this call any more, so it was not begun",
            ));
        }
        has_begun.store(true, Ordering::Relaxed);
        let handled = AssertUnwindSafe(async { (tool.handler)(call).await }).catch_unwind().await;
        handled.unwrap_or_else(|_| Err(interrupted_error("the tool failed badly (it panicked)")))
    };
    // A long call sends a receipt, so that the loss of this process is noticed. A receipt is no progress.
    let receipt = async {
        tokio::time::sleep(RECEIPT_AFTER).await;
        watched.report(Bytes::new()).await;
        std::future::pending().await
    };
    tokio::select! {
        result = work => result,
        _ = cancelled => Err(interrupted_error("cancelled")),
        () = watched.wait_until_overdue(OVERDUE_AFTER) => Err(interrupted_error("the deadline has passed")),
        never = receipt => never,
    }
}

async fn respond(client: &Client, to: async_nats::Subject, result: Result<Reply, ToolError>, takes_effect: bool) {
    let sent = match result.map(Reply::into_bytes) {
        Ok(body) if body.len() <= client.max_payload() => client.publish(to, body).await,
        Ok(body) => {
            let why = format!("the tool ran; its result has {} bytes, which is more than NATS carries", body.len());
            // After an error a model calls again, which could repeat the effect.
            let error = if takes_effect { ToolError::unknown(why) } else { ToolError::new(why) };
            send_error(client, to, &error).await
        }
        Err(error) => send_error(client, to, &error).await,
    };
    if let Err(error) = sent {
        tracing::warn!(%error, "a reply was not sent");
    }
}

/// Answers with an error, cut to what NATS carries beside the headers.
async fn send_error(
    client: &Client,
    to: async_nats::Subject,
    error: &ToolError,
) -> Result<(), async_nats::PublishError> {
    let room = client.max_payload().saturating_sub(ERROR_HEADER_BYTES_MAX + HEADERS_BYTES_MAX);
    let text = error.message();
    let body = text[..text.floor_char_boundary(room)].to_owned();
    client.publish_with_headers(to, error_headers(error), body.into()).await
}

fn error_headers(error: &ToolError) -> HeaderMap {
    let line = error.message().lines().next().unwrap_or_default();
    let end = line.floor_char_boundary(ERROR_HEADER_BYTES_MAX);
    // A header must not have control characters, and an empty one would mean that there is no error.
    let text: String = line[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut headers = HeaderMap::new();
    headers.insert(header::ERROR, if text.trim().is_empty() { "error" } else { text.as_str() });
    if error.is_unknown() {
        headers.insert(header::OUTCOME, wire::OUTCOME_UNKNOWN);
    }
    headers
}
