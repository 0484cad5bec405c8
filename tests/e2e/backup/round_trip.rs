//! A fleet is backed up under load, loses everything, and goes on from the backup.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ailoop_tests::commands::{CommandOutcome, Response, Sessions};
use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::{EdgeReplica, ProcessFleet, Replica};
use ailoop_tests::tool_server::{ToolAnswer, ToolServer, ToolServerBuilder};
use ailoop_tests::wait::{PATIENCE, eventually, soon};
use ailoop_tool::{Approval, Effect, Tool};
use anyhow::{Context, ensure};
use bus::{Mailbox, Read};
use contract::limits::INLINE_BYTES_MAX;
use contract::mail::Mail;
use contract::subject::MailboxKey;
use contract::{AgentId, MailId, TenantId, Timestamp};
use futures::future::join_all;
use serde_json::{Value, json};

use super::{Backups, stream_count};

/// Sessions that have one turn after the other.
const BUSY: [&str; 4] = ["busy0", "busy1", "busy2", "busy3"];
const TOOLS: [&str; 3] = ["idempotent", "at_most_once", "launch"];

/// Replies by the first word of the last user message.
fn reply(request: &RecordedRequest, held: &Gate) -> ScriptedReply {
    let since = request.messages().iter().rev().take_while(|message| message["role"] != "user");
    let is_first = since.filter(|message| message["role"] == "assistant").count() == 0;
    match request.last_user().split(' ').next() {
        Some("hold") => ScriptedReply::text("half ").and_gate(held).and_text("whole"),
        Some("call") if is_first => {
            let arguments = json!({"of": "the backup"});
            ScriptedReply::calls(&[("idempotent", arguments.clone()), ("at_most_once", arguments)])
        }
        Some("launch") if is_first => ScriptedReply::calls(&[("launch", json!({"to": "the moon"}))]),
        _ => ScriptedReply::text("Done.").and_delay(Duration::from_millis(5)),
    }
}

/// Tools that answer when the gate opens, and one that needs an approval.
async fn tools(nats: &str, held: &Gate) -> anyhow::Result<ToolServer> {
    let mut plan = ToolServerBuilder::at(nats).await?;
    for effect in [Effect::Idempotent, Effect::AtMostOnce] {
        let held = held.clone();
        let tool = Tool::new(effect.as_str()).effect(effect).timeout(PATIENCE);
        plan = plan.with(tool, move |call| ToolAnswer::After(held.clone(), call.arguments.clone()));
    }
    let launch = Tool::new("launch").effect(Effect::AtMostOnce).approval(Approval::Always);
    plan.with(launch, |call| ToolAnswer::Json(call.arguments.clone())).open().await
}

/// The processes of a fleet, apart from the composer.
struct Services {
    replicas: Vec<Replica>,
    edge: EdgeReplica,
}

impl Services {
    async fn start(fleet: &ProcessFleet) -> anyhow::Result<Self> {
        let mut replicas = Vec::new();
        for service in ["orchestrator", "orchestrator", "gateway", "executor"] {
            replicas.push(fleet.spawn(service).await?);
        }
        fleet.wait_for_tools(&TOOLS).await?;
        Ok(Self { replicas, edge: fleet.edge().await? })
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        for replica in self.replicas.iter_mut().chain([&mut self.edge.replica]) {
            replica.kill()?;
        }
        Ok(())
    }
}

/// Turns of one session after the other, until `stop`. Returns how many there were.
async fn keep_busy(sessions: &Sessions, session: &str, stop: &AtomicBool) -> anyhow::Result<u32> {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        sent += 1;
        check_accepted(&sessions.send(session, &format!("m{sent}"), "work").await)?;
        sessions.wait_for_rest(session).await?;
    }
    Ok(sent)
}

fn check_accepted(outcome: &CommandOutcome) -> anyhow::Result<()> {
    ensure!(matches!(outcome.response, Response::Accepted), "{outcome:?}");
    Ok(())
}

/// The texts of the user messages of a session.
async fn user_messages(edge: &EdgeReplica, session: &str) -> anyhow::Result<Vec<String>> {
    let history = edge.client().await?.history(session).await?;
    let users = history.iter().filter(|message| message["role"] == "user");
    Ok(users.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect())
}

