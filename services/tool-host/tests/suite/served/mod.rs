//! Fetching, commands and webhooks as ordinary tools: from a file of configuration to answers over a real nats-server.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use ailoop_tool::async_nats::{self, Client, HeaderMap, Message, Request};
use ailoop_tool::wire::header;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use bus::NatsConfig;
use configuration::Paths;
use configuration::Settings;
use configuration::settings::FILE;
use futures::StreamExt;
use serde_json::{Value, json};
use service::tasks::Tasks;
use tokio::time::{Instant, sleep};
use tool_host::{ToolHost, ToolHostConfig};

use crate::server::{self, Server};

const LONG: Duration = Duration::from_secs(30);

struct World {
    client: Client,
    host: ToolHost,
    dir: tempfile::TempDir,
    _server: Server,
    _tasks: Tasks,
}

/// A configuration file as an operator writes it.
fn written(at: std::net::SocketAddr, work: &std::path::Path) -> String {
    let user =
        if std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) { "{uid: 64123, gid: 64123}" } else { "null" };
    let (port, work) = (at.port(), work.display());
    format!(
        r#"
tool_host:
  fetch: {{allow_private: [127.0.0.0/8], ports: [{port}], deny_hosts: ["*.bad.example"], timeout: 20}}
  command:
    allow: [sh, {{program: echo, args: ["[a-z]+"]}}]
    cwd: {work}
    env: {{MixedCase: "yes"}}
    user: {user}
  webhooks:
    place_order:
      url: http://{at}/order
      description: Orders.
      parameters:
        type: object
        additionalProperties: false
        properties: {{itemName: {{type: string, minLength: 1}}, N: {{type: integer, minimum: 1}}}}
        required: [itemName]
      timeout: 20
      headers: {{X-Api-Key: "00123456789"}}
      instructions: Ask before you order.
    ask_proxy: {{url: "http://{at}/proxy", description: Asks., effect: idempotent, max_output: 100}}
"#
    )
}

impl World {
    async fn new() -> Self {
        let page = || async { ([("content-type", "text/html")], "<title>T</title><p>Hello") };
        let order = |headers: axum::http::HeaderMap, body: String| async move {
            let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            json!({"call": header("ailoop-call"), "key": header("idempotency-key"), "session": header("ailoop-session"),
                "deadline": header("ailoop-deadline"), "secret": header("x-api-key"), "body": body})
            .to_string()
        };
        let router = Router::new()
            .route("/order", post(order))
            .route("/proxy", post(|| async { StatusCode::BAD_GATEWAY }))
            .fallback(page);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, tasks) = (listener.local_addr().unwrap(), Tasks::new());
        tasks.spawn("server", async move { axum::serve(listener, router).await.unwrap() });

        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::write(dir.path().join(FILE), written(at, dir.path())).unwrap();
        let paths = Paths { config: Some(dir.path().to_owned()), ..Paths::default() };
        let config: ToolHostConfig = Settings::of(paths).unwrap().section(tool_host::SECTION).unwrap();
        let server = Server::start();
        let nats = NatsConfig { url: server.url.clone(), ..NatsConfig::default() };
        let host = ToolHost::start(&config, &nats).await.unwrap();
        let client = async_nats::connect(&server.url).await.unwrap();
        Self { client, host, dir, _server: server, _tasks: tasks }
    }

    async fn ask(&self, tool: &str, arguments: Value) -> Message {
        let mut headers = HeaderMap::new();
        headers.insert(header::CALL, "s1-c1-1-1");
        headers.insert(header::SESSION, "s1");
        headers.insert(header::DEADLINE, "2126-01-15T10:30:45.123Z");
        let request =
            || Request::new().headers(headers.clone()).payload(arguments.to_string().into()).timeout(Some(LONG));
        server::ask(&self.client, &format!("ai_tool.default.{tool}"), request).await
    }

    async fn answer(&self, tool: &str, arguments: Value) -> Value {
        serde_json::from_slice(&self.ask(tool, arguments).await.payload).unwrap()
    }

    /// Reads the metadata by which a tool is found.
    async fn metadata(&self, tool: &str) -> Value {
        let info = server::ask(&self.client, &format!("$SRV.INFO.{tool}"), Request::new).await;
        serde_json::from_slice::<Value>(&info.payload).unwrap()["endpoints"][0]["metadata"].clone()
    }
}

