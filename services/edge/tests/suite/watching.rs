//! Watching: order, no holes, whatever is lost; late viewers; slow ones.

use std::time::Duration;

use contract::event::{Envelope, Topic};
use contract::model::ReplySnapshot;
use contract::{ErrorCode, Json, Timestamp};
use futures::StreamExt;
use serde_json::json;
use tonic::Code;

use crate::support::fake::{ended, said};
use crate::support::{Live, PATIENCE, World, Ws, code_of, config, eventually, key};

fn watch(session: &str, from_seq: u64) -> proto::WatchRequest {
    proto::WatchRequest { session_id: session.to_owned(), from_seq, no_chunks: false }
}

/// A chunk of step 1 of turn 1.
async fn chunk(world: &World, session: &str, index: u64) {
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
    world.bus.publish_event(&key, Topic::AiChunkReceived, &envelope).await.unwrap();
}

/// A world whose clients may fall behind by few notifications only.
async fn impatient() -> World {
    World::with(edge::Config { client_queue: 16, ..config() }).await
}

/// More than a client's windows and a small queue hold: so many commits of 512 KiB.
async fn flood(world: &World, commits: u32) {
    let text = "x".repeat(128 << 10);
    for number in 0..commits {
        let events = (0..4).map(|part| said(&format!("n{number}-{part}"), &text)).collect();
        world.control.commit(&key("s"), events).await;
    }
}

