//! An orchestrator on the in-memory bus; composer, model and tools are scripted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bus::transport::ReadMany;
use bus::{Bus, Read, RpcServer};
use bus_memory::{Faults, MemoryServer};
use contract::command::Verb;
use contract::commit::{Commit, Phase};
use contract::compose::{ComposeReply, Composed};
use contract::settings::{AgentSettings, ContinuationSettings, ModelSettings, ToolFilter};
use contract::streams::Stream;
use contract::subject::{self, SessionKey};
use contract::{AgentId, CommandId, SessionId, TenantId, Timestamp};
use futures::FutureExt;
use loop_orchestrator::{Clock, Orchestrator, OrchestratorConfig};
use serde_json::{Value, json};

/// Deadline of each wait, in virtual time.
const PATIENCE: Duration = Duration::from_mins(10);

/// Number of commands sent so far by all fixtures; it makes their ids unique.
static COMMANDS: AtomicU64 = AtomicU64::new(0);

pub(crate) struct LoopFixture {
    pub(crate) server: MemoryServer,
    pub(crate) bus: Bus,
    _orchestrator: Orchestrator,
    _composer: RpcServer,
}

#[derive(Debug)]
struct VirtualClock(MemoryServer);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

pub(crate) fn key(session: &str) -> anyhow::Result<SessionKey> {
    Ok(SessionKey { tenant: TenantId::default(), session: SessionId::new(session)? })
}

impl LoopFixture {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        Self::on(MemoryServer::new(), OrchestratorConfig::default()).await
    }

    pub(crate) async fn with(faults: Arc<dyn Faults>) -> anyhow::Result<Self> {
        Self::on(MemoryServer::with_faults(faults), OrchestratorConfig::default()).await
    }

    pub(crate) async fn on(server: MemoryServer, config: OrchestratorConfig) -> anyhow::Result<Self> {
        let bus = server.client("client").0;
        let composer = bus.serve_compose(|_| std::future::ready(composed()).boxed()).await?;
        let orchestrator = orchestrator(&server, "orchestrator", config).await?;
        Ok(Self { server, bus, _orchestrator: orchestrator, _composer: composer })
    }

    pub(crate) async fn begin(&self, key: &SessionKey, interactive: bool) -> anyhow::Result<()> {
        self.command(key, Verb::Start, json!({"agent": "e", "prompt": "Begin.", "interactive": interactive})).await?;
        self.answer(key, "Begun.").await
    }

    /// Runs a turn: a user message, and the reply of the model.
    pub(crate) async fn say(&self, key: &SessionKey, text: &str) -> anyhow::Result<()> {
        self.command(key, Verb::SendUserMessage, json!({"content": text, "mode": "queue"})).await?;
        self.answer(key, &format!("Answer to {text}")).await
    }

    /// Sends a user message, and waits for nothing.
    pub(crate) async fn send_only(&self, key: &SessionKey, text: &str) -> anyhow::Result<()> {
        self.command(key, Verb::SendUserMessage, json!({"content": text, "mode": "queue"})).await
    }

    /// Ends the session, and waits until it has.
    pub(crate) async fn stop(&self, key: &SessionKey) -> anyhow::Result<()> {
        self.command(key, Verb::Stop, json!({})).await?;
        self.until("it ends", async |bus| phase(bus, key).await == Some(Phase::Ended)).await
    }

    /// Waits until only the last page of the session is in the log.
    pub(crate) async fn archived(&self, key: &SessionKey) -> anyhow::Result<()> {
        let alone = async |bus: &Bus| in_log(bus, key).await.is_ok_and(|slots| slots.len() == 1);
        self.until("it leaves the log", alone).await
    }

    pub(crate) async fn commits(&self, key: &SessionKey) -> anyhow::Result<Vec<(u64, Commit)>> {
        Ok(self.bus.history(key, 0).await?)
    }

    async fn command(&self, key: &SessionKey, verb: Verb, mut body: Value) -> anyhow::Result<()> {
        // An exported session remembers the ids of its commands, so ids are unique among all fixtures.
        let id = COMMANDS.fetch_add(1, Ordering::Relaxed);
        body["meta"] = json!({"v": 1, "time": self.server.now(), "by": "client"});
        self.send(key, verb, &format!("u{id}"), &body).await
    }

    async fn answer(&self, key: &SessionKey, text: &str) -> anyhow::Result<()> {
        self.until("it asks the model", async |bus| phase(bus, key).await == Some(Phase::Running)).await?;
        let head = self.bus.head(key, Read::Leader).await?.context("no session")?;
        let (call, attempt) = head.meta.open.first().and_then(|open| open.split_once('.')).context("no call")?;
        let body = json!({
            "meta": {"v": 1, "slot": head.slot, "call": call, "attempt": attempt.parse::<u32>()?},
            "text": text, "reasoning": "", "tool_calls": [], "finish_reason": "stop", "raw_finish_reason": "stop",
            "usage": {"input": 10, "output": 2, "cached": 0, "reasoning": 0}, "cost_usd": 0.0,
            "provider": "played", "model": "m", "latency_ms": 1,
        });
        self.send(key, Verb::ModelFinished, &format!("{call}-{attempt}"), &body).await?;
        // There is no gateway: the test removes the item of the model call.
        self.bus.transport().purge(Stream::Model, &subject::every::model_item()).await?;
        let rests = async |bus: &Bus| matches!(phase(bus, key).await, Some(Phase::Idle | Phase::Ended));
        self.until("the turn ends", rests).await
    }

    async fn send(&self, key: &SessionKey, verb: Verb, id: &str, body: &Value) -> anyhow::Result<()> {
        self.bus.send_control(key, verb, &CommandId::new(id)?, serde_json::to_vec(body)?.into()).await?;
        Ok(())
    }

    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn(&Bus) -> bool) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + PATIENCE + contract::limits::ARCHIVE_AFTER;
        let mut pause = Duration::from_millis(1);
        while !holds(&self.bus).await {
            ensure!(tokio::time::Instant::now() < end, "not in time: {what}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
        Ok(())
    }
}

