//! API keys: tenants, scopes and agents, over every protocol.

use std::collections::BTreeSet;

use contract::event::{Configured, Event, SessionStarted};
use contract::subject::SessionKey;
use contract::tool::sha256_hex;
use contract::{AgentId, SessionId, TenantId};
use edge::{EdgeConfig, Scope};
use serde_json::json;
use tonic::Code;
use tonic::metadata::MetadataValue;

use crate::support::http::Http;
use crate::support::{Fixture, Ws, config, events, wait_until};

/// An edge with a file of keys.
pub(crate) struct Guarded {
    pub(crate) fixture: Fixture,
    directory: tempfile::TempDir,
    entries: Vec<(String, String)>,
}

impl Guarded {
    /// Starts an edge with a key for each entry, whose other fields are given as YAML.
    pub(crate) async fn new(entries: &[(&str, &str)]) -> Self {
        Self::with(entries, config()).await
    }

    pub(crate) async fn with(entries: &[(&str, &str)], config: EdgeConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let entries: Vec<(String, String)> =
            entries.iter().map(|(_, rest)| (configuration::api_key::generate_key(), (*rest).to_owned())).collect();
        let file = directory.path().join("keys.yaml");
        write_keys(&file, &entries);
        let fixture = Fixture::with(EdgeConfig { keys_file: Some(file), ..config }).await;
        Self { fixture, directory, entries }
    }

    pub(crate) fn key(&self, index: usize) -> &str {
        &self.entries[index].0
    }

    pub(crate) fn http(&self, index: usize) -> Http {
        Http::new(self.fixture.edge.addresses().ws, Some(self.key(index)))
    }

    pub(crate) async fn ws(&self, index: usize) -> Ws {
        Ws::connect_with_key(self.fixture.edge.addresses().ws, self.key(index)).await
    }

    /// Commits the start of a session of a tenant.
    pub(crate) async fn add_session(&self, tenant: &str, session: &str, agent: &str) {
        self.fixture.fake_loop.commit(&key_of(tenant, session), vec![events::session_started(agent)]).await;
    }
}

fn write_keys(file: &std::path::Path, entries: &[(String, String)]) {
    let rows = entries
        .iter()
        .enumerate()
        .map(|(index, (key, rest))| format!("  - {{id: k{index}, sha256: {}, {rest}}}\n", sha256_hex(key.as_bytes())));
    std::fs::write(file, format!("keys:\n{}", rows.collect::<String>())).unwrap();
}

pub(crate) fn key_of(tenant: &str, session: &str) -> SessionKey {
    SessionKey { tenant: TenantId::new(tenant).unwrap(), session: SessionId::new(session).unwrap() }
}

