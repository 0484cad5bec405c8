//! Watching: order without gaps although messages are lost, late viewers, and slow viewers.

use std::sync::Arc;

use bus::Read;
use bus_memory::{Action, MemoryServer};
use contract::event::{Envelope, Topic};
use contract::model::ReplySnapshot;
use contract::{ErrorCode, Json, Timestamp};
use futures::StreamExt;
use serde_json::json;
use tonic::Code;

use crate::support::events::{session_ended, user_message};
use crate::support::{CountedReads, Fixture, LiveDelivery, TEST_TIMEOUT, Ws, config, key, read_code, wait_until};

fn watch(session: &str, from_seq: u64) -> proto::WatchSessionRequest {
    proto::WatchSessionRequest { session_id: session.to_owned(), from_seq: Some(from_seq), no_chunks: None }
}

/// Publishes a chunk of step 1 of turn 1.
async fn publish_chunk(fixture: &Fixture, session: &str, index: u64) {
    let data = json!({
        "turn": 1, "step": 1, "attempt": "1.1", "index": index, "channel": "text", "delta": "x", "final": false
    });
    let key = key(session);
    let envelope = Envelope {
        id: format!("{session}-m1-1-1.1-{index}"),
        session_id: key.session.clone(),
        tenant: key.tenant.clone(),
        seq: None,
        time: Timestamp::default(),
        trace_id: String::new(),
        data: Json::of(&data),
    };
    fixture.bus.publish_event(&key, Topic::AiChunkReceived, &envelope).await.unwrap();
}

/// Starts an edge whose client queues hold few notifications.
async fn start_with_small_queue() -> Fixture {
    Fixture::with(edge::EdgeConfig { client_queue: 16, ..config() }).await
}

/// Commits more than the flow-control windows of a client and a small queue can hold: each commit has 512 KiB.
async fn flood(fixture: &Fixture, commits: u32) {
    let text = "x".repeat(128 << 10);
    for number in 0..commits {
        let events = (0..4).map(|part| user_message(&format!("n{number}-{part}"), &text)).collect();
        fixture.fake_loop.commit(&key("s"), events).await;
    }
}

#[tokio::test]
async fn watch_gives_log_then_live_events_until_session_end() {
    let fixture = Fixture::new().await;
    // Three pages, so that the pages are read one by one.
    fixture.fake_loop.fill_log(&key("s"), 150).await;
    let (mut ws, mut grpc) = (fixture.ws().await, fixture.grpc().await);
    let watching = ws.expect_ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(watching, json!({"session_id": "s", "seq": 151, "phase": "idle"}));
    let mut stream = grpc.0.watch_session(watch("s", 100)).await.unwrap().into_inner();
    for number in 151..160 {
        fixture.fake_loop.commit(&key("s"), vec![user_message(&format!("m{number}"), "live")]).await;
    }
    fixture.fake_loop.commit(&key("s"), vec![session_ended()]).await;
    assert_eq!(ws.receive_seqs(161).await, (1..=161).collect::<Vec<_>>());
    let mut seqs = Vec::new();
    while let Some(notification) = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.unwrap() {
        seqs.extend(notification.unwrap().seq);
    }
    assert_eq!(seqs, (100..=161).collect::<Vec<_>>(), "the stream ends after session_ended");
    // A watch of an ended session reads the log only.
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 160})).await;
    assert_eq!(ws.receive_seqs(2).await, [160, 161]);
    let mut stream = grpc.0.watch_session(watch("s", 162)).await.unwrap().into_inner();
    assert!(tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn lost_or_reordered_live_events_are_repaired_from_log() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 2})).await;
    assert_eq!(ws.receive_seqs(1).await, [2]);
    fixture.fake_loop.set_live_delivery(LiveDelivery::Reordered);
    fixture
        .fake_loop
        .commit(&key("s"), vec![user_message("a", "x"), user_message("b", "x"), user_message("c", "x")])
        .await;
    assert_eq!(ws.receive_seqs(3).await, [3, 4, 5]);
    fixture.fake_loop.set_live_delivery(LiveDelivery::Lost);
    fixture.fake_loop.commit(&key("s"), vec![user_message("d", "x")]).await;
    fixture.fake_loop.set_live_delivery(LiveDelivery::Normal);
    fixture.fake_loop.commit(&key("s"), vec![user_message("e", "x")]).await;
    assert_eq!(ws.receive_seqs(2).await, [6, 7], "the gap is read from the log");
    fixture.fake_loop.set_live_delivery(LiveDelivery::Lost);
    fixture.fake_loop.commit(&key("s"), vec![user_message("f", "x")]).await;
    assert_eq!(ws.receive_seqs(1).await, [8], "a lost last event is found by the check of the head");
    fixture.fake_loop.commit(&key("s"), vec![user_message("g", "x")]).await;
    fixture.server.restart();
    assert_eq!(ws.receive_seqs(1).await, [9], "a reconnect is followed by a read");
}

