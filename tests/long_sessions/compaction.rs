//! Logs of idle sessions are compacted while replicas die, and every reader finds the session as it was.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ailoop_tests::client::TestClient;
use bus::Read;
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::Timestamp;
use contract::event::Event;
use contract::limits::{COMPACT_AFTER, RETENTION};
use edge::config::ListenConfig;
use loop_orchestrator::OrchestratorConfig;
use serde_json::json;
use session::audit::audit;
use store_admin::export_import;

use crate::long_sessions::fixture::{LoopFixture, key, orchestrator};
use crate::long_sessions::slots;

/// Kills one client at the `nth` of its operations after a log began to be compacted: the commit, each operation of the
/// archive, each removal, the timer.
struct KillAtCompaction {
    nth: usize,
    done: bool,
    count: AtomicUsize,
}

impl Faults for KillAtCompaction {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let moves = op.action == Action::Delete
            || op.subject.starts_with("ai_archive.")
            || op.action == Action::Append && op.subject.starts_with("ai_timer.set");
        if op.client == "orchestrator" && moves && self.count.fetch_add(1, Ordering::SeqCst) == self.nth {
            return Fault::Crash { done: self.done };
        }
        Fault::None
    }
}

#[tokio::test(start_paused = true)]
async fn orchestrator_killed_while_it_compacts_a_log_loses_nothing() -> anyhow::Result<()> {
    for (nth, done) in (0..24).flat_map(|nth| [(nth, false), (nth, true)]) {
        let killer = Arc::new(KillAtCompaction { nth, done, count: AtomicUsize::new(0) });
        let fixture = LoopFixture::with(killer).await?;
        let key = key("killed")?;
        let _second = orchestrator(&fixture.server, "another", OrchestratorConfig::default()).await?;
        fixture.begin(&key, true).await?;
        for rest in 0..3 {
            for turn in 0..3 {
                fixture.say(&key, &format!("{rest}.{turn}")).await?;
            }
            fixture.archived(&key).await?;
            let head = fixture.bus.head(&key, Read::Leader).await?;
            assert!(head.is_some_and(|head| head.meta.log_start == Some(head.slot)), "{nth} {done}");
        }
        fixture.say(&key, "last").await?;
        let commits = fixture.commits(&key).await?;
        assert!(slots(&commits).into_iter().eq(0..commits.len() as u64), "{nth} {done}: {:?}", slots(&commits));
        assert_eq!(audit(key, &commits, None).differs, [], "{nth} {done}");
    }
    Ok(())
}

/// A session of some turns whose log is one commit, on a server with an edge.
async fn resting(server: &MemoryServer) -> anyhow::Result<LoopFixture> {
    let config = OrchestratorConfig { compact_after: 0, ..OrchestratorConfig::default() };
    let fixture = LoopFixture::on(server.clone(), config).await?;
    let key = key("rests")?;
    fixture.begin(&key, true).await?;
    for turn in 0..5 {
        fixture.say(&key, &turn.to_string()).await?;
    }
    fixture.archived(&key).await?;
    Ok(fixture)
}

