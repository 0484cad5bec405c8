//! Resets of the queues on the in-memory server, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::transport::Ack;
use bus::{Bus, Delivery};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::streams::Queue;
use futures::StreamExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::send;

async fn pull(bus: &Bus) -> Vec<Delivery> {
    let pulled =
        bus.transport().pull(Queue::Inputs, 9, Duration::from_secs(1), CancellationToken::new()).await.unwrap();
    pulled.map(|delivery| delivery.unwrap()).collect().await
}

/// Counts the resets of queues.
#[derive(Default)]
struct Resets(AtomicUsize);

impl Faults for Resets {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if op.action == Action::Reset {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Fault::None
    }
}

fn server() -> (MemoryServer, Arc<Resets>) {
    let resets = Arc::new(Resets::default());
    (MemoryServer::with_faults(resets.clone()), resets)
}

/// Resets of all queues, as far as they were counted.
fn whole(resets: &Resets) -> usize {
    resets.0.load(Ordering::SeqCst) / Queue::ALL.len()
}

#[tokio::test(start_paused = true)]
async fn queue_is_reset_what_is_stored_is_delivered_as_for_the_first_time_and_may_be_held() {
    let (server, _) = server();
    let bus = server.bus();
    for name in ["done", "held", "waits"] {
        send(&bus, name).await;
    }
    let before = pull(&bus).await;
    bus.transport().ack(&before[0], Ack::Done).await.unwrap();
    bus.reset_queues(None, "a").await.unwrap();
    let after = pull(&bus).await;
    let seqs = |deliveries: &[Delivery]| deliveries.iter().map(|delivery| delivery.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&after), seqs(&before[1..]));
    assert!(after.iter().all(|delivery| delivery.delivered == 1 && delivery.may_have_been_held()));
    let depth = bus.transport().depth(Queue::Inputs).await.unwrap();
    assert_eq!((depth.waiting, depth.held), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn several_replicas_notice_an_older_store_one_resets_the_queues() {
    let (server, resets) = server();
    let replicas: Vec<Bus> = (0..3).map(|_| server.bus()).collect();
    let known = replicas[0].reset_queues(None, "first").await.unwrap();
    let again = replicas.iter().zip(["a", "b", "c"]).map(|(bus, id)| bus.reset_queues(Some(&known), id));
    let made = futures::future::join_all(again).await;
    assert_eq!(whole(&resets), 2);
    assert!(made.iter().all(|reset| reset.as_ref().unwrap() == made[0].as_ref().unwrap()));
    replicas[1].reset_queues(Some(made[0].as_ref().unwrap()), "d").await.unwrap();
    assert_eq!(whole(&resets), 3, "evidence that is newer than the last reset");
}

#[tokio::test(start_paused = true)]
async fn replica_freezes_before_its_reset_another_one_makes_it() {
    let (server, resets) = server();
    let (frozen, lifecycle) = server.client("frozen");
    let mut begun = JoinSet::new();
    begun.spawn(async move { frozen.reset_queues(None, "frozen").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    lifecycle.freeze();
    let other = server.bus();
    other.reset_queues(None, "other").await.unwrap();
    assert_eq!(whole(&resets), 1);
    lifecycle.thaw();
    begun.join_next().await.unwrap().unwrap().unwrap();
    let last = other.last_queue_reset().await.unwrap();
    assert_eq!(last, Some(other.reset_queues(None, "late").await.unwrap()), "that of the other one counts");
}
