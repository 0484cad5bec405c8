//! A nats-server of one test, on any free port.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ailoop_tool::async_nats::{Client, Message, Request, RequestErrorKind};

pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    _ports: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let ports = tempfile::tempdir().unwrap();
        let child = Command::new(binary())
            .args(["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"])
            .arg(ports.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a nats-server: set AILOOP_NATS_SERVER, or put it into .tools/ or the PATH");
        let file = ports.path().join(format!("nats-server_{}.ports", child.id()));
        let end = Instant::now() + Duration::from_secs(10);
        let url = loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Ok(ports) = serde_json::from_str::<serde_json::Value>(&text) {
                break ports["nats"][0].as_str().unwrap().to_owned();
            }
            assert!(Instant::now() < end, "nats-server does not start");
            std::thread::yield_now();
        };
        Self { child, url, _ports: ports }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn binary() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/nats-server");
    let named = std::env::var_os("AILOOP_NATS_SERVER").map(PathBuf::from);
    named.or_else(|| tools.exists().then_some(tools)).unwrap_or_else(|| "nats-server".into())
}

/// Repeats a request until there is a responder: the subscription of a tool comes over another connection than the
/// request.
pub(crate) async fn ask(client: &Client, subject: &str, request: impl Fn() -> Request) -> Message {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match client.send_request(subject.to_owned(), request()).await {
            Ok(reply) => return reply,
            Err(error) if error.kind() == RequestErrorKind::NoResponders && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{subject}: {error}"),
        }
    }
}