#[tokio::test]
async fn check_of_the_head_reads_one_commit_where_no_event_was_lost() {
    let reads = Arc::new(CountedReads::default());
    let fixture = Fixture::on(MemoryServer::with_faults(reads.clone()), config()).await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    fixture.fake_loop.commit(&key("s"), vec![user_message("a", "x")]).await;
    assert_eq!(ws.receive_seqs(1).await, [3]);
    reads.take();
    let mut read = Vec::new();
    wait_until("the head is checked", async || {
        read.extend(reads.take_of_logs());
        !read.is_empty()
    })
    .await;
    fixture.fake_loop.commit(&key("s"), vec![user_message("b", "x")]).await;
    assert_eq!(ws.receive_seqs(1).await, [4]);
    read.extend(reads.take_of_logs());
    assert_eq!(read, [Action::Last(Read::Any)]);
}

#[tokio::test]
async fn large_event_is_read_from_log() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    let text = "x".repeat(300 << 10);
    fixture.fake_loop.commit(&key("s"), vec![user_message("large", &text)]).await;
    let notification = ws.receive_notification().await;
    assert_eq!(notification["params"]["data"]["content"].as_str().map(str::len), Some(text.len()));
}

#[tokio::test]
async fn late_viewer_gets_reply_snapshot_then_chunks() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let snapshot = ReplySnapshot { turn: 1, step: 1, attempt: "1.1".to_owned(), index: 3, text: "so far".to_owned() };
    let _serving = fixture.bus.serve_view(&key("s"), move || Some(snapshot.clone())).await.unwrap();
    let (mut ws, mut grpc) = (fixture.ws().await, fixture.grpc().await);
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 2})).await;
    let request = proto::WatchSessionRequest { no_chunks: Some(true), ..watch("s", 2) };
    let mut silent = grpc.0.watch_session(request).await.unwrap().into_inner();
    assert_eq!(ws.receive_notification().await["params"]["seq"], 2);
    let snapshot = ws.receive_notification().await;
    assert_eq!(snapshot["method"], "message.ai_chunk_received");
    assert_eq!(
        (&snapshot["params"]["data"]["index"], &snapshot["params"]["data"]["delta"]),
        (&json!(2), &json!("so far"))
    );
    assert!(snapshot["params"].get("seq").is_none());
    publish_chunk(&fixture, "s", 2).await;
    publish_chunk(&fixture, "s", 3).await;
    assert_eq!(
        ws.receive_notification().await["params"]["data"]["index"],
        3,
        "a chunk of the snapshot is not repeated"
    );
    fixture.fake_loop.commit(&key("s"), vec![session_ended()]).await;
    assert_eq!(ws.receive_notification().await["method"], "session_ended");
    let mut topics = Vec::new();
    while let Some(notification) = tokio::time::timeout(TEST_TIMEOUT, silent.next()).await.unwrap() {
        topics.push(notification.unwrap().topic);
    }
    assert_eq!(topics, ["message.user_processed", "session_ended"]);
}

#[tokio::test]
async fn events_do_not_wait_for_reply_snapshot() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let (release_sender, released) = tokio::sync::watch::channel(false);
    let snapshot = ReplySnapshot { turn: 1, step: 1, attempt: "1.1".to_owned(), index: 3, text: "so far".to_owned() };
    let body = serde_json::to_vec(&snapshot).unwrap();
    let answer: bus::rpc::RpcHandler = std::sync::Arc::new(move |_| {
        let (mut released, body) = (released.clone(), body.clone());
        Box::pin(async move { released.wait_for(|is_released| *is_released).await.ok().map(|_| body.into()) })
    });
    let _serving = fixture.bus.serve(&contract::subject::view(&key("s")), None, answer).await.unwrap();
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    fixture.fake_loop.commit(&key("s"), vec![user_message("a", "x")]).await;
    assert_eq!(ws.receive_seqs(1).await, [3]);
    release_sender.send_replace(true);
    assert_eq!(
        ws.receive_notification().await["params"]["data"]["delta"],
        "so far",
        "the request for the snapshot is still open"
    );
    fixture.fake_loop.commit(&key("s"), vec![session_ended()]).await;
    assert_eq!(ws.receive_seqs(1).await, [4]);
}

#[tokio::test]
async fn unwatched_session_is_silent_until_watched_again() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(ws.receive_seqs(2).await, [1, 2]);
    ws.expect_ok("session.unwatch", json!({"session_id": "s"})).await;
    fixture.fake_loop.commit(&key("s"), vec![user_message("unheard", "x")]).await;
    ws.expect_ok("session.get", json!({"session_id": "s"})).await;
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 4})).await;
    fixture.fake_loop.commit(&key("s"), vec![user_message("heard", "x")]).await;
    assert_eq!(ws.receive_seqs(1).await, [4]);
}

