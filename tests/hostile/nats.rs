//! A NATS user that wants to deliver what it may not publish, and a server in the place of the real one.

use std::path::PathBuf;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::nats::NatsServer;
use ailoop_tests::wait::{PATIENCE, soon};
use anyhow::{Context as _, bail, ensure};
use async_nats::{ConnectOptions, Event};
use bus::{Bus, NatsConfig};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;

use crate::hostile::attempts::Attempts;

/// Buckets of large bodies, which several roles read.
const BUCKETS: [&str; 3] = ["ai_loop_work", "ai_loop_results", "ai_loop_blobs"];
/// The subject of calls to a tool: only executors may publish there.
const CALLS: &str = "ai_tool.default.word_count";

/// Wants the server to deliver stored objects to the subject of a tool, as each user that the command makes.
pub(crate) async fn consumers_of_objects(attempts: Attempts) -> anyhow::Result<()> {
    let dir = WorkDir::new()?;
    let made = dir.run(["nats-auth", "init", "--directory", "auth"]).await?;
    ensure!(made.code == 0, "{}", made.stderr);
    let auth = dir.path().join("auth");
    let settings = std::fs::read_to_string(auth.join("auth.conf"))?;
    let accounts = dir.path().join("accounts").display().to_string();
    let server =
        NatsServer::start_with(format!("max_control_line: 32KB\n{}", settings.replace("/data/jwt", &accounts)));
    let server = server.await?;
    let credentials = |role: &str| auth.join("users").join(format!("{role}.creds"));
    let bootstrap = NatsConfig { credentials: Some(credentials("bootstrap")), ..server.config() };
    let bus = Bus::connect(&bootstrap).await?;
    bus.ensure().await?;
    bus.close().await;
    for entry in std::fs::read_dir(auth.join("users"))? {
        let file = entry?.path();
        let role = file.file_stem().context("a name")?.to_string_lossy().into_owned();
        for bucket in BUCKETS {
            let delivers = create_consumer(&server, &role, file.clone(), bucket).await?;
            attempts.check(delivers.is_none(), || format!("{role} delivers {bucket} to {CALLS}: {delivers:?}"));
        }
    }
    Ok(())
}

/// Asks for a consumer that delivers to [`CALLS`], and returns the answer; `None` where the server refuses the request.
async fn create_consumer(
    server: &NatsServer,
    role: &str,
    file: PathBuf,
    bucket: &str,
) -> anyhow::Result<Option<String>> {
    let (sender, mut refusals) = unbounded_channel();
    let options = ConnectOptions::with_credentials_file(file).await?;
    let options = options.connection_timeout(PATIENCE).custom_inbox_prefix(format!("_INBOX_{role}"));
    let options = options.event_callback(move |event| {
        if let Event::ServerError(error) = event {
            // The trial may have dropped the receiver.
            drop(sender.send(error.to_string()));
        }
        std::future::ready(())
    });
    let client = options.connect(server.url()).await?;
    let stream = format!("OBJ_{bucket}");
    let config =
        json!({"deliver_subject": CALLS, "deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant"});
    let request = json!({"stream_name": stream, "config": config}).to_string();
    let subject = format!("$JS.API.CONSUMER.CREATE.{stream}");
    tokio::select! {
        answer = client.request(subject, request.into()) => {
            Ok(Some(String::from_utf8_lossy(&answer?.payload).into_owned()))
        }
        refusal = soon("a refusal", refusals.recv()) => {
            let refusal = refusal?.unwrap_or_default();
            ensure!(refusal.to_lowercase().contains("permissions violation"), "{refusal}");
            Ok(None)
        }
    }
}

/// Stands in the place of nats-server, and says that no encryption is needed.
pub(crate) async fn server_in_clear(attempts: Attempts) -> anyhow::Result<()> {
    let dir = WorkDir::new()?;
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, certified.cert.pem())?;
    let trusts = Some(ca.display().to_string());
    for (scheme, ca) in [("tls", None), ("nats", trusts)] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("{scheme}://ailoop:the-password@{}", listener.local_addr()?);
        let environment = [("AILOOP__NATS__URL", Some(url)), ("AILOOP__NATS__TLS__CA", ca)];
        let dir = environment.into_iter().fold(WorkDir::new()?, |dir, (name, value)| match value {
            Some(value) => dir.with(name, value),
            None => dir,
        });
        let service = dir.spawn(["orchestrator"])?;
        let sent = tokio::select! {
            sent = bytes_after_info(&listener) => sent?,
            ended = service.wait_with_output() => bail!("{scheme}: it ended without a connection: {ended:?}"),
        };
        let is_clear = sent.contains("CONNECT") || sent.contains("the-password");
        attempts.check(!is_clear, || format!("{scheme}: in clear: {sent}"));
    }
    Ok(())
}

/// Says that no encryption is needed, and returns what comes then: none where the client closes the connection.
async fn bytes_after_info(listener: &TcpListener) -> anyhow::Result<String> {
    let (mut stream, _) = soon("a connection", listener.accept()).await??;
    let info = json!({"server_id": "x", "version": "2.15.1", "proto": 1, "headers": true, "max_payload": 1 << 20});
    stream.write_all(format!("INFO {info}\r\n").as_bytes()).await?;
    let mut first = [0; 4096];
    let length = soon("the first bytes", stream.read(&mut first)).await?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&first[..length]).into_owned())
}
