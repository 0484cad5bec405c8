//! Pages that leave the log of real servers.

use std::time::Duration;

use bus::archive::Staying;
use bus::transport::ReadMany;
use bus::{Bus, BusError, Committed, Offer, Read};
use bytes::Bytes;
use contract::limits::{INLINE_BYTES_MAX, SLOTS_PER_PAGE};
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use contract::tool::sha256_hex;

use crate::nats::world::{World, commit, eventually, key};

const END: u64 = 2 * SLOTS_PER_PAGE + 5;

fn body(slot: u64) -> anyhow::Result<Bytes> {
    commit(&format!("c{slot}"), if slot % 50 == 7 { 3 * INLINE_BYTES_MAX } else { 10 })
}

async fn write(bus: &Bus, key: &SessionKey, slots: std::ops::Range<u64>) -> anyhow::Result<()> {
    for slot in slots {
        let (id, body) = (format!("c{slot}"), body(slot)?);
        // After a restart the stream may have no leader yet; a repeated write is the same commit.
        eventually("the commit is taken", async || {
            matches!(bus.commit(key, slot, &id, body.clone()).await, Ok(Committed::Ours))
        })
        .await?;
    }
    Ok(())
}

async fn in_log(bus: &Bus, key: &SessionKey) -> anyhow::Result<Vec<u64>> {
    match bus.transport().last_many(Stream::Log, &[subject::log_session(key)]).await? {
        ReadMany::Messages(found) => {
            Ok(found.iter().filter_map(|stored| Some(subject::parse_log(&stored.subject)?.slot)).collect())
        }
        ReadMany::TooMany => anyhow::bail!("too many"),
    }
}

async fn holds(bus: &Bus, key: &SessionKey, end: u64) -> anyhow::Result<()> {
    let history = bus.history(key, 0).await?;
    let found: Vec<_> = history.iter().map(|(slot, commit)| (*slot, commit.meta.commit.clone())).collect();
    assert_eq!(found, (0..end).map(|slot| (slot, format!("c{slot}"))).collect::<Vec<_>>());
    let bytes = history.iter().filter_map(|(_, commit)| commit.snapshot.as_ref()).map(|s| s.get().len()).max();
    assert_eq!(bytes, Some(3 * INLINE_BYTES_MAX + 2), "large ones are whole");
    Ok(())
}

/// A page moves from the log to the archive and is read from there; its slots cannot be written again.
pub(crate) async fn page_moved_to_the_archive_is_read_as_before(world: &mut World) -> anyhow::Result<()> {
    let key = key("paged")?;
    let (bus, other, late) = (world.connect(0).await?, world.connect(1).await?, world.connect(2).await?);
    write(&bus, &key, 0..10).await?;
    late.load_from(&key, 9).await?;
    write(&bus, &key, 10..END).await?;
    // Two at the same time.
    let (one, two) = tokio::join!(
        bus.archive(&key, SLOTS_PER_PAGE, Staying::Nothing),
        other.archive(&key, SLOTS_PER_PAGE, Staying::Nothing)
    );
    one?;
    two?;
    eventually("the page is gone everywhere", async || {
        in_log(&other, &key).await.is_ok_and(|slots| slots.into_iter().eq(SLOTS_PER_PAGE..END))
    })
    .await?;
    for bus in [&bus, &other, &late] {
        holds(bus, &key, END).await?;
    }
    let blob = sha256_hex(&body(7)?);
    assert!(bus.transport().get_object(Objects::Blobs, &blob).await?.is_none());
    assert!(bus.transport().get_object(Objects::Archive, &blob).await?.is_some());
    for (writer, slot) in [(&late, 10), (&world.connect(0).await?, 0), (&world.connect(1).await?, 11)] {
        assert_eq!(writer.commit(&key, slot, "late", commit("late", 0)?).await?, Committed::Theirs, "{slot}");
    }
    bus.archive(&key, SLOTS_PER_PAGE, Staying::Nothing).await?;
    holds(&other, &key, END).await
}

/// The last commit of an archived session expires; then the id is free.
pub(crate) async fn archived_session_expires(world: &mut World) -> anyhow::Result<()> {
    let (bus, key) = (world.bus.clone(), key("faded")?);
    write(&bus, &key, 0..20).await?;
    let life = Some(Duration::from_secs(2));
    let last = commit("c20", 0)?;
    let offer = Offer { slot: 20, prev: "", commit: "c20", body: last, ttl: life };
    assert_eq!(bus.commit_for(&key, offer).await?, Committed::Ours);
    bus.archive(&key, 20, Staying::Nothing).await?;
    // A node that is behind may answer; and the last commit may have expired.
    eventually("the page has left the log", async || {
        in_log(&bus, &key).await.is_ok_and(|slots| slots.iter().all(|slot| *slot == 20))
    })
    .await?;
    assert_eq!(bus.commit_at(&key, 3).await?.map(|commit| commit.meta.commit), Some("c3".to_owned()));
    eventually("it is forgotten", async || matches!(bus.head(&key, Read::Leader).await, Ok(None))).await?;
    write(&bus, &key, 0..1).await
}

/// The archive survives a kill of the server.
pub(crate) async fn archived_pages_are_read_after_a_restart(world: &mut World) -> anyhow::Result<()> {
    let (bus, key) = (world.bus.clone(), key("kept")?);
    write(&bus, &key, 0..END).await?;
    bus.archive(&key, SLOTS_PER_PAGE, Staying::Nothing).await?;
    world.restart().await?;
    // A restarted node needs some time to catch up.
    eventually("all is read again", async || bus.history(&key, 0).await.is_ok_and(|all| all.len() as u64 == END))
        .await?;
    holds(&bus, &key, END).await?;
    write(&bus, &key, END..END + 1).await
}

/// A state of the maximum size is archived; a larger one is refused with a reason.
pub(crate) async fn state_of_fifty_megabytes_is_archived(world: &mut World) -> anyhow::Result<()> {
    let (bus, key) = (world.bus.clone(), key("huge")?);
    let large = commit("c0", 50 << 20)?;
    assert_eq!(bus.commit(&key, 0, "c0", large.clone()).await?, Committed::Ours);
    bus.archive(&key, 1, Staying::Nothing).await?;
    eventually("the state has left the log", async || in_log(&bus, &key).await.is_ok_and(|slots| slots.is_empty()))
        .await?;
    let there = bus.transport().get_object(Objects::Archive, &sha256_hex(&large)).await?;
    assert!(there.is_some_and(|there| there == large));
    let offer = Offer { slot: 1, prev: "", commit: "c1", body: commit("c1", 65 << 20)?, ttl: None };
    let refused = bus.commit_first(&key, offer).await;
    assert!(matches!(refused, Err(BusError::TooLarge { .. })), "{refused:?}");
    Ok(())
}
