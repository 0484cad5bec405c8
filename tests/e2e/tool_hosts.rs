//! Tool hosts are killed, frozen and restarted under load, with the NATS permissions of production: every outcome in a
//! session is true, and nothing takes effect twice.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ailoop_tests::client::{ReceivedEvent, TestClient};
use ailoop_tests::fleet::{self, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::wait::{PATIENCE, soon};
use anyhow::ensure;
use bus::{Bus, Mailbox};
use contract::mail::MailEntry;
use contract::subject::MailboxKey;
use contract::{AgentId, TenantId};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Users that each run one session after the other.
const USERS: usize = 6;
/// Most sessions of a user. Each session sends a mail, and a mailbox takes 100.
const SESSIONS_MAX: usize = 16;
/// Faults, and the time between two of them.
const FAULTS: usize = 9;
const FAULT_EVERY: Duration = Duration::from_millis(700);
/// For how long a process is frozen.
const FROZEN: Duration = Duration::from_secs(2);
const TOOLS: [&str; 4] = ["write_file", "read_file", "send_mail", "run_command"];

/// Writes a file, reads it, sends a mail and runs a command that cannot be repeated: each names its session.
fn reply(request: &RecordedRequest) -> ScriptedReply {
    let step = request.messages().iter().filter(|message| message["role"] == "assistant").count();
    let session = request.last_user();
    let (tool, arguments) = match step {
        0 => ("write_file", json!({"path": format!("{session}.txt"), "content": session})),
        1 => ("read_file", json!({"path": format!("{session}.txt")})),
        2 => ("send_mail", json!({"to": "user", "subject": session, "text": "It is written."})),
        3 => ("run_command", json!({"command": ["sh", "-c", format!("echo {session} >> lines; sleep 0.3")]})),
        _ => return ScriptedReply::signal("All four are done.", "TERMINATE"),
    };
    ScriptedReply::text("Next. ").and_calls(&[(tool, arguments)])
}

/// A directory with the configuration of a tool-host.
fn configuration(url: &str, work: &Path) -> anyhow::Result<tempfile::TempDir> {
    let dir = fleet::configuration(&[("test", url)])?;
    let tools = json!({"tool_host": {
        "files": {"root": work, "out": work},
        "mail": {},
        "command": {"allow": ["sh"], "cwd": work, "user": fleet::command_user()},
    }});
    std::fs::write(dir.path().join("ailoop.yaml"), tools.to_string())?;
    Ok(dir)
}

/// Runs one session after the other until `stop`, at most [`SESSIONS_MAX`]; returns the events of each.
async fn use_sessions(
    process_fleet: Arc<ProcessFleet>,
    url: String,
    user: usize,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Vec<(String, Vec<ReceivedEvent>)>> {
    let mut sessions = Vec::new();
    while !stop.load(Ordering::Relaxed) && sessions.len() < SESSIONS_MAX {
        let session = format!("u{user}-{}", sessions.len());
        let client = TestClient::connect(&url).await?;
        client.start(&session, &session).await?;
        let events = soon(&format!("the end of {session}"), client.watch(&session).await?.to_end()).await??;
        judge::seqs(&events)?;
        judge::log(&process_fleet.bus, &key(&session)?, 20).await?;
        sessions.push((session, events));
    }
    Ok(sessions)
}

/// The outcomes of a session's calls by tool.
fn outcomes(events: &[ReceivedEvent]) -> BTreeMap<String, (String, Value)> {
    let results = events.iter().filter(|event| event.topic == "tool_call.result_processed").map(|event| &event.data);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    results.map(|data| (text(&data["tool"]), (text(&data["outcome"]), data["content"].clone()))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_hosts_killed_frozen_and_restarted_report_true_outcomes() -> anyhow::Result<()> {
    let work = tempfile::tempdir()?;
    std::fs::set_permissions(work.path(), PermissionsExt::from_mode(0o777))?;
    let model = ModelServer::start(reply).await?;
    let url = model.base_url();
    let config = configuration(&url, work.path())?;
    let config_dir = config.path().display().to_string();
    let process_fleet = ProcessFleet::guarded_with_logins(
        &[("test", &url)],
        &["files", "mail", "command"],
        &[("AILOOP_CONFIG", &config_dir)],
    )
    .await?;
    let mut hosts = [process_fleet.spawn("tool-host").await?, process_fleet.spawn("tool-host").await?];
    let _others = (
        process_fleet.spawn("orchestrator").await?,
        process_fleet.spawn("gateway").await?,
        process_fleet.spawn("executor").await?,
    );
    process_fleet.wait_for_tools(&TOOLS).await?;
    let edge = process_fleet.edge().await?;
    let (process_fleet, stop) = (Arc::new(process_fleet), Arc::new(AtomicBool::new(false)));
    let mut users = JoinSet::new();
    for user in 0..USERS {
        users.spawn(use_sessions(process_fleet.clone(), edge.url(), user, stop.clone()));
    }
    for fault in 0..FAULTS {
        sleep(FAULT_EVERY).await;
        let host = &mut hosts[fault % 2];
        match fault % 3 {
            0 => host.kill()?,
            1 => {
                host.freeze()?;
                sleep(FROZEN).await;
                host.thaw()?;
                continue;
            }
            _ => host.terminate(PATIENCE).await?,
        }
        *host = process_fleet.spawn("tool-host").await?;
    }
    stop.store(true, Ordering::Relaxed);
    let mut sessions = Vec::new();
    while let Some(user) = users.join_next().await {
        sessions.extend(user??);
    }

    let lines = std::fs::read_to_string(work.path().join("lines"))?;
    let people = MailboxKey { tenant: TenantId::default(), agent: AgentId::new("user")? };
    let mailbox = Bus::connect(&process_fleet.nats.config_of("mail")).await?.mailbox(&people).await?;
    let Mailbox::Entries(mails) = mailbox else { anyhow::bail!("too many mails") };
    let (mut unknown, mut ok) = (0, 0);
    for (session, events) in &sessions {
        let outcomes = outcomes(events);
        ensure!(outcomes.len() == TOOLS.len(), "{session}: {outcomes:?}");
        for (tool, (outcome, content)) in &outcomes {
            let took_effect = match tool.as_str() {
                "write_file" => {
                    let written = std::fs::read_to_string(work.path().join(format!("{session}.txt")));
                    usize::from(written.is_ok_and(|text| text == *session))
                }
                "send_mail" => mails
                    .iter()
                    .filter(|(_, mail)| matches!(mail, MailEntry::Open(mail) if mail.subject == *session))
                    .count(),
                "run_command" => lines.lines().filter(|line| line == session).count(),
                _ => 1,
            };
            match outcome.as_str() {
                "ok" => ensure!(took_effect == 1, "{session}: {tool} is ok and took effect {took_effect} times"),
                "unknown" => {
                    ensure!(
                        tool == "run_command" && took_effect <= 1,
                        "{session}: {tool} is unknown, {took_effect} effects"
                    );
                    unknown += 1;
                    continue;
                }
                other => anyhow::bail!("{session}: {tool} ended as {other}: {content}"),
            }
            ok += 1;
        }
    }
    ensure!(sessions.len() > USERS, "only {} sessions", sessions.len());
    ensure!(ok > unknown * 4, "{unknown} calls are unknown, {ok} are ok");
    judge::requests(&model.requests())?;
    Ok(())
}
