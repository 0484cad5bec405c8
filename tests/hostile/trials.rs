//! The hostile parties.

use std::time::Duration;

use ailoop_tests::client::Client;
use ailoop_tests::model::{Asked, Reply};
use ailoop_tool::{Effect, Tool, Tools};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, SinkExt, StreamExt, stream};
use serde_json::{Value, json};
use simulation::rng::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::fleet::Target;

/// One trial.
pub(crate) struct Trial {
    pub(crate) name: &'static str,
    pub(crate) attack: fn(Target) -> BoxFuture<'static, anyhow::Result<()>>,
    /// What the model answers to sessions whose messages say `hostile`.
    pub(crate) reply: Option<fn(&Asked) -> Reply>,
}

const fn trial(name: &'static str, attack: fn(Target) -> BoxFuture<'static, anyhow::Result<()>>) -> Trial {
    Trial { name, attack, reply: None }
}

const fn with_reply(mut trial: Trial, reply: fn(&Asked) -> Reply) -> Trial {
    trial.reply = Some(reply);
    trial
}

/// Every trial.
pub(crate) const TRIALS: &[Trial] = &[
    trial("silent connections, WebSocket port", |target| silent(target.ws, target).boxed()),
    trial("silent connections, gRPC port", |target| silent(target.grpc, target).boxed()),
    trial("silent connections, health port", |target| silent(target.health, target).boxed()),
    trial("flood of calls on one connection", |target| flood(target).boxed()),
    trial("90,000 empty messages in a start", |target| empty_messages(target).boxed()),
    trial("patterns that are large when compiled", |target| patterns(target).boxed()),
    with_reply(trial("tool schema with doubling references", |target| schema(target).boxed()), call_evil),
    trial("JSON nested deeply", |target| nested(target).boxed()),
    trial("huge bodies", |target| huge(target).boxed()),
    trial("damaged JSON", |target| damaged(target).boxed()),
    with_reply(trial("hostile model streams", |target| model_streams(target).boxed()), hostile_stream),
    with_reply(trial("tool that floods", |target| flooding_tool(target).boxed()), call_evil),
];

/// Connections that say nothing, and how many of them are opened at the same time.
const SILENT: usize = 1_100;
const OPENING: usize = 16;
/// Patterns of one list: as many as a client may give.
const PATTERNS: usize = 32;
/// Sessions that a hostile client begins at the same time.
const STARTS: usize = 8;
/// How long an answer is awaited.
const ANSWER_MAX: Duration = Duration::from_secs(5);

async fn silent(at: std::net::SocketAddr, target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    // A few at a time: what a listener has no room for is no connection, though its client believes so.
    let opening = stream::iter(0..SILENT).map(|_| timeout(ANSWER_MAX, TcpStream::connect(at)));
    let opened: Vec<_> = opening.buffer_unordered(OPENING).collect().await;
    let open: Vec<TcpStream> = opened.into_iter().filter_map(|stream| stream.ok()?.ok()).collect();
    target.count(open.len() as u64);
    sleep_until(end).await;
    Ok(())
}

