//! One trial: a fleet, sessions of others alone, the hostile party beside them, and what the processes hold afterwards.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ailoop_tests::crowd::{Crowd, EdgeReplica, Replica};
use ailoop_tests::model::{Asked, ModelServer, Reply};
use ailoop_tests::workshop::{Answer, Plan, Workshop};
use ailoop_tool::Effect;
use anyhow::{Context, ensure};
use serde_json::json;

use crate::bystanders::{self, SESSION_MAX};
use crate::table::Row;
use crate::trials::Trial;

/// Sessions of others that run alone, and at least beside the hostile party.
const SESSIONS: usize = 12;
/// Resident bytes that a process may hold: the limits of the shipped manifests.
const BUDGETS: [(&str, u64); 5] = [
    ("edge", 512 << 20),
    ("orchestrator", 512 << 20),
    ("gateway", 512 << 20),
    ("executor", 512 << 20),
    ("composer", 128 << 20),
];
/// Descriptors of the edge: fewer than there are silent connections.
const DESCRIPTORS: u64 = 1_024;
/// How much longer a hostile party may take than it was told to; then it is left alone.
const OVERTIME: Duration = Duration::from_secs(20);

/// What a hostile party sees of a fleet.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) ws: SocketAddr,
    pub(crate) grpc: SocketAddr,
    /// Of the edge.
    pub(crate) health: SocketAddr,
    pub(crate) nats: String,
    /// When it should end.
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) inputs: Arc<AtomicU64>,
    pub(crate) accepted: Arc<AtomicU64>,
}

impl Target {
    /// Counts hostile inputs.
    pub(crate) fn count(&self, inputs: u64) {
        self.inputs.fetch_add(inputs, Ordering::Relaxed);
    }

    /// Counts hostile inputs that were not refused.
    pub(crate) fn accept(&self, inputs: u64) {
        self.accepted.fetch_add(inputs, Ordering::Relaxed);
    }

    /// The address of its gRPC port as a URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.grpc)
    }
}

struct Fleet {
    crowd: Crowd,
    services: Vec<Replica>,
    edge: EdgeReplica,
    _model: ModelServer,
    _workshop: Workshop,
}

/// Runs a trial; what cannot be run counts as failed.
pub(crate) async fn run(trial: &Trial, length: Duration, seed: u64) -> Row {
    let mut row = Row { trial: trial.name.to_owned(), ..Row::default() };
    if let Err(error) = try_run(trial, length, seed, &mut row).await {
        row.wrong = Some(format!("not run to its end: {error:#}"));
    }
    row
}

