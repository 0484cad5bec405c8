//! One trial: a fleet, sessions of other clients alone, then beside the hostile party, and the memory of the processes.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ailoop_tests::client::TestClient;
use ailoop_tests::model::{ModelServer, RecordedRequest};
use ailoop_tests::process_fleet::{EdgeReplica, ProcessFleet, Replica};
use ailoop_tests::tool_server::{ToolAnswer, ToolServer, ToolServerBuilder};
use ailoop_tool::Effect;
use anyhow::{Context, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use crate::hostile::bystanders;
use crate::hostile::low_priority;
use crate::hostile::models::{EVIL, HostileModel, SECRET, call_once};
use crate::hostile::table::Row;
use crate::hostile::tools::SERVER;
use crate::hostile::trials::Trial;

/// Sessions of other clients that run alone, and the minimum beside the hostile party.
const SESSIONS: usize = 300;
/// Maximum slowdown of other sessions beside a hostile party, at p99.
const SLOWER_MAX: u32 = 2;
/// Budget of resident bytes of each process: the limits of the shipped manifests.
const BUDGETS: [(&str, u64); 6] = [
    ("edge", 512 << 20),
    ("orchestrator", 512 << 20),
    ("gateway", 512 << 20),
    ("executor", 512 << 20),
    ("tool-host", 512 << 20),
    ("composer", 128 << 20),
];
/// File descriptors of the edge: fewer than silent connections.
const DESCRIPTORS: u64 = 1_024;
/// Grace period of a hostile party after its time is over; then it is aborted.
const OVERTIME: Duration = Duration::from_secs(20);

/// The fleet as a hostile party sees it.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) ws: SocketAddr,
    pub(crate) grpc: SocketAddr,
    /// Address of the health port of the edge.
    pub(crate) health: SocketAddr,
    pub(crate) nats: String,
    /// Time after which the hostile party should end.
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) inputs: Arc<AtomicU64>,
    pub(crate) accepted: Arc<AtomicU64>,
    broken_in: Arc<Mutex<Option<String>>>,
}

impl Target {
    /// Adds to the count of hostile inputs.
    pub(crate) fn count(&self, inputs: u64) {
        self.inputs.fetch_add(inputs, Ordering::Relaxed);
    }

    /// Counts hostile inputs that were not refused.
    pub(crate) fn accept(&self, inputs: u64) {
        self.accepted.fetch_add(inputs, Ordering::Relaxed);
    }

    /// Reports data that a hostile party got without permission.
    pub(crate) fn break_in(&self, what: &str) {
        self.broken_in.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| what.to_owned());
    }

    /// Counts 0, 1, 2, … until the hostile party should end.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        let end = Instant::now() + self.length;
        (0..).take_while(move |_| Instant::now() <= end)
    }

    /// Begins a session of the hostile model.
    pub(crate) async fn begin(&self, client: &TestClient, session: &str, interactive: bool) -> anyhow::Result<()> {
        client.begin(session, "hostile", &json!({"model": EVIL, "interactive": interactive})).await?;
        Ok(())
    }

    /// The address of its gRPC port as a URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.grpc)
    }
}

struct HostileFleet {
    process_fleet: ProcessFleet,
    services: Vec<Replica>,
    edge: EdgeReplica,
    _model: ModelServer,
    _hostile: Option<HostileModel>,
    _workshop: ToolServer,
    _dir: TempDir,
}

/// Runs a trial; one that cannot be run counts as failed.
pub(crate) async fn run(trial: &Trial, length: Duration, seed: u64) -> Row {
    let mut row = Row { trial: trial.name.to_owned(), ..Row::default() };
    if let Err(error) = try_run(trial, length, seed, &mut row).await {
        row.wrong = Some(format!("the trial did not run to its end: {error:#}"));
    }
    row
}

