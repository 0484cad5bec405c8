//! Ring 3: the real orchestrators, gateways and executors on the in-memory bus, with virtual time, a crash between
//! any two operations, and everything that a replicated server does.

mod fault_injector;
mod fleet;
mod judge;
mod older_streams;
mod planted_mistake;
mod tool_recorder;

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus_memory::MemoryServer;
use bytes::Bytes;
use contract::command::{Command, CommandMeta, ControlReason, MessageMode, Refusal, SendUserMessage, Start, Verb};
use contract::commit::{Commit, CommitMeta, FOLD, Phase, VERSION};
use contract::event::{Event, InputIgnored, InputKind, InputRef};
use contract::limits::HANDLED_IDS_MAX;
use contract::model::Content;
use contract::subject::SessionKey;
use contract::{CommandId, ErrorCode, SessionId, TenantId, Timestamp};
use serde::Serialize;

use crate::rng::Rng;
use crate::shell::fault_injector::FaultInjector;
use crate::shell::fleet::{KINDS, SimulatedFleet};
use crate::shell::judge::Disturbance;
use crate::shell::older_streams::OlderStreams;
pub use crate::shell::planted_mistake::PlantedMistake;
use crate::shell::tool_recorder::ToolRecorder;

/// Begin of virtual time: 2026-01-01.
const EPOCH: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Virtual time within which a session must become idle, and end, after the last fault.
const REST_MAX: Duration = Duration::from_mins(30);
/// Number of the first timer before the run: no timer of the run has it.
const EARLIER_TIMERS: usize = 1_000_000;
/// Seconds without a commit after which logs are compacted, by seed: at once, between two commands, or later than a run
/// takes.
const COMPACT_AFTER_SECONDS: [u64; 4] = [0, 1, 3, 86_400];

/// Statistics of one run.
#[derive(Debug, Clone, Copy, Default)]
pub struct FleetStats {
    /// Commits of all sessions.
    pub commits: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Number of replicas that died.
    pub deaths: u64,
    /// Number of times that streams were replaced by an older copy behind connections that stayed.
    pub replacements: u64,
    /// Tool calls that ran.
    pub tools: u64,
    /// Number of child sessions.
    pub children: u64,
    /// Logs of idle sessions that were compacted.
    pub compactions: u64,
}

/// Simulates a small fleet; the error names the broken rule.
pub fn simulate(seed: u64, mistake: PlantedMistake) -> Result<FleetStats, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let compact_after = COMPACT_AFTER_SECONDS[usize::try_from(seed % 4).unwrap_or(0)];
    runtime
        .block_on(run(seed, mistake, compact_after))
        .map_err(|why| format!("seed {seed}, mistake {mistake:?}: {why}"))
}

async fn run(seed: u64, mistake: PlantedMistake, compact_after: u64) -> Result<FleetStats, String> {
    let mut rng = Rng::new(seed ^ 0x5EED);
    let injector = Arc::new(FaultInjector::new(rng.number(), mistake.needs_deaths()));
    tokio::select! {
        result = run_with(rng, injector.clone(), mistake, compact_after) => result,
        last = injector.until_endless() => Err(format!("an endless loop without time passing: {last}")),
    }
}

