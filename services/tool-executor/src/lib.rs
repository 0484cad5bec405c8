//! Runs tool calls, and keeps the catalogue of tools.

mod builtin;
mod call;
mod catalogue;
mod connect;
mod fit;
pub mod mail;
mod schema;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, NatsConfig, Worker};
use contract::streams::Queue;
use schemars::JsonSchema;
use serde::Deserialize;
use service::Secret;
use service::health::Readiness;
use service::tasks::Tasks;

pub use builtin::{BuiltinConfig, BuiltinError, BuiltinTools};
use call::{Calls, Cancels};
use mail::{MailConfig, MailTools, PostOffice};
use schema::Schemas;
pub use service::clock::{Clock, SystemClock};
use trouble::Trouble;

/// The `executor` section of the configuration.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "executor")]
pub struct Config {
    /// Tool calls that run in this process at the same time.
    pub concurrency: usize,
    /// The built-in file tools; not served when absent.
    pub builtin: Option<BuiltinConfig>,
    /// The NATS user of the built-in tools, where tools and executors are different users.
    pub builtin_user: Option<String>,
    /// Its password.
    pub builtin_password: Option<Secret>,
    /// The mail tools; not served when absent.
    pub mail: Option<MailConfig>,
    /// How the built-in tools reach NATS: the process's `nats` section, since tools have a connection of their own.
    #[serde(skip)]
    pub nats: NatsConfig,
}

impl Default for Config {
    fn default() -> Self {
        let nats = NatsConfig::default();
        Self { concurrency: 64, builtin: None, builtin_user: None, builtin_password: None, mail: None, nats }
    }
}

impl Config {
    fn builtin_nats(&self) -> NatsConfig {
        connect::as_user(&self.nats, self.builtin_user.as_ref(), self.builtin_password.as_ref())
    }
}

/// A running executor.
#[derive(Debug)]
pub struct Executor {
    worker: Worker,
    tasks: Tasks,
    /// Boxed, as the next one: an executor may serve tools itself, and need not.
    builtin: Option<Box<BuiltinTools>>,
    mail: Option<Box<MailTools>>,
    readiness: Readiness,
}

impl Executor {
    /// Starts taking calls and keeping the catalogue. It fails only where built-in tools are wanted and cannot be.
    pub async fn start(config: Config, bus: Bus) -> Result<Self, BuiltinError> {
        Self::with_clock(config, bus, Arc::new(SystemClock)).await
    }

    /// As [`Executor::start`], with a clock of the caller's.
    pub async fn with_clock(config: Config, bus: Bus, clock: Arc<dyn Clock>) -> Result<Self, BuiltinError> {
        let builtin = match &config.builtin {
            Some(wanted) => Some(Box::new(BuiltinTools::start(wanted, &config.builtin_nats()).await?)),
            None => None,
        };
        let mail = match &config.mail {
            Some(wanted) => {
                let office = PostOffice::new(bus.clone(), wanted.tenant.clone(), clock.clone());
                Some(Box::new(MailTools::start(wanted, &config.nats, office).await?))
            }
            None => None,
        };
        let (tasks, readiness) = (Tasks::new(), Readiness::new("executor"));
        let (cancels, schemas, trouble) = (Cancels::default(), Schemas::default(), Trouble::default());
        let own = config.builtin.iter().flat_map(BuiltinTools::names);
        let own = own.chain(config.mail.iter().flat_map(MailTools::names)).collect();
        let (known, ending, ready) = (schemas.clone(), tasks.token(), readiness.clone());
        tasks.spawn("catalogue", catalogue::run(bus.clone(), known, trouble.clone(), own, ending, ready));
        tasks.spawn("cancels", cancels.clone().listen(bus.clone(), tasks.token()));
        let calls = Calls::new(bus.clone(), clock, cancels, schemas, trouble);
        let worker = Worker::start(bus, Queue::Tool, config.concurrency, Arc::new(calls));
        Ok(Self { worker, tasks, builtin, mail, readiness })
    }

    /// Ready when the catalogue has been written once.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Takes no more calls, lets those that run end for up to `timeout`, and hands the others back.
    pub async fn drain(self, timeout: Duration) {
        self.readiness.set(false);
        self.worker.drain(timeout).await;
        let builtin = async {
            if let Some(builtin) = self.builtin {
                builtin.stop(timeout).await;
            }
        };
        let mail = async {
            if let Some(mail) = self.mail {
                mail.stop(timeout).await;
            }
        };
        tokio::join!(builtin, mail);
        self.tasks.end(timeout).await;
    }
}
