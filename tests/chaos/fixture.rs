//! A fleet of processes, two of each service, each behind its own proxy; and the injection of faults.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ailoop_tests::model::ModelServer;
use ailoop_tests::nats::{NatsCluster, NatsServer};
use ailoop_tests::process_fleet::{EdgeReplica, Launcher, Replica};
use ailoop_tests::wait::{PATIENCE, eventually};
use anyhow::{Context, bail};
use bus::{Bus, NatsConfig};
use contract::streams::Stream;
use tokio::time::sleep;

use crate::chaos::proxy::{Mode, ObservedTraffic, Proxy};
use crate::chaos::results_file::Trial;
use crate::chaos::step::{Fault, Target};

/// Services; two replicas of each run.
pub(crate) const SERVICES: [&str; 5] = ["composer", "gateway", "executor", "orchestrator", "edge"];
/// Log filter of the processes, detailed enough to find out why a session makes no progress.
const FILTER: &str = "info,bus=debug,loop_orchestrator=debug,model_gateway=debug,tool_executor=debug";
/// Time from the kill of a process to its restart.
const AWAY: Duration = Duration::from_millis(300);
/// For how long a service is frozen: longer than the ack wait of 5 s.
const FROZEN: Duration = Duration::from_secs(7);
/// For how long a nats-server is frozen: services must not notice it, or reconnect.
const SERVER_FROZEN: Duration = Duration::from_secs(3);
/// For how long connections are refused.
const CUT: Duration = Duration::from_secs(1);
/// For how long connections carry nothing: a client gives up after two pings of 5 s.
const SILENT: Duration = Duration::from_secs(12);
/// For how long messages are delayed.
const SLOW: Duration = Duration::from_secs(4);
/// Delay of each message.
const LATE: Duration = Duration::from_millis(30);
/// Time from the kill of one of three servers to its restart: another one leads by then.
const SERVER_AWAY: Duration = Duration::from_secs(2);

/// One nats-server, or a cluster of three.
pub(crate) enum Servers {
    One(Box<NatsServer>),
    Three(NatsCluster),
}

impl Servers {
    pub(crate) async fn start(nodes: usize) -> anyhow::Result<(Self, Bus)> {
        Ok(if nodes == 1 {
            let server = NatsServer::start().await?;
            let bus = server.ready().await?;
            (Self::One(Box::new(server)), bus)
        } else {
            let cluster = NatsCluster::start3().await?;
            let bus = cluster.ready().await?;
            (Self::Three(cluster), bus)
        })
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        match self {
            Self::One(server) => vec![server.url()],
            Self::Three(cluster) => cluster.nodes.iter().map(NatsServer::url).collect(),
        }
    }

    /// Index of the server that leads a stream.
    async fn leader(&self, stream: Stream) -> usize {
        match self {
            Self::One(_) => 0,
            // While no leader is elected, any server will do.
            Self::Three(cluster) => cluster.leader(stream).await.ok().flatten().unwrap_or(0),
        }
    }

    /// The only server; fails for a cluster.
    pub(crate) fn one(&self) -> anyhow::Result<&NatsServer> {
        match self {
            Self::One(server) => Ok(server),
            Self::Three(_) => anyhow::bail!("there are three servers"),
        }
    }

    fn node(&mut self, n: usize) -> &mut NatsServer {
        match self {
            Self::One(server) => server,
            Self::Three(cluster) => &mut cluster.nodes[n],
        }
    }

    fn away(&self) -> Duration {
        match self {
            Self::One(_) => AWAY,
            Self::Three(_) => SERVER_AWAY,
        }
    }
}

/// A process and its proxy.
struct ProxiedReplica {
    service: &'static str,
    number: usize,
    proxy: Proxy,
    replica: Replica,
}

/// The current URLs of the edges.
#[derive(Clone, Default)]
pub(crate) struct EdgeUrls(Arc<Mutex<[String; 2]>>);

impl EdgeUrls {
    fn set(&self, number: usize, url: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[number] = url;
    }

