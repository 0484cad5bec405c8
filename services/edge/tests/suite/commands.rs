//! Commands and reads: both protocols give the same answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bus::Read;
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::command::Verb;
use contract::limits::{JSON_VALUES_MAX, MESSAGE_BYTES_MAX, SLOTS_PER_PAGE, WAITING_COMMANDS_MAX};
use contract::streams::Stream;
use contract::subject;
use contract::{CommandId, ErrorCode};
use proto::json::to_value;
use serde_json::json;
use tonic::Code;

use crate::support::events::{ignored_result, session_started, user_message};
use crate::support::{CountedReads, Fixture, config, key, read_code, wait_until};

fn start(session: &str) -> proto::StartSessionRequest {
    proto::StartSessionRequest {
        session_id: Some(session.to_owned()),
        command_id: Some("c1".to_owned()),
        prompt: Some("hello".to_owned().into()),
        interactive: Some(true),
        ..proto::StartSessionRequest::default()
    }
}

#[tokio::test]
async fn session_from_start_to_stop_answers_every_command() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    let started = ws.expect_ok(
        "session.start",
        json!({"session_id": "s", "command_id": "c1", "prompt": "hello", "interactive": true}),
    );
    assert_eq!(started.await, json!({"session_id": "s", "command_id": "c1", "done": true, "seq": 3, "turn": 1}));
    let sent = ws.expect_ok("session.send", json!({"session_id": "s", "command_id": "c2", "text": "more"})).await;
    assert_eq!((&sent["done"], &sent["seq"]), (&json!(true), &json!(4)));
    assert_eq!(ws.expect_ok("session.pause", json!({"session_id": "s", "reason": "lunch"})).await["seq"], 5);

    let info = ws.expect_ok("session.get", json!({"session_id": "s"})).await;
    assert_eq!((&info["phase"], &info["title"], &info["seq"]), (&json!("paused"), &json!("hello"), &json!(5)));
    let history = ws.expect_ok("session.history", json!({"session_id": "s"})).await;
    assert_eq!(history["seq"], 5);
    assert_eq!(history["messages"][0], json!({"role": "system", "content": "You are Alice."}));

    assert_eq!(ws.expect_ok("session.stop", json!({"session_id": "s"})).await["done"], true);
    assert_eq!(ws.expect_code("session.send", json!({"session_id": "s", "text": "x"})).await, "session_ended");
    assert_eq!(ws.expect_code("session.start", json!({"session_id": "s", "prompt": "x"})).await, "session_ended");
}

#[tokio::test]
async fn both_protocols_give_same_answers() {
    let fixture = Fixture::new().await;
    let (mut ws, mut grpc) = (fixture.ws().await, fixture.grpc().await);
    let reply = grpc.0.start_session(start("g")).await.unwrap().into_inner();
    let same = ws
        .expect_ok(
            "session.start",
            json!({"session_id": "w", "command_id": "c1", "prompt": "hello", "interactive": true}),
        )
        .await;
    assert_eq!(
        json!({"session_id": "w", "command_id": reply.command_id, "done": reply.done, "seq": reply.seq, "turn": reply.turn}),
        same
    );
    let request = proto::GetHistoryRequest { session_id: "w".to_owned() };
    let history = to_value(&grpc.0.get_history(request).await.unwrap().into_inner()).unwrap();
    assert_eq!(history, ws.expect_ok("session.history", json!({"session_id": "w"})).await);
    let request = proto::GetSessionRequest { session_id: "w".to_owned() };
    let info = grpc.0.get_session(request).await.unwrap().into_inner();
    let got = ws.expect_ok("session.get", json!({"session_id": "w"})).await;
    assert_eq!(
        json!([info.session_id, info.phase, info.seq, info.started]),
        json!([got["session_id"], got["phase"], got["seq"], got["started"]])
    );
    let listed = grpc.0.list_sessions(proto::ListSessionsRequest::default()).await.unwrap().into_inner();
    let listed: Vec<_> = listed.sessions.into_iter().map(|info| info.session_id).collect();
    let found = ws.expect_ok("session.list", json!({})).await;
    let found: Vec<_> = found["sessions"].as_array().unwrap().iter().map(|s| s["session_id"].clone()).collect();
    assert_eq!(json!(listed), json!(found));
    assert_eq!(listed.len(), 2);
    let ended = proto::ListSessionsRequest { phase: Some("ended".to_owned()), ..Default::default() };
    assert_eq!(grpc.0.list_sessions(ended).await.unwrap().into_inner().sessions, []);
}

