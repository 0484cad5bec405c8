//! Sessions that move between cells: they are live in one place at any time, also if the command dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ailoop_tests::nats::NatsServer;
use bus::{Bus, Read};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::commit::{Commit, Phase};
use contract::event::Event;
use contract::subject::SessionKey;
use contract::{CellName, ErrorCode, SessionId, TenantId};
use store_admin::move_session::{CellBus, MoveOutcome, move_session};
use terminal::failure::CommandFailure;

use crate::long_sessions::fixture::{LoopFixture, in_log, key};

fn name(name: &str) -> anyhow::Result<CellName> {
    Ok(CellName::new(name)?)
}

/// The cells `a` and `b`, as one client reaches them.
fn cells(a: &Bus, b: &Bus) -> anyhow::Result<[CellBus; 2]> {
    Ok([CellBus { name: name("a")?, bus: a.clone() }, CellBus { name: name("b")?, bus: b.clone() }])
}

async fn move_to(
    cells: &[CellBus; 2],
    key: &SessionKey,
    to: &str,
    server: &MemoryServer,
) -> Result<MoveOutcome, CommandFailure> {
    let to = if to == "a" { &cells[0].name } else { &cells[1].name };
    let server = server.clone();
    move_session(cells, key, to, &move || server.now()).await
}

fn moved_from(from: &str) -> anyhow::Result<MoveOutcome> {
    Ok(MoveOutcome::Moved { from: name(from)? })
}

fn texts(commits: &[(u64, Commit)]) -> Vec<String> {
    commits.iter().map(|line| serde_json::to_string(line).unwrap_or_default()).collect()
}

/// Whether the log of a cell has the session, and not only what says that another cell has it.
async fn is_live(bus: &Bus, key: &SessionKey) -> anyhow::Result<bool> {
    Ok(bus.head(key, Read::Leader).await?.is_some_and(|head| head.meta.moved.is_none()))
}