#[tokio::test]
async fn the_log_first_then_live_then_the_end() {
    let world = World::new().await;
    // Three pages, so that the pages are read one by one.
    world.control.fill(&key("s"), 150).await;
    let (mut ws, mut grpc) = (world.ws().await, world.grpc().await);
    let watching = ws.ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(watching, json!({"session_id": "s", "seq": 151, "phase": "idle"}));
    let mut stream = grpc.0.watch(watch("s", 100)).await.unwrap().into_inner();
    for number in 151..160 {
        world.control.commit(&key("s"), vec![said(&format!("m{number}"), "live")]).await;
    }
    world.control.commit(&key("s"), vec![ended()]).await;
    assert_eq!(ws.seqs(161).await, (1..=161).collect::<Vec<_>>());
    let mut seqs = Vec::new();
    while let Some(notification) = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap() {
        seqs.extend(notification.unwrap().seq);
    }
    assert_eq!(seqs, (100..=161).collect::<Vec<_>>(), "the stream ends after session_ended");
    // Of an ended session the log alone tells.
    ws.ok("session.watch", json!({"session_id": "s", "from_seq": 160})).await;
    assert_eq!(ws.seqs(2).await, [160, 161]);
    let mut stream = grpc.0.watch(watch("s", 162)).await.unwrap().into_inner();
    assert!(tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_lost_or_confused_is_put_right() {
    let world = World::new().await;
    world.control.fill(&key("s"), 1).await;
    let mut ws = world.ws().await;
    ws.ok("session.watch", json!({"session_id": "s", "from_seq": 2})).await;
    assert_eq!(ws.seqs(1).await, [2]);
    world.control.live(Live::Confused);
    world.control.commit(&key("s"), vec![said("a", "x"), said("b", "x"), said("c", "x")]).await;
    assert_eq!(ws.seqs(3).await, [3, 4, 5]);
    world.control.live(Live::Lost);
    world.control.commit(&key("s"), vec![said("d", "x")]).await;
    world.control.live(Live::Told);
    world.control.commit(&key("s"), vec![said("e", "x")]).await;
    assert_eq!(ws.seqs(2).await, [6, 7], "the hole is read from the log");
    world.control.live(Live::Lost);
    world.control.commit(&key("s"), vec![said("f", "x")]).await;
    assert_eq!(ws.seqs(1).await, [8], "a lost last event is found by looking at the head");
    world.control.commit(&key("s"), vec![said("g", "x")]).await;
    world.server.restart();
    assert_eq!(ws.seqs(1).await, [9], "a reconnect is followed by a read");
}

#[tokio::test]
async fn a_large_event_is_read_from_the_log() {
    let world = World::new().await;
    world.control.fill(&key("s"), 1).await;
    let mut ws = world.ws().await;
    ws.ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    let text = "x".repeat(300 << 10);
    world.control.commit(&key("s"), vec![said("large", &text)]).await;
    let heard = ws.notification().await;
    assert_eq!(heard["params"]["data"]["content"].as_str().map(str::len), Some(text.len()));
}

#[tokio::test]
async fn chunks_pass_and_a_late_viewer_gets_the_reply_so_far() {
    let world = World::new().await;
    world.control.fill(&key("s"), 1).await;
    let view = ReplySnapshot { turn: 1, step: 1, attempt: "1.1".to_owned(), index: 3, text: "so far".to_owned() };
    let _serving = world.bus.serve_view(&key("s"), move || Some(view.clone())).await.unwrap();
    let (mut ws, mut grpc) = (world.ws().await, world.grpc().await);
    ws.ok("session.watch", json!({"session_id": "s", "from_seq": 2})).await;
    let request = proto::WatchRequest { no_chunks: true, ..watch("s", 2) };
    let mut silent = grpc.0.watch(request).await.unwrap().into_inner();
    assert_eq!(ws.notification().await["params"]["seq"], 2);
    let so_far = ws.notification().await;
    assert_eq!(so_far["method"], "message.ai_chunk_received");
    assert_eq!((&so_far["params"]["data"]["index"], &so_far["params"]["data"]["delta"]), (&json!(2), &json!("so far")));
    assert!(so_far["params"].get("seq").is_none());
    chunk(&world, "s", 2).await;
    chunk(&world, "s", 3).await;
    assert_eq!(ws.notification().await["params"]["data"]["index"], 3, "what the view held comes once");
    world.control.commit(&key("s"), vec![ended()]).await;
    assert_eq!(ws.notification().await["method"], "session_ended");
    let mut topics = Vec::new();
    while let Some(notification) = tokio::time::timeout(PATIENCE, silent.next()).await.unwrap() {
        topics.push(notification.unwrap().topic);
    }
    assert_eq!(topics, ["message.user_processed", "session_ended"]);
}

#[tokio::test]
async fn events_do_not_wait_for_the_reply_so_far() {
    let world = World::new().await;
    world.control.fill(&key("s"), 1).await;
    let (told, heard) = tokio::sync::watch::channel(false);
    let view = ReplySnapshot { turn: 1, step: 1, attempt: "1.1".to_owned(), index: 3, text: "so far".to_owned() };
    let body = serde_json::to_vec(&view).unwrap();
    let answer: bus::rpc::Answer = std::sync::Arc::new(move |_| {
        let (mut heard, body) = (heard.clone(), body.clone());
        Box::pin(async move { heard.wait_for(|told| *told).await.ok().map(|_| body.into()) })
    });
    let _serving = world.bus.serve(&contract::subject::view(&key("s")), None, answer).await.unwrap();
    let mut ws = world.ws().await;
    ws.ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    world.control.commit(&key("s"), vec![said("a", "x")]).await;
    assert_eq!(ws.seqs(1).await, [3]);
    told.send_replace(true);
    assert_eq!(ws.notification().await["params"]["data"]["delta"], "so far", "the question is still open");
    world.control.commit(&key("s"), vec![ended()]).await;
    assert_eq!(ws.seqs(1).await, [4]);
}

#[tokio::test]
async fn unwatch_is_silent_and_watching_again_goes_on() {
    let world = World::new().await;
    world.control.fill(&key("s"), 1).await;
    let mut ws = world.ws().await;
    ws.ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(ws.seqs(2).await, [1, 2]);
    ws.ok("session.unwatch", json!({"session_id": "s"})).await;
    world.control.commit(&key("s"), vec![said("unheard", "x")]).await;
    ws.ok("session.get", json!({"session_id": "s"})).await;
    ws.ok("session.watch", json!({"session_id": "s", "from_seq": 4})).await;
    world.control.commit(&key("s"), vec![said("heard", "x")]).await;
    assert_eq!(ws.seqs(1).await, [4]);
}

#[tokio::test]
async fn many_viewers_share_one_feed() {
    let world = World::new().await;
    world.control.fill(&key("s"), 3).await;
    let mut viewers = Vec::new();
    for _ in 0..20 {
        let mut ws = world.ws().await;
        ws.ok("session.watch", json!({"session_id": "s"})).await;
        viewers.push(ws);
    }
    for number in 0..50 {
        world.control.commit(&key("s"), vec![said(&format!("n{number}"), "x")]).await;
    }
    for ws in &mut viewers {
        assert_eq!(ws.seqs(54).await, (1..=54).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_let_go_with_its_cursor() {
    let world = impatient().await;
    world.control.fill(&key("s"), 1).await;
    let mut grpc = world.grpc().await;
    let mut stream = grpc.0.watch(watch("s", 1)).await.unwrap().into_inner();
    let first = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.seq, Some(1));
    flood(&world, 8).await;
    let mut last = 1;
    let status = loop {
        match tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap() {
            Ok(notification) => {
                let seq = notification.seq.unwrap();
                assert_eq!(seq, last + 1);
                last = seq;
            }
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), code_of(&status)), (Code::ResourceExhausted, ErrorCode::SlowClient.to_string()));
    let told: u64 = status.metadata().get("ailoop-seq").unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(told, last, "the cursor is that of the last notification that arrived");
    let mut stream = grpc.0.watch(watch("s", told + 1)).await.unwrap().into_inner();
    let next = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(next.seq, Some(told + 1));
}

#[tokio::test]
async fn a_slow_websocket_is_closed_with_its_cursor() {
    let world = impatient().await;
    world.control.fill(&key("s"), 1).await;
    let mut ws = Ws::connect_narrow(world.edge.addresses().ws).await;
    ws.ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(ws.seqs(2).await, [1, 2]);
    flood(&world, 16).await;
    let mut last = 2;
    let close = loop {
        match ws.frame().await {
            Ok(frame) => last = frame["params"]["seq"].as_u64().unwrap(),
            Err(close) => break close.expect("a close frame"),
        }
    };
    assert_eq!(u16::from(close.code), 1013);
    let reason: serde_json::Value = serde_json::from_str(&close.reason).unwrap();
    assert_eq!(reason, json!({"code": "slow_client", "session_id": "s", "seq": last}));
}

#[tokio::test]
async fn a_feed_ends_with_its_last_viewer() {
    let world = World::new().await;
    world.control.fill(&key("s"), 1).await;
    let mut ws = world.ws().await;
    ws.ok("session.watch", json!({"session_id": "s"})).await;
    assert_eq!(world.edge.watched(), 1);
    drop(ws);
    eventually("the feed ends", async || world.edge.watched() == 0).await;
    // And a session that is watched again right then is heard all the same.
    let mut ws = world.ws().await;
    ws.ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    world.control.commit(&key("s"), vec![said("x", "x")]).await;
    let heard = tokio::time::timeout(Duration::from_secs(3), ws.notification()).await.unwrap();
    assert_eq!(heard["params"]["seq"], 3);
}

#[tokio::test]
async fn watch_behind_its_start_waits_for_it() {
    let world = World::new().await;
    world.control.sleep();
    let mut ws = world.ws().await;
    let start = ws.ask("session.start", json!({"session_id": "s", "prompt": "hello", "interactive": true})).await;
    let watch = ws.ask("session.watch", json!({"session_id": "s"})).await;
    let other = ws.ask("session.get", json!({"session_id": "nowhere"})).await;
    // The watch waits, and nobody waits for it.
    assert_eq!(ws.answer(other).await["error"]["data"]["code"], "unknown_session");
    world.control.wake();
    // Either answer may come first, and events right behind that of the watch.
    let (mut answers, mut seqs) = (Vec::new(), Vec::new());
    while answers.len() < 2 || seqs.len() < 2 {
        let frame = ws.notification().await;
        match frame["params"]["seq"].as_u64() {
            Some(seq) => seqs.push(seq),
            None => answers.push(frame),
        }
    }
    let of = |id: u64| answers.iter().find(|answer| answer["id"] == json!(id)).unwrap();
    assert_eq!(of(watch)["result"]["session_id"], "s");
    assert_eq!(of(start)["result"]["done"], true);
    assert_eq!(seqs, [1, 2]);
}

#[tokio::test]
async fn watch_that_waits_for_its_start_is_taken_back_by_unwatch() {
    let world = World::new().await;
    world.control.sleep();
    let mut ws = world.ws().await;
    ws.ask("session.start", json!({"session_id": "s", "prompt": "hello", "interactive": true})).await;
    let watch = ws.ask("session.watch", json!({"session_id": "s"})).await;
    let unwatch = ws.ask("session.unwatch", json!({"session_id": "s"})).await;
    // Either answer may come first.
    let answers = [ws.notification().await, ws.notification().await];
    let of = |id: u64| answers.iter().find(|answer| answer["id"] == json!(id)).unwrap();
    assert_eq!(of(watch)["error"]["data"]["code"], "not_now");
    assert_eq!(of(unwatch)["result"]["session_id"], "s");
}

#[tokio::test]
async fn watch_of_a_start_that_is_refused_is_unknown_session() {
    let world = World::new().await;
    let mut ws = world.ws().await;
    assert_eq!(ws.code("session.watch", json!({"session_id": "nowhere"})).await, "unknown_session");
}