#[tokio::test]
async fn every_refusal_has_its_code_in_both_protocols() {
    let fixture = Fixture::new().await;
    let (mut ws, mut grpc) = (fixture.ws().await, fixture.grpc().await);
    ws.expect_ok("session.start", json!({"session_id": "s", "prompt": "hello", "interactive": true})).await;
    let long = "x".repeat(MESSAGE_BYTES_MAX + 1);
    let answer =
        json!({"session_id": "s", "gate": "c1-1-1", "arguments_sha256": "0".repeat(64), "decision": "approve"});
    let rows = [
        ("session.start", json!({"prompt": "x", "agent": "nobody"}), "unknown_agent"),
        ("session.start", json!({"prompt": "x", "model": "gpt-0"}), "unknown_model"),
        ("session.start", json!({"session_id": "s", "prompt": "x"}), "session_exists"),
        ("session.start", json!({"prompt": ""}), "empty_message"),
        ("session.send", json!({"session_id": "nowhere", "text": "x"}), "unknown_session"),
        ("session.send", json!({"session_id": "s", "text": long}), "too_large"),
        ("session.send", json!({"session_id": "s", "text": "x", "loud": true}), "bad_request"),
        ("session.resume", json!({"session_id": "s"}), "not_now"),
        ("session.answer", answer, "gate_closed"),
        ("session.history", json!({"session_id": "nowhere"}), "unknown_session"),
        ("session.get", json!({"session_id": "nowhere"}), "unknown_session"),
        ("session.get", json!({"session_id": "a.b"}), "bad_request"),
        ("session.watch", json!({"session_id": "nowhere"}), "unknown_session"),
        ("session.watch", json!({"session_id": "s", "from_seq": 99}), "resync"),
        ("session.list", json!({"phase": "asleep"}), "bad_request"),
        ("session.dance", json!({}), "unknown_method"),
        ("tools.list", json!({"all": true}), "bad_request"),
    ];
    for (method, params, wanted) in rows {
        assert_eq!(ws.expect_code(method, params.clone()).await, wanted, "{method}");
    }

    let read_error = |outcome: Result<(), tonic::Status>| {
        let status = outcome.unwrap_err();
        (status.code(), read_code(&status))
    };
    let agent = proto::StartSessionRequest { agent: Some("nobody".to_owned()), session_id: None, ..start("") };
    assert_eq!(read_error(grpc.0.start_session(agent).await.map(drop)), (Code::NotFound, "unknown_agent".to_owned()));
    assert_eq!(
        read_error(grpc.0.start_session(start("s")).await.map(drop)),
        (Code::AlreadyExists, "session_exists".to_owned())
    );
    let many = format!("[{}0]", "0,".repeat(JSON_VALUES_MAX));
    for (settings, code) in [
        (r#"{"colour":1}"#, "bad_request"),
        ("{", "bad_request"),
        (&*"[".repeat(200), "bad_request"),
        (&*format!("{}{}", "[".repeat(50), "]".repeat(50)), "bad_request"),
        (&*many, "too_large"),
    ] {
        let settings = proto::StartSessionRequest { continuation_json: Some(settings.to_owned()), ..start("o") };
        let refused = read_error(grpc.0.start_session(settings).await.map(drop));
        assert_eq!(refused, (Code::InvalidArgument, code.to_owned()));
    }
    let stop = proto::StopSessionRequest { session_id: "nowhere".to_owned(), ..Default::default() };
    assert_eq!(read_error(grpc.0.stop_session(stop).await.map(drop)), (Code::NotFound, "unknown_session".to_owned()));
    let resume = proto::ResumeSessionRequest { session_id: "s".to_owned(), ..Default::default() };
    assert_eq!(
        read_error(grpc.0.resume_session(resume).await.map(drop)),
        (Code::FailedPrecondition, "not_now".to_owned())
    );
    let watch = proto::WatchSessionRequest { session_id: "s".to_owned(), from_seq: Some(99), no_chunks: None };
    assert_eq!(read_error(grpc.0.watch_session(watch).await.map(drop)), (Code::OutOfRange, "resync".to_owned()));
    let send = |content| proto::SendMessageRequest { session_id: "s".to_owned(), content, ..Default::default() };
    let refused = read_error(grpc.0.send_message(send(None)).await.map(drop));
    assert_eq!(refused, (Code::InvalidArgument, "empty_message".to_owned()));
    let part = |kind: &str, text: Option<&str>| proto::ContentItem {
        r#type: kind.to_owned(),
        text: text.map(str::to_owned),
        image_url: None,
    };
    let content =
        |text: Option<&str>, part| send(Some(proto::Content { as_text: text.map(str::to_owned), as_list: vec![part] }));
    for (text, part) in
        [(None, part("text", None)), (None, part("sound", Some("one"))), (Some("two"), part("text", Some("one")))]
    {
        let refused = read_error(grpc.0.send_message(content(text, part)).await.map(drop));
        assert_eq!(refused, (Code::InvalidArgument, "bad_request".to_owned()), "{text:?}");
    }
    grpc.0.send_message(content(None, part("text", Some("one")))).await.unwrap();
}

#[tokio::test]
async fn repeated_command_is_handled_once_and_answered_alike() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.start", json!({"session_id": "s", "prompt": "hello", "interactive": true})).await;
    let send = || json!({"session_id": "s", "command_id": "again", "text": "once"});
    let first = ws.expect_ok("session.send", send()).await;
    assert_eq!(
        ws.expect_ok("session.send", send()).await,
        first,
        "the answer comes from the log, since the loop acknowledges nothing"
    );
    ws.expect_ok("session.stop", json!({"session_id": "s", "command_id": "end"})).await;
    assert_eq!(ws.expect_ok("session.send", send()).await, first, "the answer is the same after the end");
    assert_eq!(ws.expect_ok("session.stop", json!({"session_id": "s", "command_id": "end"})).await["done"], true);
    assert_eq!(ws.expect_ok("session.get", json!({"session_id": "s"})).await["seq"], 5);
}

