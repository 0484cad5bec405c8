//! What the `main` of every service does, as one checklist.

use std::time::Duration;

use bus::{Bus, NatsConfig};
use contract::backoff::Backoff;
use futures::future::BoxFuture;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::config::Settings;
use crate::health::{self, Readiness};
use crate::shutdown::{self, Shutdown};
use crate::tasks::Tasks;

/// Pause between looks at the bus, for readiness.
const PING_EVERY: Duration = Duration::from_secs(2);

/// Pauses between two tries to reach NATS at the start.
const CONNECT: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(4));

/// How long a look at the bus may still take at the end.
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
    let settings = Settings::read(None)?; // configuration fails before any IO
    let (mut common, own) = (settings.common()?, settings.section(section)?);
    let telemetry = telemetry::init(service, &common.telemetry)?;
    let shutdown = shutdown::on_signal();
    raise_open_files();
    service.clone_into(&mut common.nats.name);
    let Some(bus) = connect(&common.nats, &shutdown).await? else { return Ok(()) };
    let running = start(own, bus.clone()).await?;
    let (tasks, reachable) = (Tasks::new(), Readiness::new("nats"));
    let (ending, watched) = (tasks.token(), watch(bus.clone(), reachable.clone()));
    tasks.spawn("bus readiness", async move {
        ending.run_until_cancelled_owned(watched).await;
    });
    let health = health::serve(common.health, Readiness::all([reachable, running.readiness.clone()])).await?;
    tracing::info!(service, "started");

    shutdown.wait().await;
    running.readiness.set(false);
    (running.drain)(common.drain_timeout).await;
    tasks.end(WATCH_END_MAX).await;
    bus.close().await;
    health.end().await;
    tracing::info!(service, "ended");
    telemetry.shutdown().await;
    Ok(())
}

/// Connects and verifies the streams. A server that is away is waited for, since services start in any order and a server
/// that restarts is back soon: for as long as the configuration says. `None` when the process is told to end meanwhile.
async fn connect(nats: &NatsConfig, shutdown: &Shutdown) -> anyhow::Result<Option<Bus>> {
    let (began, wait_max) = (Instant::now(), Duration::from_secs(nats.start_wait_seconds.into()));
    let mut tries = 0;
    loop {
        let connected = async {
            let bus = Bus::connect(nats).await?;
            bus.verify().await.map(|()| bus)
        };
        let error = tokio::select! {
            connected = connected => match connected {
                Ok(bus) => return Ok(Some(bus)),
                Err(error) => error,
            },
            () = shutdown.wait() => return Ok(None),
        };
        let waited = began.elapsed();
        if !error.is_away() || waited >= wait_max {
            return Err(error.into());
        }
        let (waited_s, wait_max_s) = (waited.as_secs(), wait_max.as_secs());
        tracing::warn!(code = %error.code(), %error, waited_s, wait_max_s, "NATS cannot be used yet; it is tried again");
        tokio::select! {
            () = tokio::time::sleep(CONNECT.pause(tries).min(wait_max.saturating_sub(waited))) => {}
            () = shutdown.wait() => return Ok(None),
        }
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

/// Keeps `reachable` true while the bus answers.
pub async fn watch(bus: Bus, reachable: Readiness) {
    loop {
        let answer = bus.ping().await;
        if reachable.is_ready() != answer.is_ok() {
            tracing::info!(reachable = answer.is_ok(), "nats");
        }
        reachable.set(answer.is_ok());
        tokio::time::sleep(PING_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::ErrorCode;

    /// A configuration for a server that is not there.
    async fn nobody(start_wait_seconds: u32) -> NatsConfig {
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        NatsConfig { url: format!("nats://{free}"), start_wait_seconds, ..NatsConfig::default() }
    }

    #[tokio::test]
    async fn server_is_away_at_the_start_it_is_waited_for_as_long_as_configured() {
        let (began, shutdown) = (Instant::now(), Shutdown::default());
        let error = connect(&nobody(1).await, &shutdown).await.unwrap_err();
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
        let code = error.downcast_ref::<bus::BusError>().map(bus::BusError::code);
        assert_eq!(code, Some(ErrorCode::NatsUnreachable));
    }

    #[tokio::test]
    async fn process_is_told_to_end_while_it_waits_it_ends_without_an_error() {
        let shutdown = Shutdown::default();
        let nats = nobody(600).await;
        let waiting = connect(&nats, &shutdown);
        let (ended, ()) = futures::join!(waiting, async { shutdown.trigger() });
        assert!(ended.unwrap().is_none());
    }

    #[tokio::test]
    async fn configuration_cannot_be_used_nothing_is_waited_for() {
        let nats = NatsConfig { url: "nats://[".to_owned(), ..NatsConfig::default() };
        let began = Instant::now();
        assert!(connect(&nats, &Shutdown::default()).await.is_err());
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
