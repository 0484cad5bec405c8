//! The roles `admin` and `operator` can send the requests behind the runbook's commands, and the shipped users get
//! answers. The requests are those of the `nats` command line, version 0.4.

use ailoop_tests::fleet::key;
use ailoop_tests::nats::{NatsCluster, NatsServer};
use ailoop_tests::wait::{eventually, soon};
use anyhow::{Context, ensure};
use async_nats::Client;
use bus::{Bus, Mailbox, Read};
use contract::mail::Mail;
use contract::streams::Bucket;
use contract::subject::MailboxKey;
use contract::{AgentId, MailId, TenantId, Timestamp};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::deploy::probe::Probe;

/// Sends a request and returns its answer, which may be an error of JetStream.
async fn ask(client: &Client, subject: &str, body: &Value) -> anyhow::Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = soon(subject, client.request(subject.to_owned(), body.into())).await?;
    let answer = answer.with_context(|| subject.to_owned())?;
    Ok(serde_json::from_slice(&answer.payload).unwrap_or(Value::Null))
}

/// As [`ask`], for an answer without an error.
async fn ask_ok(client: &Client, subject: &str, body: &Value) -> anyhow::Result<Value> {
    let answer = ask(client, subject, body).await?;
    ensure!(answer.get("error").is_none(), "{subject}: {answer}");
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_runs_the_requests_of_the_runbook() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let admin = Probe::of(&server, "admin").await?.client;

    // nats stream ls, info; nats consumer info
    let names = ask_ok(&admin, "$JS.API.STREAM.NAMES", &Value::Null).await?;
    ensure!(names["streams"].to_string().contains("AI_LOOP_LOG"), "{names}");
    ask_ok(&admin, "$JS.API.STREAM.INFO.AI_LOOP_LOG", &Value::Null).await?;
    let consumer = ask_ok(&admin, "$JS.API.CONSUMER.INFO.AI_LOOP_TOOL.tool", &Value::Null).await?;
    ensure!(consumer["num_pending"] == 0, "{consumer}");

    // nats stream view AI_LOOP_LOG --subject …
    let orchestrator = Probe::of(&server, "orchestrator").await?.client;
    ask_ok(&orchestrator, "ai_loop.log.default.s.0.0", &json!({"a": "commit"})).await?;
    let filter = "ai_loop.log.default.s.>";
    let config = json!({"name": "view", "filter_subject": filter, "ack_policy": "none", "inactive_threshold": 60_000_000_000_i64});
    let create = json!({"stream_name": "AI_LOOP_LOG", "config": config, "action": "create"});
    ask_ok(&admin, &format!("$JS.API.CONSUMER.CREATE.AI_LOOP_LOG.view.{filter}"), &create).await?;
    let inbox = admin.new_inbox();
    let mut page = admin.subscribe(inbox.clone()).await?;
    let next = json!({"batch": 1, "no_wait": true}).to_string();
    admin.publish_with_reply("$JS.API.CONSUMER.MSG.NEXT.AI_LOOP_LOG.view", inbox, next.into()).await?;
    let message = soon("a message of the page", page.next()).await?.context("the subscription ended")?;
    assert_eq!(
        (message.subject.as_str(), &*message.payload),
        ("ai_loop.log.default.s.0.0", br#"{"a":"commit"}"#.as_slice())
    );
    ask_ok(&admin, "$JS.API.CONSUMER.DELETE.AI_LOOP_LOG.view", &Value::Null).await?;

    // nats kv get, nats kv del
    let gateway = Bus::connect(&server.config_of("gateway")).await?;
    let budget = "budget.default.2026-11";
    gateway.transport().kv_put(Bucket::Limits, budget, r#"{"spent":1}"#.into(), None).await?;
    ask_ok(&admin, "$JS.API.STREAM.INFO.KV_ai_loop_limits", &Value::Null).await?;
    let entry = format!("$KV.ai_loop_limits.{budget}");
    let read = ask(&admin, &format!("$JS.API.DIRECT.GET.KV_ai_loop_limits.{entry}"), &Value::Null).await?;
    assert_eq!(read["spent"], 1);
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("KV-Operation", "DEL");
    admin.request_with_headers(entry, headers, "".into()).await?;
    assert!(gateway.transport().kv_get(Bucket::Limits, budget).await?.is_none());

    // nats stream purge AI_LOOP_MAIL --subject …
    let mail_host = Bus::connect(&server.config_of("mail")).await?;
    let mailbox = MailboxKey { tenant: TenantId::default(), agent: AgentId::new("e")? };
    let (from, id) = (AgentId::new("p")?, MailId::sent_by("s-c1-1-1"));
    let (call, subject, text) = ("s-c1-1-1".to_owned(), "Plan".to_owned(), "private".to_owned());
    let mail = Mail { v: 1, call, from, subject, text, sent: Timestamp::default(), answers: None };
    mail_host.post_mail(&mailbox, &id, &mail).await?;
    let purged = ask_ok(&admin, "$JS.API.STREAM.PURGE.AI_LOOP_MAIL", &json!({"filter": "ai_mail.default.e.*"})).await?;
    assert_eq!(purged["purged"], 1);
    assert_eq!(mail_host.mailbox(&mailbox).await?, Mailbox::Entries(Vec::new()));
    Ok(())
}

/// `nats stream backup`, and `nats stream restore` on an empty server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_backs_up_a_stream_and_restores_it_on_another_server() -> anyhow::Result<()> {
    let (server, mut other) = (NatsServer::start_guarded().await?, NatsServer::start_guarded().await?);
    let orchestrator = Probe::of(&server, "orchestrator").await?.client;
    ask_ok(&orchestrator, "ai_loop.log.default.s.0.0", &json!({"a": "commit"})).await?;
    let admin = Probe::of(&server, "admin").await?.client;
    let inbox = admin.new_inbox();
    let mut parts = admin.subscribe(inbox.clone()).await?;
    let request = json!({"deliver_subject": inbox, "no_consumers": false, "chunk_size": 65_536});
    let snapshot = ask_ok(&admin, "$JS.API.STREAM.SNAPSHOT.AI_LOOP_LOG", &request).await?;
    let mut copy = Vec::new();
    loop {
        let part = soon("a part of the copy", parts.next()).await?.context("the subscription ended")?;
        if part.payload.is_empty() {
            break;
        }
        copy.extend_from_slice(&part.payload);
        if let Some(reply) = part.reply {
            admin.publish(reply, "".into()).await?;
        }
    }
    ensure!(!copy.is_empty(), "the copy is empty");

    // A server whose stream is gone: nats-server restores no stream that exists.
    other.kill();
    other.remove_store()?;
    other.resume().await?;
    let admin = Probe::of(&other, "admin").await?.client;
    let restore = json!({"config": snapshot["config"], "state": snapshot["state"]});
    let restore = ask_ok(&admin, "$JS.API.STREAM.RESTORE.AI_LOOP_LOG", &restore).await?;
    let to = restore["deliver_subject"].as_str().context("where to")?.to_owned();
    for part in copy.chunks(65_536) {
        let answer = admin.request(to.clone(), part.to_vec().into()).await?;
        ensure!(!String::from_utf8_lossy(&answer.payload).contains("-ERR"), "{answer:?}");
    }
    let done = soon("the restore", admin.request(to, "".into())).await??;
    ensure!(String::from_utf8_lossy(&done.payload).contains("\"messages\":1"), "{done:?}");
    let orchestrator = Bus::connect(&other.config_of("orchestrator")).await?;
    let read = orchestrator.head(&key("s")?, Read::Leader).await;
    ensure!(!matches!(read, Ok(None)), "the commit is back: {read:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_move_leaders_of_a_cluster_and_revoke_on_all_servers() -> anyhow::Result<()> {
    let cluster = NatsCluster::start3_guarded().await?;
    let admin = Probe::of(&cluster.nodes[0], "admin").await?.client;
    let operator = Probe::of(&cluster.nodes[0], "operator").await?.client;

    // nats server ls, nats server report …: an answer of each server.
    for report in ["$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.JSZ", "$SYS.REQ.SERVER.PING.CONNZ"] {
        let inbox = operator.new_inbox();
        let mut answers = operator.subscribe(inbox.clone()).await?;
        operator.publish_with_reply(report, inbox, "".into()).await?;
        for _ in 0..cluster.nodes.len() {
            soon(report, answers.next()).await?.context("an answer")?;
        }
    }
    // nats stream cluster step-down, nats consumer cluster step-down, nats stream cluster peer-remove
    let info = "$JS.API.STREAM.INFO.AI_LOOP_LOG";
    let leader = ask_ok(&admin, info, &Value::Null).await?["cluster"]["leader"].clone();
    ask_ok(&admin, "$JS.API.STREAM.LEADER.STEPDOWN.AI_LOOP_LOG", &Value::Null).await?;
    eventually("another server leads", async || {
        ask(&admin, info, &Value::Null).await.is_ok_and(|info| {
            let now = &info["cluster"]["leader"];
            now.is_string() && *now != leader
        })
    })
    .await?;
    ask_ok(&admin, "$JS.API.CONSUMER.LEADER.STEPDOWN.AI_LOOP_TOOL.tool", &Value::Null).await?;
    let refused = ask(&admin, "$JS.API.STREAM.PEER.REMOVE.AI_LOOP_LOG", &json!({"peer": "nobody"})).await?;
    ensure!(refused["error"]["description"].to_string().contains("peer"), "{refused}");
    // nats server cluster step-down, nats server cluster peer-remove
    ask_ok(&operator, "$JS.API.META.LEADER.STEPDOWN", &Value::Null).await?;
    eventually("a new leader of the cluster answers", async || {
        let refused = ask(&operator, "$JS.API.SERVER.REMOVE", &json!({"peer": "nobody"})).await;
        refused.is_ok_and(|refused| refused["error"]["description"].to_string().contains("server"))
    })
    .await?;

    // A user that is revoked by one server is refused by all.
    let auth = crate::deploy::credentials::NatsAuth::of(&cluster.nodes[0])?;
    let file = auth.add(&["--tool", "weather"], "weather.creds").await?;
    for node in &cluster.nodes {
        Probe::with_credentials(node, "weather", &file).await?;
    }
    auth.revoke(&file.display().to_string()).await?;
    for node in &cluster.nodes {
        assert!(Probe::with_credentials(node, "weather", &file).await.is_err(), "{}", node.url());
    }
    Ok(())
}