#[tokio::test(start_paused = true)]
async fn session_moved_goes_on_there_and_comes_back() -> anyhow::Result<()> {
    let (a, b) = (LoopFixture::new().await?, LoopFixture::new().await?);
    let (key, cells) = (key("traveller")?, cells(&a.bus, &b.bus)?);
    a.begin(&key, true).await?;
    for turn in 0..70 {
        a.say(&key, &turn.to_string()).await?;
    }
    let before = a.commits(&key).await?;
    assert_eq!(move_to(&cells, &key, "b", &a.server).await?, moved_from("a")?);
    assert!(!is_live(&a.bus, &key).await? && is_live(&b.bus, &key).await?);
    assert_eq!((a.bus.summary(&key).await?, in_log(&a.bus, &key).await?.len()), (None, 1));
    assert!(b.bus.summary(&key).await?.is_some_and(|summary| summary.phase == Phase::Idle));
    let there = b.commits(&key).await?;
    assert_eq!((texts(&there[..before.len()]), there.len()), (texts(&before), before.len() + 1));

    // What comes to the old cell is refused, and never reaches a model.
    let slots = in_log(&a.bus, &key).await?;
    a.send_only(&key, "Too late").await?;
    a.until("it is refused", async |bus| in_log(bus, &key).await.is_ok_and(|now| now.len() > slots.len())).await?;
    let refused = a.bus.load_latest(&key).await?.unwrap_or_default();
    let refusal = refused.iter().flat_map(|(_, commit)| &commit.events).find_map(|event| {
        let Event::InputIgnored(ignored) = event else { return None };
        Some(ignored.refusal.code.clone())
    });
    assert_eq!(refusal, Some(ErrorCode::SessionMoved));

    assert_eq!(move_to(&cells, &key, "b", &a.server).await?, MoveOutcome::WasThere);
    for turn in 0..140 {
        b.say(&key, &format!("there {turn}")).await?;
    }
    let before = b.commits(&key).await?;
    assert_eq!(session::audit::audit(key.clone(), &before, None).differs, []);
    assert_eq!(move_to(&cells, &key, "a", &a.server).await?, moved_from("b")?);
    assert!(is_live(&a.bus, &key).await? && !is_live(&b.bus, &key).await?);
    for turn in 0..140 {
        a.say(&key, &format!("back {turn}")).await?;
    }
    let after = a.commits(&key).await?;
    assert_eq!(texts(&after[..before.len()]), texts(&before));
    assert_eq!(session::audit::audit(key.clone(), &after, None).differs, []);
    a.stop(&key).await?;
    a.archived(&key).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn session_that_does_not_rest_stays() -> anyhow::Result<()> {
    let (a, b) = (LoopFixture::new().await?, LoopFixture::new().await?);
    let (key, cells) = (key("busy")?, cells(&a.bus, &b.bus)?);
    let refused = async |expected: ErrorCode| {
        let refused = move_to(&cells, &key, "b", &a.server).await.map_err(|failure| failure.code().clone());
        assert_eq!(refused, Err(expected));
        assert!(b.bus.head(&key, Read::Leader).await.is_ok_and(|head| head.is_none()), "nothing was written");
    };
    refused(ErrorCode::UnknownSession).await;
    a.begin(&key, true).await?;
    a.send_only(&key, "Work").await?;
    a.until("the turn runs", async |bus| {
        bus.head(&key, Read::Leader).await.is_ok_and(|head| head.is_some_and(|head| head.meta.phase == Phase::Running))
    })
    .await?;
    refused(ErrorCode::NotNow).await;
    a.stop(&key).await?;
    refused(ErrorCode::NotNow).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn id_in_use_in_both_cells_is_refused() -> anyhow::Result<()> {
    let (a, b) = (LoopFixture::new().await?, LoopFixture::new().await?);
    let (key, cells) = (key("twin")?, cells(&a.bus, &b.bus)?);
    a.begin(&key, true).await?;
    b.begin(&key, true).await?;
    let refused = move_to(&cells, &key, "b", &a.server).await.map_err(|failure| failure.code().clone());
    assert_eq!(refused, Err(ErrorCode::SessionExists));
    assert!(is_live(&a.bus, &key).await? && is_live(&b.bus, &key).await?);
    Ok(())
}

/// Kills the command at its n-th operation, on whichever server that is.
#[derive(Clone)]
struct KillAtOperation {
    at: usize,
    done: bool,
    count: Arc<AtomicUsize>,
}

impl Faults for KillAtOperation {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if op.client == "mover" && op.action != Action::Ping && self.count.fetch_add(1, Ordering::SeqCst) == self.at {
            return Fault::Crash { done: self.done };
        }
        Fault::None
    }
}

/// Moves a session whose command dies at an operation, and repeats it. Returns whether it died.
async fn move_with_kill(at: usize, done: bool, begins_at_home: bool) -> anyhow::Result<bool> {
    let kill = KillAtOperation { at, done, count: Arc::default() };
    let a = LoopFixture::with(Arc::new(kill.clone())).await?;
    let b = LoopFixture::with(Arc::new(kill.clone())).await?;
    let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("half")? };
    let healthy = cells(&a.bus, &b.bus)?;
    a.begin(&key, true).await?;
    a.say(&key, "here").await?;
    let (here, there, to) = if begins_at_home {
        (&a, &b, "b")
    } else {
        move_to(&healthy, &key, "b", &a.server).await?;
        b.say(&key, "there").await?;
        (&b, &a, "a")
    };
    let before = here.commits(&key).await?;
    let ((mover_a, _life_a), (mover_b, _life_b)) = (a.server.client("mover"), b.server.client("mover"));
    let killed = cells(&mover_a, &mover_b)?;
    let died = tokio::time::timeout(Duration::from_mins(5), move_to(&killed, &key, to, &a.server)).await;
    let has_died = kill.count.load(Ordering::SeqCst) > at;

    let live = (is_live(&here.bus, &key).await?, is_live(&there.bus, &key).await?);
    assert!(live != (true, true), "{at} {done}: live in both, {died:?}");
    // A start with its id is no second session: the new cell keeps the id before the old one lets it go.
    if !live.0 {
        assert!(there.bus.head(&key, Read::Leader).await?.is_some(), "{at} {done}: the id is free");
    }
    // Its timer may have fired while it waited for the next command.
    let commits = if live.1 { before } else { here.commits(&key).await? };
    let finished = move_to(&healthy, &key, to, &a.server).await;
    let finished = finished.map_err(|failure| anyhow::anyhow!("{at} {done} {died:?}: {failure}"))?;
    assert!(!has_died || live.1 == (finished == MoveOutcome::WasThere), "{at} {done}: {finished:?}");
    let live = (is_live(&here.bus, &key).await?, is_live(&there.bus, &key).await?);
    assert_eq!(live, (false, true), "{at} {done}");
    let found = there.commits(&key).await?;
    assert_eq!(texts(&found[..commits.len()]), texts(&commits), "{at} {done}");
    let more: Vec<&Vec<Event>> = found[commits.len()..].iter().map(|(_, commit)| &commit.events).collect();
    assert_eq!(more.len(), 1, "{at} {done}: it came once: {more:?}");
    assert_eq!(here.bus.summary(&key).await?, None, "{at} {done}");
    assert!(there.bus.summary(&key).await?.is_some(), "{at} {done}");
    assert!(in_log(&there.bus, &key).await?.iter().all(|slot| *slot >= commits.len() as u64), "{at} {done}");
    there.say(&key, "It goes on.").await?;
    Ok(has_died)
}

