//! Lists of sessions, tools, agents and models.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::tool::{ApprovalPolicy, EffectClass, ToolSpec};
use contract::{Json, TenantId, ToolName};
use proto::json::to_value;
use serde_json::{Value, json};

use crate::support::{Fixture, config, key, wait_until};

#[tokio::test]
async fn tool_list_has_registered_tools_and_those_of_the_loop() {
    let fixture = Fixture::new().await;
    let spec = ToolSpec {
        name: ToolName::new("read_file").unwrap(),
        description: "Reads.".to_owned(),
        parameters: Json::parse("{\"type\":\"object\"}").unwrap(),
        effect: EffectClass::Pure,
        approval: ApprovalPolicy::Never,
        timeout_ms: Some(500),
        max_output: None,
        instructions: None,
        version: "1".to_owned(),
    };
    fixture.bus.put_tool(&TenantId::default(), &spec).await.unwrap();
    let listed = fixture.ws().await.expect_ok("tools.list", json!({})).await;
    let [ask, delegate, read] = &listed["tools"].as_array().unwrap()[..] else { panic!("{listed}") };
    // The list includes the tools that the loop performs itself.
    assert_eq!((&ask["name"], &delegate["name"]), (&json!("ask_user"), &json!("delegate")));
    assert_eq!(*read, serde_json::to_value(&spec).unwrap());
    let listed = fixture.grpc().await.0.list_tools(proto::ListToolsRequest {}).await.unwrap().into_inner();
    assert_eq!((listed.tools[2].effect.as_str(), listed.tools[2].timeout_ms), ("pure", Some(500)));
}

#[tokio::test]
async fn session_list_with_cursor_gives_every_page() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    for n in 0..5 {
        ws.expect_ok("session.start", json!({"session_id": format!("s{n}"), "prompt": "x", "interactive": true})).await;
    }
    let whole = ws.expect_ok("session.list", json!({})).await;
    let ids = |listed: &Value| -> Vec<Value> {
        listed["sessions"].as_array().unwrap().iter().map(|session| session["session_id"].clone()).collect()
    };
    assert_eq!((ids(&whole).len(), &whole["next_cursor"]), (5, &Value::Null));
    let mut parts = Vec::new();
    let mut cursor = Value::Null;
    for count in [2, 2, 1] {
        let part = ws.expect_ok("session.list", json!({"limit": 2, "cursor": cursor})).await;
        assert_eq!(ids(&part).len(), count);
        parts.extend(ids(&part));
        cursor = part["next_cursor"].clone();
    }
    assert_eq!((parts, &cursor), (ids(&whole), &Value::Null));

    let mut grpc = fixture.grpc().await.0;
    let page = |limit, cursor| proto::ListSessionsRequest { limit, cursor, ..Default::default() };
    let first = grpc.list_sessions(page(Some(4), None)).await.unwrap().into_inner();
    let rest = grpc.list_sessions(page(None, first.next_cursor)).await.unwrap().into_inner();
    assert_eq!((first.sessions.len(), rest.sessions.len(), rest.next_cursor), (4, 1, None));
    let damaged = grpc.list_sessions(page(None, Some("yesterday".to_owned()))).await;
    assert!(damaged.unwrap_err().message().contains("send `next_cursor` as it came"));
}

#[tokio::test]
async fn agents_and_models_are_listed_by_both_protocols() {
    let fixture = Fixture::new().await;
    let listed = fixture.ws().await.expect_ok("agents.list", json!({})).await;
    let agent = json!({"id": "e", "name": "Eamonn the Executioner", "aliases": ["eamonn"], "is_default": true});
    assert_eq!(listed, json!({"agents": [agent]}), "the tools of an agent are not listed");
    let listed = fixture.ws().await.expect_ok("models.list", json!({})).await;
    let [model] = &listed["models"].as_array().unwrap()[..] else { panic!("{listed}") };
    let listed = (&model["id"], &model["provider"], &model["context_window"], &model["is_default"]);
    assert_eq!(listed, (&json!("rehearsal"), &json!("rehearsal"), &json!(8_192), &json!(true)));

    let mut grpc = fixture.grpc().await.0;
    let agents = grpc.list_agents(proto::ListAgentsRequest {}).await.unwrap().into_inner().agents;
    assert_eq!((agents[0].id.as_str(), &agents[0].model, agents[0].is_default), ("e", &None, true));
    let models = grpc.list_models(proto::ListModelsRequest {}).await.unwrap().into_inner().models;
    assert_eq!(
        (models[0].id.as_str(), models[0].context_window, models[0].max_output),
        ("rehearsal", Some(8_192), None)
    );
}