async fn edge(server: &MemoryServer) -> anyhow::Result<edge::Edge> {
    let free = ListenConfig { listen: "127.0.0.1:0".parse()? };
    let config = edge::EdgeConfig { ws: free, grpc: free, ..edge::EdgeConfig::default() };
    Ok(edge::Edge::start(config, server.client("edge").0).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compacted_session_is_read_watched_and_forked_like_any_other() -> anyhow::Result<()> {
    let server = MemoryServer::new();
    let fixture = resting(&server).await?;
    let key = key("rests")?;
    let edge = edge(&server).await?;
    let client = TestClient::connect(&format!("http://{}", edge.addresses().grpc)).await?;
    assert_eq!(client.phase("rests").await?, "idle");
    assert_eq!(client.history("rests").await?.len(), 1 + 2 * 6, "the prompt, and six turns");
    let mut watching = client.watch("rests").await?;
    fixture.say(&key, "wake up").await?;
    watching.until("message.ai_full_received", |data| data["text"] == "Answer to wake up").await?;
    assert_eq!(client.history("rests").await?.len(), 1 + 2 * 7);
    fixture.archived(&key).await?;

    // From the end, from a slot that is in the archive, and into a log of its own.
    for (fork, from) in [("end", json!({"session_id": "rests"})), ("slot", json!({"session_id": "rests", "at": 3}))] {
        client.begin(fork, "And here?", &json!({"agent": "e", "interactive": true, "resume_from": from})).await?;
        let forked = client.history(fork).await?;
        assert!(forked.iter().any(|message| message["content"] == "Answer to 0"), "{fork}: {forked:?}");
    }
    fixture.stop(&key).await?;
    let events = client.watch("rests").await?.to_end().await?;
    let commits = fixture.commits(&key).await?;
    let committed: Vec<u64> =
        commits.iter().flat_map(|(slot, commit)| commit.envelopes(&key, *slot)).filter_map(|(_, e)| e.seq).collect();
    assert_eq!(events.iter().filter_map(|event| event.seq).collect::<Vec<_>>(), committed);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn compacted_session_is_exported_imported_and_goes_on() -> anyhow::Result<()> {
    let (here, there) = (resting(&MemoryServer::new()).await?, LoopFixture::new().await?);
    let key = key("rests")?;
    let now = Timestamp::from_millis(1_700_000_000_000);
    let mut file = Vec::new();
    let written = export_import::export(&here.bus, &key, now, &mut file).await?;
    export_import::import(&there.bus, &mut Cursor::new(&file), there.server.now()).await?;
    let (before, after) = (here.commits(&key).await?, there.commits(&key).await?);
    assert_eq!((written, after.len()), (before.len() as u64, before.len() + 1));
    there.say(&key, "there").await?;
    assert_eq!(audit(key.clone(), &there.commits(&key).await?, None).differs, []);
    there.archived(&key).await?;
    there.say(&key, "again").await?;
    assert_eq!(audit(key.clone(), &there.commits(&key).await?, None).differs, []);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn session_outlives_what_the_archive_has_of_it() -> anyhow::Result<()> {
    let fixture = resting(&MemoryServer::new()).await?;
    let key = key("rests")?;
    let messages = async || anyhow::Ok(audit(key.clone(), &fixture.commits(&key).await?, None).session.messages());
    let before = messages().await?;
    let pages = async || fixture.bus.transport().count(contract::streams::Stream::Archive, &page_of(&key)).await;
    assert_eq!(pages().await?, 1);
    // Nobody else uses the server, so its archive is emptied by hand: a session that nobody wakes ends before that.
    fixture.bus.transport().purge(contract::streams::Stream::Archive, &page_of(&key)).await?;
    let left = fixture.commits(&key).await?;
    assert!(slots(&left) == [slots(&left)[0]] && left[0].1.events.iter().any(|e| matches!(e, Event::LogCompacted(_))));
    assert_eq!(messages().await?, before, "the snapshot has the transcript");
    fixture.say(&key, "still here").await?;
    fixture.archived(&key).await?;
    assert_eq!(messages().await?.len(), before.len() + 2);
    assert_eq!(audit(key.clone(), &fixture.commits(&key).await?, None).differs, []);
    // What is left is exported, too, and imported.
    let (mut file, there) = (Vec::new(), LoopFixture::new().await?);
    export_import::export(&fixture.bus, &key, Timestamp::from_millis(1), &mut file).await?;
    export_import::import(&there.bus, &mut Cursor::new(&file), there.server.now()).await?;
    there.say(&key, "there").await?;
    assert_eq!(audit(key.clone(), &there.commits(&key).await?, None).differs, []);
    assert!(RETENTION > COMPACT_AFTER + Duration::from_hours(24));
    Ok(())
}

fn page_of(key: &contract::subject::SessionKey) -> contract::subject::Subject {
    contract::subject::archive_page(key, 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewer_of_events_that_the_archive_has_forgotten_gets_resync() -> anyhow::Result<()> {
    let server = MemoryServer::new();
    let fixture = resting(&server).await?;
    let key = key("rests")?;
    fixture.bus.transport().purge(contract::streams::Stream::Archive, &page_of(&key)).await?;
    let edge = edge(&server).await?;
    let client = TestClient::connect(&format!("http://{}", edge.addresses().grpc)).await?;
    let refused = client.watch("rests").await?.to_end().await;
    assert!(refused.is_err_and(|error| format!("{error:?}").contains("resync")));
    Ok(())
}