async fn mail_count(fleet: &ProcessFleet) -> anyhow::Result<usize> {
    match fleet.bus.mailbox(&mailbox()?).await? {
        Mailbox::Entries(entries) => Ok(entries.len()),
        Mailbox::TooMany => anyhow::bail!("too many mails"),
    }
}

fn mailbox() -> anyhow::Result<MailboxKey> {
    Ok(MailboxKey { tenant: TenantId::default(), agent: AgentId::new("e")? })
}

/// The outcomes of the tool calls of a session, from its log.
async fn outcomes(fleet: &ProcessFleet, session: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut outcomes = BTreeMap::new();
    for commit in judge::log(&fleet.bus, &key(session)?, 10).await? {
        let commit = serde_json::to_value(&commit)?;
        for event in commit["events"].as_array().map_or(&[][..], Vec::as_slice) {
            if let (Some(tool), Some(outcome)) = (find(event, "tool"), find(event, "outcome")) {
                outcomes.insert(tool, outcome);
            }
        }
    }
    Ok(outcomes)
}

/// A field of an event, wherever its tag is.
fn find(event: &Value, field: &str) -> Option<String> {
    let fields = event.as_object()?;
    let direct = fields.get(field).and_then(Value::as_str);
    let nested = || fields.values().find_map(|value| value.get(field)?.as_str());
    direct.or_else(nested).map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::too_many_lines, reason = "one story, in the order in which it happens")]
