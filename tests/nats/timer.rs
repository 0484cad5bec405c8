//! Timers: set, moved, cancelled, overdue.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bus::timer::Due;
use bus::transport::Ack;
use contract::Timestamp;
use contract::streams::Queue;
use contract::subject;

use crate::nats::world::{World, key, pull, pull_one};

fn now() -> Timestamp {
    Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(crate) async fn timers_fire_move_and_are_cancelled(world: &mut World) -> anyhow::Result<()> {
    let bus = &world.bus;
    let (fires, moves, stops, past) = (key("fires")?, key("moves")?, key("stops")?, key("past")?);
    // Long enough that the next request reaches the server before the time is over.
    let begun = now().after(Duration::from_secs(4));
    let after = |millis| begun.after(Duration::from_millis(millis));
    bus.set_timer(&moves, 1, begun).await?;
    bus.set_timer(&moves, 2, after(2_000)).await?;
    bus.set_timer(&stops, 1, after(500)).await?;
    bus.cancel_timer(&stops).await?;
    bus.set_timer(&fires, 1, after(1_000)).await?;
    bus.set_timer(&past, 9, Timestamp::from_millis(1)).await?;
    let mut came = Vec::new();
    while came.len() < 3 {
        let delivery = pull_one(bus, Queue::Timers).await?;
        let due: Due = serde_json::from_slice(&delivery.payload)?;
        bus.transport().ack(&delivery, Ack::Done).await?;
        came.push((subject::parse_timer(&delivery.subject), due.number, now()));
    }
    let order: Vec<_> = came.iter().map(|(key, number, _)| (key.clone(), *number)).collect();
    assert_eq!(order, [(Some(past), 9), (Some(fires), 1), (Some(moves), 2)]);
    assert!(came[1].2 >= after(900) && came[2].2 >= after(1_900), "none fires before its time: {came:?}");
    assert!(pull(bus, Queue::Timers, 1, Duration::from_millis(600)).await?.is_empty(), "nothing is left behind");
    Ok(())
}

pub(crate) async fn older_timer_setting_never_replaces_a_newer_one(world: &mut World) -> anyhow::Result<()> {
    let (bus, session) = (&world.bus, key("late")?);
    let soon = now().after(Duration::from_secs(1));
    bus.set_timer(&session, 7, soon).await?;
    bus.set_timer(&session, 6, now().after(Duration::from_hours(1))).await?;
    bus.set_timer(&session, 7, soon).await?;
    let delivery = pull_one(bus, Queue::Timers).await?;
    assert_eq!(serde_json::from_slice::<Due>(&delivery.payload)?.number, 7);
    bus.transport().ack(&delivery, Ack::Done).await?;
    // A timer can be set after another one has fired.
    bus.set_timer(&session, 8, now()).await?;
    let delivery = pull_one(bus, Queue::Timers).await?;
    assert_eq!(serde_json::from_slice::<Due>(&delivery.payload)?.number, 8);
    bus.transport().ack(&delivery, Ack::Done).await?;
    // A number has one time; another time with the same number is of a lost history.
    bus.set_timer(&session, 9, now().after(Duration::from_hours(1))).await?;
    bus.set_timer(&session, 9, now()).await?;
    let delivery = pull_one(bus, Queue::Timers).await?;
    assert_eq!(serde_json::from_slice::<Due>(&delivery.payload)?.number, 9);
    bus.transport().ack(&delivery, Ack::Done).await?;
    Ok(())
}

pub(crate) async fn overdue_timer_fires_after_a_restart(world: &mut World) -> anyhow::Result<()> {
    let session = key("overdue")?;
    let due = now().after(Duration::from_secs(1));
    world.bus.set_timer(&session, 4, due).await?;
    world.kill();
    // The timer is overdue when the server comes back, however long that takes.
    tokio::time::sleep(due.since(now())).await;
    world.resume().await?;
    let delivery = pull_one(&world.bus, Queue::Timers).await?;
    assert_eq!(subject::parse_timer(&delivery.subject), Some(session));
    assert_eq!(serde_json::from_slice::<Due>(&delivery.payload)?.number, 4);
    Ok(())
}