#[tokio::test]
async fn many_viewers_of_one_session_receive_every_event() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 3).await;
    let mut viewers = Vec::new();
    for _ in 0..20 {
        let mut ws = fixture.ws().await;
        ws.expect_ok("session.watch", json!({"session_id": "s"})).await;
        viewers.push(ws);
    }
    for number in 0..50 {
        fixture.fake_loop.commit(&key("s"), vec![user_message(&format!("n{number}"), "x")]).await;
    }
    for ws in &mut viewers {
        assert_eq!(ws.receive_seqs(54).await, (1..=54).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected_with_its_cursor() {
    let fixture = start_with_small_queue().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut grpc = fixture.grpc().await;
    let mut stream = grpc.0.watch_session(watch("s", 1)).await.unwrap().into_inner();
    let first = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.seq, Some(1));
    flood(&fixture, 8).await;
    let mut last = 1;
    let status = loop {
        match tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.unwrap().unwrap() {
            Ok(notification) => {
                let seq = notification.seq.unwrap();
                assert_eq!(seq, last + 1);
                last = seq;
            }
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), read_code(&status)), (Code::ResourceExhausted, ErrorCode::SlowClient.to_string()));
    let cursor: u64 = status.metadata().get("ailoop-seq").unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(cursor, last, "the cursor is that of the last notification that arrived");
    let mut stream = grpc.0.watch_session(watch("s", cursor + 1)).await.unwrap().into_inner();
    let next = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(next.seq, Some(cursor + 1));
}

#[tokio::test]
async fn slow_websocket_is_closed_with_its_cursor() {
    let fixture = start_with_small_queue().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = Ws::connect_narrow(fixture.edge.addresses().ws).await;
    ws.expect_ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(ws.receive_seqs(2).await, [1, 2]);
    flood(&fixture, 16).await;
    let mut last = 2;
    let close = loop {
        match ws.receive_frame().await {
            Ok(frame) => last = frame["params"]["seq"].as_u64().unwrap(),
            Err(close) => break close.expect("a close frame"),
        }
    };
    assert_eq!(u16::from(close.code), 1013);
    let reason: serde_json::Value = serde_json::from_str(&close.reason).unwrap();
    assert_eq!(reason, json!({"code": "slow_client", "session_id": "s", "seq": last}));
}

#[tokio::test]
async fn feed_ends_with_its_last_viewer() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(fixture.edge.watched_session_count(), 1);
    drop(ws);
    wait_until("the feed ends", async || fixture.edge.watched_session_count() == 0).await;
    // A session that is watched again right after that still gets live events.
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    fixture.fake_loop.commit(&key("s"), vec![user_message("x", "x")]).await;
    let notification = ws.receive_notification().await;
    assert_eq!(notification["params"]["seq"], 3);
}

#[tokio::test]
async fn watch_before_session_start_waits_for_it() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.pause();
    let mut ws = fixture.ws().await;
    let start =
        ws.send_request("session.start", json!({"session_id": "s", "prompt": "hello", "interactive": true})).await;
    let watch = ws.send_request("session.watch", json!({"session_id": "s"})).await;
    let other = ws.send_request("session.get", json!({"session_id": "nowhere"})).await;
    // The watch waits, but later requests do not.
    assert_eq!(ws.receive_answer(other).await["error"]["data"]["code"], "unknown_session");
    fixture.fake_loop.resume();
    // Either response may come first, and events may follow that of the watch immediately.
    let (mut answers, mut seqs) = (Vec::new(), Vec::new());
    while answers.len() < 2 || seqs.len() < 2 {
        let frame = ws.receive_notification().await;
        match frame["params"]["seq"].as_u64() {
            Some(seq) => seqs.push(seq),
            None => answers.push(frame),
        }
    }
    let of = |id: u64| answers.iter().find(|answer| answer["id"] == json!(id)).unwrap();
    assert_eq!(of(watch)["result"]["session_id"], "s");
    assert_eq!(of(start)["result"]["done"], true);
    // More of them may come before the second response.
    assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
}

#[tokio::test]
async fn watch_waiting_for_start_is_cancelled_by_unwatch() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.pause();
    let mut ws = fixture.ws().await;
    ws.send_request("session.start", json!({"session_id": "s", "prompt": "hello", "interactive": true})).await;
    let watch = ws.send_request("session.watch", json!({"session_id": "s"})).await;
    let unwatch = ws.send_request("session.unwatch", json!({"session_id": "s"})).await;
    // Either response may come first.
    let answers = [ws.receive_notification().await, ws.receive_notification().await];
    let of = |id: u64| answers.iter().find(|answer| answer["id"] == json!(id)).unwrap();
    assert_eq!(of(watch)["error"]["data"]["code"], "not_now");
    assert_eq!(of(unwatch)["result"]["session_id"], "s");
}

#[tokio::test]
async fn watch_of_unknown_session_is_refused() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    assert_eq!(ws.expect_code("session.watch", json!({"session_id": "nowhere"})).await, "unknown_session");
}
