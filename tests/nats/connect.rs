//! Connecting: which servers are refused, and the error texts.

use ailoop_tests::nats::NatsServer;
use anyhow::{Context, bail, ensure};
use bus::{Bus, BusError, NatsConfig};
use contract::{Coded as _, ErrorCode};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

async fn refusal(config: &NatsConfig) -> (ErrorCode, String) {
    match Bus::connect(config).await {
        Ok(_) => (ErrorCode::Internal, "connected".to_owned()),
        Err(error) => (error.code(), error.to_string()),
    }
}

/// The last answer of a server, to a request for JetStream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// The server closes the connection.
    Closes,
    /// The server reports that there are no responders.
    NobodyThere,
    /// The server answers, loses the first read of a stream, and finds nothing in the second one.
    LosesOneRead,
}

/// Plays a server of some version that announces JetStream, until the connection is closed.
async fn play_server(listener: TcpListener, version: &str, last: Last) -> anyhow::Result<()> {
    let (from, mut to) = listener.accept().await?.0.into_split();
    let info =
        json!({"server_id": "x", "version": version, "headers": true, "max_payload": 1_048_576, "jetstream": true});
    to.write_all(format!("INFO {info}\r\n").as_bytes()).await?;
    let mut lines = BufReader::new(from).lines();
    let (mut inbox, mut reads) = (String::new(), 0);
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["PING"] => to.write_all(b"PONG\r\n").await?,
            ["SUB", .., id] => (*id).clone_into(&mut inbox),
            ["PUB" | "HPUB", "$JS.API.INFO", ..] if last == Last::Closes => return Ok(()),
            ["PUB" | "HPUB", "$JS.API.INFO", reply, ..] if last == Last::LosesOneRead => {
                to.write_all(format!("MSG {reply} {inbox} 2\r\n{{}}\r\n").as_bytes()).await?;
            }
            ["PUB" | "HPUB", "$JS.API.DIRECT.GET.AI_LOOP_LOG", ..] if reads == 0 => reads += 1,
            ["PUB" | "HPUB", subject @ ("$JS.API.INFO" | "$JS.API.DIRECT.GET.AI_LOOP_LOG"), reply, ..] => {
                let status = if *subject == "$JS.API.INFO" { "NATS/1.0 503\r\n\r\n" } else { "NATS/1.0 404\r\n\r\n" };
                let bytes = status.len();
                to.write_all(format!("HMSG {reply} {inbox} {bytes} {bytes}\r\n{status}\r\n").as_bytes()).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[tokio::test]
async fn old_server_is_refused_with_a_remedy() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = NatsConfig { url: format!("nats://{}", listener.local_addr()?), ..NatsConfig::default() };
    let (code, message) = tokio::select! {
        refused = refusal(&config) => refused,
        // As distributions package it.
        ended = play_server(listener, "2.9.25", Last::NobodyThere) => bail!("the server ended: {ended:?}"),
    };
    assert_eq!(code, ErrorCode::NatsTooOld);
    for part in ["2.9.25", "2.15", "github.com/nats-io/nats-server"] {
        assert!(message.contains(part), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn unusable_server_is_named_in_the_error() -> anyhow::Result<()> {
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
async fn stream_with_drift_is_refused_by_name_and_repaired_on_demand() -> anyhow::Result<()> {
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
    let Err(BusError::Unusable { code, message }) = bus.ensure().await else { anyhow::bail!("drift was accepted") };
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
    let Err(BusError::Unusable { message, .. }) = bus.ensure().await else { anyhow::bail!("drift was accepted") };
    assert!(message.contains("drive") && message.contains("max_ack_pending is 1000"), "{message}");
    bus.repair().await?;
    Ok(bus.ensure().await?)
}

/// A server that shuts down announces JetStream and does not answer its requests. A process that starts meanwhile
/// waits, and does not advise to enable JetStream.
#[tokio::test]
async fn server_shutting_down_during_a_start_is_reported_as_away() -> anyhow::Result<()> {
    for last in [Last::Closes, Last::NobodyThere] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let config = NatsConfig { url: format!("nats://{}", listener.local_addr()?), ..NatsConfig::default() };
        let server = async {
            play_server(listener, "2.15.1", last).await?;
            std::future::pending::<anyhow::Result<()>>().await
        };
        let connected = tokio::select! {
            connected = Bus::connect(&config) => connected,
            ended = server => bail!("the server ended: {ended:?}"),
        };
        let error = connected.err().context("the connection succeeded")?;
        ensure!(error.is_away(), "closes {}: {error:?}", last == Last::Closes);
    }
    Ok(())
}

/// nats-server loses requests to JetStream that arrive while it replaces an account.
#[tokio::test]
async fn read_lost_over_a_connection_that_holds_is_made_once_more() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = NatsConfig { url: format!("nats://{}", listener.local_addr()?), ..NatsConfig::default() };
    let read = async {
        let bus = Bus::connect(&config).await?;
        let filter = contract::subject::log_session(&ailoop_tests::fleet::key("s")?);
        anyhow::Ok(bus.transport().last(contract::streams::Stream::Log, &filter, bus::Read::Any).await?)
    };
    let found = tokio::select! {
        found = read => found?,
        ended = play_server(listener, "2.15.1", Last::LosesOneRead) => bail!("the server ended: {ended:?}"),
    };
    ensure!(found.is_none(), "{found:?}");
    Ok(())
}