#[tokio::test]
async fn command_with_lost_ack_is_answered_from_log() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.drop_acks();
    let mut ws = fixture.ws().await;
    let started =
        ws.expect_ok("session.start", json!({"session_id": "s", "prompt": "hello", "interactive": true})).await;
    assert_eq!((&started["done"], &started["seq"]), (&json!(true), &json!(3)));
    assert_eq!(ws.expect_code("session.resume", json!({"session_id": "s"})).await, "not_now");
}

#[tokio::test]
async fn command_not_handled_in_time_is_answered_as_stored() {
    let fixture = Fixture::with(edge::EdgeConfig { command_wait: 1, ..config() }).await;
    fixture.fake_loop.pause();
    let (mut ws, mut grpc) = (fixture.ws().await, fixture.grpc().await);
    let accepted = ws.expect_ok("session.start", json!({"session_id": "s", "prompt": "x", "no_wait": true})).await;
    assert_eq!((&accepted["done"], &accepted["seq"]), (&json!(false), &json!(0)));
    let waited = ws.expect_ok("session.send", json!({"session_id": "s", "text": "x"})).await;
    assert_eq!(waited["done"], false, "a stored start is enough for a command");
    let waited = grpc.0.start_session(start("t")).await.unwrap().into_inner();
    assert!(!waited.done);
}

#[tokio::test]
async fn command_over_waiting_limit_is_refused_except_stop() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.start", json!({"session_id": "s", "prompt": "hello", "interactive": true})).await;
    fixture.fake_loop.pause();
    for number in 0..WAITING_COMMANDS_MAX {
        let id = CommandId::new(&format!("w{number}")).unwrap();
        fixture.bus.send_control(&key("s"), Verb::Pause, &id, "{\"meta\":{}}".into()).await.unwrap();
    }
    let refused = ws.call("session.send", json!({"session_id": "s", "text": "x", "no_wait": true})).await;
    assert_eq!(refused["error"]["data"], json!({"code": "too_many_waiting", "retry_after_ms": 1000}));
    assert_eq!(ws.expect_ok("session.stop", json!({"session_id": "s", "no_wait": true})).await["done"], false);
}

#[tokio::test]
async fn start_without_composer_names_missing_service() {
    let server = bus_memory::MemoryServer::new();
    let edge = edge::Edge::start(config(), server.bus()).await.unwrap();
    let mut ws = crate::support::Ws::connect(edge.addresses().ws).await;
    let refused = ws.call("session.start", json!({"prompt": "x"})).await;
    assert_eq!(refused["error"]["data"]["code"], ErrorCode::Unavailable.as_str());
    assert!(refused["error"]["message"].as_str().unwrap().contains("prompt-composer"), "{refused}");
}

