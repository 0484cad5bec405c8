//! What the `main` of every service does, as one checklist.

use std::time::Duration;

use bus::Bus;
use futures::future::BoxFuture;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::de::DeserializeOwned;

use crate::config::Settings;
use crate::health::{self, Readiness};
use crate::shutdown;
use crate::tasks::Tasks;

/// Pause between looks at the bus, for readiness.
const PING_EVERY: Duration = Duration::from_secs(2);

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
    let bus = Bus::connect(&common.nats).await?;
    bus.verify().await?;
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