async fn run_with(
    mut rng: Rng,
    injector: Arc<FaultInjector>,
    mistake: PlantedMistake,
    compact_after: u64,
) -> Result<FleetStats, String> {
    let server = MemoryServer::simulated(EPOCH, injector.clone());
    let client = server.client("client").0;
    let recorder = tool_recorder::serve(&server, rng.number()).await.map_err(|error| error.to_string())?;
    let machine_percent = if injector.is_deadly() { 100 } else { 30 };
    let mut fleet = SimulatedFleet::start(server.clone(), mistake, compact_after, rng.number(), machine_percent)
        .await
        .map_err(|error| error.to_string())?;
    // The first turn needs all tools in the catalogue.
    fleet
        .until(Duration::from_mins(1), || async {
            client.tools(&TenantId::default()).await.is_ok_and(|t| t.len() == 3)
        })
        .await?;
    if !mistake.needs_calm() {
        injector.begin();
    }
    let composer_is_away = rng.chance(10) && !mistake.needs_calm();
    if composer_is_away {
        fleet.set_composer(false).await.map_err(|error| error.to_string())?;
    }

    let sessions: Vec<SessionKey> = (0..=rng.below(2)).map(key).collect();
    let mut sent = SentCommands { client: client.clone(), server: server.clone(), list: Vec::new() };
    let mut older = OlderStreams::new(server.clone(), rng.number());
    for key in &sessions {
        if rng.chance(50) {
            forget_inputs(&client, key, server.now()).await?;
        }
        sent.send(key, Verb::Start, start(&mut rng)).await?;
    }
    let mut calm = true;
    for _ in 0..rng.below(12) {
        let longest = [40, 400, 4_000][rng.index(3)];
        fleet.sleep(Duration::from_millis(rng.below(longest))).await?;
        // No call and no turn may end by its deadline for that: it is noticed within a minute.
        older.copy_or_put_back(&mut fleet);
        let key = rng.pick(&sessions).clone();
        calm &= act(&mut rng, &mut fleet, &recorder, &mut sent, &key, mistake).await?;
    }
    fleet.sleep(Duration::from_millis(rng.below(8_000))).await?;
    injector.end();
    if composer_is_away {
        fleet.sleep(Duration::from_mins(5)).await?;
        fleet.set_composer(true).await.map_err(|error| error.to_string())?;
    }
    wake(&client, &mut fleet, &recorder, &sessions, &mut sent, older.replacements() > 0).await?;
    let idle_max = Duration::from_secs(compact_after);
    end_sessions(&client, &mut fleet, &sessions, &mut sent, idle_max).await?;

    let (faults, replacements) = (injector.count(), older.replacements());
    let disturbance = match composer_is_away {
        true => Disturbance::Long,
        false if calm && faults == 0 => Disturbance::None,
        false => Disturbance::Short,
    };
    let stats = FleetStats { faults, replacements, tools: recorder.check()?, ..FleetStats::default() };
    let stats = judge_sessions(&client, &mut fleet, &sessions, disturbance, stats).await?;
    judge::inputs(&client, &sessions, sent.list.len() as u64).await?;
    judge::promises(&client, fleet.promises()).await?;
    Ok(stats)
}

