//! Steps of the `main` of every service, as one checklist.

use std::time::Duration;

use bus::{Bus, BusError, NatsConfig};
use contract::backoff::Backoff;
use futures::future::BoxFuture;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::common::CommonSettings;
use crate::health::{self, Readiness};
use crate::shutdown::{self, Shutdown};
use crate::status;
use crate::tasks::Tasks;
use configuration::Settings;
use contract::streams::Queue;

/// Pause between looks at the bus, for readiness.
const PING_EVERY: Duration = Duration::from_secs(2);

/// Pauses between two tries to reach NATS at the start.
const CONNECT: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(4));

/// Timeout of a look at the bus while the process ends.
const WATCH_END_MAX: Duration = Duration::from_secs(1);

/// A started service: when it can work, and how it ends.
pub struct Running {
    readiness: Readiness,
    drain: Box<dyn FnOnce(Duration) -> BoxFuture<'static, ()> + Send>,
}

impl Running {
    /// `drain` stops taking work and finishes or hands back what is held, within the time that it is given.
    pub fn new<F>(readiness: Readiness, drain: impl FnOnce(Duration) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { readiness, drain: Box::new(|timeout| Box::pin(drain(timeout))) }
    }
}

/// Runs a service until SIGTERM or SIGINT. `section` names its part of `ailoop.yaml`; `start` gets it.
pub async fn run<C, S>(service: &str, section: &str, start: S) -> anyhow::Result<()>
where
    C: DeserializeOwned + Default,
    S: AsyncFnOnce(C, Bus) -> anyhow::Result<Running>,
{
    // Boxed, since the caller's future would hold what the start of a service takes.
    Box::pin(run_without_bus(service, section, async |own, nats: NatsConfig| {
        let bus = connect(&nats).await?;
        let running = start(own, bus.clone()).await?;
        let reachable = Readiness::new("nats");
        let watch = ReadinessWatch::of_bus(bus.clone(), reachable.clone());
        let (drain, readiness) = (running.drain, Readiness::all([reachable, running.readiness]));
        let describing = Tasks::new();
        status::serve(bus.clone(), service, readiness.clone(), &describing);
        let drain = |timeout| async move {
            drain(timeout).await;
            describing.end(WATCH_END_MAX).await;
            watch.end().await;
            bus.close().await;
        };
        Ok(Running::new(readiness, drain))
    }))
    .await
}

/// As [`run`], for a process that makes its own connections: `start` gets how NATS is reached.
pub async fn run_without_bus<C, S>(service: &str, section: &str, start: S) -> anyhow::Result<()>
where
    C: DeserializeOwned + Default,
    S: AsyncFnOnce(C, NatsConfig) -> anyhow::Result<Running>,
{
    let settings = Settings::read(None)?; // configuration fails before any IO
    let (mut common, own) = (CommonSettings::read(&settings)?, settings.section(section)?);
    let telemetry = telemetry::init(service, &common.telemetry)?;
    start_metrics();
    let telemetry::build::BuildInfo { version, commit } = telemetry::build::current();
    tracing::info!(service, version, commit, "starting");
    if let Some(untrusted) = &settings.paths().untrusted {
        tracing::warn!("{untrusted}");
    }
    let shutdown = shutdown::on_signal();
    raise_open_files();
    service.clone_into(&mut common.nats.name);
    let Some(running) = until_shutdown(&shutdown, Box::pin(start(own, common.nats))).await else { return Ok(()) };
    let Running { readiness, drain } = running?;
    let health = health::serve(common.health, readiness.clone()).await?;
    tracing::info!(service, "started");

    shutdown.wait().await;
    readiness.set(false);
    drain(common.drain_timeout).await;
    health.end().await;
    tracing::info!(service, "ended");
    telemetry.shutdown().await;
    Ok(())
}

/// Makes the metrics of a process that exist before anything happens.
pub fn start_metrics() {
    let queues: Vec<&str> = Queue::ALL.iter().map(|queue| queue.durable()).collect();
    telemetry::metric::start(telemetry::build::current(), &queues);
}

/// Starts, unless the process is told to end meanwhile.
async fn until_shutdown<T>(shutdown: &Shutdown, start: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        started = start => Some(started),
        () = shutdown.wait() => None,
    }
}

