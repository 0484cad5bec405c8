//! Ring 3: the real orchestrators, gateways and executors on the in-memory bus, with virtual time, a crash between
//! any two operations, and everything that a replicated server does.

mod chaos;
mod fleet;
mod judge;
mod spoiled;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus_memory::MemoryServer;
use contract::command::{Command, CommandMeta, ControlReason, MessageMode, SendUserMessage, Start, Verb};
use contract::commit::{Phase, VERSION};
use contract::model::Content;
use contract::subject::SessionKey;
use contract::{CommandId, SessionId, TenantId, Timestamp};
use serde::Serialize;

use crate::rng::Rng;
use crate::shell::chaos::Chaos;
use crate::shell::fleet::{Fleet, KINDS};
pub use crate::shell::spoiled::Mistake;
use crate::shell::tools::Witness;

/// When the world begins: 2026-01-01.
const EPOCH: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Virtual time that a session may take to come to rest once nothing goes wrong any more.
const REST_MAX: Duration = Duration::from_mins(30);

/// What a life came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Commits over all sessions.
    pub commits: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Replicas that died.
    pub deaths: u64,
    /// Tool calls that ran.
    pub tools: u64,
    /// Child sessions.
    pub children: u64,
}

/// Lives one life of a small fleet; the error says what the judge found.
pub fn live(seed: u64, mistake: Mistake) -> Result<Figures, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(run(seed, mistake)).map_err(|why| format!("seed {seed}, mistake {mistake:?}: {why}"))
}

async fn run(seed: u64, mistake: Mistake) -> Result<Figures, String> {
    let mut rng = Rng::new(seed ^ 0x5EED);
    let chaos = Arc::new(Chaos::new(rng.number()));
    let server = MemoryServer::simulated(EPOCH, chaos.clone());
    let client = server.client("client").0;
    let witness = tools::serve(&server, rng.number()).await.map_err(|error| error.to_string())?;
    let mut fleet = Fleet::start(server.clone(), mistake).await.map_err(|error| error.to_string())?;
    // The catalogue knows the tools before the first turn begins.
    fleet
        .until(Duration::from_mins(1), || async {
            client.tools(&TenantId::default()).await.is_ok_and(|t| t.len() == 3)
        })
        .await?;
    chaos.begin();
    let composer_is_away = rng.chance(10);
    if composer_is_away {
        fleet.composer(false).await.map_err(|error| error.to_string())?;
    }

    let mut calm = !composer_is_away;
    let sessions: Vec<SessionKey> = (0..=rng.below(2)).map(key).collect();
    let mut sent = 0;
    for key in &sessions {
        let start =
            Start { prompt: Some(Content::Text(plan(&mut rng))), interactive: rng.chance(50), ..Start::default() };
        send(&client, &server, key, Verb::Start, &mut sent, start).await?;
    }
    for _ in 0..rng.below(12) {
        let longest = [40, 400, 4_000][index(rng.below(3))];
        let pause = Duration::from_millis(rng.below(longest));
        fleet.sleep(pause).await?;
        let key = rng.pick(&sessions).clone();
        let because = ControlReason::default();
        match rng.below(12) {
            0..5 => {
                let mode = *rng.pick(&[MessageMode::Steer, MessageMode::Queue, MessageMode::Interrupt]);
                let message = SendUserMessage { content: Content::Text(plan(&mut rng)), mode };
                send(&client, &server, &key, Verb::SendUserMessage, &mut sent, message).await?;
            }
            5..7 => {
                send(&client, &server, &key, Verb::Pause, &mut sent, because).await?;
                quieten(&client, &mut fleet, &witness, &key).await?;
                // As long as whatever waits comes back a few times.
                let pause = Duration::from_millis(rng.below(12_000));
                fleet.sleep(pause).await?;
            }
            7..9 => {
                witness.told(&key, false);
                send(&client, &server, &key, Verb::Resume, &mut sent, because).await?;
            }
            9..11 => {
                calm = false;
                fleet.outage(*rng.pick(&KINDS), Duration::from_millis(rng.below(5_000)));
            }
            _ if rng.chance(40) => {
                send(&client, &server, &key, Verb::Stop, &mut sent, because).await?;
                quieten(&client, &mut fleet, &witness, &key).await?;
            }
            _ => {
                calm = false;
                server.restart();
            }
        }
    }
    fleet.sleep(Duration::from_millis(rng.below(8_000))).await?;
    chaos.end();
    if composer_is_away {
        fleet.sleep(Duration::from_mins(5)).await?;
        fleet.composer(true).await.map_err(|error| error.to_string())?;
    }
    for key in &sessions {
        witness.told(key, false);
        send(&client, &server, key, Verb::Resume, &mut sent, ControlReason::default()).await?;
    }
    rest(&client, &server, &mut fleet, &sessions, &mut sent).await?;

    let (faults, deaths, tools) = (chaos.count(), fleet.deaths(), witness.judge()?);
    let mut figures = Figures { commits: 0, faults, deaths, tools, children: 0 };
    for key in &sessions {
        figures.commits += judge::session(&client, key, calm && faults == 0).await?;
    }
    let mut children: Vec<SessionKey> = Vec::new();
    for key in &sessions {
        children.extend(judge::children(&client, key).await?);
    }
    while let Some(child) = children.pop() {
        let ended = || async { phase(&client, &child).await == Some(Phase::Ended) && quiet(&client, &child).await };
        fleet.until(REST_MAX, ended).await.map_err(|why| format!("{child} outlives its parent: {why}"))?;
        figures.commits += judge::session(&client, &child, calm && faults == 0).await?;
        figures.children += 1;
        children.extend(judge::children(&client, &child).await?);
    }
    for key in &sessions {
        judge::reports(&client, key).await?;
    }
    judge::inputs(&client, &sessions, sent).await?;
    Ok(figures)
}

