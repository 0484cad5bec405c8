//! A fleet whose edge has a file of API keys, and clients that show them.

use std::net::SocketAddr;

use ailoop_tests::client::{TestClient, Ws};
use ailoop_tests::fleet::configuration;
use ailoop_tests::http::Http;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::{EdgeReplica, ProcessFleet, Replica};
use anyhow::{Context as _, ensure};
use contract::tool::sha256_hex;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const CHAT: &str = "/openai/v1/chat/completions";
pub(crate) const RESPONSES: &str = "/openai/v1/responses";

/// Two agents, so that a key can be limited to one. A person is asked before `echo`.
const AGENTS: &str = r#"
default_agent: a
approvals: [{tool: echo, ask: always}]
agents:
  a:
    name: Alice the Assistant
    prompt_file: alice_assistant.md
    tools: {allow: ["*"]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
  e:
    name: Eamonn the Executioner
    prompt_file: eamonn_executioner.md
    tools: {allow: ["*"]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
"#;

/// Processes of every service that a turn needs.
pub(crate) struct KeyedFleet {
    pub(crate) process_fleet: ProcessFleet,
    pub(crate) orchestrator: Replica,
    pub(crate) edge: EdgeReplica,
    pub(crate) model: ModelServer,
    keys: Vec<(&'static str, String)>,
    _workers: Vec<Replica>,
    _files: TempDir,
}

impl KeyedFleet {
    /// Starts a fleet with a key for each name, whose other fields are given as YAML. Without keys the edge is open.
    /// `environment` is that of every process.
    pub(crate) async fn start(
        keys: &[(&'static str, &str)],
        environment: &[(&str, &str)],
        reply: impl Fn(&RecordedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let model = ModelServer::start(reply).await?;
        let models = [("test", &*model.base_url())];
        let files = configuration(&models)?;
        std::fs::write(files.path().join("agents.yaml"), AGENTS)?;
        let key_file = files.path().join("keys").join("keys.yaml");
        std::fs::create_dir_all(files.path().join("keys"))?;
        let rows: Vec<_> =
            keys.iter().map(|(name, rest)| (*name, configuration::api_key::generate_key(), *rest)).collect();
        let entry = |(name, key, rest): &(&str, String, &str)| {
            format!("  - {{id: {name}, sha256: {}, {rest}}}\n", sha256_hex(key.as_bytes()))
        };
        std::fs::write(&key_file, format!("keys:\n{}", rows.iter().map(entry).collect::<String>()))?;
        let mut environment = environment.to_vec();
        // Over the configuration of the process fleet, which has one agent.
        environment.push(("AILOOP_CONFIG", files.path().to_str().context("a path")?));
        if !keys.is_empty() {
            environment.push(("AILOOP__EDGE__KEYS_FILE", key_file.to_str().context("a path")?));
        }
        let process_fleet = ProcessFleet::with(&models, &environment).await?;
        let orchestrator = process_fleet.spawn("orchestrator").await?;
        let workers = process_fleet.spawn_all(&["gateway", "executor"]).await?;
        let edge = process_fleet.edge().await?;
        let keys = rows.into_iter().map(|(name, key, _)| (name, key)).collect();
        Ok(Self { process_fleet, orchestrator, edge, model, keys, _workers: workers, _files: files })
    }

    /// Returns the address of its edge for HTTP and WebSocket.
    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.edge.addresses()?.0)
    }

    /// The key of a name.
    pub(crate) fn key(&self, name: &str) -> anyhow::Result<&str> {
        let found = self.keys.iter().find(|(known, _)| *known == name);
        found.map(|(_, key)| &**key).with_context(|| format!("no key {name}"))
    }

    /// An HTTP client with the key of a name.
    pub(crate) fn http(&self, name: &str) -> anyhow::Result<Http> {
        Http::with_key(self.address()?, self.key(name)?)
    }

    /// A WebSocket client with the key of a name.
    pub(crate) async fn ws(&self, name: &str) -> anyhow::Result<Ws> {
        Ws::connect_with_key(&format!("ws://{}/ws", self.address()?), self.key(name)?).await
    }

    /// A gRPC client with the key of a name.
    pub(crate) async fn grpc(&self, name: &str) -> anyhow::Result<TestClient> {
        TestClient::connect_with_key(&self.edge.url(), self.key(name)?).await
    }
}

/// Ends the turn with the text of the last message of the user.
pub(crate) fn echo_user(request: &RecordedRequest) -> ScriptedReply {
    ScriptedReply::signal(&format!("re: {}", request.last_user()), "TERMINATE")
}

/// Posts JSON, and fails unless the status is a success.
pub(crate) async fn post_ok(http: &Http, path: &str, body: &Value) -> anyhow::Result<Value> {
    let (status, answer) = http.post(path, body).await?;
    ensure!((200..300).contains(&status), "{path}: {status} {answer}");
    Ok(answer)
}

/// The sessions that a client sees.
pub(crate) async fn sessions(http: &Http) -> anyhow::Result<Vec<Value>> {
    let (status, listed) = http.get("/v1/sessions").await?;
    listed["sessions"].as_array().cloned().with_context(|| format!("{status} {listed}"))
}

/// Sends an MCP request of a client without capabilities, and returns the answer.
pub(crate) async fn mcp(http: &Http, method: &str, params: Value) -> anyhow::Result<Value> {
    ailoop_tests::mcp::request(http, method, params, json!({})).await
}