async fn fleet_restored_from_a_backup_under_load_goes_on() -> anyhow::Result<()> {
    let (reply_gate, tool_gate) = (Gate::new(), Gate::new());
    let held = reply_gate.clone();
    let model = ModelServer::start(move |request| reply(request, &held)).await?;
    let environment = [("AILOOP__ORCHESTRATOR__ARCHIVE_AFTER", "1")];
    let mut fleet = ProcessFleet::with(&[("test", &model.base_url())], &environment).await?;
    let tool_server = tools(&fleet.nats.url(), &tool_gate).await?;
    let mut services = Services::start(&fleet).await?;
    let client = services.edge.client().await?;
    let sessions = Sessions::new(services.edge.url(), fleet.bus.clone());

    // Sessions in every state.
    client.start("ended", "go").await?;
    client.start_interactive("idle", "before the backup").await?;
    client.start_interactive("large", &"x ".repeat(INLINE_BYTES_MAX)).await?;
    client.start("model", "hold").await?;
    client.start("tool", "call").await?;
    client.start("gate", "launch").await?;
    for session in BUSY {
        client.start_interactive(session, "work").await?;
    }
    for session in ["idle", "large"].iter().chain(&BUSY) {
        sessions.wait_for_rest(session).await?;
    }
    client.watch("model").await?.until_streamed("half ").await?;
    client.watch("gate").await?.until("gate.opened", |_| true).await?;
    soon("the tools run", tool_server.wait_for_calls(2)).await?;
    let archived = async |session: &str| {
        let last = fleet.bus.head(&key(session)?, Read::Leader).await?;
        anyhow::Ok(last.is_some_and(|last| last.meta.is_archived()))
    };
    eventually("a session is archived", async || archived("ended").await.unwrap_or(false)).await?;
    let (from, id) = (AgentId::new("p")?, MailId::sent_by("idle-c1-1-1"));
    let (call, subject, text) = ("idle-c1-1-1".to_owned(), "Plan".to_owned(), "private".to_owned());
    let mail = Mail { v: 1, call, from, subject, text, sent: Timestamp::default(), answers: None };
    fleet.bus.post_mail(&mailbox()?, &id, &mail).await?;

    // A backup under load.
    let (stop, backups) = (AtomicBool::new(false), Backups::new()?);
    let load = join_all(BUSY.map(|session| keep_busy(&sessions, session, &stop)));
    let under_load = async {
        let done = async {
            soon("the load", model.wait_for_requests(model.requests().len() + 12)).await?;
            let mut handled = BTreeMap::new();
            for session in BUSY {
                handled.insert(session, user_messages(&services.edge, session).await?);
            }
            let made = backups.backup("b", &fleet.nats.url()).await?;
            ensure!(made.stdout.contains(&format!("{} streams", stream_count())), "{}", made.stdout);
            soon("more load", model.wait_for_requests(model.requests().len() + 4)).await?;
            Ok(handled)
        };
        let handled = done.await;
        stop.store(true, Ordering::Relaxed);
        handled
    };
    let (sent, handled) = tokio::join!(load, under_load);
    let handled = handled?;
    for sent in sent {
        ensure!(sent? > 1, "a session had no turns under load");
    }

    // Nothing is deleted under a running fleet.
    let url = fleet.nats.url();
    let refused = backups.run(&["restore", "b", "--nats", &url, "--force", "--yes"]).await?;
    ensure!(refused.code == 1 && refused.error()? == "not_now", "{}", refused.stderr);

    // What happens now is lost.
    check_accepted(&sessions.send("idle", "later", "work").await)?;
    sessions.wait_for_rest("idle").await?;
    client.start_interactive("late", "work").await?;
    sessions.wait_for_rest("late").await?;
    services.kill()?;
    fleet.nats.kill();
    fleet.nats.remove_store()?;
    fleet.nats.resume().await?;
    let restored = backups.restore("b", &fleet.nats.url(), &[]).await?;
    ensure!(restored.stderr.contains("ailoop repair"), "{}", restored.stderr);

    fleet.restart_composer().await?;
    let services = Services::start(&fleet).await?;
    let url = services.edge.url();
    let repaired = backups.run(&["repair", "--url", &url]).await?;
    ensure!(repaired.code == 0, "{}", repaired.stderr);
    reply_gate.open();
    tool_gate.open();
    let client = services.edge.client().await?;
    let sessions = Sessions::new(url.clone(), fleet.bus.clone());

    // The session that waited for the model asks again, and the one that waited for a person still waits.
    soon("the model replies", client.watch("model").await?.to_end()).await??;
    let gates = client.gates("gate").await?;
    client.answer(gates.first().context("a gate")?, "approve", |_| {}).await?;
    soon("the gate", client.watch("gate").await?.to_end()).await??;
    // A call that was sent before the backup is not sent again if it may not be.
    soon("the tools", client.watch("tool").await?.to_end()).await??;
    let expected = [("at_most_once", "unknown"), ("idempotent", "ok")];
    assert_eq!(
        outcomes(&fleet, "tool").await?,
        expected.map(|(tool, outcome)| (tool.to_owned(), outcome.to_owned())).into()
    );
    let ran = |tool: &str| tool_server.calls().iter().filter(|call| call.tool == tool).count();
    assert_eq!((ran("at_most_once"), ran("launch")), (1, 1));

    // What was there before the backup is there; what came later is not.
    assert_eq!(user_messages(&services.edge, "idle").await?, ["before the backup"]);
    ensure!(user_messages(&services.edge, "large").await?[0].len() >= INLINE_BYTES_MAX);
    ensure!(client.phase("ended").await? == "ended" && user_messages(&services.edge, "ended").await? == ["go"]);
    let unknown = client.phase("late").await.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(unknown.starts_with("unknown_session"), "{unknown}");
    assert_eq!(mail_count(&fleet).await?, 1);
    for (session, handled) in &handled {
        sessions.wait_for_rest(session).await?;
        let found = user_messages(&services.edge, session).await?;
        ensure!(found.starts_with(handled), "{session} lost a message from before the backup: {found:?}");
    }

    // Every session goes on, and its log is valid.
    for session in ["idle", "large"].iter().chain(&BUSY) {
        check_accepted(&sessions.send(session, "after-the-restore", "work").await)?;
        sessions.wait_for_rest(session).await?;
    }
    let all = ["idle", "large", "model", "tool", "gate", "ended"].into_iter().chain(BUSY);
    for session in all {
        judge::log(&fleet.bus, &key(session)?, 10).await?;
        let replayed = backups.run(&["replay", session, "--url", &url]).await?;
        ensure!(replayed.code == 0, "{session}: {}", replayed.stderr);
    }
    judge::requests(&model.requests())?;
    let listed = backups.run(&["sessions", "--json", "--url", &url]).await?.events()?;
    ensure!(listed.len() == 6 + BUSY.len(), "{listed:?}");
    Ok(())
}