/// Calls that nobody reads the answers of.
async fn flood(target: Target) -> anyhow::Result<()> {
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

/// Calls a method over a connection of its own; whatever is answered, if anything is.
async fn call(target: &Target, text: String) -> anyhow::Result<Option<Value>> {
    let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{}/ws", target.ws)).await?;
    target.count(1);
    socket.send(Message::Text(text.into())).await?;
    let answer = timeout(ANSWER_MAX, socket.next()).await;
    let Ok(Some(Ok(Message::Text(answer)))) = answer else { return Ok(None) };
    Ok(serde_json::from_str(&answer).ok())
}

fn start(session: &str, more: &Value) -> String {
    let mut params = json!({"session_id": session, "prompt": "hostile", "interactive": true});
    if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
        params.extend(more.clone());
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": "session.start", "params": params}).to_string()
}

/// Begins sessions again and again, as many at the same time as a client may, until the time is over.
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

async fn empty_messages(target: Target) -> anyhow::Result<()> {
    let messages = vec![json!({"role": "user", "content": ""}); 90_000];
    starts(&target, "empty", |_| json!({"messages": messages})).await
}

async fn patterns(target: Target) -> anyhow::Result<()> {
    // Small as a text, large as an automaton, and another list in each session.
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

/// A schema whose references double at each level.
fn doubling(levels: usize) -> Value {
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({"anyOf": [{"allOf": [next, next]}, {"allOf": [next, next]}]}));
    }
    defs.insert(format!("d{levels}"), json!({"type": "integer", "minimum": 1}));
    json!({"type": "object", "properties": {"value": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

async fn schema(target: Target) -> anyhow::Result<()> {
    let tool = Tool::new("evil").effect(Effect::Pure).parameters(doubling(24));
    let tool = tool.handler(|_| async { Ok("never".to_owned()) });
    let _serving = Tools::connect(&target.nats).await?.tool(tool).serve().await?;
    calls_of_evil(&target).await
}

/// Sessions whose model calls the tool `evil`.
async fn calls_of_evil(target: &Target) -> anyhow::Result<()> {
    let (end, client) = (Instant::now() + target.length, Client::connect(&target.url()).await?);
    // The catalogue knows it within seconds; a session that comes earlier has nothing to call.
    for number in 0.. {
        if Instant::now() > end {
            break;
        }
        target.count(1);
        // The fleet may refuse it.
        let _ = client.start(&format!("evil{number}"), "hostile").await;
        sleep_until(Instant::now() + Duration::from_millis(250)).await;
    }
    Ok(())
}

fn call_evil(asked: &Asked) -> Reply {
    if asked.messages().iter().any(|message| message["role"] == "tool") {
        return Reply::text("That is all.");
    }
    Reply::calls(&[("evil", json!({"value": "not a number"}))])
}

async fn nested(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    for depth in [60, 120, 125, 127, 500, 10_000, 1_000_000].into_iter().cycle() {
        if Instant::now() > end {
            break;
        }
        let value = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let text =
            start(&format!("nested{depth}x{}", target.inputs.load(std::sync::atomic::Ordering::Relaxed)), &json!({}));
        let text =
            text.replace(r#""interactive":true"#, &format!(r#""interactive":true,"parameters":{{"deep":{value}}}"#));
        // Its connection may be closed.
        let _ = call(&target, text).await;
    }
    Ok(())
}

async fn huge(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    while Instant::now() < end {
        let text = start("huge", &json!({"prompt": "x".repeat(64 << 20)}));
        let _ = call(&target, text).await;
        // A request over HTTP that promises more than it may send.
        let mut stream = TcpStream::connect(target.ws).await?;
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

async fn damaged(target: Target) -> anyhow::Result<()> {
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

async fn model_streams(target: Target) -> anyhow::Result<()> {
    let (end, client) = (Instant::now() + target.length, Client::connect(&target.url()).await?);
    for number in 0.. {
        if Instant::now() > end {
            break;
        }
        target.count(1);
        // The fleet may refuse it.
        let _ = client.start(&format!("stream{number}"), "hostile").await;
        sleep_until(Instant::now() + Duration::from_millis(100)).await;
    }
    Ok(())
}

fn hostile_stream(asked: &Asked) -> Reply {
    let delta = |text: &str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    match asked.number % 10 {
        // One line without an end.
        0 => Reply::raw(&format!("data: {}", "x".repeat(20 << 20))),
        1 => Reply::raw(&delta(&"y".repeat(9 << 20))),
        2 => Reply::raw(&delta("a").repeat(100_000)),
        3 => Reply::raw("data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":4294967295}]}}]}\n\n")
            .and_hang(),
        4 => Reply::raw(&format!("data: {}\n\n", "[".repeat(1 << 20))),
        5 => Reply::raw("data: \u{0}\u{1}\n\nevent: error\ndata: {}\n\n").and_break(),
        6 => Reply::text("Fine.").usage(u64::MAX, u64::MAX),
        7 => Reply::status(200, &"<html>".repeat(1 << 20)),
        8 => Reply::status(429, "slow down").header("retry-after", "99999999999999999999"),
        _ => Reply::hang(),
    }
}

async fn flooding_tool(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    let tool = Tool::new("evil").effect(Effect::Pure).timeout(Duration::from_secs(30));
    let tool = tool.handler(move |call: ailoop_tool::Call| async move {
        while Instant::now() < end {
            call.progress("p".repeat(64 << 10)).await;
        }
        Ok("z".repeat(700 << 10))
    });
    let _serving = Tools::connect(&target.nats).await?.tool(tool).serve().await?;
    calls_of_evil(&target).await
}
