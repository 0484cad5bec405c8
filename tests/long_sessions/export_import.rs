//! Export of sessions to a file, and import into another fleet.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ailoop_tests::nats::NatsServer;
use bus::{Bus, Read};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::commit::Commit;
use contract::subject::SessionKey;
use contract::{ErrorCode, Timestamp};
use store_admin::export_import;
use terminal::failure::CommandFailure;

use crate::long_sessions::fixture::{LoopFixture, key};

async fn export(bus: &Bus, key: &SessionKey) -> anyhow::Result<Vec<u8>> {
    let mut file = Vec::new();
    export_import::export(bus, key, Timestamp::from_millis(1_700_000_000_000), &mut file).await?;
    Ok(file)
}

async fn import(bus: &Bus, now: Timestamp, file: &[u8]) -> Result<(SessionKey, u64), CommandFailure> {
    export_import::import(bus, &mut Cursor::new(file), now).await
}

fn texts(commits: &[(u64, Commit)]) -> Vec<String> {
    commits.iter().map(|line| serde_json::to_string(line).unwrap_or_default()).collect()
}

#[tokio::test(start_paused = true)]
async fn idle_session_imported_elsewhere_goes_on() -> anyhow::Result<()> {
    let (here, there) = (LoopFixture::new().await?, LoopFixture::new().await?);
    let key = key("mover")?;
    here.begin(&key, true).await?;
    for turn in 0..70 {
        here.say(&key, &turn.to_string()).await?;
    }
    let file = export(&here.bus, &key).await?;
    let (_, taken) = import(&there.bus, there.server.now(), &file).await?;
    let before = here.commits(&key).await?;
    assert_eq!(taken, before.len() as u64);
    let after = there.commits(&key).await?;
    assert_eq!(texts(&after[..before.len()]), texts(&before));
    assert_eq!(after.len(), before.len() + 1, "the import adds one commit");

    // A second import changes nothing, as long as the session has not gone on.
    import(&there.bus, there.server.now(), &file).await?;
    assert_eq!(there.commits(&key).await?.len(), after.len());
    for turn in 0..140 {
        there.say(&key, &format!("there {turn}")).await?;
    }
    let refused = import(&there.bus, there.server.now(), &file).await.map_err(|failure| failure.code().clone());
    assert_eq!(refused, Err(ErrorCode::SessionExists));
    let all = there.commits(&key).await?;
    assert_eq!(texts(&all[..after.len()]), texts(&after));
    assert_eq!(session::audit::audit(key.clone(), &all, None).differs, []);
    assert!(all.len() >= after.len() + 280);
    // The session is exported again and goes on in a third fleet.
    there.stop(&key).await?;
    there.archived(&key).await?;
    let third = MemoryServer::new();
    import(&third.bus(), third.now(), &export(&there.bus, &key).await?).await?;
    assert_eq!(third.bus().head(&key, Read::Leader).await?.map(|head| head.meta.is_archived()), Some(true));
    assert_eq!(
        export(&third.bus(), &key).await?,
        export(&there.bus, &key).await?,
        "commits of the first fleet after the export are not imported"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn import_of_an_invalid_file_names_the_line() -> anyhow::Result<()> {
    let here = LoopFixture::new().await?;
    let key = key("odd")?;
    here.begin(&key, true).await?;
    let file = String::from_utf8(export(&here.bus, &key).await?)?;
    let lines: Vec<&str> = file.lines().collect();
    let with = |number: usize, line: &str| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        lines[number - 1] = line.to_owned();
        lines.join("\n") + "\n"
    };
    let rows = [
        (String::new(), "line 1:"),
        (with(1, "{}"), "line 1:"),
        (with(1, &lines[0].replace("\"version\":1", "\"version\":2")), "line 1:"),
        (
            with(2, &lines[1].replace("\"seq\":1", "\"seq\":2")),
            "line 2: slot 0 differs from the fold of its events: seq",
        ),
        (with(3, "{\"slot\":1}"), "line 3: not a commit"),
        (with(3, lines[1]), "line 3: slot 0 follows where 1 is expected"),
        (
            with(3, &lines[2].replace("\"phase\":\"idle\"", "\"phase\":\"ended\"")),
            "slot 1 differs from the fold of its events: phase",
        ),
        (with(3, &lines[2].replace("\"fold\":", "\"fold\":9")), "a newer version wrote it"),
        (lines[..2].join("\n") + "\n", "line 3:"),
        (lines.join("\n"), "line 3: the line has no end"),
        (format!("{file}{}\n", lines[2]), "line 4: there are lines after the last commit"),
    ];
    let there = MemoryServer::new();
    for (text, why) in rows {
        let refused = import(&there.bus(), there.now(), text.as_bytes()).await.expect_err(why).to_string();
        assert!(refused.contains(why), "{refused} for {why}");
        assert_eq!(there.bus().head(&key, Read::Leader).await?, None);
    }
    import(&there.bus(), there.now(), file.as_bytes()).await?;
    Ok(())
}

/// Kills the importer at its n-th operation.
struct KillAtOperation {
    at: usize,
    done: bool,
    count: AtomicUsize,
}

impl Faults for KillAtOperation {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if op.client == "importer" && op.action != Action::Ping && self.count.fetch_add(1, Ordering::SeqCst) == self.at
        {
            return Fault::Crash { done: self.done };
        }
        Fault::None
    }
}