async fn move_with_every_kill(begins_at_home: bool) -> anyhow::Result<()> {
    for done in [false, true] {
        let mut at = 0;
        while move_with_kill(at, done, begins_at_home).await? {
            at += 1;
        }
        assert!(at > 25, "the command has only {at} operations");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn move_killed_at_any_operation_is_finished_by_the_next_one() -> anyhow::Result<()> {
    move_with_every_kill(true).await
}

#[tokio::test(start_paused = true)]
async fn move_back_killed_at_any_operation_is_finished_by_the_next_one() -> anyhow::Result<()> {
    move_with_every_kill(false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_moved_between_real_servers_by_the_permitted_user() -> anyhow::Result<()> {
    let here = LoopFixture::new().await?;
    let key = key("real")?;
    here.begin(&key, true).await?;
    for turn in 0..40 {
        here.say(&key, &turn.to_string()).await?;
    }
    let mut file = Vec::new();
    store_admin::export_import::export(&here.bus, &key, here.server.now(), &mut file).await?;
    let (a, b) = (NatsServer::start_guarded().await?, NatsServer::start_guarded().await?);
    let connect = async |server: &NatsServer| Bus::connect(&server.config_of("archivist")).await;
    let (bus_a, bus_b) = (connect(&a).await?, connect(&b).await?);
    store_admin::export_import::import(&bus_a, &mut std::io::Cursor::new(file), here.server.now()).await?;
    let commits = bus_a.history(&key, 0).await?;
    let cells = cells(&bus_a, &bus_b)?;
    assert_eq!(move_to(&cells, &key, "b", &here.server).await?, moved_from("a")?);
    assert_eq!(texts(&bus_b.history(&key, 0).await?[..commits.len()]), texts(&commits));
    assert_eq!(move_to(&cells, &key, "a", &here.server).await?, moved_from("b")?);
    assert_eq!(texts(&bus_a.history(&key, 0).await?[..commits.len()]), texts(&commits));
    assert!(is_live(&bus_a, &key).await? && !is_live(&bus_b, &key).await?);
    Ok(())
}