#[tokio::test]
async fn key_names_its_subject_in_the_log_and_reaches_only_its_scopes() {
    let guarded = Guarded::new(&[
        ("runner", "scopes: [run, observe], subject: ci@example.org"),
        ("observer", "scopes: [observe]"),
    ])
    .await;
    let (runner, observer) = (guarded.http(0), guarded.http(1));
    let (status, reply) = runner.post("/v1/sessions", json!({"session_id": "s", "interactive": true})).await;
    assert_eq!(status, 201, "{reply}");
    assert_eq!(guarded.fixture.fake_loop.senders().await, ["ci@example.org"]);
    assert_eq!(observer.get("/v1/sessions/s").await.0, 200);
    let (status, problem) = observer.post("/v1/sessions/s/stop", json!({})).await;
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")));
    assert!(problem["detail"].as_str().unwrap().contains("`run`, and k1 has only: observe"), "{problem}");
    assert_eq!(runner.get("/v1/status").await.0, 403);
    assert_eq!(guarded.ws(1).await.expect_code("session.stop", json!({"session_id": "s"})).await, "forbidden");

    let mut grpc = guarded.fixture.grpc().await.0;
    let mut request =
        tonic::Request::new(proto::StopSessionRequest { session_id: "s".to_owned(), ..Default::default() });
    let bearer = MetadataValue::try_from(format!("Bearer {}", guarded.key(1))).unwrap();
    request.metadata_mut().insert("authorization", bearer);
    assert_eq!(grpc.stop_session(request).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn credential_that_is_missing_wrong_or_expired_is_refused_without_a_hint() {
    let guarded =
        Guarded::new(&[("good", "scopes: [observe]"), ("old", "scopes: [observe], expires: 2020-01-01T00:00:00Z")])
            .await;
    let address = guarded.fixture.edge.addresses().ws;
    let other = configuration::api_key::generate_key();
    for (key, wanted) in [
        (None, "no credential"),
        (Some("ailoop_x"), "mistyped"),
        (Some(&*other), "not known"),
        (Some("x"), "not known"),
    ] {
        let (status, problem) = Http::new(address, key).get("/v1/sessions").await;
        assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")), "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(wanted) && key.is_none_or(|key| key == "x" || !detail.contains(key)), "{detail}");
    }
    let (status, problem) = guarded.http(1).get("/v1/sessions").await;
    assert_eq!((status, problem["detail"].as_str().unwrap().contains("expired")), (401, true), "{problem}");
    let response = Http::new(address, None).request("GET", "/v1/sessions").header("x-api-key", guarded.key(0));
    assert_eq!(response.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn revoked_key_ends_its_open_connections() {
    let guarded = Guarded::new(&[("one", "scopes: [observe]"), ("two", "scopes: [observe]")]).await;
    let (mut revoked, mut kept) = (guarded.ws(0).await, guarded.ws(1).await);
    write_keys(&guarded.directory.path().join("keys.yaml"), &[("other".to_owned(), "scopes: [run]".to_owned())]);
    let mut entries = guarded.entries.clone();
    entries.remove(0);
    write_keys(&guarded.directory.path().join("keys.yaml"), &entries);
    // The remaining key has another id now, and so another grant.
    for ws in [&mut revoked, &mut kept] {
        let close = ws.receive_frame().await.unwrap_err().unwrap();
        assert_eq!(u16::from(close.code), 1008);
        assert!(close.reason.contains("unauthorized"), "{}", close.reason);
    }
    assert_eq!(guarded.http(0).get("/v1/sessions").await.0, 401);
    assert_eq!(guarded.http(1).get("/v1/sessions").await.0, 200);
}

#[tokio::test]
async fn browser_sends_its_key_as_a_subprotocol_and_gets_another_one_back() {
    let guarded = Guarded::new(&[("page", "scopes: [observe]")]).await;
    let address = guarded.fixture.edge.addresses().ws;
    let (mut ws, protocol) =
        Ws::connect_with_protocols(address, &format!("ailoop.v1, ailoop.bearer.{}", guarded.key(0))).await;
    assert_eq!(protocol.as_deref(), Some("ailoop.v1"));
    ws.expect_ok("session.list", json!({})).await;
}

#[tokio::test]
async fn key_of_some_agents_reaches_nothing_of_the_others() {
    let guarded = Guarded::new(&[
        ("some", "scopes: [run, observe, approve, administer], agents: [a]"),
        ("all", "scopes: [run, observe, approve, administer]"),
    ])
    .await;
    guarded.add_session("default", "mine", "a").await;
    guarded.add_session("default", "other", "b").await;
    let http = guarded.http(0);
    let listed = async || {
        let (_, listed) = http.get("/v1/sessions").await;
        let ids = listed["sessions"].as_array().unwrap().iter().map(|session| session["session_id"].clone());
        ids.collect::<Vec<_>>()
    };
    wait_until("the index has the session", async || listed().await == [json!("mine")]).await;
    wait_until("the index has both", async || {
        guarded.http(1).get("/v1/sessions").await.1["sessions"].as_array().unwrap().len() == 2
    })
    .await;
    assert_eq!(listed().await, [json!("mine")]);
    assert_eq!(http.get("/v1/sessions/mine").await.0, 200);
    for path in ["", "/transcript", "/history", "/events", "/describe", "/trace", "/gates", "/replay"] {
        let (status, problem) = http.get(&format!("/v1/sessions/other{path}")).await;
        assert_eq!((status, &problem["code"]), (404, &json!("unknown_session")), "{path}: {problem}");
    }
    let (status, problem) = http.post("/v1/sessions", json!({"agent": "e", "prompt": "x"})).await;
    assert_eq!(status, 403, "{problem}");
    let resumed = json!({"prompt": "x", "resume_from": {"session_id": "other"}});
    assert_eq!(http.post("/v1/sessions", resumed).await.0, 404);
    assert_eq!(http.get("/v1/mail").await.0, 403);
}

#[tokio::test]
async fn start_that_resumes_its_own_session_is_of_no_other_agent() {
    let guarded =
        Guarded::new(&[("some", "scopes: [run, observe], agents: [a]"), ("all", "scopes: [run, observe]")]).await;
    guarded.add_session("default", "mine", "a").await;
    let mine = json!({"session_id": "mine"});
    let start = |agent: &str| json!({"agent": agent, "prompt": "x", "resume_from": mine});
    let (status, problem) = guarded.http(0).post("/v1/sessions", start("e")).await;
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    assert_eq!(guarded.ws(0).await.expect_code("session.start", start("e")).await, "forbidden");
    let mut grpc = guarded.fixture.grpc().await.0;
    let start_request: proto::StartSessionRequest = proto::json::from_value(start("e")).unwrap();
    let mut request = tonic::Request::new(start_request);
    let bearer = MetadataValue::try_from(format!("Bearer {}", guarded.key(0))).unwrap();
    request.metadata_mut().insert("authorization", bearer);
    assert_eq!(grpc.start_session(request).await.unwrap_err().code(), Code::PermissionDenied);
    assert!(guarded.fixture.fake_loop.senders().await.is_empty(), "nothing reaches the loop");

    for agent in ["a", "e"] {
        assert_eq!(guarded.http(1).post("/v1/sessions", start(agent)).await.0, 201);
    }
    assert_eq!(guarded.http(0).post("/v1/sessions", start("a")).await.0, 201);
    let unnamed = json!({"prompt": "x", "resume_from": mine});
    assert_eq!(guarded.http(0).post("/v1/sessions", unnamed).await.0, 201);
    let wrong = json!({"agent": "nobody", "prompt": "x", "resume_from": mine});
    let (status, problem) = guarded.http(1).post("/v1/sessions", wrong).await;
    assert_eq!((status, &problem["code"]), (404, &json!("unknown_agent")), "{problem}");
}

#[tokio::test]
async fn start_that_resumes_an_earlier_slot_is_of_the_agent_of_then() {
    let guarded = Guarded::new(&[("some", "scopes: [run, observe], agents: [a]")]).await;
    guarded.add_session("default", "s", "e").await;
    let Event::SessionStarted(of_a) = events::session_started("a") else { unreachable!() };
    let changed = vec![Event::Configured(Box::new(configured(&of_a)))];
    guarded.fixture.fake_loop.commit(&key_of("default", "s"), changed).await;
    let from = |at: Option<u64>| json!({"prompt": "x", "resume_from": {"session_id": "s", "at": at}});
    let (status, problem) = guarded.http(0).post("/v1/sessions", from(Some(0))).await;
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    assert_eq!(guarded.http(0).post("/v1/sessions", from(Some(1))).await.0, 201);
    let now = json!({"prompt": "x", "resume_from": {"session_id": "s"}});
    assert_eq!(guarded.http(0).post("/v1/sessions", now).await.0, 201);
}

/// A change that leaves a session as it started.
fn configured(started: &SessionStarted) -> Configured {
    Configured {
        by: None,
        agent: started.agent.clone(),
        model: started.model.clone(),
        fallbacks: Vec::new(),
        prompt: None,
        features: started.features.clone(),
        overrides: None,
        requests: None,
        client_tools: None,
    }
}

#[tokio::test]
async fn command_carries_the_agents_of_its_key() {
    let guarded =
        Guarded::new(&[("some", "scopes: [run, observe], agents: [a, p]"), ("all", "scopes: [run, observe]")]).await;
    for key in [0, 1] {
        let start = json!({"agent": "a", "session_id": format!("s{key}"), "interactive": true});
        assert_eq!(guarded.http(key).post("/v1/sessions", start).await.0, 201);
        assert_eq!(guarded.http(key).post(&format!("/v1/sessions/s{key}/pause"), json!({})).await.0, 200);
    }
    let agents = Some(["a", "p"].map(|agent| AgentId::new(agent).unwrap()).into());
    assert_eq!(guarded.fixture.fake_loop.allowed_agents().await, [agents.clone(), agents, None, None]);
}

#[tokio::test]
async fn items_of_a_conversation_leave_out_an_agent_out_of_reach() {
    let guarded =
        Guarded::new(&[("some", "scopes: [run, observe], agents: [a]"), ("all", "scopes: [run, observe]")]).await;
    guarded.fixture.fake_loop.reply_with("answer").await;
    let (some, all) = (guarded.http(0), guarded.http(1));
    let (_, conversation) = some.post("/openai/v1/conversations", json!({})).await;
    let id = conversation["id"].as_str().unwrap();
    let say = |agent: &str, text: &str| json!({"model": agent, "conversation": id, "input": text});
    assert_eq!(some.post("/openai/v1/responses", say("a", "of a")).await.0, 200);
    assert_eq!(some.send("DELETE", &format!("/openai/v1/conversations/{id}"), None).await.0, 200);
    let (status, answer) = all.post("/openai/v1/responses", say("e", "of e")).await;
    assert_eq!(status, 200, "{answer}");
    let items = format!("/openai/v1/conversations/{id}/items?order=asc");
    let texts = async |http: &Http| {
        let (_, listed) = http.get(&items).await;
        let texts = listed["data"].as_array().unwrap().iter().map(|item| item["content"][0]["text"].clone());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(texts(&all).await, ["of a", "answer", "of e", "answer"]);
    assert_eq!(texts(&some).await, ["of a", "answer"]);
}

#[tokio::test]
async fn session_without_an_index_entry_is_reached_by_the_agent_in_its_log() {
    let guarded = Guarded::new(&[("some", "scopes: [run, observe], agents: [a]")]).await;
    for (session, agent, status) in [("mine", "a", 200), ("other", "e", 404)] {
        guarded.add_session("default", session, agent).await;
        guarded.fixture.bus.delete_summary(&key_of("default", session)).await.unwrap();
        let (found, answer) = guarded.http(0).get(&format!("/v1/sessions/{session}")).await;
        assert_eq!(found, status, "{session}: {answer}");
    }
}

#[tokio::test]
async fn session_whose_start_waits_takes_no_message_before_its_agent_is_known() {
    let keys = [("some", "scopes: [run, observe], agents: [a]"), ("all", "scopes: [run, observe]")];
    let guarded = Guarded::with(&keys, EdgeConfig { command_wait: 1, ..config() }).await;
    guarded.fixture.fake_loop.pause();
    let start = json!({"session_id": "new", "agent": "e", "interactive": true, "wait": false});
    assert_eq!(guarded.http(1).post("/v1/sessions", start).await.0, 202);
    let message = json!({
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "contextId": "new"}, "tenant": "a",
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message});
    let request = guarded.http(0).request("POST", "/a2a").header("a2a-version", "1.0");
    let sent = request.header("content-type", "application/json").body(body.to_string()).send().await.unwrap();
    let (_, answer) = crate::support::http::read(sent).await;
    assert!(answer["error"].is_object(), "{answer}");
    guarded.fixture.fake_loop.resume();
    guarded.http(1).post("/v1/sessions/new/stop", json!({})).await;
    let log = guarded.fixture.bus.history(&key_of("default", "new"), 0).await.unwrap();
    let messages =
        log.iter().flat_map(|(_, commit)| &commit.events).filter(|event| matches!(event, Event::UserProcessed(_)));
    assert_eq!(messages.count(), 0, "a message came into a session of another agent");
}

#[tokio::test]
async fn request_for_a_completion_counts_once_for_the_rate_of_its_key() {
    let guarded = Guarded::new(&[("slow", "scopes: [run, observe], requests_per_minute: 2")]).await;
    guarded.fixture.fake_loop.reply_with("Good day.").await;
    let request = json!({"model": "e", "messages": [{"role": "user", "content": "Hi"}]});
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(guarded.http(0).post("/openai/v1/chat/completions", request.clone()).await.0);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn key_that_may_only_talk_starts_sends_answers_and_reads_and_sets_nothing() {
    let guarded = Guarded::new(&[("page", "scopes: [converse], agents: [a]"), ("all", "scopes: [run, observe]")]).await;
    guarded.fixture.fake_loop.reply_with("Good day.").await;
    let (page, mut ws) = (guarded.http(0), guarded.ws(0).await);
    let start = json!({"session_id": "s", "agent": "a", "prompt": "Hi", "interactive": true});
    assert_eq!(page.post("/v1/sessions", start).await.0, 201);
    assert_eq!(page.post("/v1/sessions/s/messages", json!({"content": "More"})).await.0, 200);
    for path in ["", "/transcript"] {
        assert_eq!(page.get(&format!("/v1/sessions/s{path}")).await.0, 200, "{path}");
    }
    ws.expect_ok("session.watch", json!({"session_id": "s"})).await;
    for (method, params) in [
        ("session.configure", json!({"session_id": "s", "model": "rehearsal"})),
        ("session.history", json!({"session_id": "s"})),
        ("session.stop", json!({"session_id": "s"})),
        ("session.list", json!({})),
        ("gates.list", json!({})),
    ] {
        assert_eq!(ws.expect_code(method, params).await, "forbidden", "{method}");
    }
    for (field, value) in [("model", json!("rehearsal")), ("ai_config", json!({"system_prompt": "x"}))] {
        let mut start = json!({"agent": "a", "prompt": "Hi"});
        start[field] = value;
        let (status, problem) = page.post("/v1/sessions", start.clone()).await;
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(&format!("`{field}`")), "{problem}");
        assert_ne!(guarded.http(1).post("/v1/sessions", start).await.0, 403);
    }
    let chat = json!({"model": "a", "messages": [{"role": "user", "content": "Hi"}]});
    let (status, answer) = page.post("/openai/v1/chat/completions", chat).await;
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("Good day.")), "{answer}");
}

#[tokio::test]
async fn administrator_of_a_tenant_sees_nothing_of_the_fleet() {
    let guarded = Guarded::new(&[("tenant", "scopes: [administer, observe]"), ("fleet", "scopes: [operate]")]).await;
    for path in ["/v1/status", "/v1/queues"] {
        let (status, problem) = guarded.http(0).get(path).await;
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{path}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("`operate`"), "{problem}");
        assert_eq!(guarded.http(1).get(path).await.0, 200, "{path}");
    }
    assert_eq!(guarded.http(0).get("/v1/dead-letters").await.0, 200);
    assert_eq!(guarded.http(1).get("/v1/dead-letters").await.0, 403);
}

#[test]
fn scopes_are_those_that_the_documentation_lists() {
    let names: BTreeSet<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    assert_eq!(names, ["administer", "approve", "converse", "observe", "operate", "run"].into());
}