/// Connects and verifies the streams.
async fn connect(nats: &NatsConfig) -> Result<Bus, BusError> {
    let connect = async || {
        let bus = Bus::connect(nats).await?;
        bus.verify().await.map(|()| bus)
    };
    retry_while_away(nats, BusError::is_away, connect).await
}

/// Connects to NATS. A server that is away is waited for, since services start in any order and a server that restarts
/// is back soon: for as long as the configuration says.
pub async fn retry_while_away<T, E: std::fmt::Display>(
    nats: &NatsConfig,
    is_away: impl Fn(&E) -> bool,
    connect: impl AsyncFn() -> Result<T, E>,
) -> Result<T, E> {
    let (began, wait_max) = (Instant::now(), Duration::from_secs(nats.start_wait_seconds.into()));
    let mut tries = 0;
    loop {
        let error = match connect().await {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        let waited = began.elapsed();
        if !is_away(&error) || waited >= wait_max {
            return Err(error);
        }
        let (waited_s, wait_max_s) = (waited.as_secs(), wait_max.as_secs());
        tracing::warn!(%error, connection = nats.name, waited_s, wait_max_s, "NATS cannot be used yet; it is tried again");
        tokio::time::sleep(CONNECT.pause(tries).min(wait_max.saturating_sub(waited))).await;
        tries += 1;
    }
}

/// Raises the soft limit of open files to the hard one: connections and files of a busy process are more than the 1,024
/// that many systems begin with. Where that is not possible the process goes on with what it has.
pub fn raise_open_files() {
    let limits = getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum }) {
        Ok(()) => tracing::debug!(limit = ?limits.maximum, "limit of open files raised"),
        Err(error) => tracing::warn!(limit = ?limits.current, %error, "limit of open files cannot be raised"),
    }
}

/// A task that looks again and again whether something can be reached, and keeps a readiness by it.
#[derive(Debug)]
pub struct ReadinessWatch {
    tasks: Tasks,
}

impl ReadinessWatch {
    /// Begins to look. `name` is that of what is reached, for the log.
    pub fn start<F>(name: &'static str, readiness: Readiness, is_reachable: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = bool> + Send,
    {
        let tasks = Tasks::new();
        tasks.spawn_until_end("readiness", async move {
            loop {
                let reachable = is_reachable().await;
                if readiness.is_ready() != reachable {
                    tracing::info!(reachable, "{name}");
                }
                readiness.set(reachable);
                tokio::time::sleep(PING_EVERY).await;
            }
        });
        Self { tasks }
    }

    /// Keeps `reachable` true while the bus answers.
    pub fn of_bus(bus: Bus, reachable: Readiness) -> Self {
        Self::start("nats", reachable, move || {
            let bus = bus.clone();
            async move {
                let is_connected = bus.ping().await.is_ok();
                telemetry::metric::nats_connected(is_connected);
                is_connected
            }
        })
    }

    /// Ends the task of the watch.
    pub async fn end(self) {
        self.tasks.end(WATCH_END_MAX).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Coded as _, ErrorCode};

    /// A configuration for a server that is not there.
    async fn nobody(start_wait_seconds: u32) -> NatsConfig {
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        NatsConfig { url: format!("nats://{free}"), start_wait_seconds, ..NatsConfig::default() }
    }

    #[tokio::test]
    async fn server_is_away_at_the_start_it_is_waited_for_as_long_as_configured() {
        let began = Instant::now();
        let error = connect(&nobody(1).await).await.unwrap_err();
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(error.code(), ErrorCode::NatsUnreachable);
    }

    #[tokio::test]
    async fn process_is_told_to_end_while_it_waits_it_ends_without_an_error() {
        let (nats, shutdown) = (nobody(600).await, Shutdown::default());
        let waiting = until_shutdown(&shutdown, connect(&nats));
        let (ended, ()) = futures::join!(waiting, async { shutdown.trigger() });
        assert!(ended.is_none());
    }

    #[tokio::test]
    async fn configuration_cannot_be_used_nothing_is_waited_for() {
        let nats = NatsConfig { url: "nats://[".to_owned(), start_wait_seconds: u32::MAX, ..NatsConfig::default() };
        // If it were waited for, this would never end.
        assert!(connect(&nats).await.is_err());
    }
}
