//! Connecting: what is refused, and in which words.

use ailoop_tests::nats::NatsServer;
use anyhow::{Context, bail, ensure};
use bus::{Bus, BusError, NatsConfig};
use contract::ErrorCode;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

async fn refusal(config: &NatsConfig) -> (ErrorCode, String) {
    match Bus::connect(config).await {
        Ok(_) => (ErrorCode::Internal, "connected".to_owned()),
        Err(error) => (error.code(), error.to_string()),
    }
}

/// What a client hears of a server as distributions package it: an old version that says so.
async fn play_old_server(listener: TcpListener) -> std::io::Result<()> {
    let (socket, _) = listener.accept().await?;
    let (from, mut to) = socket.into_split();
    to.write_all(b"INFO {\"server_id\":\"x\",\"version\":\"2.9.25\",\"headers\":true,\"max_payload\":1048576}\r\n")
        .await?;
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        if line == "PING" {
            to.write_all(b"PONG\r\n").await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_old_server_is_refused_with_a_way_out() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = NatsConfig { url: format!("nats://{}", listener.local_addr()?), ..NatsConfig::default() };
    let (code, message) = tokio::select! {
        refused = refusal(&config) => refused,
        ended = play_old_server(listener) => anyhow::bail!("the server ended: {ended:?}"),
    };
    assert_eq!(code, ErrorCode::NatsTooOld);
    for part in ["2.9.25", "2.12", "github.com/nats-io/nats-server"] {
        assert!(message.contains(part), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_named() -> anyhow::Result<()> {
    let plain = NatsServer::start_without_jetstream().await?;
    assert_eq!(refusal(&plain.config()).await.0, ErrorCode::NatsNoJetStream);
    let mut gone = NatsServer::start().await?;
    gone.kill();
    let (code, message) = refusal(&gone.config()).await;
    assert_eq!(code, ErrorCode::NatsUnreachable);
    assert!(message.contains(&gone.url()), "{message}");
    let config = NatsConfig { url: "nats://[".to_owned(), ..NatsConfig::default() };
    assert_eq!(refusal(&config).await.0, ErrorCode::BadConfig);
    Ok(())
}

#[tokio::test]
async fn drift_is_refused_by_name_and_repaired_on_demand() -> anyhow::Result<()> {
    let server = NatsServer::start().await?;
    let bus = server.ready().await?;
    bus.ensure().await?;
    let client = async_nats::connect(server.url()).await?;
    let change = |name: &'static str, settings: serde_json::Value| {
        let client = client.clone();
        async move {
            let body = if settings.is_null() { Vec::new() } else { serde_json::to_vec(&settings)? };
            let answer = client.request(format!("$JS.API.{name}"), body.into()).await?;
            let answer: serde_json::Value = serde_json::from_slice(&answer.payload)?;
            assert!(answer.get("error").is_none(), "{answer}");
            anyhow::Ok(answer)
        }
    };
    let mut log = change("STREAM.INFO.AI_LOOP_LOG", serde_json::Value::Null).await?["config"].take();
    log["max_age"] = serde_json::json!(3_600_000_000_000_u64);
    change("STREAM.UPDATE.AI_LOOP_LOG", log).await?;
    let Err(BusError::Unusable { code, message }) = bus.ensure().await else { anyhow::bail!("drift was let in") };
    assert_eq!(code, ErrorCode::StreamDrift);
    for part in ["AI_LOOP_LOG", "max_age", "3600000000000", "bootstrap --fix"] {
        assert!(message.contains(part), "{message}");
    }
    bus.repair().await?;
    bus.ensure().await?;
    let mut drive = change("CONSUMER.INFO.AI_LOOP_CONTROL.drive", serde_json::Value::Null).await?["config"].take();
    drive["max_ack_pending"] = serde_json::json!(1000);
    let body = serde_json::json!({ "stream_name": "AI_LOOP_CONTROL", "config": drive });
    change("CONSUMER.DURABLE.CREATE.AI_LOOP_CONTROL.drive", body).await?;
    let Err(BusError::Unusable { message, .. }) = bus.ensure().await else { anyhow::bail!("drift was let in") };
    assert!(message.contains("drive") && message.contains("max_ack_pending is 1000"), "{message}");
    bus.repair().await?;
    Ok(bus.ensure().await?)
}

/// A server that goes down has JetStream and does not answer for it: whoever starts meanwhile waits instead of being told to
/// switch JetStream on.
#[tokio::test]
async fn server_that_goes_down_during_a_start_is_away_and_not_without_jetstream() -> anyhow::Result<()> {
    // It closes the connection, or says that nobody answers.
    for closes in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let config = NatsConfig { url: format!("nats://{}", listener.local_addr()?), ..NatsConfig::default() };
        let server = async {
            let (read, mut write) = listener.accept().await?.0.into_split();
            let info = r#"{"server_id":"S","server_name":"s","version":"2.15.1","go":"go1","host":"127.0.0.1","port":4222,"headers":true,"max_payload":1048576,"proto":1,"jetstream":true,"client_id":1}"#;
            write.write_all(format!("INFO {info}\r\n").as_bytes()).await?;
            let mut lines = BufReader::new(read).lines();
            let mut inbox = 0;
            while let Some(line) = lines.next_line().await? {
                let words: Vec<&str> = line.split(' ').collect();
                match words.as_slice() {
                    ["PING"] => write.write_all(b"PONG\r\n").await?,
                    ["SUB", .., id] => inbox = id.parse()?,
                    ["PUB" | "HPUB", "$JS.API.INFO", ..] if closes => return anyhow::Ok(()),
                    ["PUB" | "HPUB", "$JS.API.INFO", to, ..] => {
                        let status = "NATS/1.0 503\r\n\r\n";
                        let length = status.len();
                        write
                            .write_all(format!("HMSG {to} {inbox} {length} {length}\r\n{status}\r\n").as_bytes())
                            .await?;
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        let connected = tokio::select! {
            connected = Bus::connect(&config) => connected,
            ended = async { server.await?; std::future::pending::<anyhow::Result<()>>().await } => bail!("{ended:?}"),
        };
        let error = connected.err().context("it connects")?;
        ensure!(error.is_away(), "closes {closes}: {error:?}");
    }
    Ok(())
}
