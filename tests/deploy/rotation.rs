//! The credential of every role is rotated while sessions run: no request of a client fails, and nothing restarts.
//!
//! A request waits two seconds or more for a role that reconnects. On a machine that is busy with something else a role
//! may be away for longer: what fails meanwhile is no failure of the rotation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ailoop_tests::fleet::{self, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::nats::now;
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::wait::{eventually, soon};
use ailoop_tool::async_nats::Client;
use ailoop_tool::{Call, Effect, Tool, ToolError, Tools};
use anyhow::{Context, ensure};
use bus::Bus;
use nats_auth::{Installation, Lifetime, Store, SystemConnection};
use nats_credentials::{CredentialsFile, TlsFiles};
use nats_permissions::Account;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Sessions at the same time.
const USERS: usize = 3;
/// The longest time of a role between the end of its old connection and its new one in which no request fails. Half of
/// the shortest wait for a role: a connection is there before its subscriptions are.
const AWAY_MAX: Duration = Duration::from_secs(1);
/// Kinds of tools that the tool-host serves.
const KINDS: [&str; 7] = ["files", "plans", "mail", "results", "sessions", "fetch", "command"];
/// Roles of the processes of services.
const SERVICES: [&str; 5] = ["orchestrator", "gateway", "executor", "composer", "edge"];
/// Tools that this process serves, by role: one of the shipped examples, and one as the tool-host serves MCP servers.
const TOOLS: [(&str, &str); 2] = [("word_count", "word_count"), ("bridge", "bridged")];
/// Roles of commands: this process holds a connection of each.
const COMMANDS: [&str; 7] = ["bootstrap", "archivist", "viewer", "toolsmith", "admin", "restorer", "operator"];
/// Calls of a session; each may be made again after a loss.
const CALLS: [&str; 6] = ["read_file", "word_count", "bridged", "check_mail", "list_plans", "list_sessions"];

fn reply(request: &RecordedRequest) -> ScriptedReply {
    let step = request.messages().iter().filter(|message| message["role"] == "assistant").count();
    let arguments = match step {
        0 => json!({"path": "a.txt"}),
        1 | 2 => json!({"text": "one two"}),
        3..6 => json!({}),
        _ => return ScriptedReply::signal("All six are done.", "TERMINATE"),
    };
    ScriptedReply::text("Next. ").and_calls(&[(CALLS[step], arguments)])
}

/// Time of an event, from one instant to a later one.
#[derive(Clone, Copy)]
struct Span {
    from: Instant,
    to: Instant,
}

impl Span {
    fn since(from: Instant) -> Self {
        Self { from, to: Instant::now() }
    }

