//! Attempts of a hostile tool with its NATS user; the server refuses them.

use std::collections::BTreeSet;
use std::time::Duration;

use ailoop_tests::fleet::key;
use ailoop_tests::nats::NatsServer;
use ailoop_tests::wait::{eventually, soon};
use anyhow::{Context, ensure};
use bus::{Bus, BusError, Inbox, Mailbox, Read};
use contract::mail::{Mail, MailEntry};
use contract::streams::Stream;
use contract::subject::{self, MailboxKey};
use contract::{AgentId, MailId, TenantId, Timestamp, ToolName};
use futures::{FutureExt, StreamExt};
use nats_credentials::CredentialsFile;
use nats_permissions::{Answers, roles};

use crate::deploy::probe::Probe;

/// Subjects that a tool may not publish to, and what each message would be.
const FORGED: [&str; 12] = [
    // The result of a call, its own or another tool's, and more time for it.
    "ai_loop.control.provide_tool_result.default.s.forged",
    "ai_loop.control.extend_tool_call.default.s.forged",
    // An approval of a person, and other commands.
    "ai_loop.control.answer.default.s.forged",
    "ai_loop.control.stop.default.s.forged",
    "ai_loop.control.start.default.s.forged",
    // Commits, events, and calls.
    "ai_loop.log.default.s.0.0",
    "ai_loop.tool_call.result_processed.default.s",
    "ai_loop.tool.call.default.word_count.s.t1-1-1.1",
    // A call of another tool, a cancel of it, and an entry of the catalogue.
    "ai_tool.default.read_file",
    "ai_tool_cancel.default.read_file",
    "$KV.ai_loop_tools.default.read_file",
    // An answer to a request that was sent to another service.
    "_INBOX_executor.x.1",
];

