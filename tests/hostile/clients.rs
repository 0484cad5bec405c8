//! Hostile clients of the edge.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ailoop_tests::client::TestClient;
use futures::future::join_all;
use futures::{SinkExt, StreamExt, stream};
use serde_json::{Value, json};
use simulation::rng::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::hostile::fleet::Target;

/// Silent connections, and how many of them are opened at the same time.
const SILENT: usize = 1_100;
const OPENING: usize = 16;
/// Connections by `WebSocket`: most of the descriptors that the edge may have.
const IDLE: usize = 900;
/// Sessions with waiting turns, and the number of waiting turns in each.
const WAITING: usize = 30;
const TURNS: usize = 60;
/// Patterns of one list: the maximum of a client.
const PATTERNS: usize = 32;
/// Sessions that a hostile client begins at the same time.
const STARTS: usize = 8;
/// Timeout of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Connects from an unused source address: connections without credentials are counted by address.
async fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 2], 0)))?;
    socket.connect(to).await
}

/// Opens connections and sends nothing.
pub(crate) async fn silent(at: SocketAddr, target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    // A few at a time: beyond its backlog a listener drops connections that the client considers open.
    let opening = stream::iter(0..SILENT).map(|_| timeout(ANSWER_MAX, connect(at)));
    let opened: Vec<_> = opening.buffer_unordered(OPENING).collect().await;
    let open: Vec<TcpStream> = opened.into_iter().filter_map(|stream| stream.ok()?.ok()).collect();
    target.count(open.len() as u64);
    sleep_until(end).await;
    Ok(())
}

/// Opens `WebSocket` connections and sends nothing.
pub(crate) async fn idle(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    let mut open = Vec::with_capacity(IDLE);
    while open.len() < IDLE && Instant::now() < end {
        target.count(1);
        let url = format!("ws://{}/ws", target.ws);
        if let Ok(Ok(socket)) = timeout(ANSWER_MAX, tokio_tungstenite::connect_async(url)).await {
            open.push(socket);
            target.accept(1);
        }
    }
    sleep_until(end).await;
    Ok(())
}

/// Sends calls and never reads the answers.
pub(crate) async fn flood(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    while Instant::now() < end {
        let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{}/ws", target.ws)).await?;
        for id in 0..25_600 {
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "session.list", "params": {}}).to_string();
            let sent = timeout(ANSWER_MAX, socket.send(Message::Text(call.into()))).await;
            if Instant::now() > end || !matches!(sent, Ok(Ok(()))) {
                break;
            }
            target.count(1);
        }
    }
    Ok(())
}

/// Calls a method over a new connection; returns the answer, if there is one.
pub(crate) async fn call(target: &Target, text: String) -> anyhow::Result<Option<Value>> {
    let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{}/ws", target.ws)).await?;
    target.count(1);
    socket.send(Message::Text(text.into())).await?;
    let answer = timeout(ANSWER_MAX, socket.next()).await;
    let Ok(Some(Ok(Message::Text(answer)))) = answer else { return Ok(None) };
    Ok(serde_json::from_str(&answer).ok())
}

/// The JSON-RPC text that begins a session.
pub(crate) fn start(session: &str, more: &Value) -> String {
    let mut params = json!({"session_id": session, "prompt": "hostile", "interactive": true});
    if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
        params.extend(more.clone());
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": "session.start", "params": params}).to_string()
}

/// Begins sessions until the time is over, the permitted number at the same time.
async fn starts(target: &Target, name: &str, more: impl Fn(usize) -> Value) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    for round in 0.. {
        if Instant::now() > end {
            break;
        }
        let begin =
            (round * STARTS..(round + 1) * STARTS).map(|n| call(target, start(&format!("{name}{n}"), &more(n))));
        for answer in join_all(begin).await.into_iter().flatten().flatten() {
            target.accept(u64::from(answer.get("result").is_some()));
        }
    }
    Ok(())
}

pub(crate) async fn empty_messages(target: Target) -> anyhow::Result<()> {
    let messages = vec![json!({"role": "user", "content": ""}); 90_000];
    starts(&target, "empty", |_| json!({"messages": messages})).await
}

pub(crate) async fn patterns(target: Target) -> anyhow::Result<()> {
    // Short texts that compile to large automata; a new list in each session.
    let list = |session: usize, kind: &str| -> Vec<String> {
        (0..PATTERNS).map(|n| format!(r"\w{{10}} {kind}{session}x{n}$")).collect()
    };
    starts(&target, "patterns", |session| {
        json!({"continuation": {
            "require_explicit_signal": false,
            "continuation_patterns": list(session, "more"),
            "termination_patterns": list(session, "done"),
        }})
    })
    .await
}

