//! An edge with two cells: each has a bus and a loop of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bus::{NatsConfig, Read};
use bus_memory::{Fault, Faults, MemoryServer, Operation};
use contract::command::{Command, CommandMeta, Start, Verb};
use contract::subject::SessionKey;
use contract::{CellName, CommandId, TenantId, Timestamp, cell};
use edge::{CellConfig, CellConnection, Edge, EdgeConfig};
use serde_json::{Value, json};

use crate::support::{FakeLoop, Grpc, Ws, config, key, wait_until};

/// A cell as the edge reaches it, until it is cut off.
struct TestCell {
    server: MemoryServer,
    is_cut_off: Arc<AtomicBool>,
    _fake_loop: FakeLoop,
}

struct CutOff(Arc<AtomicBool>);

impl Faults for CutOff {
    fn decide(&self, operation: Operation<'_>) -> Fault {
        if operation.client == "edge" && self.0.load(Ordering::SeqCst) { Fault::NotDone } else { Fault::None }
    }
}

impl TestCell {
    async fn new() -> Self {
        let is_cut_off = Arc::<AtomicBool>::default();
        let server = MemoryServer::with_faults(Arc::new(CutOff(is_cut_off.clone())));
        let fake_loop = FakeLoop::start(server.bus()).await;
        fake_loop.reply_with("Done.").await;
        Self { server, is_cut_off, _fake_loop: fake_loop }
    }

    fn cut_off(&self, is_cut_off: bool) {
        self.is_cut_off.store(is_cut_off, Ordering::SeqCst);
    }

    async fn has(&self, key: &SessionKey) -> bool {
        self.server.bus().head(key, Read::Leader).await.unwrap().is_some()
    }
}

/// An edge with the cells `a` and `b`.
struct TwoCells {
    a: TestCell,
    b: TestCell,
    edge: Edge,
}

fn name(name: &str) -> CellName {
    CellName::new(name).unwrap()
}

/// Returns the table of the cells `a` and `b`, with addresses where nothing listens.
fn table() -> EdgeConfig {
    let cell = |text: &str, port: u16| CellConfig {
        name: name(text),
        nats: NatsConfig { url: format!("nats://127.0.0.1:{port}"), ..NatsConfig::default() },
    };
    EdgeConfig { cells: vec![cell("a", 1), cell("b", 2)], ..config() }
}

impl TwoCells {
    async fn new() -> Self {
        Self::with(table()).await
    }

    async fn with(config: EdgeConfig) -> Self {
        let (a, b) = (TestCell::new().await, TestCell::new().await);
        let connection =
            |name_text: &str, cell: &TestCell| CellConnection::of_bus(name(name_text), cell.server.client("edge").0);
        let connections = vec![connection("a", &a), connection("b", &b)];
        let edge = Edge::start_in(config, connections).await.unwrap();
        Self { a, b, edge }
    }

    async fn ws(&self) -> Ws {
        Ws::connect(self.edge.addresses().ws).await
    }

    fn cell(&self, name: &str) -> &TestCell {
        if name == "a" { &self.a } else { &self.b }
    }

    async fn wait_for_missing(&self, expected: bool) {
        wait_until("the edge knows of its cells", async || (self.edge.readiness().warnings().count() > 0) == expected)
            .await;
    }
}

/// Returns the home of an id of the default tenant.
fn home(session: &str) -> &'static str {
    let cells = [name("a"), name("b")];
    if cell::rank(&cells, &key(session))[0].as_str() == "a" { "a" } else { "b" }
}

/// Returns an id whose home is a cell.
fn id_of(cell: &str, prefix: &str) -> String {
    (0..64).map(|number| format!("{prefix}{number}")).find(|id| home(id) == cell).unwrap()
}

fn ids(listed: &Value) -> Vec<&str> {
    listed["sessions"].as_array().unwrap().iter().map(|session| session["session_id"].as_str().unwrap()).collect()
}

fn start_of(session: &str) -> Value {
    json!({"session_id": session, "prompt": "x", "interactive": true})
}

