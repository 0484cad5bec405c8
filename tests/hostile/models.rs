//! Hostile model servers, and compromised models.

use std::time::Duration;

use ailoop_tests::client::TestClient;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use anyhow::Context;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::hostile::clients::{call, start};
use crate::hostile::fleet::Target;
use crate::hostile::low_priority;

/// The model of a hostile server, in `models.yaml`.
pub(crate) const EVIL: &str = "evil";

/// Text of a file beside the readable directory: a result with this text shows an escape.
pub(crate) const SECRET: &str = "the secret that must not be readable";

/// A server of hostile replies, on its own thread.
pub(crate) struct HostileModel {
    pub(crate) base_url: String,
    /// The server ends when this is dropped.
    _end: oneshot::Sender<()>,
}

impl HostileModel {
    pub(crate) async fn start(reply: fn(&RecordedRequest) -> ScriptedReply) -> anyhow::Result<Self> {
        let (ready_sender, ready) = oneshot::channel();
        let (end_sender, end) = oneshot::channel();
        let serving = low_priority::run(move || async move {
            let server = ModelServer::start(reply).await?;
            // The trial may have failed meanwhile.
            let _ = ready_sender.send(server.base_url());
            let _ = end.await;
            Ok(())
        });
        match ready.await {
            Ok(base_url) => Ok(Self { base_url, _end: end_sender }),
            Err(_) => Err(serving.await.err().context("the hostile model server did not start")?),
        }
    }
}

/// Runs sessions whose model sends hostile streams.
pub(crate) async fn streams(target: Target) -> anyhow::Result<()> {
    for number in target.numbers() {
        // The fleet may refuse it.
        let _ = call(&target, start(&format!("stream{number}"), &json!({"model": EVIL}))).await;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Replies with calls until the session has a result, then with a text.
pub(crate) fn call_once(request: &RecordedRequest, calls: &[(&str, Value)]) -> ScriptedReply {
    if request.messages().iter().any(|message| message["role"] == "tool") {
        return ScriptedReply::text("That is all.");
    }
    ScriptedReply::text("I look. ").and_calls(calls)
}

pub(crate) fn hostile_stream(request: &RecordedRequest) -> ScriptedReply {
    let delta = |text: &str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    match request.number % 10 {
        // A line that never ends.
        0 => ScriptedReply::raw(&format!("data: {}", "x".repeat(20 << 20))),
        1 => ScriptedReply::raw(&delta(&"y".repeat(9 << 20))),
        2 => ScriptedReply::raw(&delta("a").repeat(100_000)),
        3 => ScriptedReply::raw(
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":4294967295}]}}]}\n\n",
        )
        .and_hang(),
        4 => ScriptedReply::raw(&format!("data: {}\n\n", "[".repeat(1 << 20))),
        5 => ScriptedReply::raw("data: \u{0}\u{1}\n\nevent: error\ndata: {}\n\n").and_break(),
        6 => ScriptedReply::text("Fine.").usage(u64::MAX, u64::MAX),
        7 => ScriptedReply::status(200, &"<html>".repeat(1 << 20)),
        8 => ScriptedReply::status(429, "slow down").header("retry-after", "99999999999999999999"),
        _ => ScriptedReply::hang(),
    }
}

/// A reply that never comes.
pub(crate) fn silent(_: &RecordedRequest) -> ScriptedReply {
    ScriptedReply::hang()
}

/// Runs sessions whose model asks built-in tools for forbidden data. Reports data that was returned.
pub(crate) async fn readers(target: Target) -> anyhow::Result<()> {
    let client = TestClient::connect(&target.url()).await?;
    for number in target.numbers() {
        let session = format!("reader{number}");
        target.begin(&client, &session, false).await?;
        for event in client.watch(&session).await?.to_end().await? {
            if event.topic == "tool_call.result_processed" {
                target.count(1);
                if event.data["outcome"] == "ok" || event.data.to_string().contains(SECRET) {
                    target.break_in(&event.data.to_string());
                }
            }
        }
    }
    Ok(())
}

/// Paths outside of the readable directory, and paths of no regular file.
const FILES: [&str; 12] = [
    "../secret.txt",
    "/etc/passwd",
    "a/../../secret.txt",
    "link.txt",
    "hard.txt",
    "linked/secret.txt",
    "/proc/self/environ",
    "/dev/zero",
    "pipe",
    "./././../secret.txt",
    "..\\secret.txt",
    "secret.txt\u{0}",
];

/// Private addresses in many notations, and invalid addresses.
const ADDRESSES: [&str; 16] = [
    "http://127.0.0.1/",
    "http://localhost/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://0/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/",
    "http://10.0.0.1/",
    "http://user:password@127.0.0.1/",
    "http://127.0.0.1:4222/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
];

/// Calls for one file and one address in each reply.
pub(crate) fn read_secrets(request: &RecordedRequest) -> ScriptedReply {
    let (file, address) = (FILES[request.number % FILES.len()], ADDRESSES[request.number % ADDRESSES.len()]);
    call_once(request, &[("read_file", json!({"path": file})), ("http_fetch", json!({"url": address}))])
}
