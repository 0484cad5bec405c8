//! `ailoop sessions rm`: a session is erased everywhere, and no other one is touched.

use std::collections::BTreeSet;
use std::path::Path;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::client::Control;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tests::wait::eventually;
use ailoop_tool::async_nats::{self, Client};
use ailoop_tool::{Effect, Tool};
use anyhow::ensure;
use bus::Read;
use bus::archive::Staying;
use contract::commit::Phase;
use contract::limits::INLINE_BYTES_MAX;
use contract::mail::Mail;
use contract::streams::{Bucket, Objects, Stream};
use contract::subject::MailboxKey;
use contract::{AgentId, MailId, TenantId, Timestamp};
use serde_json::{Value, json};

/// A text that only the erased session has.
const MARKER: &str = "Xanthippe-4711";

/// A tool call whose result is too long for the model, then the end of the turn.
fn reply(request: &RecordedRequest) -> ScriptedReply {
    let since = request.messages().iter().rev().take_while(|message| message["role"] != "user");
    if since.filter(|message| message["role"] == "assistant").count() == 0 {
        return ScriptedReply::text("I look. ").and_calls(&[("echo", json!({"text": request.last_user()}))]);
    }
    ScriptedReply::text(&format!("Done with {}.", request.last_user().chars().take(40).collect::<String>()))
}

/// Subjects of all streams that name a session.
async fn subjects(nats: &Client, session: &str) -> anyhow::Result<BTreeSet<String>> {
    let streams = Stream::ALL.iter().map(|stream| stream.name().to_owned());
    let buckets = Bucket::ALL.iter().map(|bucket| format!("KV_{}", bucket.name()));
    let mut found = BTreeSet::new();
    for stream in streams.chain(buckets) {
        let request = json!({"subjects_filter": ">"}).to_string();
        let info = nats.request(format!("$JS.API.STREAM.INFO.{stream}"), request.into()).await?;
        let info: Value = serde_json::from_slice(&info.payload)?;
        let subjects = info["state"]["subjects"].as_object().cloned().unwrap_or_default();
        found.extend(subjects.into_iter().map(|(subject, _)| subject).filter(|s| s.split('.').any(|t| t == session)));
    }
    Ok(found)
}

/// The files below a directory that contain a text.
fn files_with(dir: &Path, text: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files_with(&path, text, found)?;
        } else if std::fs::read(&path)?.windows(text.len()).any(|bytes| bytes == text.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}

