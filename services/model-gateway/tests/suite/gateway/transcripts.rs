//! A transcript of which the log has parts reaches the model as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::Json;
use contract::command::Verb;
use contract::commit::{PartRef, Phase, TranscriptPart};
use contract::model::{AfterPart, Content, Message, ModelItem};
use contract::subject;

use super::world::{World, sleep_seconds};

fn user(text: &str) -> Json {
    Json::of(&Message::User { content: Content::from(text) })
}

fn part(slot: u64) -> PartRef {
    PartRef { slot, commit: format!("commit-{slot}"), messages: 2 }
}

fn stored(before: &[PartRef], texts: [&str; 2]) -> TranscriptPart {
    let messages = texts.iter().map(|text| user(text)).collect();
    TranscriptPart { before: before.to_vec(), messages, ..TranscriptPart::default() }
}

/// A call after the parts in slots 0 and 1, which slot 2 opened.
async fn long_call(world: &World, last: PartRef) -> ModelItem {
    world.commit_with(0, Phase::Running, &[], Some(stored(&[], ["one", "two"]))).await;
    world.commit_with(1, Phase::Running, &[], Some(stored(&[part(0)], ["three", "four"]))).await;
    world.commit(2, Phase::Running, &["m1-1.1"]).await;
    let mut item = world.item("");
    item.meta.slot = 2;
    item.messages = Vec::new();
    let system = Json::of(&Message::System { content: "zero".to_owned() });
    item.after = Some(AfterPart { part: last, system, messages: vec![user("recite")] });
    item
}

/// Counts reads of slots with parts.
struct PartReads(AtomicUsize);

impl Faults for PartReads {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_part = subject::parse_log(op.subject).is_some_and(|slot| slot.slot < 2);
        let is_read = is_part && matches!(op.action, Action::Last(_) | Action::LastMany);
        self.0.fetch_add(usize::from(is_read), Ordering::SeqCst);
        Fault::None
    }
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_transcript_are_read_once_and_put_in_order() {
    let reads = Arc::new(PartReads(AtomicUsize::new(0)));
    let world = World::on(MemoryServer::with_faults(reads.clone()));
    let (_gateway, _) = world.start_gateway("g").await;
    let item = long_call(&world, part(1)).await;
    world.publish_item(&item).await;
    assert_eq!(world.wait_for_finished().await.text.trim(), "zero one two three four recite");
    assert_eq!(reads.0.load(Ordering::SeqCst), 2);
    world.wait_until_empty().await;

    // The next call of the session reads none of them.
    let stored = world.stored(Verb::ModelFinished).await.unwrap();
    world.bus.transport().delete(contract::streams::Stream::Control, &stored).await.unwrap();
    world.publish_item(&item).await;
    assert_eq!(world.wait_for_finished().await.text.trim(), "zero one two three four recite");
    assert_eq!(reads.0.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn call_whose_parts_are_of_another_history_is_not_sent() {
    let world = World::new();
    let (gateway, _) = world.start_gateway("g").await;
    let other = PartRef { commit: "another".to_owned(), ..part(1) };
    let item = long_call(&world, other).await;
    world.publish_item(&item).await;
    sleep_seconds(60).await;
    assert!(world.is_unanswered().await, "half of a transcript must not be sent");
    gateway.drain(Duration::from_secs(1)).await;
}