    pub(crate) fn get(&self, n: usize) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[n % 2].clone()
    }
}

/// Sessions whose start was sent, with the time at which it was accepted.
#[derive(Clone, Default)]
pub(crate) struct StartedSessions(Arc<Mutex<BTreeMap<String, Option<SystemTime>>>>);

impl StartedSessions {
    /// Records that the start of a session is being sent.
    pub(crate) fn sent(&self, session: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(session.to_owned(), None);
    }

    /// Records that the start of a session was accepted.
    pub(crate) fn accepted(&self, session: &str) {
        let mut starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        starts.insert(session.to_owned(), Some(SystemTime::now()));
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Option<SystemTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The servers, the proxied replicas, and the current URLs of the edges.
pub(crate) struct Fixture {
    pub(crate) servers: Servers,
    pub(crate) bus: Bus,
    pub(crate) edges: EdgeUrls,
    pub(crate) starts: StartedSessions,
    pub(crate) traffic: Arc<ObservedTraffic>,
    pub(crate) launcher: Launcher,
    members: Vec<ProxiedReplica>,
}

impl Fixture {
    pub(crate) async fn start(nodes: usize, model: &ModelServer) -> anyhow::Result<Self> {
        let (servers, bus) = Servers::start(nodes).await?;
        let settings = [
            ("AILOOP__TELEMETRY__FILTER", FILTER),
            // The sessions are short; as it is, their transcripts would have no parts.
            ("AILOOP__ORCHESTRATOR__TRANSCRIPT_PART_BYTES", "64"),
        ];
        let launcher = Launcher::new(&[("test", &model.base_url())], &settings)?;
        let (edges, traffic) = (EdgeUrls::default(), Arc::default());
        let mut fixture =
            Self { servers, bus, edges, starts: StartedSessions::default(), traffic, launcher, members: Vec::new() };
        for service in SERVICES {
            for number in 0..2 {
                let proxy = Proxy::start(service, number, &fixture.servers.urls(), &fixture.traffic).await?;
                let replica = fixture.spawn(service, number, &proxy).await?;
                fixture.members.push(ProxiedReplica { service, number, proxy, replica });
            }
        }
        Ok(fixture)
    }

    /// Number of servers, which is also the replica count of streams.
    pub(crate) fn nodes(&self) -> usize {
        self.servers.urls().len()
    }

    async fn spawn(&self, service: &'static str, number: usize, proxy: &Proxy) -> anyhow::Result<Replica> {
        let nats = NatsConfig { url: proxy.url(), replicas: self.nodes(), ..NatsConfig::default() };
        let replica = self.launcher.spawn(service, &nats).await?;
        if service != "edge" {
            return Ok(replica);
        }
        let edge = EdgeReplica::of(replica)?;
        self.edges.set(number, edge.url());
        Ok(edge.replica)
    }

    fn place(&self, service: &str, number: usize) -> anyhow::Result<usize> {
        let found = self.members.iter().position(|member| member.service == service && member.number == number);
        found.with_context(|| format!("there is no {service} {number}"))
    }

    /// The proxy of a replica.
    pub(crate) fn proxy(&self, service: &str, number: usize) -> anyhow::Result<&Proxy> {
        Ok(&self.members[self.place(service, number)?].proxy)
    }

    /// Injects a fault and repairs it. Replica `number`, which took the step of `session`, is silent since then.
    pub(crate) async fn inject(&mut self, trial: Trial, session: &str, number: usize) -> anyhow::Result<()> {
        let place = self.place(trial.step.service, number)?;
        match trial.target {
            Target::Service => self.inject_into_service(trial.fault, place).await,
            Target::Holders => {
                let holds = |n: &usize| *n == place || self.members[*n].proxy.holds_item_of(session);
                self.kill(&(0..self.members.len()).filter(holds).collect::<Vec<_>>()).await
            }
            Target::Server => self.inject_into_server(trial.fault, place).await,
        }
    }

    /// Kills the only server, replaces its store by a copy, and starts it again. The replica that took the step is
    /// silent since then.
    pub(crate) async fn put_store_back(&mut self, copy: &Path, service: &str, number: usize) -> anyhow::Result<()> {
        let place = self.place(service, number)?;
        self.servers.node(0).kill();
        self.members[place].proxy.set(Mode::Open);
        self.servers.one()?.put_store_back(copy, None)?;
        sleep(AWAY).await;
        self.servers.node(0).resume().await?;
        eventually("the nats-server answers", async || self.bus.ping().await.is_ok()).await
    }

    /// Kills the server that leads a stream, and starts it again when another one leads.
    pub(crate) async fn kill_leader(&mut self, stream: Stream) -> anyhow::Result<()> {
        let leader = self.servers.leader(stream).await;
        self.servers.node(leader).kill();
        sleep(self.servers.away()).await;
        self.servers.node(leader).resume().await
    }

    /// Kills replicas at once, and replaces them.
    async fn kill(&mut self, places: &[usize]) -> anyhow::Result<()> {
        for place in places {
            let member = &mut self.members[*place];
            member.replica.kill()?;
            member.proxy.set(Mode::Closed);
        }
        sleep(AWAY).await;
        for place in places {
            self.replace(*place).await?;
        }
        Ok(())
    }

    /// Starts a new process in the place of one that ended.
    async fn replace(&mut self, place: usize) -> anyhow::Result<()> {
        let ProxiedReplica { service, number, ref proxy, .. } = self.members[place];
        proxy.set(Mode::Open);
        let replica = self.spawn(service, number, proxy).await?;
        self.members[place].replica = replica;
        Ok(())
    }

    async fn inject_into_service(&mut self, fault: Fault, place: usize) -> anyhow::Result<()> {
        let member = &mut self.members[place];
        match fault {
            Fault::Kill => return self.kill(&[place]).await,
            Fault::Restart => {
                member.proxy.set(Mode::Open);
                member.replica.terminate(PATIENCE).await?;
                return self.replace(place).await;
            }
            Fault::Freeze => {
                member.replica.freeze()?;
                sleep(FROZEN).await;
                member.replica.thaw()?;
            }
            Fault::Cut => {
                member.proxy.set(Mode::Closed);
                sleep(CUT).await;
            }
            Fault::Silence => sleep(SILENT).await,
            Fault::Slow => {
                member.proxy.set(Mode::Slow(LATE));
                sleep(SLOW).await;
            }
            Fault::OlderStore => bail!("a service has no store"),
        }
        self.members[place].proxy.set(Mode::Open);
        Ok(())
    }

    async fn inject_into_server(&mut self, fault: Fault, place: usize) -> anyhow::Result<()> {
        let leader = self.servers.leader(Stream::Log).await;
        let away = self.servers.away();
        match fault {
            Fault::Kill | Fault::Restart => {
                if fault == Fault::Kill {
                    self.servers.node(leader).kill();
                    self.members[place].proxy.set(Mode::Open);
                } else {
                    self.members[place].proxy.set(Mode::Open);
                    self.servers.node(leader).terminate().await?;
                }
                sleep(away).await;
                self.servers.node(leader).resume().await?;
            }
            Fault::Freeze => {
                self.servers.node(leader).freeze()?;
                self.members[place].proxy.set(Mode::Open);
                sleep(SERVER_FROZEN).await;
                self.servers.node(leader).thaw()?;
            }
            Fault::OlderStore => bail!("use `put_store_back` for an older store"),
            Fault::Cut | Fault::Silence | Fault::Slow => {
                for member in &self.members {
                    member.proxy.set_link(leader, Mode::Closed);
                }
                self.members[place].proxy.set(Mode::Open);
                self.members[place].proxy.set_link(leader, Mode::Closed);
                sleep(CUT).await;
                for member in &self.members {
                    member.proxy.set_link(leader, Mode::Open);
                }
            }
        }
        Ok(())
    }
}
