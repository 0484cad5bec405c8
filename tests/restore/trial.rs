//! One trial: a fleet under load, a copy of its store, commits after it, and the copy put back.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ailoop_tests::commands::{CommandOutcome, Sessions};
use ailoop_tests::effects::EffectRecorder;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::{EdgeReplica, ProcessFleet, Replica};
use ailoop_tests::restored::{self, Restore};
use ailoop_tests::tool_server::EFFECTS;
use ailoop_tests::wait::eventually;
use ailoop_tool::Effect;
use futures::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Log filter of the processes, detailed enough to find out why a session makes no progress.
const FILTER: &str = "info,bus=debug,loop_orchestrator=debug,model_gateway=debug,tool_executor=debug";
/// Duration of each half of a reply that is being sent at the copy or at the restore.
const SLOW: Duration = Duration::from_secs(3);
/// Milliseconds until a call is answered that runs during the copy or the restore.
const HELD_MS: u64 = 10_000;
/// Timeout in seconds of a turn whose model never answers.
const TURN_SECONDS: u64 = 20;

/// State of the server while the copy is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// While the server is stopped by SIGTERM.
    Stopped,
    /// File by file while the server runs.
    Running,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped",
            Self::Running => "running",
        })
    }
}

/// A variant of the restore.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    /// The stream that is restored; `None` restores everything.
    pub(crate) stream: Option<&'static str>,
    pub(crate) snapshot: Snapshot,
}

impl Variant {
    /// Whether commits of the log are lost.
    pub(crate) fn loses_log(self) -> bool {
        self.stream.is_none_or(|stream| stream == "AI_LOOP_LOG")
    }

    /// Whether a call may be dispatched again that was dispatched after the copy.
    pub(crate) fn loses_claims(self) -> bool {
        self.loses_log() || self.stream == Some("KV_ai_loop_claims")
    }
}

/// The result of a trial.
pub(crate) struct Trial {
    /// Violated rules; none must be there.
    pub(crate) findings: Vec<String>,
    /// Unusual facts that the restore explains.
    pub(crate) notes: Vec<String>,
    fleet: Fleet,
}

struct Fleet {
    processes: ProcessFleet,
    _services: Vec<Replica>,
    executor: Replica,
    edge: EdgeReplica,
    effects: EffectRecorder,
    _scratch: TempDir,
}

impl Trial {
    pub(crate) async fn run(variant: Variant) -> anyhow::Result<Self> {
        let model = Arc::new(ModelServer::start(reply).await?);
        let mut fleet = Fleet::start(&model).await?;
        let sessions = Sessions::new(fleet.edge.url(), fleet.processes.bus.clone());
        let mut sent_before: Vec<CommandOutcome> = Vec::new();

        // At the copy some sessions are idle and some are in a turn.
        sent_before.extend(join_all(["idle1", "idle2"].map(|session| sessions.start(session, "work"))).await);
        for session in ["idle1", "idle2"] {
            sessions.wait_for_rest(session).await?;
        }
        sent_before.extend(join_all(["busy1", "busy2"].map(|session| sessions.start(session, "slow"))).await);
        sent_before.push(
            sessions
                .start_with("hangs", "hang", &json!({"continuation": {"timeout": TURN_SECONDS, "on_limit": "end"}}))
                .await,
        );
        sent_before.push(sessions.start("held1", "hold").await);
        fleet.has_begun("held1").await?;

        let copy = TempDir::with_prefix("ailoop-copy-")?;
        if variant.snapshot == Snapshot::Stopped {
            fleet.processes.nats.terminate().await?;
        }
        fleet.processes.nats.copy_store(copy.path())?;
        let copied = SystemTime::now();
        if variant.snapshot == Snapshot::Stopped {
            fleet.processes.nats.resume().await?;
        }

        // These commits will be lost.
        sent_before.extend(join_all(["late1", "late2"].map(|session| sessions.start(session, "work"))).await);
        for session in ["busy1", "busy2", "late1", "late2"] {
            sessions.wait_for_rest(session).await?;
        }
        // Many messages after the copy: an older stream assigns the same sequences again.
        sent_before.extend(join_all(["idle1", "idle2"].map(|session| sessions.send(session, "between", "work"))).await);
        for session in ["idle1", "idle2"] {
            sessions.wait_for_rest(session).await?;
        }
        sent_before.push(sessions.start("held2", "hold").await);
        fleet.has_begun("held2").await?;
        sent_before.extend(join_all(["open1", "open2"].map(|session| sessions.start(session, "slow"))).await);

        // The executor is killed too, so that another one gets the calls that it held.
        fleet.executor.kill()?;
        fleet.processes.nats.kill();
        fleet.processes.nats.put_store_back(copy.path(), variant.stream)?;
        fleet.processes.nats.resume().await?;
        let restored = SystemTime::now();
        fleet.executor = fleet.processes.spawn("executor").await?;

        // A message to each session, and new sessions.
        let old = ["idle1", "idle2", "busy1", "busy2", "late1", "late2", "open1", "open2", "hangs", "held1", "held2"];
        let after = join_all(old.map(|session| sessions.send(session, "after", "work"))).await;
        let new = join_all(["new1", "new2"].map(|session| sessions.start(session, "work"))).await;
        let begun_after_copy = ["late1", "late2", "open1", "open2", "held2"].map(str::to_owned).into();
        let (loses_log, loses_claims) = (variant.loses_log(), variant.loses_claims());
        let restore = Restore { loses_log, loses_claims, begun_after_copy, copied, restored };
        let all: Vec<&str> = old.into_iter().chain(["new1", "new2"]).collect();
        let sent_after: Vec<CommandOutcome> = after.into_iter().chain(new).collect();
        let judged =
            restored::judge(&restore, &sessions, &fleet.effects, &all, &sent_before, &sent_after, &fleet.processes.bus)
                .await?;
        Ok(Self { findings: judged.findings, notes: judged.notes, fleet })
    }

