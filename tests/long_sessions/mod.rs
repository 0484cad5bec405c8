//! Long sessions: pages move to the archive, ended sessions leave the log, readers see no difference; and sessions are
//! exported to another fleet.

mod compaction;
mod export_import;
mod fixture;
mod move_session;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ailoop_tests::client::TestClient;
use anyhow::Context;
use bus::Read;
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::commit::Commit;
use contract::limits::SLOTS_PER_PAGE;
use edge::config::ListenConfig;
use loop_orchestrator::OrchestratorConfig;
use session::audit::audit;

use fixture::{LoopFixture, in_log, key, orchestrator};

/// Counts the reads of the log by the client.
#[derive(Default)]
struct Reads(AtomicUsize);

impl Faults for Reads {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if op.client == "client" && matches!(op.action, Action::Last(_) | Action::LastMany) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Fault::None
    }
}

/// The slots of a history, each once and in order.
fn slots(commits: &[(u64, Commit)]) -> Vec<u64> {
    commits.iter().map(|(slot, _)| *slot).collect()
}

#[tokio::test(start_paused = true)]
async fn session_of_two_thousand_turns_keeps_a_small_log() -> anyhow::Result<()> {
    const TURNS: u64 = 2_000;
    let reads = Arc::new(Reads::default());
    let fixture = LoopFixture::with(reads.clone()).await?;
    let key = key("long")?;
    fixture.begin(&key, true).await?;
    let (mut most, mut costs) = (0, BTreeSet::new());
    for turn in 1..TURNS {
        fixture.say(&key, &turn.to_string()).await?;
        if turn % 50 == 0 {
            most = most.max(in_log(&fixture.bus, &key).await?.len() as u64);
            let before = reads.0.load(Ordering::SeqCst);
            let loaded = fixture.bus.load(&key).await?.context("no session")?;
            assert!(loaded.len() as u64 <= SLOTS_PER_PAGE);
            costs.insert(reads.0.load(Ordering::SeqCst) - before);
        }
    }
    assert!(most <= 3 * SLOTS_PER_PAGE, "{most} slots in the log");
    // The head, its page, and the parts of the transcript before it.
    assert_eq!(costs, [3].into(), "a load must take the same number of reads at the end as at the beginning");

    let commits = fixture.commits(&key).await?;
    assert!(commits.len() as u64 >= 2 * TURNS);
    assert!(slots(&commits).into_iter().eq(0..commits.len() as u64));
    assert_eq!(audit(key.clone(), &commits, None).differs, []);

    fixture.stop(&key).await?;
    let end = fixture.bus.head(&key, Read::Leader).await?.context("no session")?.slot;
    fixture.archived(&key).await?;
    assert_eq!(in_log(&fixture.bus, &key).await?, [end + 1]);
    let all = fixture.commits(&key).await?;
    assert!(slots(&all).into_iter().eq(0..=end + 1));
    assert_eq!(audit(key.clone(), &all, None).differs, []);
    Ok(())
}

/// Kills one client at the `nth` of its operations that touch the archive or remove from the log.
struct KillAtArchive {
    nth: usize,
    done: bool,
    count: AtomicUsize,
}

impl Faults for KillAtArchive {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let moves = op.action == Action::Delete || op.subject.starts_with("ai_archive.");
        if op.client == "orchestrator" && moves && self.count.fetch_add(1, Ordering::SeqCst) == self.nth {
            return Fault::Crash { done: self.done };
        }
        Fault::None
    }
}

#[tokio::test(start_paused = true)]
async fn orchestrator_killed_between_archive_and_log_loses_nothing() -> anyhow::Result<()> {
    for (nth, done) in [0, 1, 2, 40, 64].into_iter().flat_map(|nth| [(nth, false), (nth, true)]) {
        let killer = Arc::new(KillAtArchive { nth, done, count: AtomicUsize::new(0) });
        let fixture = LoopFixture::with(killer).await?;
        let key = key("killed")?;
        fixture.begin(&key, true).await?;
        // The second orchestrator starts when the first one may be dead.
        let _second = orchestrator(&fixture.server, "another", OrchestratorConfig::default()).await?;
        for turn in 0..34 {
            fixture.say(&key, &turn.to_string()).await?;
        }
        fixture.stop(&key).await?;
        fixture.archived(&key).await?;
        let commits = fixture.commits(&key).await?;
        assert!(slots(&commits).into_iter().eq(0..commits.len() as u64), "{nth} {done}");
        assert_eq!(audit(key, &commits, None).differs, [], "{nth} {done}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_session_is_watched_from_its_beginning() -> anyhow::Result<()> {
    let server = MemoryServer::new();
    // The session leaves the log as soon as it ends.
    let fixture =
        LoopFixture::on(server.clone(), OrchestratorConfig { archive_after: 0, ..OrchestratorConfig::default() })
            .await?;
    let key = key("seen")?;
    fixture.begin(&key, true).await?;
    for turn in 0..70 {
        fixture.say(&key, &turn.to_string()).await?;
    }
    fixture.stop(&key).await?;
    fixture.archived(&key).await?;

    let free = ListenConfig { listen: "127.0.0.1:0".parse()? };
    let config = edge::EdgeConfig { ws: free, grpc: free, ..edge::EdgeConfig::default() };
    let edge = edge::Edge::start(config, server.client("edge").0).await?;
    let client = TestClient::connect(&format!("http://{}", edge.addresses().grpc)).await?;
    let events = client.watch("seen").await?.to_end().await?;
    let commits = fixture.commits(&key).await?;
    let committed: Vec<u64> =
        commits.iter().flat_map(|(slot, commit)| commit.envelopes(&key, *slot)).filter_map(|(_, e)| e.seq).collect();
    assert_eq!(events.iter().filter_map(|event| event.seq).collect::<Vec<_>>(), committed);
    assert_eq!(events.last().map(|event| event.topic.as_str()), Some("session_ended"));

    // The transcript, the phase, and the error of a late command.
    let messages = client.history("seen").await?;
    assert_eq!(messages.len(), 1 + 2 * 71);
    assert_eq!(client.phase("seen").await?, "ended");
    let late = client.send("seen", "Are you there?", "queue").await;
    assert!(late.is_err_and(|error| format!("{error:?}").contains("session_ended")));
    Ok(())
}
