//! A nats-server, a tool host that serves MCP servers, and a client that calls their tools.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ailoop_tool::async_nats::{self, Client, HeaderMap, Message, Request, RequestErrorKind, Subscriber};
use ailoop_tool::wire::header;
use bus::{Bus, NatsConfig};
use configuration::Settings;
use contract::streams::Bucket;
use contract::tool::ToolSpec;
use futures::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use tool_executor::Executor;
use tool_host::ToolHost;

use crate::mcp::diary::Diary;
use crate::mcp::stdio;

/// Longer than any step of a test.
pub(crate) const LONG: Duration = Duration::from_mins(1);

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) diary: Diary,
    pub(crate) bus: Bus,
    nats: NatsConfig,
    _server: Server,
    dir: TempDir,
}

/// A tool host, and the executor that finds its tools.
pub(crate) struct RunningHost {
    host: ToolHost,
    executor: Executor,
}

impl RunningHost {
    /// The warnings of the host for operators.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.host.readiness().warnings().map(|(_, warning)| warning).collect()
    }

    pub(crate) async fn drain(self, timeout: Duration) {
        self.executor.drain(timeout).await;
        self.host.drain(timeout).await;
    }
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct CallAnswer {
    pub(crate) text: String,
    pub(crate) error: bool,
    pub(crate) unknown: bool,
}

impl CallAnswer {
    fn of(message: &Message) -> Self {
        let header = |name: &str| Some(message.headers.as_ref()?.get(name)?.as_str().to_owned());
        Self {
            text: String::from_utf8(message.payload.to_vec()).unwrap(),
            error: header(header::ERROR).is_some(),
            unknown: header(header::OUTCOME).as_deref() == Some("unknown"),
        }
    }

    /// Returns the text of a result.
    #[track_caller]
    pub(crate) fn into_result(self) -> String {
        assert!(!self.error, "{self:?}");
        self.text
    }

    #[track_caller]
    pub(crate) fn into_error(self) -> String {
        assert!(self.error && !self.unknown, "{self:?}");
        self.text
    }