/// Waits a while for a pause or stop to be seen in the log, as a client does; from then on nothing may start. An earlier
/// `resume` that still waits would change that.
async fn quieten(client: &Bus, fleet: &mut Fleet, witness: &Witness, key: &SessionKey) -> Result<(), String> {
    for _ in 0..40 {
        if quiet(client, key).await && matches!(phase(client, key).await, Some(Phase::Paused | Phase::Ended)) {
            witness.told(key, true);
            return Ok(());
        }
        fleet.sleep(Duration::from_millis(20)).await?;
    }
    Ok(())
}

/// Nothing goes wrong any more: every session must come to rest, then end.
async fn rest(
    client: &Bus,
    server: &MemoryServer,
    fleet: &mut Fleet,
    sessions: &[SessionKey],
    sent: &mut u64,
) -> Result<(), String> {
    for key in sessions {
        let idle = || async {
            matches!(phase(client, key).await, Some(Phase::Idle | Phase::Ended)) && quiet(client, key).await
        };
        fleet.until(REST_MAX, idle).await.map_err(|why| format!("{key} does not come to rest: {why}"))?;
        send(client, server, key, Verb::Stop, sent, ControlReason::default()).await?;
        let ended = || async { phase(client, key).await == Some(Phase::Ended) && quiet(client, key).await };
        fleet.until(REST_MAX, ended).await.map_err(|why| format!("{key} does not end: {why}"))?;
    }
    Ok(())
}

async fn phase(client: &Bus, key: &SessionKey) -> Option<Phase> {
    client.head(key, bus::Read::Leader).await.ok().flatten().map(|head| head.meta.phase)
}

/// Whether no input of the session waits.
async fn quiet(client: &Bus, key: &SessionKey) -> bool {
    matches!(client.inbox(key).await, Ok(bus::Inbox::Messages(list)) if list.is_empty())
}

/// What the scripted model is told to do, a word for each step.
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

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

async fn send<T: Serialize>(
    client: &Bus,
    server: &MemoryServer,
    key: &SessionKey,
    verb: Verb,
    sent: &mut u64,
    body: T,
) -> Result<(), String> {
    *sent += 1;
    let id = CommandId::new(&format!("u{sent}")).map_err(|error| error.to_string())?;
    let meta = CommandMeta { parent_command_number: None, v: VERSION, time: server.now(), by: None, edge: None };
    let body = serde_json::to_vec(&Command { meta, body }).map_err(|error| error.to_string())?;
    client.send_control(key, verb, &id, body.into()).await.map(drop).map_err(|error| error.to_string())
}