    /// Copies the logs of the processes.
    pub(crate) fn keep_logs(&self, to: &Path) -> anyhow::Result<()> {
        self.fleet.processes.keep_logs(to)?;
        Ok(std::fs::write(to.join("nats.log"), self.fleet.processes.nats.log())?)
    }
}

impl Fleet {
    /// Returns when a call of a session has taken effect.
    async fn has_begun(&self, session: &str) -> anyhow::Result<()> {
        let begun = || self.effects.runs(Effect::AtMostOnce, session).is_ok_and(|runs| !runs.is_empty());
        eventually("a call takes effect", async || begun()).await
    }

    async fn start(model: &ModelServer) -> anyhow::Result<Self> {
        let scratch = TempDir::with_prefix("ailoop-restore-")?;
        let filter = ("AILOOP__TELEMETRY__FILTER", FILTER);
        let processes = ProcessFleet::with(&[("test", &model.base_url())], &[filter]).await?;
        let effects = EffectRecorder::serve(&processes.nats.url(), &scratch.path().join("effects")).await?;
        let mut services = Vec::new();
        for service in ["orchestrator", "orchestrator", "gateway"] {
            services.push(processes.spawn(service).await?);
        }
        let executor = processes.spawn("executor").await?;
        processes.wait_for_tools(&EFFECTS.map(Effect::as_str)).await?;
        let edge = processes.edge().await?;
        // The connection of the test is lost as well.
        eventually("the server answers", async || processes.bus.ping().await.is_ok()).await?;
        Ok(Self { processes, _services: services, executor, edge, effects, _scratch: scratch })
    }
}

/// Replies by the first word of the last user message: `work` calls a tool of each effect class, `slow` does so slowly,
/// `hold` calls one that takes effect at once and answers late, `hang` never answers.
fn reply(request: &RecordedRequest) -> ScriptedReply {
    let last = request.last_user().to_owned();
    let (kind, mark) = last.split_once(' ').unwrap_or((&last, ""));
    let step = request.messages().iter().rev().take_while(|message| message["role"] != "user");
    let step = step.filter(|message| message["role"] == "assistant").count() + 1;
    let call = |effect: Effect| (effect.as_str(), json!({"mark": format!("{mark}-{step}-{}", effect.as_str())}));
    let held = || json!({"mark": format!("{mark}-{step}-held"), "wait_ms": HELD_MS});
    let calls: Vec<(&str, Value)> = match step {
        1 if kind == "hold" => vec![(Effect::AtMostOnce.as_str(), held())],
        2 if kind == "hold" => Vec::new(),
        1 => vec![call(Effect::Pure), call(Effect::AtMostOnce)],
        2 => vec![call(Effect::Idempotent), call(Effect::AtMostOnce)],
        _ => Vec::new(),
    };
    let begun = match kind {
        "hang" => return ScriptedReply::hang(),
        "slow" => ScriptedReply::text("I look ").and_delay(SLOW),
        _ => ScriptedReply::text("I look "),
    };
    if calls.is_empty() { begun.and_text("and am done.") } else { begun.and_text("at it.").and_calls(&calls) }
}