#[tokio::test]
async fn agent_is_described_and_its_replies_are_tested() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    let described = ws.expect_ok("agents.describe", json!({"agent": "e"})).await;
    let found = (&described["id"], &described["model"], &described["prompt"], &described["continuation"]["enabled"]);
    assert_eq!(found, (&json!("e"), &json!("rehearsal"), &json!("You are Alice."), &json!(true)));
    let unknown = ws.expect_code("agents.describe", json!({"agent": "nobody"})).await;
    assert_eq!(unknown, "unknown_agent");

    let mut test = async |params: Value| {
        let decided = ws.expect_ok("agents.test_reply", params).await;
        (decided["continues"].clone(), decided["source"].clone(), decided["visible"].clone())
    };
    let calling = json!({"agent": "e", "text": "I look.", "calls": ["read_file"]});
    assert_eq!(test(calling).await, (json!(true), json!("tool_calls"), json!("I look.")));
    let signal = r#"Done. {"continuation": {"status": "TERMINATE", "reason": "all is done"}}"#;
    let (continues, source, _) = test(json!({"agent": "e", "text": signal})).await;
    assert_eq!((continues, source), (json!(false), json!("explicit")));

    let mut grpc = fixture.grpc().await.0;
    let described = grpc.describe_agent(proto::DescribeAgentRequest::default()).await.unwrap().into_inner();
    assert_eq!((described.id.as_str(), described.prompt.as_str()), ("a", "You are Alice."));
    let reply = proto::TestReplyRequest {
        agent: "e".to_owned(),
        text: "cut".to_owned(),
        is_cut: Some(true),
        ..Default::default()
    };
    let decided = grpc.test_reply(reply).await.unwrap().into_inner();
    assert_eq!((decided.continues, decided.source.as_str()), (true, "length"));
}

#[tokio::test]
async fn wait_for_a_gate_is_described_with_its_own_kind_and_that_of_the_gate() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.reply_with("Done.").await;
    fixture.fake_loop.ask_approval_first();
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.start", json!({"session_id": "s", "prompt": "x"})).await;
    let mut grpc = fixture.grpc().await.0;
    let request = proto::DescribeSessionRequest { session_id: "s".to_owned() };
    let over_grpc = to_value(&grpc.describe_session(request).await.unwrap().into_inner()).unwrap();
    let text = over_grpc.to_string();
    assert_eq!(text.matches("\"kind\":\"gate\"").count(), 1, "{text}");
    let over_ws = ws.expect_ok("session.describe", json!({"session_id": "s"})).await;
    for described in [over_grpc, over_ws] {
        let wait = &described["waits"][0];
        let found = (&wait["kind"], &wait["gate_kind"], &wait["gate"], &wait["tool"]);
        assert_eq!(found, (&json!("gate"), &json!("approval"), &json!("c1-1-1"), &json!("send")), "{described}");
        assert_eq!(described["gates"][0]["kind"], "approval");
    }
}

#[tokio::test]
async fn replay_leaves_the_commits_out_if_it_is_asked_to() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 2).await;
    let mut ws = fixture.ws().await;
    let whole = ws.expect_ok("session.replay", json!({"session_id": "s"})).await;
    assert_eq!(whole["commits"].as_array().map(Vec::len), Some(3), "{whole}");
    let short = ws.expect_ok("session.replay", json!({"session_id": "s", "no_commits": true})).await;
    let (short, mut expected) = (short.as_object().unwrap(), whole.as_object().unwrap().clone());
    expected.remove("commits");
    assert_eq!(short, &expected);
    let mut grpc = fixture.grpc().await.0;
    let request =
        proto::ReplaySessionRequest { session_id: "s".to_owned(), no_commits: Some(true), ..Default::default() };
    let report = grpc.replay_session(request).await.unwrap().into_inner();
    assert_eq!(to_value(&report).unwrap(), Value::Object(expected));
}

/// Counts the reads of whole buckets.
struct CountLists(Arc<AtomicUsize>);

impl Faults for CountLists {
    fn decide(&self, op: Operation<'_>) -> Fault {
        self.0.fetch_add(usize::from(op.action == Action::KvList), Ordering::SeqCst);
        Fault::None
    }
}