#[tokio::test(start_paused = true)]
async fn import_killed_at_any_operation_leaves_nothing_or_everything() -> anyhow::Result<()> {
    let here = LoopFixture::new().await?;
    let key = key("half")?;
    here.begin(&key, true).await?;
    for turn in 0..40 {
        here.say(&key, &turn.to_string()).await?;
    }
    let (file, commits) = (export(&here.bus, &key).await?, here.commits(&key).await?);
    for (nth, done) in (0..9).flat_map(|nth| [(nth, false), (nth, true)]) {
        let server = MemoryServer::with_faults(Arc::new(KillAtOperation { at: nth, done, count: AtomicUsize::new(0) }));
        let (importer, _life) = server.client("importer");
        let died = tokio::time::timeout(Duration::from_mins(5), import(&importer, server.now(), &file)).await;
        let bus = server.bus();
        let found = bus.history(&key, 0).await?;
        let whole = found.len() == commits.len() + 1 && texts(&found[..commits.len()]) == texts(&commits);
        assert!(found.is_empty() || whole, "{nth} {done}: {} commits", found.len());
        import(&bus, server.now(), &file).await?;
        let (summary, found) = (bus.summary(&key).await?, bus.history(&key, 0).await?);
        assert!(summary.is_some() && texts(&found[..commits.len()]) == texts(&commits), "{nth} {done} {died:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_imported_into_a_real_server_by_the_permitted_user() -> anyhow::Result<()> {
    let here = LoopFixture::new().await?;
    let key = key("real")?;
    here.begin(&key, true).await?;
    for turn in 0..40 {
        here.say(&key, &turn.to_string()).await?;
    }
    let file = export(&here.bus, &key).await?;
    let server = NatsServer::start_guarded().await?;
    let archivist = Bus::connect(&server.config_of("archivist")).await?;
    import(&archivist, here.server.now(), &file).await?;
    let orchestrator = Bus::connect(&server.config_of("orchestrator")).await?;
    let (before, after) = (here.commits(&key).await?, orchestrator.history(&key, 0).await?);
    assert_eq!(texts(&after[..before.len()]), texts(&before));
    // The export of an imported session has one commit more.
    let again = export(&archivist, &key).await?;
    assert_eq!(String::from_utf8(again)?.lines().count(), before.len() + 2);
    let edge = Bus::connect(&server.config_of("edge")).await?;
    assert!(import(&edge, here.server.now(), &file).await.is_err(), "the edge may not import");
    Ok(())
}