/// Subjects that a tool may not subscribe to.
const OTHERS: [&str; 9] = [
    "ai_tool.default.read_file",
    "ai_tool.default.read_file tools",
    "ai_tool.other.word_count tools",
    "ai_tool.>",
    // Its own calls without the queue group: two replicas would run each call.
    "ai_tool.default.word_count",
    "ai_loop.tool_call.identified.default.*",
    "ai_loop.tool.call.default.word_count.*.*.*",
    "_INBOX_executor.>",
    "$KV.ai_loop_tools.>",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_answering_late_or_too_often_is_refused() -> anyhow::Result<()> {
    const MAX: u32 = 3;
    let mut all = roles();
    // As shipped, but with limits that a test can reach: one tool may answer three times, the other one for a second.
    for (name, limits) in [
        ("word_count", Answers { max: MAX, within: Duration::from_mins(1) }),
        ("files", Answers { max: 1_000_000, within: Duration::from_secs(1) }),
    ] {
        let role = all.iter_mut().find(|role| role.name == name).context("a role")?;
        let shipped = role.permissions.answers.replace(limits).context("it answers")?;
        ensure!(shipped.max >= 100 && shipped.within >= Duration::from_mins(1), "progress needs room: {shipped:?}");
    }
    let server = NatsServer::start_guarded_for(all).await?;
    let executor = Bus::connect(&server.config_of("executor")).await?;
    let (mut tool, often) = receive_call(&server, &executor, "word_count", "word_count").await?;
    for number in 0..MAX {
        assert!(tool.may_publish(&often).await?, "answer {number}");
    }
    assert!(!tool.may_publish(&often).await?, "one more");

    let (mut tool, late) = receive_call(&server, &executor, "files", "read_file").await?;
    assert!(tool.may_publish(&late).await?, "in time");
    let refused = async {
        while tool.may_publish(&late).await? {}
        anyhow::Ok(())
    };
    soon("late answers are refused", refused).await??;
    Ok(())
}

/// A connection of a tool's user that got a call, and the subject of the answer.
async fn receive_call(server: &NatsServer, executor: &Bus, user: &str, tool: &str) -> anyhow::Result<(Probe, String)> {
    let mut probe = Probe::of(server, user).await?;
    let subject = subject::tool(&TenantId::default(), &ToolName::new(tool)?);
    let mut calls = probe.client.queue_subscribe(subject.to_string(), "tools".to_owned()).await?;
    probe.round_trip().await?;
    let _asking = executor.transport().request_many(&subject, Vec::new(), "{}".into()).await?;
    let call = soon("the call", calls.next()).await?.context("no call came")?;
    Ok((probe, call.reply.context("the call has no reply subject")?.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_publishing_forged_subjects_is_refused() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let executor = Bus::connect(&server.config_of("executor")).await?;
    let orchestrator = Bus::connect(&server.config_of("orchestrator")).await?;
    let mut tool = Probe::of(&server, "word_count").await?;
    let mut calls = tool.client.queue_subscribe("ai_tool.default.word_count", "tools".to_owned()).await?;
    tool.round_trip().await?;

    // It answers its call.
    let subject = subject::tool(&TenantId::default(), &ToolName::new("word_count")?);
    let asking = executor.transport().request(&subject, Vec::new(), "{}".into(), Duration::from_secs(20));
    let answering = async {
        let call = soon("the call", calls.next()).await?.ok_or_else(|| anyhow::anyhow!("no call came"))?;
        let reply = call.reply.ok_or_else(|| anyhow::anyhow!("the call has no reply subject"))?;
        tool.client.publish(reply, r#"{"words":2}"#.into()).await?;
        Ok(())
    };
    let (answer, answered): (_, anyhow::Result<()>) = tokio::join!(asking, answering);
    answered?;
    assert_eq!(answer?.payload, r#"{"words":2}"#);

    // Nothing else that it publishes is stored.
    for forged in FORGED {
        assert!(!tool.may_publish(forged).await?, "{forged}");
    }
    // It receives no calls, events or answers of others.
    for others in OTHERS {
        assert!(!tool.may_subscribe(others).await?, "{others}");
    }
    let Inbox::Messages(inbox) = orchestrator.inbox(&key("s")?).await? else { anyhow::bail!("the inbox is full") };
    assert!(inbox.is_empty(), "{inbox:?}");
    assert!(orchestrator.head(&key("s")?, Read::Leader).await?.is_none());
    Ok(())
}

/// Users of the tool host without a store in NATS, and one with a store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_user_reaching_for_other_subjects_is_refused() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let (mail_host, executor) =
        (Bus::connect(&server.config_of("mail")).await?, Bus::connect(&server.config_of("executor")).await?);
    let mut tool = Probe::of(&server, "files").await?;
    let mut received = Vec::new();
    for filter in [">", "ai_mail.>", "ai_mail.default.>", "ai_mail.*.*.*", "ai_loop.>", "_INBOX_mail.>", "_INBOX.>"] {
        received.push(tool.client.subscribe(filter).await?);
    }
    for call in ["ai_tool.default.check_mail", "ai_tool.default.read_file"] {
        received.push(tool.client.queue_subscribe(call, "tools".to_owned()).await?);
    }
    tool.round_trip().await?;

    let mailbox = MailboxKey { tenant: TenantId::default(), agent: AgentId::new("e")? };
    let (from, id) = (AgentId::new("p")?, MailId::sent_by("s-c1-1-1"));
    let (call, subject, text) = ("s-c1-1-1".to_owned(), "Plan".to_owned(), "private".to_owned());
    let mail = Mail { v: 1, call, from, subject, text, sent: Timestamp::default(), answers: None };
    mail_host.post_mail(&mailbox, &id, &mail).await?;
    let wanted = Mailbox::Entries(vec![(id.clone(), MailEntry::Open(mail))]);
    assert_eq!(mail_host.mailbox(&mailbox).await?, wanted);
    let written = subject::mail(&mailbox, &id).to_string();
    let mine = [written.as_str(), "$JS.API.DIRECT.GET.AI_LOOP_MAIL", "$JS.API.STREAM.MSG.GET.AI_LOOP_MAIL"];
    let nobodys = [
        "ai_mail.other.e.forged",
        "ai_loop.control.provide_tool_result.default.s.forged",
        "ai_loop.control.send_user_message.default.s.forged",
        "ai_loop.log.default.s.0.0",
        "ai_tool.default.run_command",
        "$JS.API.DIRECT.GET.AI_LOOP_LOG",
        "$JS.API.STREAM.MSG.GET.AI_LOOP_LOG",
        "$JS.API.CONSUMER.MSG.NEXT.AI_LOOP_TOOL.tool",
        "$JS.API.STREAM.PURGE.AI_LOOP_MAIL",
        "$JS.API.CONSUMER.CREATE.AI_LOOP_MAIL.x.ai_mail.other.>",
    ];
    let mut mail_tool = Probe::of(&server, "mail").await?;
    for subject in nobodys {
        assert!(!tool.may_publish(subject).await?, "files publishes {subject}");
        assert!(!mail_tool.may_publish(subject).await?, "mail publishes {subject}");
    }
    for subject in mine {
        assert!(!tool.may_publish(subject).await?, "files publishes {subject}");
    }
    assert_eq!(mail_host.mailbox(&mailbox).await?, wanted);
    // The executor calls both tools; the user gets only the call of its own tool.
    for name in ["check_mail", "read_file"] {
        let call = subject::tool(&TenantId::default(), &ToolName::new(name)?);
        let _asked = executor.transport().request_many(&call, Vec::new(), "{}".into()).await?;
    }
    let mut received = futures::stream::select_all(received);
    let first = soon("the call", received.next()).await?;
    let all = first.into_iter().chain(std::iter::from_fn(|| received.next().now_or_never().flatten()));
    let subjects: BTreeSet<String> = all.map(|message| message.subject.to_string()).collect();
    assert_eq!(subjects, BTreeSet::from(["ai_tool.default.read_file".to_owned()]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewer_receives_only_events_of_its_tenant() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let mut orchestrator = Probe::of(&server, "orchestrator").await?;
    let mut edge = Probe::of(&server, "edge").await?;
    let mut viewer = Probe::of(&server, "viewer").await?;
    let mut subscriptions = Vec::new();
    for filter in [
        ">",
        "ai_loop.>",
        "ai_loop.*.default.>",
        "ai_loop.*.*.default.>",
        "ai_loop.*.default.*",
        "ai_loop.*.*.default.*",
        "ai_loop.log.default.>",
        "ai_loop.control.*.default.>",
        "ai_loop.control.start.default.>",
        "ai_loop.session_started.>",
        "ai_loop.session_started.other.>",
        "ai_loop.session_started.default.>",
    ] {
        subscriptions.push(viewer.client.subscribe(filter).await?);
    }
    viewer.round_trip().await?;
    for subject in ["ai_loop.log.default.s.0.0", "ai_loop.log.other.default.0.0", "ai_loop.session_started.other.s"] {
        orchestrator.client.publish(subject, "private".into()).await?;
    }
    orchestrator.round_trip().await?;
    edge.client.publish("ai_loop.control.start.default.s.c", "private".into()).await?;
    edge.round_trip().await?;
    orchestrator.client.publish("ai_loop.session_started.default.s", "public".into()).await?;
    let mut subscriptions = futures::stream::select_all(subscriptions);
    let first = soon("the public event", subscriptions.next()).await?;
    // Earlier messages have arrived by now, on any subscription.
    let all = first.into_iter().chain(std::iter::from_fn(|| subscriptions.next().now_or_never().flatten()));
    let subjects: BTreeSet<String> = all.map(|message| message.subject.to_string()).collect();
    assert_eq!(subjects, BTreeSet::from(["ai_loop.session_started.default.s".to_owned()]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_verifies_streams_and_cannot_create_them() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    for service in ["orchestrator", "gateway", "executor", "composer", "edge"] {
        Bus::connect(&server.config_of(service)).await?.verify().await?;
    }
    // The code of a service does not try it either.
    let gateway = Bus::connect(&server.config_of("gateway")).await?;
    let purged = gateway.transport().purge(Stream::Log, &subject::log_session(&key("s")?)).await;
    assert!(matches!(purged, Err(BusError::Timeout { .. } | BusError::Unavailable(_))), "{purged:?}");
    let user = CredentialsFile::new(server.credentials_of("gateway")).read()?.claims.public_key;
    eventually("the server logs the refusal", async || {
        let log = server.log();
        log.lines().any(|line| line.contains("STREAM.PURGE.AI_LOOP_LOG") && line.contains(&user))
    })
    .await
}