#[tokio::test]
async fn session_lists_are_served_from_memory_and_the_index_is_read_again_after_a_gap() {
    let lists = Arc::new(AtomicUsize::new(0));
    let server = MemoryServer::with_faults(Arc::new(CountLists(lists.clone())));
    let fixture = Fixture::on(server, config()).await;
    let mut ws = fixture.ws().await;
    let ids = |answer: &Value| -> Vec<String> {
        let sessions = answer["sessions"].as_array().unwrap();
        sessions.iter().map(|session| session["session_id"].as_str().unwrap().to_owned()).collect()
    };
    fixture.fake_loop.fill_log(&key("a"), 1).await;
    wait_until("the index is in memory", async || {
        let before = lists.load(Ordering::SeqCst);
        let found = fixture.ws().await.expect_ok("session.list", json!({})).await;
        ids(&found) == ["a"] && lists.load(Ordering::SeqCst) == before
    })
    .await;
    let before = lists.load(Ordering::SeqCst);
    fixture.fake_loop.fill_log(&key("b"), 1).await;
    wait_until("the watch reports another session", async || {
        ids(&fixture.ws().await.expect_ok("session.list", json!({})).await).len() == 2
    })
    .await;
    for method in ["session.list", "gates.list", "session.stats"] {
        for _ in 0..50 {
            ws.expect_ok(method, json!({})).await;
        }
    }
    assert_eq!(lists.load(Ordering::SeqCst), before, "the bucket was not read");

    fixture.server.restart();
    wait_until("the bucket is read after a gap", async || lists.load(Ordering::SeqCst) > before).await;
    fixture.fake_loop.commit(&key("a"), vec![crate::support::events::session_ended()]).await;
    wait_until("the list shows the change after the gap", async || {
        ids(&fixture.ws().await.expect_ok("session.list", json!({"phase": "ended"})).await) == ["a"]
    })
    .await;
    assert!(lists.load(Ordering::SeqCst) <= before + 3, "the gap causes one read");
}

#[tokio::test]
async fn session_list_picks_what_waits_costs_or_has_a_parent_and_counts_all_of_it() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    for n in 0..3 {
        ws.expect_ok("session.start", json!({"session_id": format!("idle{n}"), "interactive": true})).await;
    }
    fixture.fake_loop.reply_with("Done.").await;
    fixture.fake_loop.ask_approval_first();
    ws.expect_ok("session.start", json!({"session_id": "asks", "prompt": "x", "interactive": true})).await;
    wait_until("all are in the index", async || {
        ws.expect_ok("session.list", json!({"has_total": true})).await["total"] == 4
    })
    .await;
    wait_until("one waits", async || {
        let listed = ws.expect_ok("session.list", json!({"is_waiting": true, "has_total": true})).await;
        listed["total"] == 1 && listed["sessions"][0]["session_id"] == "asks"
    })
    .await;
    for (filter, total) in [
        (json!({}), 4),
        (json!({"is_failed": true}), 0),
        (json!({"cost_usd_min": 1000.5}), 0),
        (json!({"cost_usd_min": 0}), 4),
        (json!({"parent": "idle0"}), 0),
        (json!({"text": "idle"}), 3),
        (json!({"until": "2000-01-01T00:00:00Z"}), 0),
        (json!({"since": "2000-01-01T00:00:00Z", "until": "2999-01-01T00:00:00Z"}), 4),
    ] {
        let mut params = filter.clone();
        params["has_total"] = json!(true);
        params["limit"] = json!(2);
        let listed = ws.expect_ok("session.list", params).await;
        assert_eq!(listed["total"], total, "{filter}");
        assert!(listed["sessions"].as_array().unwrap().len() <= 2);
    }
    assert_eq!(ws.expect_ok("session.list", json!({})).await["total"], Value::Null);
    let mut grpc = fixture.grpc().await.0;
    let request = proto::ListSessionsRequest { is_waiting: Some(true), has_total: Some(true), ..Default::default() };
    assert_eq!(grpc.list_sessions(request).await.unwrap().into_inner().total, Some(1));
}

#[tokio::test]
async fn stats_count_each_session_in_the_interval_of_its_start() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.start", json!({"session_id": "s", "interactive": true})).await;
    wait_until("it is in the index", async || {
        !ws.expect_ok("session.list", json!({})).await["sessions"].as_array().unwrap().is_empty()
    })
    .await;
    let started = ws.expect_ok("session.get", json!({"session_id": "s"})).await["started"].as_str().unwrap().to_owned();
    // The clock of the loop is that of the bus, and stands in the past.
    let decades = 2_000_000_000;
    let found = ws.expect_ok("session.stats", json!({"since": started, "interval": decades})).await;
    let intervals = found["intervals"].as_array().unwrap();
    assert_eq!((intervals.len(), &intervals[0]["start"]), (1, &json!("1970-01-01T00:00:00.000Z")), "{found}");
    assert_eq!((&intervals[0]["sessions"], &intervals[0]["failed"]), (&json!(1), &json!(0)), "{found}");
    assert_eq!(ws.expect_ok("session.stats", json!({})).await["intervals"], Value::Null);
    for bad in [
        json!({"interval": 3600}),
        json!({"since": started, "interval": 59}),
        json!({"since": "2000-01-01T00:00:00Z", "interval": 3600}),
    ] {
        assert_eq!(ws.expect_code("session.stats", bad.clone()).await, "bad_request", "{bad}");
    }
}