/// Starts an orchestrator with a client name by which faults select it.
pub(crate) async fn orchestrator(
    server: &MemoryServer,
    name: &str,
    config: OrchestratorConfig,
) -> anyhow::Result<Orchestrator> {
    Orchestrator::with_clock(config, server.client(name).0, Arc::new(VirtualClock(server.clone()))).await
}

async fn phase(bus: &Bus, key: &SessionKey) -> Option<Phase> {
    bus.head(key, Read::Leader).await.ok().flatten().map(|head| head.meta.phase)
}

/// The slots that are in the log itself.
pub(crate) async fn in_log(bus: &Bus, key: &SessionKey) -> anyhow::Result<Vec<u64>> {
    match bus.transport().last_many(Stream::Log, &[subject::log_session(key)]).await? {
        ReadMany::Messages(found) => {
            Ok(found.iter().filter_map(|stored| Some(subject::parse_log(&stored.subject)?.slot)).collect())
        }
        ReadMany::TooMany => anyhow::bail!("too many"),
    }
}

fn composed() -> ComposeReply {
    ComposeReply::Composed(Box::new(Composed {
        prompt: "You live long.".to_owned(),
        fingerprint: "f".to_owned(),
        components: Vec::new(),
        warnings: Vec::new(),
        agent: AgentSettings {
            id: AgentId::new("e").unwrap_or_else(|_| unreachable!("a valid id")),
            name: "E".to_owned(),
            continuation: ContinuationSettings::default(),
            tools: ToolFilter { allow: Vec::new(), deny: Vec::new() },
            approvals: Vec::new(),
        },
        model: ModelSettings::default(),
        ai_config: None,
        streaming: contract::model::StreamingOverride::default(),
        fallbacks: Vec::new(),
    }))
}