/// Does what a user, an operator or bad luck does next to a session. Returns false if it was bad luck.
async fn act(
    rng: &mut Rng,
    fleet: &mut SimulatedFleet,
    recorder: &ToolRecorder,
    sent: &mut SentCommands,
    key: &SessionKey,
    mistake: PlantedMistake,
) -> Result<bool, String> {
    let client = sent.client.clone();
    let reason = ControlReason::default();
    match rng.below(if mistake.needs_calm() { 9 } else { 12 }) {
        0..5 => sent.send_message(key, rng).await?,
        5..7 => {
            sent.send(key, Verb::Pause, reason).await?;
            wait_for_pause(&client, fleet, recorder, key).await?;
            // Long enough for waiting items to be redelivered a few times.
            fleet.sleep(Duration::from_millis(rng.below(12_000))).await?;
        }
        7..9 => {
            recorder.set_paused(key, false);
            sent.send(key, Verb::Resume, reason).await?;
        }
        9..11 => {
            fleet.outage(*rng.pick(&KINDS), Duration::from_millis(rng.below(5_000)));
            return Ok(false);
        }
        _ if rng.chance(40) => {
            sent.send(key, Verb::Stop, reason).await?;
            wait_for_pause(&client, fleet, recorder, key).await?;
        }
        _ => {
            sent.server.restart();
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks the logs of sessions, and of their children once these have ended. Adds to the figures of the run.
async fn judge_sessions(
    client: &Bus,
    fleet: &mut SimulatedFleet,
    sessions: &[SessionKey],
    disturbance: Disturbance,
    mut stats: FleetStats,
) -> Result<FleetStats, String> {
    let mut children: Vec<SessionKey> = Vec::new();
    for key in sessions {
        stats.commits += judge::session(client, key, disturbance).await?;
        stats.compactions += judge::compactions(client, key).await?;
        children.extend(judge::children(client, key).await?);
    }
    while let Some(child) = children.pop() {
        let ended =
            || async { phase(client, &child).await == Some(Phase::Ended) && is_inbox_empty(client, &child).await };
        fleet.until(REST_MAX, ended).await.map_err(|why| format!("{child} does not end after its parent: {why}"))?;
        stats.commits += judge::session(client, &child, disturbance).await?;
        stats.children += 1;
        children.extend(judge::children(client, &child).await?);
    }
    for key in sessions {
        judge::reports(client, key).await?;
    }
    Ok(FleetStats { deaths: fleet.deaths(), ..stats })
}

/// Waits until the log shows a pause or stop, for at most 800 ms; from then on no call may start. An earlier `resume`
/// that still waits would change that.
async fn wait_for_pause(
    client: &Bus,
    fleet: &mut SimulatedFleet,
    recorder: &ToolRecorder,
    key: &SessionKey,
) -> Result<(), String> {
    for _ in 0..40 {
        if is_inbox_empty(client, key).await && matches!(phase(client, key).await, Some(Phase::Paused | Phase::Ended)) {
            recorder.set_paused(key, true);
            return Ok(());
        }
        fleet.sleep(Duration::from_millis(20)).await?;
    }
    Ok(())
}

/// Resumes the sessions that are paused, once they do nothing more. Where a stream went back and no replica lived long
/// enough to notice it, a command has to wake every session, as an operator's repair does.
async fn wake(
    client: &Bus,
    fleet: &mut SimulatedFleet,
    recorder: &ToolRecorder,
    sessions: &[SessionKey],
    sent: &mut SentCommands,
    is_older: bool,
) -> Result<(), String> {
    for key in sessions {
        let rests = || async {
            matches!(phase(client, key).await, Some(Phase::Idle | Phase::Paused | Phase::Ended))
                && is_inbox_empty(client, key).await
        };
        if !is_older {
            fleet.until(REST_MAX, rests).await.map_err(|why| format!("{key} does not come to rest: {why}"))?;
        }
        if is_older || phase(client, key).await == Some(Phase::Paused) {
            recorder.set_paused(key, false);
            sent.send(key, Verb::Resume, ControlReason::default()).await?;
        }
    }
    Ok(())
}

/// After the last fault every session must become idle; then it is stopped and must end.
async fn end_sessions(
    client: &Bus,
    fleet: &mut SimulatedFleet,
    sessions: &[SessionKey],
    sent: &mut SentCommands,
    compact_after: Duration,
) -> Result<(), String> {
    for key in sessions {
        let idle = || async {
            matches!(phase(client, key).await, Some(Phase::Idle | Phase::Ended)) && is_inbox_empty(client, key).await
        };
        fleet.until(REST_MAX, idle).await.map_err(|why| format!("{key} does not become idle: {why}"))?;
        // A session whose log was compacted goes on, and is compacted again.
        for message in ["plan look end", "plan end"] {
            if compact_after > REST_MAX {
                break;
            }
            let compact = || async { judge::is_compact(client, key).await };
            fleet.until(REST_MAX, compact).await.map_err(|why| format!("{key} is idle and not compacted: {why}"))?;
            let message = SendUserMessage::new(Content::Text(message.to_owned()), MessageMode::Queue);
            sent.send(key, Verb::SendUserMessage, message).await?;
            fleet.until(REST_MAX, idle).await.map_err(|why| format!("{key} does not rest again: {why}"))?;
        }
        sent.send(key, Verb::Stop, ControlReason::default()).await?;
        let ended = || async { phase(client, key).await == Some(Phase::Ended) && is_inbox_empty(client, key).await };
        fleet.until(REST_MAX, ended).await.map_err(|why| format!("{key} does not end: {why}"))?;
    }
    Ok(())
}

async fn phase(client: &Bus, key: &SessionKey) -> Option<Phase> {
    client.head(key, bus::Read::Leader).await.ok().flatten().map(|head| head.meta.phase)
}

/// Whether no input of the session waits.
async fn is_inbox_empty(client: &Bus, key: &SessionKey) -> bool {
    matches!(client.inbox(key).await, Ok(bus::Inbox::Messages(list)) if list.is_empty())
}

/// A prompt for the scripted model, with one word for each step.
fn plan(rng: &mut Rng) -> String {
    let words: Vec<&str> = (0..=rng.below(5))
        .map(|_| *rng.pick(&["look", "many", "many", "pay", "go", "odd", "bad", "ask", "err", "end"]))
        .collect();
    format!("plan {}", words.join(" "))
}

fn key(index: u64) -> SessionKey {
    let session = SessionId::new(&format!("s{index}")).unwrap_or_else(|_| unreachable!("a valid id"));
    SessionKey { tenant: TenantId::default(), session }
}

fn start(rng: &mut Rng) -> Start {
    Start { prompt: Some(Content::Text(plan(rng))), interactive: rng.chance(50), ..Start::default() }
}

/// The commands that the client has sent.
struct SentCommands {
    client: Bus,
    server: MemoryServer,
    list: Vec<SentCommand>,
}

struct SentCommand {
    key: SessionKey,
    verb: Verb,
    id: CommandId,
    body: Bytes,
}

impl SentCommands {
    async fn send<T: Serialize>(&mut self, key: &SessionKey, verb: Verb, body: T) -> Result<(), String> {
        let id = CommandId::new(&format!("u{}", self.list.len() + 1)).map_err(|error| error.to_string())?;
        let meta = CommandMeta::new(self.server.now());
        let body = serde_json::to_vec(&Command { meta, body }).map_err(|error| error.to_string())?.into();
        self.list.push(SentCommand { key: key.clone(), verb, id, body });
        self.store(self.list.len() - 1).await
    }

    /// Sends a message. Sometimes a `start` or an earlier command follows, as of a client that connects again.
    async fn send_message(&mut self, key: &SessionKey, rng: &mut Rng) -> Result<(), String> {
        let mode = *rng.pick(&[MessageMode::Steer, MessageMode::Queue, MessageMode::Interrupt]);
        let message = SendUserMessage::new(Content::Text(plan(rng)), mode);
        self.send(key, Verb::SendUserMessage, message).await?;
        if rng.chance(30) {
            self.send(key, Verb::Start, start(rng)).await?;
        }
        if rng.chance(30) {
            self.repeat(rng).await?;
        }
        Ok(())
    }

    /// Sends a command again under its id: it must be handled once.
    async fn repeat(&self, rng: &mut Rng) -> Result<(), String> {
        self.store(rng.index(self.list.len() as u64)).await
    }

    async fn store(&self, index: usize) -> Result<(), String> {
        let SentCommand { key, verb, id, body } = &self.list[index];
        self.client.send_control(key, *verb, id, body.clone()).await.map(drop).map_err(|error| error.to_string())
    }
}

/// Gives a session without a log one in which it has handled so many inputs that it forgets one with each further input,
/// so that its mark of handled commands counts.
async fn forget_inputs(client: &Bus, key: &SessionKey, now: Timestamp) -> Result<(), String> {
    let refused = |number: usize| {
        let id = CommandId::new(&number.to_string()).unwrap_or_else(|_| unreachable!("a valid id"));
        let refusal = Refusal { code: ErrorCode::UnknownSession, message: "no such session".to_owned() };
        Event::InputIgnored(InputIgnored {
            input: InputRef { kind: InputKind::Timer, id },
            control_seq: None,
            control_at: None,
            refusal,
            usage: None,
            call: None,
            late: None,
            parent_command_number: None,
            parent: None,
        })
    };
    let events = (EARLIER_TIMERS..EARLIER_TIMERS + HANDLED_IDS_MAX).map(refused).collect();
    let meta = CommitMeta {
        v: VERSION,
        commit: "earlier".to_owned(),
        prev: String::new(),
        fold: FOLD,
        phase: Phase::Ended,
        open: Vec::new(),
        control_seq: 0,
        timers: 0,
        seq: 1,
        time: now,
        trace_id: String::new(),
        archived: None,
        log_start: None,
        moved: None,
    };
    let commit = Commit { meta, snapshot: None, transcript: None, events };
    let body = serde_json::to_vec(&commit).map_err(|error| error.to_string())?;
    client.commit(key, 0, "earlier", body.into()).await.map(drop).map_err(|error| error.to_string())
}
