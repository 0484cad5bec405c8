//! Servers that others wrote, over both transports: `make mcp` installs them, and without them these tests are skipped.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::mcp::world::{CallAnswer, LONG, World, wait_for};

/// Marks the processes of one test, since other tests run in parallel.
const MARK: &str = "AILOOP_TEST_MARK";

/// Directory of the servers; `None` where they are not installed.
fn servers() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/mcp");
    if dir.join(".complete").exists() {
        return Some(dir.canonicalize().unwrap());
    }
    println!("skipped: no MCP servers in .tools/mcp (make mcp brings them)");
    None
}

/// A call, and a part of its answer.
struct Sample {
    tool: &'static str,
    arguments: Value,
    part: &'static str,
}

impl Sample {
    #[track_caller]
    fn check(&self, answer: CallAnswer) {
        let text = answer.into_result();
        assert!(text.contains(self.part), "{text:?} lacks {:?}", self.part);
    }
}

/// Finds the first process with this mark in its environment.
fn marked(mark: &str) -> Option<String> {
    let wanted = format!("{MARK}={mark}");
    let has_it = |process: &u32| {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(has_it).min().map(|process| process.to_string())
}

fn signal(process: &str, signal: &str) {
    assert!(std::process::Command::new("kill").args([signal, process]).status().unwrap().success());
}

/// Lists, calls, cancels, kills and restarts a server.
async fn check_server(world: &World, mut server: Value, sample: &Sample) {
    let mark = world.diary.path().to_str().unwrap().to_owned();
    server["env"][MARK] = json!(mark);
    let host = world.serve(json!({"real": server})).await;
    let spec = world.spec(sample.tool).await.expect("it is in the catalogue");
    println!("{}: {} tools, version {}", sample.tool, world.catalogue().await.len(), spec.version);
    assert!(!spec.description.is_empty());
    sample.check(world.call(sample.tool, sample.arguments.clone()).await);

    // A stopped server does not answer, and reads its input later.
    let process = marked(&mark).unwrap();
    signal(&process, "-STOP");
    let mut call = world.begin(sample.tool, sample.arguments.clone()).await;
    assert_eq!(call.cancel_until_answered().await.text, "cancelled");
    signal(&process, "-CONT");
    sample.check(world.call(sample.tool, sample.arguments.clone()).await);

    signal(&process, "-STOP");
    let mut call = world.begin(sample.tool, sample.arguments.clone()).await;
    world.client.flush().await.unwrap();
    signal(&process, "-KILL");
    // The call may have reached the server by then or not, and the answer says which.
    let answer = call.answer().await;
    assert!(answer.error && (answer.unknown || answer.text.contains("was not called")), "{answer:?}");
    let again = wait_for(async || marked(&mark).filter(|again| *again != process)).await;
    sample.check(world.call_when_up(sample.tool, &sample.arguments).await);
    host.drain(LONG).await;
    wait_for(async || marked(&mark).is_none().then_some(())).await;
    println!("{}: killed {process}, started again as {again}, ended", sample.tool);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_time_over_stdio() {
    let Some(servers) = servers() else { return };
    let world = World::new().await;
    let program = servers.join("python/bin/mcp-server-time");
    let server = json!({"command": program, "args": ["--local-timezone", "UTC"], "env": {}});
    let sample = Sample {
        tool: "mcp__real__convert_time",
        arguments: json!({"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Kolkata"}),
        part: "18:00",
    };
    check_server(&world, server, &sample).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_files_over_stdio() {
    let Some(servers) = servers() else { return };
    let world = World::new().await;
    let dir = world.dir().join("files");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("note.txt"), "remember the milk").unwrap();
    let program = servers.join("node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let server = json!({"command": "node", "args": [program, dir], "env": {}});
    let sample = Sample {
        tool: "mcp__real__read_text_file",
        arguments: json!({"path": dir.join("note.txt")}),
        part: "remember the milk",
    };
    check_server(&world, server, &sample).await;
}

/// Starts the reference server over HTTP, which the tool host does not restart.
async fn everything(servers: &Path, port: u16) -> Child {
    let program = servers.join("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let mut command = Command::new("node");
    command.arg(program).arg("streamableHttp").env("PORT", port.to_string()).kill_on_drop(true);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_everything_over_http() {
    let Some(servers) = servers() else { return };
    let world = World::new().await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = everything(&servers, port).await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let host = world.serve(json!({"real": {"url": url}})).await;
    let tool = "mcp__real__echo";
    println!("{tool}: {} tools, version {}", world.catalogue().await.len(), world.spec(tool).await.unwrap().version);
    assert_eq!(world.call(tool, json!({"message": "hello"})).await.into_result(), "Echo: hello");
    assert!(world.call("mcp__real__get-tiny-image", json!({})).await.into_result().contains("[image, image/png, "));

    let long = json!({"duration": 300, "steps": 1_500});
    let slow = "mcp__real__trigger-long-running-operation";
    let mut call = world.begin(slow, long.clone()).await;
    println!("{slow}: {}", call.progress().await);
    call.cancel().await;
    assert_eq!(call.answer().await.into_unknown(), "cancelled");
    assert_eq!(world.call(tool, json!({"message": "still here"})).await.into_result(), "Echo: still here");

    let mut call = world.begin(slow, long).await;
    call.progress().await;
    child.kill().await.unwrap();
    let answer = call.answer().await;
    println!("{slow}: {}", answer.text);
    assert!(answer.unknown, "{answer:?}");
    let mut again = everything(&servers, port).await;
    assert_eq!(world.call_when_up(tool, &json!({"message": "again"})).await.into_result(), "Echo: again");
    host.drain(LONG).await;
    again.kill().await.unwrap();
}