    /// Returns the text of an error with an unknown outcome.
    #[track_caller]
    pub(crate) fn into_unknown(self) -> String {
        assert!(self.error && self.unknown, "{self:?}");
        self.text
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let server = Server::start();
        let nats = NatsConfig { url: server.url.clone(), ..NatsConfig::default() };
        let bus = Bus::connect(&nats).await.unwrap();
        bus.ensure().await.unwrap();
        let client = async_nats::connect(&server.url).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let diary = Diary::at(dir.path().join("diary"));
        Self { client, diary, bus, nats, _server: server, dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Builds the configuration of this program as a server, merged with `more`.
    pub(crate) fn toy(&self, role: &str, more: &Value) -> Value {
        let mut config = json!({"command": std::env::current_exe().unwrap(), "args": stdio::ARGS,
            "env": {stdio::ROLE: role, stdio::DIARY: self.diary.path()}});
        for (key, value) in more.as_object().unwrap() {
            if let (Some(inner), Some(value)) = (config[key].as_object_mut(), value.as_object()) {
                inner.extend(value.clone());
            } else {
                config[key] = value.clone();
            }
        }
        config
    }

    /// Starts a tool host with these MCP servers, and an executor that knows their tools; waits until both are ready.
    pub(crate) async fn serve(&self, servers: Value) -> RunningHost {
        // Read from a file, like every configuration: names of variables must keep their case.
        let file = json!({"tool_host": {"mcp": servers}}).to_string();
        std::fs::write(self.dir().join("ailoop.yaml"), file).unwrap();
        let config = Settings::read(Some(self.dir())).unwrap().section(tool_host::SECTION).unwrap();
        let host = ToolHost::start(&config, &self.nats).await.unwrap();
        let config =
            tool_executor::ExecutorConfig { expected: host.names(), ..tool_executor::ExecutorConfig::default() };
        let executor = Executor::start(config, self.bus.clone());
        wait_for(async || executor.readiness().is_ready().then_some(())).await;
        RunningHost { host, executor }
    }

    /// Reads the tools of the catalogue.
    pub(crate) async fn catalogue(&self) -> Vec<ToolSpec> {
        let entries = self.bus.transport().kv_list(Bucket::Tools, "*.*").await.unwrap();
        entries.into_iter().map(|(_, value)| serde_json::from_slice(&value).unwrap()).collect()
    }

    pub(crate) async fn spec(&self, tool: &str) -> Option<ToolSpec> {
        self.catalogue().await.into_iter().find(|spec| spec.name.as_str() == tool)
    }

    /// Calls a tool that is served.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallAnswer {
        // On a busy machine the tool sends a receipt first.
        self.begin(tool, arguments).await.answer().await
    }

    /// Calls a tool until it is served and its server is connected.
    pub(crate) async fn call_when_up(&self, tool: &str, arguments: &Value) -> CallAnswer {
        wait_for(async || {
            let answer = self.call_if_served(tool, arguments).await;
            answer.filter(|answer| !answer.text.contains("was not called"))
        })
        .await
    }

    /// Calls a tool that may be withdrawn at this moment, at which the NATS library may lose a call.
    pub(crate) async fn call_if_served(&self, tool: &str, arguments: &Value) -> Option<CallAnswer> {
        let soon = Duration::from_secs(5);
        let request = Request::new().payload(arguments.to_string().into()).timeout(Some(soon));
        match self.client.send_request(subject(tool), request).await {
            Ok(reply) => Some(CallAnswer::of(&reply)),
            Err(error) if matches!(error.kind(), RequestErrorKind::NoResponders | RequestErrorKind::TimedOut) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Begins a call and does not wait for its end.
    pub(crate) async fn begin(&self, tool: &str, arguments: Value) -> RunningCall {
        let inbox = self.client.new_inbox();
        let replies = self.client.subscribe(inbox.clone()).await.unwrap();
        let body = arguments.to_string().into();
        self.client.publish_with_reply_and_headers(subject(tool), inbox, headers(), body).await.unwrap();
        RunningCall { client: self.client.clone(), tool: tool.to_owned(), replies }
    }

    pub(crate) async fn wait_for_note(&self, line: &str, times: usize) {
        wait_for(async || (self.diary.count(line) >= times).then_some(())).await;
    }
}

/// A call that runs.
pub(crate) struct RunningCall {
    client: Client,
    tool: String,
    replies: Subscriber,
}

impl RunningCall {
    /// Waits for the next progress message.
    pub(crate) async fn progress(&mut self) -> String {
        let message = timeout(LONG, self.replies.next()).await.unwrap().unwrap();
        assert!(message.headers.as_ref().is_some_and(|headers| headers.get(header::PROGRESS).is_some()), "{message:?}");
        String::from_utf8(message.payload.to_vec()).unwrap()
    }

    /// Waits for the answer.
    pub(crate) async fn answer(&mut self) -> CallAnswer {
        loop {
            let message = timeout(LONG, self.replies.next()).await.unwrap().unwrap();
            assert_eq!(message.status, None, "nobody serves {}", self.tool);
            if message.headers.as_ref().is_none_or(|headers| headers.get(header::PROGRESS).is_none()) {
                return CallAnswer::of(&message);
            }
        }
    }

    /// Cancels a call until it is answered: a cancel that arrives before its call is lost.
    pub(crate) async fn cancel_until_answered(&mut self) -> CallAnswer {
        loop {
            self.cancel().await;
            if let Ok(answer) = timeout(Duration::from_millis(200), self.answer()).await {
                return answer;
            }
        }
    }

    pub(crate) async fn cancel(&self) {
        let subject = format!("ai_tool_cancel.default.{}", self.tool);
        self.client.publish_with_headers(subject, headers(), "".into()).await.unwrap();
    }
}

fn subject(tool: &str) -> String {
    format!("ai_tool.default.{tool}")
}

/// All calls have the same id, since they run one after another.
fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CALL, "s1-c1-1-1");
    headers.insert(header::TRACEPARENT, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    headers
}

/// Polls until there is an answer.
pub(crate) async fn wait_for<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "nothing in {LONG:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a process exists and has not ended.
pub(crate) fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

/// A nats-server of one test, on any free port.
struct Server {
    child: Child,
    url: String,
    _dir: TempDir,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let child = Command::new(binary())
            .args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"])
            .arg(dir.path())
            .arg("--ports_file_dir")
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a nats-server: set AILOOP_NATS_SERVER, or put it into .tools/ or the PATH");
        let file = dir.path().join(format!("nats-server_{}.ports", child.id()));
        let end = std::time::Instant::now() + LONG;
        let url = loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Ok(ports) = serde_json::from_str::<Value>(&text) {
                break ports["nats"][0].as_str().unwrap().to_owned();
            }
            assert!(std::time::Instant::now() < end, "nats-server does not start");
            std::thread::yield_now();
        };
        Self { child, url, _dir: dir }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn binary() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/nats-server");
    let named = configuration::env("AILOOP_NATS_SERVER").map(PathBuf::from);
    named.or_else(|| tools.exists().then_some(tools)).unwrap_or_else(|| "nats-server".into())
}