async fn objects(fleet: &TestFleet) -> anyhow::Result<Vec<u64>> {
    let mut messages = Vec::new();
    for store in [Objects::Blobs, Objects::Archive, Objects::Results] {
        messages.push(fleet.bus.transport().storage_size(bus::Storage::Objects(store)).await?.messages);
    }
    Ok(messages)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_session_is_unknown_everywhere_and_its_id_is_free() -> anyhow::Result<()> {
    let model = ModelServer::start(reply).await?;
    let mut fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let echo = Tool::new("echo").effect(Effect::AtMostOnce);
    let plan = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let long = |text: &Value| format!("{text} {}", "y ".repeat(100_000));
    let _tools = plan.with(echo, move |call| ToolAnswer::Text(long(&call.arguments["text"]))).open().await?;
    fleet.wait_for_tools(&["echo"]).await?;
    let client = fleet.client().await?;
    let (work, url, nats_url) = (WorkDir::new()?, fleet.url(), fleet.nats.url());
    let nats = async_nats::connect(&nats_url).await?;
    let at_rest = async |session: &str| {
        let head = fleet.bus.head(&key(session)?, Read::Leader).await?;
        anyhow::Ok(head.is_some_and(|head| matches!(head.meta.phase, Phase::Idle | Phase::Ended)))
    };

    // Another session whose id begins in the same way, and one without anything large.
    client.start_interactive("gone-c1", "stays").await?;
    eventually("the other session is idle", async || at_rest("gone-c1").await.unwrap_or(false)).await?;
    let before = objects(&fleet).await?;
    client.start_interactive("gone", &format!("{MARKER} {}", "x ".repeat(INLINE_BYTES_MAX))).await?;
    eventually("the session is idle", async || at_rest("gone").await.unwrap_or(false)).await?;
    let mailbox = MailboxKey { tenant: TenantId::default(), agent: AgentId::new("e")? };
    for (call, id, text) in [("gone-c1-1-1-0a1b", "a", MARKER), ("gone-c1-c1-1-1-0a1b", "b", "another one")] {
        let (from, subject, text) = (AgentId::new("p")?, "Plan".to_owned(), text.to_owned());
        let mail = Mail { v: 1, call: call.to_owned(), from, subject, text, sent: Timestamp::default(), answers: None };
        fleet.bus.post_mail(&mailbox, &MailId::sent_by(id), &mail).await?;
    }
    ensure!(objects(&fleet).await? != before, "nothing large was stored");

    // A session that has not ended stays.
    let rm = ["sessions", "rm", "gone", "--yes", "--nats", &nats_url];
    let refused = work.run(rm).await?;
    ensure!(
        refused.code == 1 && refused.error()? == "not_now" && refused.stderr.contains("ailoop stop gone"),
        "{refused:?}"
    );
    client.control("gone", Control::Stop).await?;
    eventually("the session ends", async || client.phase("gone").await.is_ok_and(|phase| phase == "ended")).await?;

    // Its first commit, which is large, is in the archive already, and another large one is in the log.
    fleet.bus.archive(&key("gone")?, 1, Staying::Nothing).await?;
    ensure!(objects(&fleet).await?[1] > before[1], "no large commit is in the archive");

    let erased = work.run(rm).await?;
    ensure!(erased.code == 0 && erased.stdout.contains("erased"), "{erased:?}");
    ensure!(subjects(&nats, "gone").await?.is_empty(), "{:?}", subjects(&nats, "gone").await?);
    assert_eq!(objects(&fleet).await?, before, "a body is left");
    for command in [
        vec!["transcript", "gone"],
        vec!["watch", "gone"],
        vec!["replay", "gone"],
        vec!["decisions", "gone"],
        vec!["trace", "gone"],
        vec!["stop", "gone"],
    ] {
        let output = work.run(command.iter().copied().chain(["--url", &url])).await?;
        ensure!(output.code == 1 && output.error()? == "unknown_session", "{command:?}: {output:?}");
    }
    let exported = work.run(["export", "gone", "--nats", &nats_url]).await?;
    ensure!(exported.error()? == "unknown_session", "{exported:?}");
    eventually("the list is without it", async || {
        let listed = work.run(["sessions", "--json", "--url", &url]).await.and_then(|output| output.events());
        listed.is_ok_and(|listed| listed.len() == 1 && listed[0]["session_id"] == "gone-c1")
    })
    .await?;
    let again = work.run(rm).await?;
    ensure!(again.code == 0 && again.stdout.contains("nothing was left"), "{again:?}");

    // The other session has everything, its mail too, and the id is free.
    judge::log(&fleet.bus, &key("gone-c1")?, 10).await?;
    let bus::Mailbox::Entries(mails) = fleet.bus.mailbox(&mailbox).await? else { anyhow::bail!("too many mails") };
    ensure!(mails.len() == 1 && mails[0].1.sent_by() == "gone-c1-c1-1-1-0a1b", "{mails:?}");
    client.start_interactive("gone", "again").await?;
    eventually("the new session is idle", async || at_rest("gone").await.unwrap_or(false)).await?;
    let history = client.history("gone").await?;
    ensure!(history.iter().all(|message| !message.to_string().contains(MARKER)), "the history begins anew");
    judge::log(&fleet.bus, &key("gone")?, 10).await?;

    // On the disk, nothing is left of the session but what docs/backup.md names: bodies of inputs, for a day, and
    // its line of the index, until nats-server compacts the file.
    let copy = tempfile::tempdir()?;
    fleet.nats.terminate().await?;
    fleet.nats.copy_store(copy.path())?;
    let mut found = Vec::new();
    files_with(copy.path(), MARKER, &mut found)?;
    let is_named = |file: &&String| file.contains("OBJ_ai_loop_work") || file.contains("KV_ai_loop_sessions");
    let others: Vec<&String> = found.iter().filter(|file| !is_named(file)).collect();
    ensure!(others.is_empty(), "{others:#?}");
    Ok(())
}