#[tokio::test]
async fn session_is_started_at_home_and_lists_are_merged() {
    let cells = TwoCells::new().await;
    let mut ws = cells.ws().await;
    let mut started = Vec::new();
    for number in 0..8 {
        let id = format!("s{number}");
        ws.expect_ok("session.start", start_of(&id)).await;
        assert!(cells.cell(home(&id)).has(&key(&id)).await, "{id} is not in {}", home(&id));
        ws.expect_ok("session.get", json!({"session_id": id})).await;
        ws.expect_ok("session.send", json!({"session_id": id, "text": "More."})).await;
        started.insert(0, id);
    }
    assert!(started.iter().any(|id| home(id) == "a") && started.iter().any(|id| home(id) == "b"));
    wait_until("all sessions are listed", async || {
        ids(&cells.ws().await.expect_ok("session.list", json!({})).await).len() == 8
    })
    .await;
    let whole = ws.expect_ok("session.list", json!({"has_total": true})).await;
    assert_eq!((ids(&whole), &whole["total"]), (started.iter().map(String::as_str).collect(), &json!(8)));
    assert_eq!(whole.get("missing_cells"), None);
    let (mut cursor, mut pages) = (Value::Null, Vec::new());
    loop {
        let page = ws.expect_ok("session.list", json!({"limit": 3, "cursor": cursor})).await;
        pages.extend(ids(&page).into_iter().map(str::to_owned));
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(pages, started);
    let status = ws.expect_ok("fleet.status", json!({})).await;
    assert_eq!(status["sessions"]["idle"], json!(8));
    assert_eq!(ws.expect_ok("session.stats", json!({})).await["stats"][0]["sessions"], json!(8));
}

#[tokio::test]
async fn one_cell_is_cut_off_the_other_does_not_notice() {
    let cells = TwoCells::new().await;
    let mut ws = cells.ws().await;
    let (in_a, in_b) = (id_of("a", "s"), id_of("b", "s"));
    for id in [&in_a, &in_b] {
        ws.expect_ok("session.start", start_of(id)).await;
    }
    wait_until("both are listed", async || {
        ids(&cells.ws().await.expect_ok("session.list", json!({})).await).len() == 2
    })
    .await;
    cells.b.cut_off(true);
    cells.wait_for_missing(true).await;
    assert!(cells.edge.readiness().is_ready(), "the sessions of the other cell go on");

    let listed = ws.expect_ok("session.list", json!({})).await;
    assert_eq!((ids(&listed), &listed["missing_cells"]), (vec![in_a.as_str()], &json!(["b"])));
    for method in ["gates.list", "calls.list", "dead.list", "fleet.status", "fleet.queues", "session.stats"] {
        assert_eq!(ws.expect_ok(method, json!({})).await["missing_cells"], json!(["b"]), "{method}");
    }
    let mut grpc = Grpc::connect(cells.edge.addresses().grpc).await.0;
    assert_eq!(
        grpc.list_sessions(proto::ListSessionsRequest::default()).await.unwrap().into_inner().missing_cells,
        ["b"]
    );
    for method in ["session.get", "session.pause", "session.watch"] {
        let answer = ws.call(method, json!({"session_id": in_b})).await;
        let error = &answer["error"];
        assert_eq!(error["data"]["code"], json!("unavailable"), "{method}: {answer}");
        assert!(error["message"].as_str().unwrap().contains("cell b cannot be reached"), "{method}: {answer}");
        assert!(error["data"]["retry_after_ms"].as_u64().unwrap() > 0, "{method}: {answer}");
    }
    // Sessions of the other cell: old ones, new ones, and those whose id the edge generates.
    ws.expect_ok("session.send", json!({"session_id": in_a, "text": "More."})).await;
    ws.expect_ok("session.start", start_of(&id_of("a", "new"))).await;
    for _ in 0..8 {
        let started = ws.expect_ok("session.start", json!({"prompt": "x", "interactive": true})).await;
        assert_eq!(home(started["session_id"].as_str().unwrap()), "a");
    }
    let refused = ws.expect_code("session.start", start_of(&id_of("b", "new"))).await;
    assert_eq!(refused, "unavailable", "its home is missing");
    // One that no cell has may be in the missing one.
    assert_eq!(ws.expect_code("session.get", json!({"session_id": id_of("a", "none")})).await, "unavailable");

    cells.b.cut_off(false);
    cells.wait_for_missing(false).await;
    ws.expect_ok("session.send", json!({"session_id": in_b, "text": "More."})).await;
    assert_eq!(ws.expect_code("session.get", json!({"session_id": id_of("a", "none")})).await, "unknown_session");
    wait_until("all are listed again", async || {
        let listed = cells.ws().await.expect_ok("session.list", json!({})).await;
        listed.get("missing_cells").is_none() && ids(&listed).contains(&in_b.as_str())
    })
    .await;
}

#[tokio::test]
async fn edge_starts_without_one_of_its_cells() {
    let a = TestCell::new().await;
    let config = table();
    let b = CellConnection::nats(name("b"), config.cells[1].nats.clone());
    let connections = vec![CellConnection::of_bus(name("a"), a.server.client("edge").0), b];
    let edge = Edge::start_in(config, connections).await.unwrap();
    let warnings: Vec<_> = edge.readiness().warnings().collect();
    assert_eq!(warnings, [("cells", "no connection to b".to_owned())]);
    let mut ws = Ws::connect(edge.addresses().ws).await;
    ws.expect_ok("session.start", start_of(&id_of("a", "s"))).await;
    let refused = ws.call("session.get", json!({"session_id": id_of("b", "s")})).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("cell b cannot be reached"), "{refused}");
}