#[tokio::test]
async fn requests_of_one_connection_keep_their_order() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    ws.send_request("session.start", json!({"session_id": "s", "prompt": "m0", "interactive": true, "no_wait": true}))
        .await;
    let mut last = 0;
    for number in 1..=20 {
        last = ws.send_request("session.send", json!({"session_id": "s", "text": format!("m{number}")})).await;
    }
    ws.receive_answer(last).await;
    let mut watching = fixture.ws().await;
    watching.expect_ok("session.watch", json!({"session_id": "s"})).await;
    let mut texts = Vec::new();
    while texts.len() < 21 {
        let notification = watching.receive_notification().await;
        if notification["method"] == "message.user_processed" {
            texts.push(notification["params"]["data"]["content"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(texts, (0..=20).map(|number| format!("m{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn transcript_with_expired_beginning_is_incomplete() {
    let fixture = Fixture::new().await;
    let wanted = || json!({"session_id": "s"});
    fixture.fake_loop.fill_log(&key("s"), 140).await;
    let mut ws = fixture.ws().await;
    assert_eq!(ws.expect_ok("session.transcript", wanted()).await.get("is_incomplete"), None);
    for slot in 0..SLOTS_PER_PAGE {
        fixture.bus.transport().purge(Stream::Log, &subject::log_slot(&key("s"), slot)).await.unwrap();
    }
    assert_eq!(ws.expect_ok("session.transcript", wanted()).await["is_incomplete"], true);
}

/// Once set, makes one read of a head return the commit before it.
#[derive(Default)]
struct StaleHead(AtomicBool);

impl Faults for StaleHead {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_head = op.action == Action::Last(Read::Any) && op.subject.starts_with("ai_loop.log.");
        if is_head && self.0.swap(false, Ordering::SeqCst) { Fault::Stale(1) } else { Fault::None }
    }
}

#[tokio::test]
async fn session_started_after_its_head_was_read_takes_commands() {
    let stale = Arc::new(StaleHead::default());
    let fixture = Fixture::on(MemoryServer::with_faults(stale.clone()), config()).await;
    fixture.fake_loop.commit(&key("s"), vec![ignored_result("c1-1-1")]).await;
    fixture.fake_loop.commit(&key("s"), vec![session_started("a")]).await;
    stale.0.store(true, Ordering::SeqCst);
    let sent = fixture.ws().await.expect_ok("session.send", json!({"session_id": "s", "text": "hello"})).await;
    assert_eq!(sent["done"], true);
    assert!(!stale.0.load(Ordering::SeqCst), "the stale head was read");
}

#[tokio::test]
async fn session_started_after_its_head_was_read_is_watched_live() {
    let stale = Arc::new(StaleHead::default());
    let fixture = Fixture::on(MemoryServer::with_faults(stale.clone()), config()).await;
    fixture.fake_loop.commit(&key("s"), vec![ignored_result("c1-1-1")]).await;
    fixture.fake_loop.commit(&key("s"), vec![session_started("a")]).await;
    let mut ws = fixture.ws().await;
    // The index does not have it yet either.
    fixture.bus.delete_summary(&key("s")).await.unwrap();
    wait_until("the index is empty", async || ws.expect_ok("session.list", json!({})).await["sessions"] == json!([]))
        .await;
    stale.0.store(true, Ordering::SeqCst);
    let watching = ws.expect_ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!((&watching["seq"], stale.0.load(Ordering::SeqCst)), (&json!(1), false));
    assert_eq!(ws.receive_notification().await["method"], "session_started");
    fixture.fake_loop.commit(&key("s"), vec![user_message("m", "hello")]).await;
    assert_eq!(ws.receive_notification().await["method"], "message.user_processed");
}

#[tokio::test]
async fn start_of_an_unknown_session_reads_nothing_and_its_watch_reads_the_head_once() {
    let reads = Arc::new(CountedReads::default());
    let fixture = Fixture::on(MemoryServer::with_faults(reads.clone()), config()).await;
    let mut ws = fixture.ws().await;
    wait_until("lists come from the index in memory", async || {
        ws.expect_ok("session.list", json!({})).await;
        reads.take().is_empty()
    })
    .await;
    let start = json!({"session_id": "s", "command_id": "c1", "prompt": "hello"});
    let started = ws.expect_ok("session.start", start.clone()).await;
    assert_eq!(started["done"], true);
    assert_eq!(reads.take_of_logs(), []);
    ws.expect_ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(reads.take_of_logs(), [Action::Last(Read::Leader)]);
    // Again under this id, by the replica that knows it now.
    let again = ws.expect_ok("session.start", start.clone()).await;
    assert_eq!((&again["done"], &again["seq"]), (&json!(true), &started["seq"]));
}
