//! Clients of the edge before and behind its credentials: guesses, foreign pages, proxies, and connections that wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ailoop_tests::http::Http;
use ailoop_tests::otlp::Collector;
use ailoop_tests::wait::{PATIENCE, eventually, soon};
use anyhow::ensure;
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;

use crate::hostile::attempts::Attempts;
use crate::hostile::keyed_fleet::{KeyedFleet, echo_user};

const KEYS: [(&str, &str); 2] =
    [("ann", "scopes: [run, observe], subject: ann"), ("bob", "scopes: [run, observe], subject: bob")];
/// Guessed credentials of one connection, and connections.
const GUESSES: usize = 15;
const GUESSING: usize = 8;
/// Requests of one client by a proxy, far more than its pace.
const FLOOD: usize = 150;
/// Traces that a client wants to be sampled. That all or none of them are is as likely as one in 2^63.
const TRACES: u64 = 64;

/// Guesses credentials on several connections, and counts the lines of the log.
pub(crate) async fn guesses(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[], echo_user).await?;
    let guessing = (0..GUESSING).map(|_| async {
        let http = Http::with_key(fleet.address()?, &configuration::api_key::generate_key())?;
        for _ in 0..GUESSES {
            let (status, answer) = http.get("/v1/sessions").await?;
            attempts.check(status == 401, || format!("a guess: {status} {answer}"));
        }
        anyhow::Ok(())
    });
    try_join_all(guessing).await?;
    let lines = fleet.edge.replica.log()?.lines().filter(|line| line.contains("unauthorized")).count();
    ensure!(lines > 0, "no refusal is in the log");
    let max = GUESSING * GUESSES / 4;
    attempts.check(lines <= max, || format!("{lines} lines of the log for {} guesses", GUESSING * GUESSES));
    let (status, answer) = fleet.http("ann")?.get("/v1/sessions").await?;
    ensure!(status == 200, "a client with its key: {status} {answer}");
    Ok(())
}

/// Reads the documents for everybody from a page of somebody else, or by a name that it made for the address.
pub(crate) async fn documents(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[], echo_user).await?;
    let http = Http::new(fleet.address()?)?;
    for path in ["/.well-known/agent-card.json", "/a2a/agents/e/.well-known/agent-card.json", "/v1/openapi.json", "/"] {
        let (status, answer) = http.get_with(path, &[("accept", "*/*")]).await?;
        ensure!(status == 200, "{path}: {status} {answer}");
        for header in [("host", "evil.example"), ("origin", "https://evil.example"), ("origin", "null")] {
            let (status, answer) = http.get_with(path, &[header, ("accept", "*/*")]).await?;
            let answer = answer.to_string().chars().take(80).collect::<String>();
            attempts.check(status == 401, || format!("{path} with {header:?}: {status} {answer}"));
        }
    }
    Ok(())
}

/// Sends its requests ahead of another client's on the connection that both share, as behind a proxy.
pub(crate) async fn shared_connection(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[("AILOOP__EDGE__CONNECTIONS__REQUESTS_PER_S", "10")], echo_user).await?;
    let channel = Endpoint::from_shared(fleet.edge.url())?.connect().await?;
    let list = |key: &str| {
        let mut request = tonic::Request::new(proto::ListSessionsRequest::default());
        let bearer = MetadataValue::try_from(format!("Bearer {key}"));
        let mut client = proto::sessions_client::SessionsClient::new(channel.clone());
        async move {
            request.metadata_mut().insert("authorization", bearer?);
            client.list_sessions(request).await?;
            anyhow::Ok(())
        }
    };
    let answered = Arc::new(AtomicUsize::new(0));
    // They end with the set.
    let mut flood = JoinSet::new();
    for _ in 0..FLOOD {
        let (request, answered) = (list(fleet.key("ann")?), answered.clone());
        flood.spawn(async move {
            request.await?;
            answered.fetch_add(1, Ordering::Relaxed);
            anyhow::Ok(())
        });
    }
    eventually("the first requests are answered", async || answered.load(Ordering::Relaxed) > 2).await?;
    list(fleet.key("bob")?).await?;
    let before = answered.load(Ordering::Relaxed);
    attempts.check(before < FLOOD / 2, || format!("{before} requests of another client were answered first"));
    Ok(())
}

/// Leaves an accepted connection idle for longer than a connection may be without credentials, as a proxy does.
pub(crate) async fn idle_connection(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[("AILOOP__EDGE__CONNECTIONS__HANDSHAKE_MS", "3000")], echo_user).await?;
    let address = fleet.address()?;
    let request = format!("GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nx-api-key: {}\r\n\r\n", fleet.key("ann")?);
    let mut accepted = TcpStream::connect(address).await?;
    ensure!(is_answered(&mut accepted, &request).await, "the first request");
    silent_to_its_end(address).await?;
    attempts.check(is_answered(&mut accepted, &request).await, || "an accepted connection was closed".to_owned());
    // With half of a request it is as one without credentials.
    let mut half = TcpStream::connect(address).await?;
    half.write_all(&request.as_bytes()[..20]).await?;
    let closed = soon("its end", half.read(&mut [0; 16])).await?;
    attempts.check(matches!(closed, Ok(0) | Err(_)), || format!("half of a request was answered: {closed:?}"));
    Ok(())
}

/// Sends a request on an open connection.
async fn is_answered(stream: &mut TcpStream, request: &str) -> bool {
    let mut answer = vec![0; 64 << 10];
    let sent = stream.write_all(request.as_bytes()).await;
    let read = soon("an answer", stream.read(&mut answer)).await;
    sent.is_ok() && matches!(read, Ok(Ok(length)) if answer[..length].starts_with(b"HTTP/1.1 200"))
}

/// Opens a connection, and returns when the edge has closed it for its silence.
async fn silent_to_its_end(address: SocketAddr) -> anyhow::Result<()> {
    let mut silent = TcpStream::connect(address).await?;
    soon("a silent connection is closed", silent.read(&mut [0; 16])).await??;
    Ok(())
}

/// Wants each of its requests to be sampled.
pub(crate) async fn samples(attempts: Attempts) -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let mut environment: Vec<(String, String)> = collector.environment().into();
    environment.push(("AILOOP__TELEMETRY__SAMPLE_RATIO".to_owned(), "0.5".to_owned()));
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    let mut fleet = KeyedFleet::start(&KEYS, &environment, echo_user).await?;
    let http = fleet.http("ann")?;
    let trace = |number: u64| format!("{number:032x}");
    for number in 1..=TRACES {
        let parent = format!("00-{}-{number:016x}-01", trace(number));
        let (status, answer) = http.get_with("/v1/sessions", &[("traceparent", &parent)]).await?;
        ensure!(status == 200, "{status} {answer}");
    }
    // It sends what it still has before it ends.
    fleet.edge.replica.terminate(PATIENCE).await?;
    let sampled = (1..=TRACES).filter(|number| !collector.trace(&trace(*number)).is_empty()).count() as u64;
    ensure!(sampled > 0, "no trace came: the collector shows nothing");
    attempts.check(sampled < TRACES, || format!("all {sampled} traces of a client were sampled"));
    Ok(())
}