/// Starts a session in a cell, as the loop starts a child: the edge has not chosen its cell.
async fn start_by_loop(cell: &TestCell, key: &SessionKey) {
    let body = Start { prompt: Some("x".into()), interactive: true, ..Start::default() };
    let command = Command { meta: CommandMeta::new(Timestamp::from_millis(1)), body };
    let id = CommandId::new("by-loop").unwrap();
    cell.server.bus().send_control(key, Verb::Start, &id, serde_json::to_vec(&command).unwrap().into()).await.unwrap();
    wait_until("it has begun", async || cell.has(key).await).await;
}

#[tokio::test]
async fn session_that_is_not_at_home_is_found() {
    let cells = TwoCells::new().await;
    let mut ws = cells.ws().await;
    let child = id_of("a", "child");
    start_by_loop(&cells.b, &key(&child)).await;
    for _ in 0..2 {
        ws.expect_ok("session.get", json!({"session_id": child})).await;
    }
    ws.expect_ok("session.send", json!({"session_id": child, "text": "More."})).await;
    ws.expect_ok("session.watch", json!({"session_id": child})).await;
    assert_eq!(ws.receive_seqs(2).await, [1, 2]);
    assert_eq!(ws.expect_code("session.start", start_of(&child)).await, "session_exists");
    // One that resumes it is read from its cell.
    let fork = id_of("a", "fork");
    let resumed = json!({"session_id": fork, "interactive": true, "resume_from": {"session_id": child}});
    ws.call("session.start", resumed).await;
    assert!(cells.b.has(&key(&fork)).await && !cells.a.has(&key(&fork)).await && !cells.a.has(&key(&child)).await);
    // Another replica, which has not started it, finds it too.
    let connections = vec![
        CellConnection::of_bus(name("a"), cells.a.server.client("edge").0),
        CellConnection::of_bus(name("b"), cells.b.server.client("edge").0),
    ];
    let other = Edge::start_in(table(), connections).await.unwrap();
    Ws::connect(other.addresses().ws).await.expect_ok("session.get", json!({"session_id": child})).await;
}

#[tokio::test]
async fn tenant_uses_the_cells_of_the_table() {
    let tenant_cells = BTreeMap::from([(TenantId::default(), vec![name("b")])]);
    let cells = TwoCells::with(EdgeConfig { tenant_cells, ..table() }).await;
    let mut ws = cells.ws().await;
    let id = id_of("a", "s");
    ws.expect_ok("session.start", start_of(&id)).await;
    assert!(cells.b.has(&key(&id)).await && !cells.a.has(&key(&id)).await);
    // A cell of others does not matter to it.
    cells.a.cut_off(true);
    cells.wait_for_missing(true).await;
    assert_eq!(ws.expect_ok("session.list", json!({})).await.get("missing_cells"), None);
    ws.expect_ok("session.get", json!({"session_id": id})).await;
}

#[tokio::test]
async fn table_beside_a_bus_is_refused() {
    let server = MemoryServer::new();
    let refused = Edge::start(table(), server.bus()).await.unwrap_err().to_string();
    assert!(refused.contains("edge.cells"), "{refused}");
    let unknown = EdgeConfig { tenant_cells: BTreeMap::from([(TenantId::default(), vec![name("c")])]), ..table() };
    assert!(unknown.check().unwrap_err().to_string().contains("edge.tenant_cells.default names the cell c"));
}
