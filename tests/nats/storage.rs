//! Storage that is full or unavailable: writes are refused with an error that names the remedy, no acknowledged write
//! is lost, no refused write is stored, and work goes on over the same connection once the cause is gone.

use std::path::Path;
use std::time::Duration;

use ailoop_tests::nats::{NatsCluster, NatsServer, StorageLimits};
use anyhow::{Context, bail, ensure};
use async_nats::Client;
use bus::transport::{Ack, Appended};
use bus::work::Publication;
use bus::{Bus, BusError, Claim, Committed, Inbox, Read, StreamRewind};
use bytes::Bytes;
use contract::command::Verb;
use contract::ids::{CallAttempt, CallId, ToolName};
use contract::limits::INLINE_BYTES_MAX;
use contract::model::ItemMeta;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::{self, SessionKey};
use contract::tool::{EffectClass, ToolItem};
use contract::{Coded as _, ErrorCode, Json, Timestamp};
use serde_json::{Value, json};

use crate::nats::world::{commit, eventually, id, key, pull, pull_one};

/// All kinds of writes of services; each is refused or done as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Commit,
    LargeCommit,
    Command,
    LargeCommand,
    Item,
    Entry,
    NewEntry,
    Claim,
    Object,
}

use Write::{Claim as ClaimCall, Command, Commit, Entry, Item, LargeCommand, LargeCommit, NewEntry, Object};

const ALL: [Write; 9] = [Commit, LargeCommit, Command, LargeCommand, Item, Entry, NewEntry, ClaimCall, Object];
const LARGE: usize = INLINE_BYTES_MAX * 3;

/// A body that is unique for each session, so that its object is new.
fn large(session: &SessionKey) -> Bytes {
    let text = format!("{}{}", session.session, "x".repeat(LARGE));
    format!(r#"{{"meta":{{"v":1}},"text":"{text}"}}"#).into()
}

fn call() -> CallAttempt {
    CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 }
}

fn item() -> anyhow::Result<ToolItem> {
    let (call, deadline, agent) = (call().call, Timestamp::default(), "e".to_owned());
    let meta = ItemMeta { v: 1, slot: 1, turn: 1, step: 1, call, attempt: 1, deadline, agent };
    let (tool, arguments) = (ToolName::new("t")?, Json::parse("{}")?);
    let (effect, session_started) = (EffectClass::Pure, None);
    Ok(ToolItem {
        meta,
        tool,
        arguments,
        effect,
        max_output: 1_000,
        timeout_ms: 60_000,
        session_started,
        opened_by: String::new(),
        opened_at: None,
    })
}

/// A second session, named after this one.
fn beside(session: &SessionKey) -> anyhow::Result<SessionKey> {
    key(&format!("{}-large", session.session))
}

impl Write {
    /// Performs the write as services do.
    async fn perform(self, bus: &Bus, session: &SessionKey) -> Result<(), BusError> {
        let (transport, name) = (bus.transport(), format!("t.{}", session.session));
        let malformed = |error: anyhow::Error| BusError::Malformed(error.to_string());
        match self {
            Commit => ours(bus.commit(session, 0, "c", commit("c", 0).map_err(malformed)?).await?),
            LargeCommit => ours(
                bus.commit(&beside(session).map_err(malformed)?, 0, "l", commit("l", LARGE).map_err(malformed)?)
                    .await?,
            ),
            Command => {
                let id = id("small").map_err(malformed)?;
                bus.send_control(session, Verb::Pause, &id, "{}".into()).await.map(drop)
            }
            LargeCommand => {
                let id = id("large").map_err(malformed)?;
                bus.send_control(session, Verb::Start, &id, large(session)).await.map(drop)
            }
            Item => bus.publish_tool_item(session, &item().map_err(malformed)?, Publication::First).await,
            Entry => transport.kv_put(Bucket::Sessions, &name, "{}".into(), None).await,
            // Not in a bucket whose entries expire within the test.
            NewEntry if transport.kv_create(Bucket::Limits, &name, "{}".into(), None).await?.is_some() => Ok(()),
            NewEntry => Err(BusError::Malformed("the entry already exists".to_owned())),
            ClaimCall => match bus.claim(session, &call().call, &[], "me").await? {
                Claim::Mine => Ok(()),
                Claim::Theirs(_) => Err(BusError::Malformed("another executor holds the claim".to_owned())),
            },
            Object => transport.put_object(Objects::Blobs, session.session.as_str(), large(session)).await,
        }
    }

