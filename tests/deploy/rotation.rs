//! The credential of every role is rotated while sessions run: no request of a client fails, and nothing restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ailoop_tests::fleet::{self, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::wait::eventually;
use ailoop_tool::async_nats::Client;
use ailoop_tool::{Call, Effect, Tool, ToolError, Tools};
use anyhow::{Context, ensure};
use bus::Bus;
use nats_credentials::CredentialsFile;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::deploy::credentials::NatsAuth;

/// Sessions at the same time.
const USERS: usize = 3;
/// Longest time that a session may take.
const SESSION_MAX: Duration = Duration::from_secs(60);
/// Kinds of tools that the tool-host serves.
const KINDS: [&str; 7] = ["files", "plans", "mail", "results", "sessions", "fetch", "command"];
/// Roles of services.
const SERVICES: [&str; 5] = ["orchestrator", "gateway", "executor", "composer", "edge"];
/// Tools that this process serves, by role: one of the shipped examples, and one as the tool-host serves MCP servers.
const TOOLS: [(&str, &str); 2] = [("word_count", "word_count"), ("bridge", "bridged")];
/// Roles of commands: this process holds a connection of each.
const COMMANDS: [&str; 6] = ["bootstrap", "archivist", "viewer", "toolsmith", "admin", "operator"];
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

/// Runs one session after the other until `stop`; returns them.
async fn use_sessions(url: String, user: usize, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<String>> {
    let mut sessions = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let session = format!("u{user}-{}", sessions.len());
        let client = ailoop_tests::client::TestClient::connect(&url).await?;
        client.start(&session, "go").await.with_context(|| format!("{session} does not start"))?;
        let events = tokio::time::timeout(SESSION_MAX, client.watch(&session).await?.to_end());
        let events = events.await.with_context(|| format!("{session} does not end"))??;
        judge::seqs(&events)?;
        let results = events.iter().filter(|event| event.topic == "tool_call.result_processed");
        let outcomes: BTreeMap<&str, &Value> =
            results.map(|event| (event.data["tool"].as_str().unwrap_or_default(), &event.data["outcome"])).collect();
        ensure!(
            outcomes.len() == CALLS.len() && outcomes.values().all(|outcome| **outcome == "ok"),
            "{session}: {events:?}"
        );
        sessions.push(session);
    }
    Ok(sessions)
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

/// How many connections each user has, by public key.
async fn connections(auth: &NatsAuth) -> anyhow::Result<BTreeMap<String, usize>> {
    let (code, listed, stderr) = auth.ask(&["user", "list", "--json"]).await?;
    ensure!(code == 0, "{stderr}");
    let lines = listed.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let connections = |line: &Value| line["connections"].as_array().map_or(0, Vec::len);
    Ok(lines.iter().map(|line| (line["user"].as_str().unwrap_or_default().to_owned(), connections(line))).collect())
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
    let auth = NatsAuth::of(&process_fleet.nats)?;

    let stop = Arc::new(AtomicBool::new(false));
    let mut users = JoinSet::new();
    for user in 0..USERS {
        users.spawn(use_sessions(edge.url(), user, stop.clone()));
    }
    let roles = nats_permissions::roles();
    let rotated = SERVICES.into_iter().chain(KINDS).chain(TOOLS.map(|(role, _)| role)).chain(COMMANDS);
    let rotated: Vec<&str> = rotated.collect();
    assert_eq!(rotated.len(), roles.len(), "every role");
    for role in rotated {
        let file = CredentialsFile::new(process_fleet.nats.credentials_of(role));
        let old = file.read()?.claims.public_key;
        let before = connections(&auth).await?[&old];
        ensure!(before > 0, "{role} is not connected");
        auth.add(&["--role", role, "--replace"], "").await?;
        let new = file.read()?.claims.public_key;
        auth.revoke(&old).await?;
        eventually(&format!("{role} is back as its new user"), async || {
            connections(&auth).await.is_ok_and(|now| now.get(&new) == Some(&before) && now.get(&old) == Some(&0))
        })
        .await?;
        if let Some(user) = users.try_join_next() {
            user?.with_context(|| format!("a user gave up while {role} was rotated"))?;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut sessions = Vec::new();
    while let Some(user) = users.join_next().await {
        sessions.extend(user??);
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