async fn try_run(trial: &Trial, length: Duration, seed: u64, row: &mut Row) -> anyhow::Result<()> {
    let mut fleet = HostileFleet::start(trial).await?;
    let (ws, grpc) = fleet.edge.addresses()?;
    let (inputs, accepted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (nats, health) = (fleet.process_fleet.nats.url(), health_of(&fleet.edge.replica)?);
    let target = Target {
        ws,
        grpc,
        health,
        nats,
        length,
        seed,
        inputs: inputs.clone(),
        accepted: accepted.clone(),
        broken_in: Arc::default(),
    };
    let broken_in = target.broken_in.clone();
    let stop = Arc::new(AtomicBool::new(true));
    let alone = bystanders::run(&fleet.edge, SESSIONS, &stop).await?;
    row.p99_alone = alone.p99();

    stop.store(false, Ordering::Relaxed);
    let hostile = async {
        let (attack, max) = (trial.attack, length + OVERTIME);
        // A hostile party that does not end in time is aborted.
        let ended =
            low_priority::run(move || async move { timeout(max, attack(target)).await.unwrap_or(Ok(())) }).await;
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
    if let Err(error) = ended {
        // The fleet may refuse a hostile party at any moment: that is no failure.
        crate::hostile::show(&format!("{}: the hostile party ended early: {error:#}", trial.name));
    }
    let broken_in = broken_in.lock().unwrap_or_else(PoisonError::into_inner).take();
    wrong.extend(broken_in.map(|what| format!("the hostile party got data without permission: {what}")));
    fleet.memory(row, &mut wrong)?;
    if row.p99_beside > row.p99_alone * SLOWER_MAX {
        wrong.push(format!("p99 of other sessions is {:.1?} instead of {:.1?}", row.p99_beside, row.p99_alone));
    }
    row.wrong = (!wrong.is_empty()).then(|| wrong.join("; "));
    Ok(())
}

impl HostileFleet {
    async fn start(trial: &Trial) -> anyhow::Result<Self> {
        let reply = |request: &RecordedRequest| call_once(request, &[("echo", json!({"number": request.number}))]);
        let model = ModelServer::start(reply).await?;
        let hostile = match trial.reply {
            Some(reply) => Some(HostileModel::start(reply).await?),
            None => None,
        };
        let evil = hostile.as_ref().map_or_else(|| model.base_url(), |hostile| hostile.base_url.clone());
        let dir = directory()?;
        let (root, server) = (dir.path().join("root"), dir.path().join("server"));
        let environment = [
            ("AILOOP__HEALTH__LISTEN", "127.0.0.1:0"),
            ("AILOOP__TOOL_HOST__FILES__ROOT", root.to_str().context("a path")?),
            ("AILOOP__TOOL_HOST__FETCH__TIMEOUT", "5"),
            ("AILOOP__TOOL_HOST__FETCH__APPROVAL", "never"),
            ("AILOOP__TOOL_HOST__MCP__EVIL__COMMAND", server.to_str().context("a path")?),
        ];
        let process_fleet = ProcessFleet::with(&[("test", &model.base_url()), (EVIL, &evil)], &environment).await?;
        let same = |call: &ailoop_tests::tool_server::RecordedCall| ToolAnswer::Json(call.arguments.clone());
        let tool_server =
            ToolServerBuilder::at(&process_fleet.nats.url()).await?.tool("echo", Effect::Pure, same).open().await?;
        let mut services = Vec::new();
        for service in ["orchestrator", "gateway", "executor", "tool-host"] {
            services.push(process_fleet.spawn(service).await?);
        }
        process_fleet.wait_for_tools(&["echo", "read_file", "http_fetch", "mcp__evil__flood"]).await?;
        let edge = process_fleet.edge().await?;
        limit_descriptors(edge.replica.id())?;
        Ok(Self { process_fleet, services, edge, _model: model, _hostile: hostile, _workshop: tool_server, _dir: dir })
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
        measure(self.process_fleet.composer()?, row, wrong)
    }
}

/// A readable directory, a secret beside it, links that lead there, and the program of the MCP server.
fn directory() -> anyhow::Result<TempDir> {
    let dir = TempDir::with_prefix("ailoop-hostile-")?;
    let (root, secret, server) = (dir.path().join("root"), dir.path().join("secret.txt"), dir.path().join("server"));
    std::fs::create_dir_all(root.join("a"))?;
    std::fs::write(&secret, SECRET)?;
    symlink(&secret, root.join("link.txt"))?;
    symlink(dir.path(), root.join("linked"))?;
    std::fs::hard_link(&secret, root.join("hard.txt"))?;
    ensure!(Command::new("mkfifo").arg(root.join("pipe")).status()?.success(), "mkfifo failed");
    std::fs::write(&server, SERVER)?;
    std::fs::set_permissions(&server, Permissions::from_mode(0o755))?;
    Ok(dir)
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

/// Limits the file descriptors of a process to the default of most systems.
fn limit_descriptors(process: u32) -> anyhow::Result<()> {
    let limit = format!("--nofile={DESCRIPTORS}");
    let status = Command::new("prlimit").args(["--pid", &process.to_string(), &limit]).status().context("prlimit")?;
    ensure!(status.success(), "prlimit {limit} failed");
    Ok(())
}

/// The health address that a process logged.
fn health_of(replica: &Replica) -> anyhow::Result<SocketAddr> {
    let log = replica.log()?;
    let line = log.lines().find(|line| line.contains("health server listens")).context("where health listens")?;
    let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).context("address")?;
    Ok(address.parse()?)
}