fn get_header(message: &Message, name: &str) -> Option<String> {
    Some(message.headers.as_ref()?.get(name)?.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn built_in_tools_are_found_called_and_cancelled_like_any_tool() {
    let world = World::new().await;

    let (fetch, command) = (world.metadata("http_fetch").await, world.metadata("run_command").await);
    assert_eq!((&fetch["ailoop.effect"], &fetch["ailoop.timeout"]), (&json!("pure"), &json!("22")));
    assert_eq!(fetch["ailoop.approval"], "always", "a page of any host may be asked for");
    assert_eq!((&command["ailoop.effect"], &command["ailoop.timeout"]), (&json!("at_most_once"), &json!("74")));
    let order = world.metadata("place_order").await;
    assert_eq!(
        (&order["ailoop.effect"], &order["ailoop.instructions"]),
        (&json!("at_most_once"), &json!("Ask before you order."))
    );
    let schema: Value = serde_json::from_str(order["ailoop.parameters"].as_str().unwrap()).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(
        schema["properties"],
        json!({"itemName": {"type": "string", "minLength": 1}, "N": {"type": "integer", "minimum": 1}})
    );
    assert_eq!(world.metadata("ask_proxy").await["ailoop.max_output"], "100");

    let url = std::fs::read_to_string(world.dir.path().join(FILE)).unwrap();
    let url = url.lines().find_map(|line| line.trim().strip_prefix("url: ")).unwrap().replace("/order", "/page");
    let page = world.answer("http_fetch", json!({"url": url})).await;
    assert_eq!((&page["title"], &page["text"], &page["url"]), (&json!("T"), &json!("Hello"), &json!(url)));
    let refused = world.ask("http_fetch", json!({"url": "http://169.254.169.254/"})).await;
    assert!(get_header(&refused, header::ERROR).is_some());

    let ordered = world.answer("place_order", json!({"itemName": "tea"})).await;
    assert_eq!(
        ordered,
        json!({"call": "s1-c1-1-1", "key": "s1-c1-1-1", "session": "s1", "secret": "[secret]",
        "deadline": "2126-01-15T10:30:45.123Z", "body": "{\"itemName\":\"tea\"}"})
    );
    let doubtful = world.ask("ask_proxy", json!({})).await;
    assert!(get_header(&doubtful, header::ERROR).unwrap().contains("nobody knows whether it took effect"));
    assert_eq!(get_header(&doubtful, header::OUTCOME).as_deref(), Some("unknown"));

    let echoed = world.answer("run_command", json!({"command": ["echo", "hello"]})).await;
    assert_eq!(echoed["stdout"], "hello\n");
    let env = world.answer("run_command", json!({"command": ["sh", "-c", "echo $MixedCase$CARGO_PKG_NAME"]})).await;
    assert_eq!(env["stdout"], "yes\n");
    let refused = world.ask("run_command", json!({"command": ["echo", "HELLO"]})).await;
    assert!(get_header(&refused, header::ERROR).unwrap().contains("may not be run with these arguments"));

    // A cancel kills a command with all its descendants.
    let (there, inbox) = (world.dir.path().join("there"), world.client.new_inbox());
    let replies = world.client.subscribe(inbox.clone()).await.unwrap();
    // A duration that no other process of this machine sleeps: in a namespace a command does not know the PIDs outside.
    let time = format!("4711.{}", std::process::id());
    let sleeps = || running().any(|line| line == format!("sleep\0{time}\0"));
    let script = format!("setsid sleep {time} & touch there; wait");
    let body = json!({"command": ["sh", "-c", script]}).to_string();
    let mut headers = HeaderMap::new();
    headers.insert(header::CALL, "s1-c2");
    let subject = "ai_tool.default.run_command";
    world.client.publish_with_reply_and_headers(subject, inbox, headers.clone(), body.into()).await.unwrap();
    until(|| (there.exists() && sleeps()).then_some(())).await;
    world.client.publish_with_headers("ai_tool_cancel.default.run_command", headers, "".into()).await.unwrap();
    // On a busy machine the tool sends a receipt first.
    let is_progress = |message: &Message| get_header(message, header::PROGRESS).is_some();
    let mut results = replies.filter(|message| std::future::ready(!is_progress(message)));
    assert_eq!(get_header(&results.next().await.unwrap(), header::ERROR).as_deref(), Some("cancelled"));
    until(|| (!sleeps()).then_some(())).await;

    world.host.drain(LONG).await;
}

/// Lists the command lines of all processes of this machine.
fn running() -> impl Iterator<Item = String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

async fn until<T>(ask: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "nothing in {LONG:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn webhook_invalid_is_refused_at_the_start() {
    for (field, value, part) in [
        ("parameters", json!({"type": "thing"}), "webhooks.act.parameters "),
        ("parameters", json!("object"), "webhooks.act.parameters "),
        ("parameters", json!({"description": "x".repeat(40_000)}), "webhooks.act.parameters "),
        ("timeout", json!(0), "webhooks.act.timeout "),
        ("timeout", json!(3_601), "1 to 3600 seconds"),
        ("max_output", json!(0), "webhooks.act.max_output "),
        ("max_output", json!(1 << 20), "webhooks.act.max_output "),
        ("description", json!(" "), "webhooks.act.description "),
    ] {
        let mut webhook = json!({"url": "http://x/", "description": "Acts."});
        webhook[field] = value;
        let config: ToolHostConfig = serde_json::from_value(json!({"webhooks": {"act": webhook}})).unwrap();
        let error = ToolHost::start(&config, &NatsConfig::default()).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(contract::Coded::code(&error), contract::ErrorCode::BadConfig);
    }
    let many: serde_json::Map<String, Value> =
        (0..300).map(|n| (format!("t{n}"), json!({"url": "http://x/", "description": "Acts."}))).collect();
    let config: ToolHostConfig = serde_json::from_value(json!({"webhooks": many})).unwrap();
    assert!(ToolHost::start(&config, &NatsConfig::default()).await.unwrap_err().to_string().contains("over 256"));
    let unknown = json!({"webhooks": {"act": {"url": "http://x/", "description": "Acts.", "secret": 1}}});
    assert!(serde_json::from_value::<ToolHostConfig>(unknown).is_err());
}
