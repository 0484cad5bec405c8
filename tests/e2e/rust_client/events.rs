//! Streams of events and text, while edges die.

use std::time::Duration;

use ailoop_client::{Client, SessionEvent, TurnStopReason, WatchItem};
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::relay::Relay;
use ailoop_tests::wait::soon;
use anyhow::Context;
use futures::StreamExt;
use tokio::time::timeout;

use super::{open_after_messages, read_until};

/// The edge is killed twice in the middle of a reply. A turn and a stream of events go on at the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edge_killed_in_mid_stream_text_and_events_are_neither_doubled_nor_lost() -> anyhow::Result<()> {
    let (first, second) = (Gate::new(), Gate::new());
    let reply = ScriptedReply::text("one two ").and_gate(&first).and_text("three four ").and_gate(&second);
    let reply = reply.and_text("five").and_calls(&[("continuation", serde_json::json!({"status": "CONTINUE"}))]);
    let model = ModelServer::with_replies(vec![reply, ScriptedReply::signal("six", "TERMINATE")]).await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let _others = process_fleet.spawn_all(&["orchestrator", "gateway"]).await?;
    let mut edge = process_fleet.edge().await?;
    let relay = Relay::before(edge.addresses()?.1).await?;
    let client = Client::connect(relay.url()).await?;
    let session = client.start().session_id("s").prompt("go").interactive(false).await?;
    let mut events = session.events(1);
    let mut turn = session.current_turn().follow();
    let mut read = String::new();
    for (end, gate) in [("two", &first), ("four", &second)] {
        read_until(&mut turn, &mut read, end).await?;
        edge.replica.kill()?;
        edge = process_fleet.edge().await?;
        relay.cut(edge.addresses()?.1);
        gate.open();
    }
    while let Some(text) = soon("a text", turn.next()).await? {
        read += &text?;
    }
    assert_eq!(read, "one two three four five\n\nsix");
    let result = turn.result().await?;
    assert_eq!((result.text.as_str(), result.stop_reason, result.turn), ("six", TurnStopReason::Completed, 1));
    assert!(result.is_complete() && result.cost.output_tokens > 0, "{result:?}");

    let mut seqs = Vec::new();
    while let Some(event) = soon("an event", events.next()).await? {
        seqs.extend(event?.seq);
    }
    let expected: Vec<u64> = (1..=session.get().await?.seq).collect();
    assert_eq!(seqs, expected);
    assert_eq!(model.requests().len(), 2);
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    Ok(())
}

/// A stream that goes on from a cursor yields what follows, and an ended session ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_from_a_cursor_begin_there_and_a_wrong_cursor_is_an_error() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(vec![ScriptedReply::signal("Done.", "TERMINATE")]).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = Client::connect(fleet.url()).await?;
    let session = client.start().prompt("go").interactive(false).await?;
    soon("the turn", session.current_turn().follow().result()).await??;
    let all: Vec<SessionEvent> = super::all_events(&client, session.id()).await?;
    let last = all.last().and_then(|event| event.seq).context("a last event")?;
    let mut tail = session.events_without_chunks(last);
    let only = soon("the last event", tail.next()).await?.context("an event")??;
    assert_eq!((only.topic.as_str(), only.seq), ("session_ended", Some(last)));
    assert!(soon("the end", tail.next()).await?.is_none());
    assert!(soon("the end", session.events(last + 1).next()).await?.is_none(), "nothing follows the end");
    let wrong = soon("a refusal", session.events(last + 100).next()).await?.context("an error")?.unwrap_err();
    assert_eq!((wrong.code(), wrong.seq(), wrong.kind()), ("resync", Some(last), ailoop_client::ErrorKind::CursorLost));
    fleet.end().await
}

/// Two messages wait behind a turn that runs: each result is that of its own turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_messages_each_get_the_answer_of_their_own_turn() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |request| {
        let user = request.last_user().to_owned();
        let reply = ScriptedReply::text("re ");
        let reply = if user.contains("first") { reply.and_gate(&held) } else { reply };
        reply.and_text(&user).and_calls(&[("continuation", serde_json::json!({"status": "TERMINATE"}))])
    })
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = Client::connect(fleet.url()).await?;
    let session = client.start().await?;
    let mut first = session.turn("first").follow();
    read_until(&mut first, &mut String::new(), "re").await?;
    let (second, third) = (session.turn("second"), session.turn("third").idempotency_key("third"));
    let open = open_after_messages(&session, 3, &gate);
    let (first, second, third, opened) = tokio::join!(first.result(), second, third, open);
    opened?;
    let (first, second) = (first?, second?);
    assert_eq!((first.text.as_str(), second.text.as_str()), ("re first", "re second"));
    let third = third?;
    assert_eq!(third.text, "re third");
    // A program that was restarted finds the turn of its message, and sends it once.
    let again = client.session(session.id()).turn("third").idempotency_key("third").await?;
    assert_eq!((again, model.requests().len()), (third.clone(), 3));
    // Two messages that are sent at the same time may come in any order.
    let last = if third.turn == 3 { third } else { second };
    assert_eq!(client.session(session.id()).current_turn().await?, last, "the last turn");
    fleet.end().await
}

/// A program that draws beside the stream drops the future of the next item again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_whose_next_item_is_dropped_again_and_again_finds_the_next_edge() -> anyhow::Result<()> {
    const BEFORE_A_PAUSE_ENDS: Duration = Duration::from_millis(40);
    let model = ModelServer::with_replies(vec![ScriptedReply::signal("Done.", "TERMINATE")]).await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let _others = process_fleet.spawn_all(&["orchestrator", "gateway"]).await?;
    let mut edge = process_fleet.edge().await?;
    let relay = Relay::before(edge.addresses()?.1).await?;
    let client = Client::connect(relay.url()).await?;
    let session = client.start().session_id("s").interactive(true).await?;
    let mut watch = session.watch(1, true);
    soon("the first item", watch.next()).await??.context("an item")?;
    edge.replica.kill()?;
    edge = process_fleet.edge().await?;
    relay.cut(edge.addresses()?.1);
    session.send("go").await?;
    let is_end = |item: &WatchItem| matches!(item, WatchItem::Notification(shown) if shown.topic == "turn.completed");
    let until_the_end = async {
        loop {
            let Ok(next) = timeout(BEFORE_A_PAUSE_ENDS, watch.next()).await else { continue };
            if is_end(&next?.context("an item")?) {
                return anyhow::Ok(());
            }
        }
    };
    soon("the end of the turn", until_the_end).await?
}