/// Sends messages to sessions whose model never answers, so that each one waits for its turn.
pub(crate) async fn waiting_turns(target: Target) -> anyhow::Result<()> {
    let (end, client) = (Instant::now() + target.length, TestClient::connect(&target.url()).await?);
    for session in 0..WAITING {
        let session = format!("waiting{session}");
        target.count(1);
        // The fleet may refuse it, and each of its messages.
        let _ = target.begin(&client, &session, true).await;
        let sending = (0..TURNS).map(|_| client.send(&session, "hostile", "queue"));
        target.count(TURNS as u64);
        let sent = join_all(sending).await.into_iter().flatten().count();
        target.accept(sent as u64);
        if Instant::now() > end {
            break;
        }
    }
    sleep_until(end).await;
    Ok(())
}

/// Sends HTTP/2 frames that cost more to read than to send.
pub(crate) async fn frames(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    for kind in (0..6_u8).cycle() {
        if Instant::now() > end {
            break;
        }
        let mut stream = connect(target.grpc).await?;
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[]));
        for number in 0..20_000_u32 {
            let id = 2 * number + 1;
            match kind {
                0 => bytes.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])),
                1 => bytes.extend(frame(PING, 0, 0, &[7; 8])),
                // Streams that are reset at once.
                2 => {
                    bytes.extend(frame(HEADERS, END_HEADERS, id, REQUEST));
                    bytes.extend(frame(RST_STREAM, 0, id, &[0, 0, 0, 8]));
                }
                // A header block that never ends.
                3 if number == 0 => bytes.extend(frame(HEADERS, 0, 1, REQUEST)),
                3 => bytes.extend(frame(CONTINUATION, 0, 1, &[0; 64])),
                4 => bytes.extend(frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
                _ => bytes.extend(frame(HEADERS, END_HEADERS, id, REQUEST)),
            }
        }
        for part in bytes.chunks(16 << 10) {
            // Its connection may be closed.
            if !timeout(ANSWER_MAX, stream.write_all(part)).await.is_ok_and(|sent| sent.is_ok()) {
                break;
            }
            target.count(1);
        }
    }
    Ok(())
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// The compressed header block of `POST http://` with the path `/`.
const REQUEST: &[u8] = &[0x83, 0x86, 0x84];

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) async fn nested(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    for depth in [60, 120, 125, 127, 500, 10_000, 1_000_000].into_iter().cycle() {
        if Instant::now() > end {
            break;
        }
        let value = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let text = start(&format!("nested{depth}x{}", target.inputs.load(Ordering::Relaxed)), &json!({}));
        let text =
            text.replace(r#""interactive":true"#, &format!(r#""interactive":true,"parameters":{{"deep":{value}}}"#));
        // Its connection may be closed.
        let _ = call(&target, text).await;
    }
    Ok(())
}

pub(crate) async fn huge(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    while Instant::now() < end {
        let text = start("huge", &json!({"prompt": "x".repeat(64 << 20)}));
        let _ = call(&target, text).await;
        // An HTTP request that announces a body over the limit.
        let mut stream = connect(target.ws).await?;
        let head = "POST /ws HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n";
        target.count(1);
        stream.write_all(head.as_bytes()).await?;
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            if timeout(ANSWER_MAX, stream.write_all(&chunk)).await.is_ok_and(|sent| sent.is_ok()) {
                continue;
            }
            break;
        }
        let _ = timeout(Duration::from_millis(200), stream.read(&mut [0; 1024])).await;
    }
    Ok(())
}

pub(crate) async fn damaged(target: Target) -> anyhow::Result<()> {
    let (end, mut rng) = (Instant::now() + target.length, Rng::new(target.seed));
    let good =
        start("damaged", &json!({"features": {"enable": ["x"]}, "parameters": {"a": [1, 2.5, null, "\u{1F600}"]}}));
    while Instant::now() < end {
        let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{}/ws", target.ws)).await?;
        for _ in 0..500 {
            let mut bytes = good.clone().into_bytes();
            for _ in 0..=rng.below(4) {
                let at = usize::try_from(rng.below(bytes.len() as u64))?;
                match rng.below(3) {
                    0 => bytes[at] = u8::try_from(rng.below(256))?,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, *rng.pick(b"{}[]\",:\\e0-")),
                }
            }
            let message = match String::from_utf8(bytes) {
                Ok(text) => Message::Text(text.into()),
                Err(error) => Message::Binary(error.into_bytes().into()),
            };
            target.count(1);
            if timeout(ANSWER_MAX, socket.send(message)).await.is_ok_and(|sent| sent.is_ok()) {
                continue;
            }
            break;
        }
    }
    Ok(())
}
