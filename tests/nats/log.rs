//! The log: slots, stale reads, large commits, restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::{Bus, Committed, Read};
use contract::limits::INLINE_BYTES_MAX;
use contract::streams::Stream;
use contract::subject::SessionKey;
use futures::future::try_join_all;
use tokio::sync::watch;

use crate::nats::world::{World, commit, eventually, key};

pub(crate) async fn slot_with_many_writers_has_one_winner(world: &mut World) -> anyhow::Result<()> {
    const SLOTS: u64 = 70;
    let key = key("race")?;
    let buses = try_join_all((0..3).map(|n| world.connect(n))).await?;
    let mut winners = BTreeMap::new();
    for slot in 0..SLOTS {
        let offers = (0..6).map(|writer| {
            let (bus, key, id) = (buses[writer % buses.len()].clone(), key.clone(), format!("{slot}-{writer}"));
            async move {
                let body = commit(&id, 0)?;
                anyhow::Ok((bus.commit(&key, slot, &id, body).await?, id))
            }
        });
        let outcomes = try_join_all(offers).await?;
        let ours: Vec<_> = outcomes.into_iter().filter(|(committed, _)| *committed == Committed::Ours).collect();
        assert_eq!(ours.len(), 1, "slot {slot}");
        winners.insert(slot, ours[0].1.clone());
    }
    // A history is read from any replica, which may be behind the leader.
    let (reader, key) = (&buses[1], &key);
    eventually("the replica has caught up", || async {
        matches!(reader.history(key, 0).await, Ok(history) if history.len() as u64 == SLOTS)
    })
    .await?;
    let history = reader.history(key, 0).await?;
    let found: BTreeMap<u64, String> = history.into_iter().map(|(slot, commit)| (slot, commit.meta.commit)).collect();
    assert_eq!(found, winners);
    let page = buses[2].load_from(key, SLOTS - 1).await?.unwrap_or_default();
    assert_eq!(page.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), (64..SLOTS).collect::<Vec<_>>());
    Ok(())
}

pub(crate) async fn commit_is_read_by_a_reader_that_knows_of_it(world: &mut World) -> anyhow::Result<()> {
    let key = key("stale")?;
    let buses = try_join_all((0..3).map(|n| world.connect(n))).await?;
    assert_eq!(buses[0].head(&key, Read::Leader).await?, None);
    assert!(buses[0].load(&key).await?.is_none());
    for slot in 0..60_u64 {
        let id = format!("c{slot}");
        assert_eq!(world.bus.commit(&key, slot, &id, commit(&id, 0)?).await?, Committed::Ours);
        let loads = buses.iter().map(|bus| bus.load_from(&key, slot));
        for page in try_join_all(loads).await? {
            let slots: Vec<u64> = page.unwrap_or_default().iter().map(|(slot, _)| *slot).collect();
            assert_eq!(slots, (0..=slot).collect::<Vec<_>>());
        }
        let head = buses[1].head(&key, Read::Leader).await?;
        assert_eq!(head.map(|head| (head.slot, head.meta.commit)), Some((slot, id)));
    }
    Ok(())
}

pub(crate) async fn large_commits_are_read_unchanged(world: &mut World) -> anyhow::Result<()> {
    let key = key("large")?;
    for (slot, bytes) in [INLINE_BYTES_MAX - 1_000, INLINE_BYTES_MAX + 1, 3 << 20, 16 << 20].into_iter().enumerate() {
        let (slot, id) = (slot as u64, format!("c{slot}"));
        assert_eq!(world.bus.commit(&key, slot, &id, commit(&id, bytes)?).await?, Committed::Ours);
        let head = world.bus.head(&key, Read::Leader).await?;
        assert_eq!(head.map(|head| head.meta.commit), Some(id), "meta is read without the blob");
    }
    // A page of the largest inline commits is more than one read holds.
    for slot in 4..64 {
        let id = format!("c{slot}");
        assert_eq!(world.bus.commit(&key, slot, &id, commit(&id, INLINE_BYTES_MAX - 1_000)?).await?, Committed::Ours);
    }
    let page = world.connect(1).await?.load_from(&key, 63).await?.unwrap_or_default();
    let sizes: Vec<usize> =
        page.iter().map(|(_, commit)| commit.snapshot.as_ref().map_or(0, |s| s.get().len() - 2)).collect();
    assert_eq!(sizes.len(), 64);
    assert_eq!(sizes[..4], [INLINE_BYTES_MAX - 1_000, INLINE_BYTES_MAX + 1, 3 << 20, 16 << 20]);
    Ok(())
}

pub(crate) async fn commits_survive_a_restart(world: &mut World) -> anyhow::Result<()> {
    let (writer, key) = (Writer::new(&world.bus), key("restart")?);
    let (written, ()) = tokio::try_join!(writer.write(&key), async {
        writer.has_written(WRITTEN / 6).await;
        world.restart().await?;
        writer.disturbed();
        Ok(())
    })?;
    check(&world.bus, &key, written).await
}

pub(crate) async fn commits_survive_changes_of_leader(world: &mut World) -> anyhow::Result<()> {
    let (writer, key) = (Writer::new(&world.bus), key("leader")?);
    let (written, ()) = tokio::try_join!(writer.write(&key), async {
        for part in 1..=3 {
            writer.has_written(WRITTEN * part / 6).await;
            world.step_down(Stream::Log).await?;
        }
        writer.disturbed();
        Ok(())
    })?;
    check(&world.bus, &key, written).await
}

/// Minimum number of slots written before and after a disturbance.
const WRITTEN: u64 = 60;

/// Commits slot after slot, while something happens to the servers.
struct Writer {
    bus: Bus,
    /// Slots written so far.
    written: watch::Sender<u64>,
    /// End of the writing; no end before the disturbance is over.
    until: watch::Sender<u64>,
}

impl Writer {
    fn new(bus: &Bus) -> Self {
        Self { bus: bus.clone(), written: watch::Sender::new(0), until: watch::Sender::new(u64::MAX) }
    }

    /// Returns when so many slots are written.
    async fn has_written(&self, slots: u64) {
        // The sender is borrowed, so that the channel cannot close meanwhile.
        let _ = self.written.subscribe().wait_for(|written| *written >= slots).await;
    }

    /// The disturbance is over: writes some more slots and ends.
    fn disturbed(&self) {
        self.until.send_replace(*self.written.borrow() + WRITTEN);
    }

    /// Writes and returns the number of slots. A write without an answer is repeated with the same commit.
    async fn write(&self, key: &SessionKey) -> anyhow::Result<u64> {
        let mut slot = 0;
        while slot < *self.until.borrow() {
            let id = format!("c{slot}");
            loop {
                match self.bus.commit(key, slot, &id, commit(&id, 0)?).await {
                    Ok(committed) => break assert_eq!(committed, Committed::Ours),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            slot += 1;
            self.written.send_replace(slot);
        }
        Ok(slot)
    }
}

async fn check(bus: &Bus, key: &SessionKey, written: u64) -> anyhow::Result<()> {
    // A replica that was down may be behind, so the read is repeated.
    eventually("every replica has caught up", || async {
        matches!(bus.history(key, 0).await, Ok(history) if history.len() as u64 >= written)
    })
    .await?;
    let history = bus.history(key, 0).await?;
    let found: Vec<_> = history.into_iter().map(|(slot, commit)| (slot, commit.meta.commit)).collect();
    assert_eq!(found, (0..written).map(|slot| (slot, format!("c{slot}"))).collect::<Vec<_>>());
    Ok(())
}