async fn try_run(trial: &Trial, length: Duration, seed: u64, row: &mut Row) -> anyhow::Result<()> {
    let mut fleet = Fleet::start(trial).await?;
    let (ws, grpc) = fleet.edge.addresses()?;
    let (inputs, accepted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (nats, health) = (fleet.crowd.nats.url(), health_of(&fleet.edge.replica)?);
    let target = Target { ws, grpc, health, nats, length, seed, inputs: inputs.clone(), accepted: accepted.clone() };
    let stop = Arc::new(AtomicBool::new(true));
    let alone = bystanders::run(&fleet.edge, SESSIONS, &stop).await?;
    row.p99_alone = alone.p99();

    stop.store(false, Ordering::Relaxed);
    let hostile = async {
        let ended = tokio::time::timeout(length + OVERTIME, (trial.attack)(target)).await;
        stop.store(true, Ordering::Relaxed);
        ended
    };
    let (ended, beside) = tokio::join!(hostile, bystanders::run(&fleet.edge, SESSIONS, &stop));
    let beside = beside?;
    (row.ok, row.failed, row.p99_beside) = (beside.took.len(), beside.failed.len(), beside.p99());
    (row.inputs, row.accepted) = (inputs.load(Ordering::Relaxed), accepted.load(Ordering::Relaxed));
    let mut wrong: Vec<String> = Vec::new();
    wrong.extend(alone.failed.first().map(|first| format!("failed without any hostile party: {first}")));
    wrong.extend(beside.failed.first().map(|first| format!("{} others failed: {first}", beside.failed.len())));
    if let Ok(Err(error)) = ended {
        // The fleet may refuse a hostile party at any moment: that is no failure.
        crate::show(&format!("{}: the hostile party ended early: {error:#}", trial.name));
    }
    fleet.memory(row, &mut wrong)?;
    if row.p99_beside > SESSION_MAX / 2 {
        wrong.push(format!("others waited {:?}", row.p99_beside));
    }
    row.wrong = (!wrong.is_empty()).then(|| wrong.join("; "));
    Ok(())
}

impl Fleet {
    async fn start(trial: &Trial) -> anyhow::Result<Self> {
        let hostile_reply = trial.reply;
        let model = ModelServer::start(move |asked| {
            let is_hostile = asked.messages().iter().any(|message| message.to_string().contains("hostile"));
            hostile_reply.filter(|_| is_hostile).map_or_else(|| reply(asked), |reply| reply(asked))
        })
        .await?;
        let health = ("AILOOP__HEALTH__LISTEN", "127.0.0.1:0");
        let crowd = Crowd::with(&[("test", &model.base_url())], &[health]).await?;
        let same = |call: &ailoop_tests::workshop::Witnessed| Answer::Json(call.arguments.clone());
        let workshop = Plan::at(&crowd.nats.url()).await?.tool("echo", Effect::Pure, same).open().await?;
        let mut services = Vec::new();
        for service in ["orchestrator", "gateway", "executor"] {
            services.push(crowd.spawn(service).await?);
        }
        crowd.knows(&["echo"]).await?;
        let edge = crowd.edge().await?;
        limit_descriptors(edge.replica.id())?;
        Ok(Self { crowd, services, edge, _model: model, _workshop: workshop })
    }

    /// Reads what each process holds.
    fn memory(&mut self, row: &mut Row, wrong: &mut Vec<String>) -> anyhow::Result<()> {
        let processes = self.services.iter_mut().chain([&mut self.edge.replica]);
        for replica in processes {
            if !replica.is_running() {
                wrong.push(format!("the {} ended", replica.service()));
                continue;
            }
            measure(replica, row, wrong)?;
        }
        measure(self.crowd.composer()?, row, wrong)
    }
}

fn measure(replica: &Replica, row: &mut Row, wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let service = replica.service();
    let budget = BUDGETS.iter().find(|(name, _)| *name == service).context("a budget")?.1;
    let held = resident_bytes(replica.id()).with_context(|| service.to_owned())?;
    if held > budget {
        wrong.push(format!("the {service} holds {} MiB", held >> 20));
    }
    row.memory.push((service.to_owned(), held, budget));
    Ok(())
}

/// The resident bytes of a process.
fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes << 10)
}

/// Gives a process as many descriptors as systems give by default.
fn limit_descriptors(process: u32) -> anyhow::Result<()> {
    let limit = format!("--nofile={DESCRIPTORS}");
    let status = Command::new("prlimit").args(["--pid", &process.to_string(), &limit]).status().context("prlimit")?;
    ensure!(status.success(), "prlimit {limit} failed");
    Ok(())
}

/// Where a process answers questions about its health, as it logged it.
fn health_of(replica: &Replica) -> anyhow::Result<SocketAddr> {
    let log = replica.log()?;
    let line = log.lines().find(|line| line.contains("health server listens")).context("where health listens")?;
    let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).context("address")?;
    Ok(address.parse()?)
}

/// The replies to sessions of others: one call, then an answer.
fn reply(asked: &Asked) -> Reply {
    if asked.messages().iter().any(|message| message["role"] == "tool") {
        return Reply::text("That is all.");
    }
    Reply::text("I look. ").and_calls(&[("echo", json!({"number": asked.number}))])
}