    fn overlaps(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// Sessions of one user: those that ran as they should, and the errors of the others.
#[derive(Default)]
struct UserOutcome {
    sessions: Vec<String>,
    failed: Vec<(Span, anyhow::Error)>,
}

/// Runs one session after the other until `stop`.
async fn use_sessions(url: String, user: usize, stop: Arc<AtomicBool>) -> UserOutcome {
    let mut outcome = UserOutcome::default();
    while !stop.load(Ordering::Relaxed) {
        let session = format!("u{user}-{}", outcome.sessions.len() + outcome.failed.len());
        let began = Instant::now();
        match use_session(&url, &session).await {
            Ok(()) => outcome.sessions.push(session),
            Err(error) => outcome.failed.push((Span::since(began), error.context(session))),
        }
    }
    outcome
}

async fn use_session(url: &str, session: &str) -> anyhow::Result<()> {
    let client = ailoop_tests::client::TestClient::connect(url).await?;
    client.start(session, "go").await.context("it does not start")?;
    let events = soon("its end", client.watch(session).await?.to_end()).await??;
    judge::seqs(&events)?;
    let results = events.iter().filter(|event| event.topic == "tool_call.result_processed");
    let outcomes: BTreeMap<&str, &Value> =
        results.map(|event| (event.data["tool"].as_str().unwrap_or_default(), &event.data["outcome"])).collect();
    ensure!(outcomes.len() == CALLS.len() && outcomes.values().all(|outcome| **outcome == "ok"), "{events:?}");
    Ok(())
}

fn counting(name: &str) -> Tool {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let tool = Tool::new(name).description("Counts.").parameters(schema).effect(Effect::Pure);
    tool.handler(async |call: Call| {
        let arguments: Value = call.arguments()?;
        let text = arguments["text"].as_str().ok_or_else(|| ToolError::new("there is no text"))?;
        Ok(json!({"words": text.split_whitespace().count()}))
    })
}

/// Connections of the roles of commands.
async fn hold_connections(fleet: &ProcessFleet) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for role in COMMANDS {
        let file = fleet.nats.credentials_of(role);
        clients.push(ailoop_tool::connect(&fleet.nats.url(), role, Some(&file)).await?);
    }
    Ok(clients)
}

/// Counts the connections of each user, by public key.
async fn count_connections(
    operator: &SystemConnection,
    installation: &Installation,
) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for account in [Account::System, Account::Ailoop] {
        for connected in operator.connections(&installation.authority().account_key(account)).await? {
            *counts.entry(connected.claims.public_key).or_default() += 1;
        }
    }
    Ok(counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credential_of_every_role_rotated_under_load_no_request_fails() -> anyhow::Result<()> {
    let work = tempfile::tempdir()?;
    std::fs::write(work.path().join("a.txt"), "one\n")?;
    let model = ModelServer::start(reply).await?;
    let config = fleet::configuration(&[("test", &model.base_url())])?;
    let tools = json!({"tool_host": {
        "files": {"root": work.path(), "out": work.path().join("out")},
        "command": {"allow": ["true"], "cwd": work.path(), "user": fleet::command_user()},
    }});
    std::fs::write(config.path().join("ailoop.yaml"), tools.to_string())?;
    let config_dir = config.path().display().to_string();
    let process_fleet =
        ProcessFleet::guarded_with_logins(&[("test", &model.base_url())], &KINDS, &[("AILOOP_CONFIG", &config_dir)])
            .await?;
    let mut replicas = Vec::new();
    for service in ["orchestrator", "gateway", "executor", "tool-host"] {
        replicas.push(process_fleet.spawn(service).await?);
    }
    let mut servings = Vec::new();
    for (role, tool) in TOOLS {
        let file = process_fleet.nats.credentials_of(role);
        let tools = Tools::connect_with_credentials(&process_fleet.nats.url(), file).await?;
        servings.push(tools.tool(counting(tool)).serve().await?);
    }
    let held = hold_connections(&process_fleet).await?;
    process_fleet.wait_for_tools(&CALLS).await?;
    let mut edge = process_fleet.edge().await?;
    // As the commands do it; one connection for all of them.
    let store = Store::Directory(process_fleet.nats.auth_directory());
    let mut installation = Installation::open(store, nats_permissions::roles())?;
    let lifetime = || Lifetime { now: now(), valid_for: None };
    let user = installation.authority().role_user("operator", lifetime())?;
    let operator = SystemConnection::connect(&process_fleet.nats.url(), &user, &TlsFiles::default()).await?;

    let stop = Arc::new(AtomicBool::new(false));
    let mut users = JoinSet::new();
    for user in 0..USERS {
        users.spawn(use_sessions(edge.url(), user, stop.clone()));
    }
    let roles = nats_permissions::roles();
    let rotated = SERVICES.into_iter().chain(KINDS).chain(TOOLS.map(|(role, _)| role)).chain(COMMANDS);
    let rotated: Vec<&str> = rotated.collect();
    assert_eq!(rotated.len(), roles.len(), "every role");
    let mut long_away = Vec::new();
    for role in rotated {
        let file = CredentialsFile::new(process_fleet.nats.credentials_of(role));
        let old = file.read()?.claims.public_key;
        let before = count_connections(&operator, &installation).await?.remove(&old);
        ensure!(before.is_some(), "{role} is not connected");
        let new = installation.authority().role_user(role, lifetime())?;
        installation.save_user(role, &new)?;
        let began = Instant::now();
        let revoked = installation.revoke(&operator, &BTreeSet::from([old.clone()]), now()).await?;
        ensure!(revoked.connections_left == 0, "{role}: {revoked:?}");
        eventually(&format!("{role} is back as its new user"), async || {
            let counts = count_connections(&operator, &installation).await;
            counts.is_ok_and(|counts| counts.get(&new.public_key).copied() == before && !counts.contains_key(&old))
        })
        .await?;
        let away = Span::since(began);
        if away.to - away.from > AWAY_MAX {
            long_away.push(away);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut sessions = Vec::new();
    while let Some(user) = users.join_next().await {
        let outcome = user?;
        sessions.extend(outcome.sessions);
        for (span, error) in outcome.failed {
            if !long_away.iter().any(|away| away.overlaps(span)) {
                return Err(error.context(format!("while roles were away for {AWAY_MAX:?} at most")));
            }
        }
    }
    ensure!(sessions.len() > USERS, "{sessions:?} are too few");
    let bus = Bus::connect(&process_fleet.nats.config_of("orchestrator")).await?;
    for session in &sessions {
        judge::log(&bus, &key(session)?, 20).await?;
    }
    // Nothing was restarted.
    for replica in replicas.iter_mut().chain([&mut edge.replica]) {
        ensure!(replica.is_running(), "{} ended", replica.service());
    }
    drop((held, servings));
    Ok(())
}