    /// Whether the written data is stored.
    async fn is_there(self, bus: &Bus, session: &SessionKey) -> anyhow::Result<bool> {
        let (transport, name) = (bus.transport(), format!("t.{}", session.session));
        // From the leader: an inbox is read from any replica, which may be behind.
        let waits = async |verb: Verb, name: &str| -> anyhow::Result<bool> {
            let at = subject::control(session, verb, &id(name)?);
            Ok(transport.last(Stream::Control, &at, Read::Leader).await?.is_some())
        };
        Ok(match self {
            Commit => bus.commit_at(session, 0).await?.is_some(),
            LargeCommit => bus.commit_at(&beside(session)?, 0).await?.is_some(),
            Command => waits(Verb::Pause, "small").await?,
            LargeCommand => waits(Verb::Start, "large").await?,
            Item => {
                let at = subject::tool_item(session, &ToolName::new("t")?, &call());
                transport.last(Stream::Tool, &at, Read::Leader).await?.is_some()
            }
            Entry => transport.kv_get(Bucket::Sessions, &name).await?.is_some(),
            NewEntry => transport.kv_get(Bucket::Limits, &name).await?.is_some(),
            ClaimCall => {
                let name = format!("{}.{}.{}", session.tenant, session.session, call().call);
                transport.kv_get(Bucket::Claims, &name).await?.is_some()
            }
            Object => transport.get_object(Objects::Blobs, session.session.as_str()).await? == Some(large(session)),
        })
    }
}

fn ours(committed: Committed) -> Result<(), BusError> {
    match committed {
        Committed::Ours => Ok(()),
        Committed::Theirs => Err(BusError::Malformed("a commit of another writer".to_owned())),
    }
}

/// Performs writes for a session in parallel.
async fn perform(bus: &Bus, writes: &[Write], session: &SessionKey) -> Vec<(Write, Result<(), BusError>)> {
    let all = writes.iter().map(|write| async move { (*write, write.perform(bus, session).await) });
    futures::future::join_all(all).await
}

/// Performs writes; all must be stored.
async fn works(bus: &Bus, writes: &[Write], session: &str) -> anyhow::Result<()> {
    let session = key(session)?;
    for (write, came) in perform(bus, writes, &session).await {
        came.with_context(|| format!("{write:?}"))?;
        ensure!(write.is_there(bus, &session).await?, "{write:?} was acknowledged and is not there");
    }
    Ok(())
}

/// Repeats writes until they are done, as services do; then all must be stored.
async fn goes_on(bus: &Bus, writes: &[Write], session: &str) -> anyhow::Result<()> {
    let session = &key(session)?;
    futures::future::try_join_all(writes.iter().map(|write| async move {
        eventually(&format!("{write:?} works"), || async { write.perform(bus, session).await.is_ok() }).await?;
        // Some are read from any replica, which may be behind after a restart.
        let there = || async { write.is_there(bus, session).await.unwrap_or(false) };
        eventually(&format!("{write:?}, which was acknowledged, is there"), there).await
    }))
    .await
    .map(drop)
}

/// Tries writes: each is refused as full, with an error that contains these words, and stores nothing.
async fn is_refused(bus: &Bus, writes: &[Write], session: &str, words: &[&str]) -> anyhow::Result<()> {
    let session = key(session)?;
    for (write, came) in perform(bus, writes, &session).await {
        let Err(error) = came else { bail!("{write:?} was accepted") };
        ensure!(matches!(error, BusError::Full(_)), "{write:?}: {error:?}");
        ensure!(error.code() == ErrorCode::Overloaded, "{write:?}: {error:?}");
        let text = error.to_string();
        ensure!(words.iter().all(|word| text.contains(word)), "{write:?}: {text}");
        ensure!(!write.is_there(bus, &session).await?, "{write:?} was refused and is there");
    }
    Ok(())
}

async fn api(client: &Client, subject: &str, body: &Value) -> anyhow::Result<Value> {
    let answer = client.request(format!("$JS.API.{subject}"), serde_json::to_vec(body)?.into()).await?;
    Ok(serde_json::from_slice(&answer.payload)?)
}

/// Fills the storage with a separate stream, down to messages that are smaller than any write of services.
async fn take_all_room(client: &Client) -> anyhow::Result<()> {
    let made = api(client, "STREAM.CREATE.FILLER", &json!({"name": "FILLER", "subjects": ["filler"]})).await?;
    ensure!(made.get("error").is_none(), "{made}");
    for bytes in [500_000_usize, 1_000, 1] {
        loop {
            let answer = client.request("filler", vec![b'x'; bytes].into()).await?;
            let answer: Value = serde_json::from_slice(&answer.payload)?;
            if answer.get("error").is_some() {
                break;
            }
        }
    }
    Ok(())
}

/// Fills a server or an account, then frees it.
async fn full_and_free_again(limits: StorageLimits, words: &[&str]) -> anyhow::Result<()> {
    let server = NatsServer::start_limited(limits).await?;
    let (bus, client) = (server.ready().await?, async_nats::connect(server.url()).await?);
    works(&bus, &ALL, "before").await?;
    take_all_room(&client).await?;
    is_refused(&bus, &ALL, "meanwhile", words).await?;
    // Stored data can be read, and items can be acknowledged.
    let session = key("before")?;
    for write in ALL {
        ensure!(write.is_there(&bus, &session).await?, "{write:?} is gone");
    }
    let held = pull(&bus, Queue::Inputs, 2, Duration::from_secs(2)).await?;
    ensure!(held.len() == 2, "{held:?}");
    for delivery in &held {
        bus.transport().ack(delivery, bus::transport::Ack::Done).await?;
    }
    eventually("acknowledged items make room", || async {
        matches!(bus.inbox(&session).await, Ok(Inbox::Messages(waiting)) if waiting.is_empty())
    })
    .await?;
    api(&client, "STREAM.DELETE.FILLER", &json!({})).await?;
    // The refused writes succeed with the same client.
    works(&bus, &ALL, "meanwhile").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_server_refuses_and_recovers() -> anyhow::Result<()> {
    let limits = StorageLimits { server_bytes: Some(8 << 20), ..StorageLimits::default() };
    full_and_free_again(limits, &["error 10023", "max_file_store"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_account_refuses_and_recovers() -> anyhow::Result<()> {
    let limits = StorageLimits { account_bytes: Some(8 << 20), ..StorageLimits::default() };
    full_and_free_again(limits, &["error 10002", "account"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_stream_refuses_and_recovers() -> anyhow::Result<()> {
    let server = NatsServer::start().await?;
    let (bus, client) = (server.ready().await?, async_nats::connect(server.url()).await?);
    works(&bus, &ALL, "before").await?;
    let streams = [
        Stream::Control.name().to_owned(),
        Stream::Log.name().to_owned(),
        Stream::Tool.name().to_owned(),
        format!("KV_{}", Bucket::Sessions.name()),
        format!("KV_{}", Bucket::Limits.name()),
        format!("KV_{}", Bucket::Claims.name()),
        format!("OBJ_{}", Objects::Work.name()),
        format!("OBJ_{}", Objects::Blobs.name()),
    ];
    for (limit, session, words) in [
        ("max_bytes", "bytes", ["error 10077", "maximum bytes exceeded", "bootstrap --fix"]),
        ("max_msgs", "messages", ["error 10077", "maximum messages exceeded", "bootstrap --fix"]),
    ] {
        for stream in &streams {
            let info = api(&client, &format!("STREAM.INFO.{stream}"), &json!({})).await?;
            let mut config = info["config"].clone();
            let used = if limit == "max_bytes" { &info["state"]["bytes"] } else { &info["state"]["messages"] };
            config[limit] = used.clone();
            let updated = api(&client, &format!("STREAM.UPDATE.{stream}"), &config).await?;
            ensure!(updated.get("error").is_none(), "{updated}");
        }
        is_refused(&bus, &ALL, session, &words).await?;
        // The operator's remedy.
        let Err(BusError::Unusable { code: ErrorCode::StreamDrift, message }) = bus.ensure().await else {
            bail!("a limit is no drift")
        };
        ensure!(message.contains(limit), "{message}");
        bus.repair().await?;
        works(&bus, &ALL, session).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_acknowledges_nothing_and_recovers_by_restart() -> anyhow::Result<()> {
    let limits = StorageLimits { disk_bytes: Some(16 << 20), ..StorageLimits::default() };
    let mut server = match NatsServer::start_limited(limits).await {
        Ok(server) => server,
        Err(error) => {
            say(&format!("not checked on this system: {error:#}"));
            return Ok(());
        }
    };
    let bus = server.ready().await?;
    works(&bus, &ALL, "before").await?;
    server.disk()?.fill()?;
    let session = key("meanwhile")?;
    // Fills what nats-server had reserved before.
    let mut acknowledged = Vec::new();
    let refused = loop {
        let slot = acknowledged.len() as u64;
        let at = subject::log_slot(&session, 128 + slot);
        match bus.transport().append(&at, true, Vec::new(), commit("c", 20_000)?).await {
            Ok(Appended::Stored(_)) => acknowledged.push(at),
            Ok(Appended::Doubtful(why)) => bail!("{why}"),
            Err(error) => break error,
        }
    };
    let text = refused.to_string();
    ensure!(matches!(refused, BusError::Timeout { .. }) && text.contains("disk"), "{refused:?}");
    ensure!(server.log().contains("no space left on device"), "{}", server.log());
    // Writes that wait are done once the operator has made room.
    let (came, restarted) = tokio::join!(goes_on(&bus, &ALL, "meanwhile"), async {
        server.disk()?.free()?;
        server.restart().await
    });
    restarted?;
    came?;
    for at in acknowledged {
        ensure!(bus.transport().last(Stream::Log, &at, Read::Leader).await?.is_some(), "{at} was acknowledged");
    }
    for write in ALL {
        ensure!(write.is_there(&bus, &key("before")?).await?, "{write:?} is gone");
    }
    works(&bus, &ALL, "after").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_jetstream_acknowledges_nothing() -> anyhow::Result<()> {
    let mut server = NatsServer::start().await?;
    let bus = server.ready().await?;
    works(&bus, &ALL, "before").await?;
    server.restart_with_jetstream(false).await?;
    eventually("the connection is back", || async { bus.ping().await.is_ok() }).await?;
    let session = key("meanwhile")?;
    for (write, came) in perform(&bus, &ALL, &session).await {
        let Err(error) = came else { bail!("{write:?} was acknowledged without JetStream") };
        ensure!(matches!(error, BusError::Unavailable(_)), "{write:?}: {error:?}");
        ensure!(error.to_string().contains("JetStream"), "{write:?}: {error}");
    }
    server.restart_with_jetstream(true).await?;
    eventually("the connection is back", || async { bus.ping().await.is_ok() }).await?;
    for write in ALL {
        ensure!(!write.is_there(&bus, &session).await?, "{write:?} was refused and is there");
        ensure!(write.is_there(&bus, &key("before")?).await?, "{write:?} is gone");
    }
    works(&bus, &ALL, "meanwhile").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_without_quorum_acknowledges_nothing() -> anyhow::Result<()> {
    let mut cluster = NatsCluster::start3().await?;
    cluster.ready().await?.close().await;
    let bus = cluster.connect(2).await?;
    works(&bus, &ALL, "before").await?;
    cluster.nodes[0].kill();
    cluster.nodes[1].kill();
    let session = key("meanwhile")?;
    let writes = [Commit, Command, Item, Entry, ClaimCall, Object];
    for (write, came) in perform(&bus, &writes, &session).await {
        let Err(error) = came else { bail!("{write:?} was acknowledged by one of three") };
        ensure!(matches!(error, BusError::Unavailable(_) | BusError::Timeout { .. }), "{write:?}: {error:?}");
        ensure!(error.code() == ErrorCode::Unavailable, "{write:?}: {error:?}");
    }
    cluster.nodes[0].resume().await?;
    cluster.nodes[1].resume().await?;
    let before = key("before")?;
    for write in ALL {
        let there = || async { write.is_there(&bus, &before).await.unwrap_or(false) };
        eventually(&format!("{write:?} is served again"), there).await?;
    }
    // A write without an answer may be stored; its repetition is the same write. Leaders may still change.
    goes_on(&bus, &writes, "meanwhile").await?;
    goes_on(&bus, &ALL, "after").await
}

#[allow(clippy::print_stderr, reason = "what a test could not do")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// A copy of the store of a running server is not of one instant. Here it has an item, and a consumer state in which
/// the item is acknowledged: it is never delivered, and its slot is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn item_acknowledged_in_an_older_store_is_delivered_after_a_reset() -> anyhow::Result<()> {
    let mut server = NatsServer::start().await?;
    let bus = server.ready().await?;
    let (session, copies) = (key("s")?, tempfile::tempdir()?);
    let (waiting, done) = (copies.path().join("waiting"), copies.path().join("done"));
    let publish =
        async |publication| bus.publish_tool_item(&session, &item()?, publication).await.map_err(anyhow::Error::from);
    let consumer = format!("jetstream/$G/streams/{}/obs", Stream::Tool.name());
    let state = |copy: &Path| std::fs::read(copy.join(&consumer).join("tool/o.dat")).unwrap_or_default();

    publish(Publication::First).await?;
    server.copy_store(&waiting)?;
    let delivery = pull_one(&bus, Queue::Tool).await?;
    bus.transport().ack(&delivery, Ack::Done).await?;
    let mut before = Vec::new();
    eventually("the consumer's state is written", || {
        let written = server.copy_store(&done).map(|()| state(&done)).unwrap_or_default();
        let settled = written != state(&waiting) && written == before;
        before = written;
        // The state is written with a delay: two equal reads show the last one.
        async move {
            tokio::time::sleep(Duration::from_millis(400)).await;
            settled
        }
    })
    .await?;
    server.kill();
    std::fs::remove_dir_all(waiting.join(&consumer))?;
    std::fs::rename(done.join(&consumer), waiting.join(&consumer))?;
    server.put_store_back(&waiting, None)?;
    server.resume().await?;
    publish(Publication::Again).await?;
    ensure!(
        pull(&bus, Queue::Tool, 1, Duration::from_secs(1)).await?.is_empty(),
        "the copy does not have the state that this test needs"
    );
    bus.reset_queues(None, "a").await?;
    let delivery = pull_one(&bus, Queue::Tool).await?;
    ensure!(delivery.may_have_been_held(), "the worker must check whether the item is done");
    Ok(())
}

/// Behind a connection that stays: a look at the end of the stream would come too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_made_anew_and_grown_past_its_old_end_is_found() -> anyhow::Result<()> {
    let server = NatsServer::start().await?;
    let bus = server.ready().await?;
    let send = async |name: &str| {
        bus.send_control(&key("s")?, Verb::Pause, &id(name)?, "{}".into()).await.map_err(anyhow::Error::from)
    };
    for name in ["a", "b", "b"] {
        send(name).await?;
    }
    ensure!(!bus.transport().may_be_rewound() && bus.transport().rewound().await?.is_empty(), "b came twice");

    let (js, stream) = (async_nats::jetstream::new(async_nats::connect(server.url()).await?), Stream::Control.name());
    let config = js.get_stream(stream).await?.info().await?.config.clone();
    js.delete_stream(stream).await?;
    js.create_stream(config).await?;
    for name in ["c", "d", "e"] {
        send(name).await?;
    }
    ensure!(bus.transport().may_be_rewound(), "c got the sequence of a");
    let found = bus.transport().rewound().await?;
    ensure!(matches!(found[..], [StreamRewind { stream: Stream::Control, last: 3, .. }]), "{found:?}");
    ensure!(!bus.transport().may_be_rewound() && bus.transport().rewound().await?.is_empty(), "it is reported once");
    Ok(())
}

/// The client of NATS keeps what is published while it is not connected, and sends it to the next server. There it would
/// acknowledge the item that has got this sequence in an older store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn item_that_ends_while_the_server_is_away_is_delivered_again() -> anyhow::Result<()> {
    let mut server = NatsServer::start().await?;
    let bus = server.ready().await?;
    bus.publish_tool_item(&key("s")?, &item()?, Publication::First).await?;
    let delivery = pull_one(&bus, Queue::Tool).await?;
    server.kill();
    eventually("the client notices that the server is away", || async { bus.ping().await.is_err() }).await?;
    ensure!(bus.transport().ack(&delivery, Ack::Done).await.is_err(), "the ack is kept for the next server");
    server.resume().await?;
    let again = pull_one(&bus, Queue::Tool).await?;
    ensure!(again.seq == delivery.seq, "another item came: {again:?}");
    let late = bus.transport().ack(&delivery, Ack::Done).await;
    ensure!(late.is_err(), "it came over the connection before");
    Ok(())
}

/// The same with a removal: there it would remove the message that has got this sequence in an older store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_while_the_server_is_away_removes_nothing_later() -> anyhow::Result<()> {
    let mut server = NatsServer::start().await?;
    let bus = server.ready().await?;
    let subject = subject::log_slot(&key("s")?, 0);
    let appended = bus.transport().append(&subject, true, Vec::new(), Bytes::from_static(b"{}")).await?;
    ensure!(matches!(appended, Appended::Stored(_)), "the message was not stored: {appended:?}");
    let stored = bus.transport().last(Stream::Log, &subject, Read::Leader).await?.context("it is not there")?;
    server.kill();
    eventually("the client notices that the server is away", || async { bus.ping().await.is_err() }).await?;
    ensure!(bus.transport().delete(Stream::Log, &stored).await.is_err(), "there is no server");
    server.resume().await?;
    eventually("the client is connected again", || async { bus.ping().await.is_ok() }).await?;
    let found = bus.transport().last(Stream::Log, &subject, Read::Leader).await?;
    ensure!(found.is_some_and(|found| found.seq == stored.seq), "the removal is kept for the next server");
    let late = bus.transport().delete(Stream::Log, &stored).await;
    ensure!(late.is_err(), "it was read over the connection before");
    Ok(())
}
