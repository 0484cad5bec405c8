//! Results that workers send to a worker of inputs by request, on the in-memory server, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bus::{Bus, BusError, Delivery, Handler, Hold, Settle, Worker};
use bus_memory::MemoryServer;
use bytes::Bytes;
use contract::command::Verb;
use contract::fleet::ResultAnswer;
use contract::streams::{Queue, Stream};
use contract::subject::{self, Subject};
use contract::{CommandId, ErrorCode};

use crate::support::key;

/// Settles a result as its body says, and notes those that it has handled.
#[derive(Default)]
struct Clerk(AtomicUsize);

#[async_trait]
impl Handler for Clerk {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        let settled = match &*delivery.payload {
            b"retry" => Settle::Retry(Duration::from_secs(1)),
            b"reject" => Settle::Reject { code: ErrorCode::BadRequest, reason: "it says so".to_owned() },
            b"panic" => panic!("planted"),
            b"slow" => {
                tokio::time::sleep(Duration::from_mins(1)).await;
                Settle::Done
            }
            _ => Settle::Done,
        };
        self.0.fetch_add(1, Ordering::SeqCst);
        settled
    }
}

struct World {
    bus: Bus,
    address: CommandId,
    clerk: Arc<Clerk>,
    worker: Worker,
}

impl World {
    async fn with_places(places: usize) -> Self {
        let (server, address, clerk) = (MemoryServer::new(), CommandId::new("r1").unwrap(), Arc::new(Clerk::default()));
        let worker = Worker::start(server.bus().with_address(address.clone()), Queue::Inputs, places, clerk.clone());
        let world = Self { bus: server.bus(), address, clerk, worker };
        // It subscribes beside its first pull.
        while world.ask(Verb::ModelFinished, "first", "done").await != Some(ResultAnswer::InLog) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world
    }

    fn subject(&self, verb: Verb, id: &str) -> Subject {
        subject::result(&key(), verb, &CommandId::new(id).unwrap(), &self.address)
    }

    /// Sends a result; none where nobody answers.
    async fn ask(&self, verb: Verb, id: &str, body: &'static str) -> Option<ResultAnswer> {
        let (at, body) = (self.subject(verb, id), Bytes::from_static(body.as_bytes()));
        match self.bus.transport().request(&at, Vec::new(), body, Duration::from_secs(1)).await {
            Ok(answer) => Some(serde_json::from_slice(&answer.payload).unwrap()),
            Err(BusError::NoResponders { .. } | BusError::Timeout { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_result_that_was_handled_is_answered_as_in_the_log() {
    let world = World::with_places(8).await;
    for (body, answer) in [
        ("done", Some(ResultAnswer::InLog)),
        ("retry", Some(ResultAnswer::Store)),
        ("reject", Some(ResultAnswer::Store)),
        ("panic", Some(ResultAnswer::Store)),
        ("slow", None),
    ] {
        assert_eq!(world.ask(Verb::ProvideToolResult, "r", body).await, answer, "{body}");
    }
    // It becomes a dead letter once it is stored.
    let dead = world.bus.transport().last_many(Stream::Dead, &[subject::dead_of_session(&key())]).await.unwrap();
    assert!(matches!(dead, bus::transport::ReadMany::Messages(letters) if letters.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn command_that_is_sent_by_request_is_not_handled() {
    let world = World::with_places(8).await;
    for verb in Verb::ALL.iter().filter(|verb| !verb.is_result()) {
        assert_eq!(world.ask(*verb, "c", "done").await, None, "{verb}");
    }
    assert_eq!(world.clerk.0.load(Ordering::SeqCst), 1, "the first result alone");
}

#[tokio::test(start_paused = true)]
async fn result_without_a_place_is_stored_after_half_a_second() {
    let world = World::with_places(5).await;
    // One session gets four of five places.
    let slow = ["a", "b", "c", "d"].map(|id| world.ask(Verb::ModelFinished, id, "slow"));
    assert_eq!(futures::future::join_all(slow).await, [None; 4]);
    let from = tokio::time::Instant::now();
    assert_eq!(world.ask(Verb::ModelFinished, "late", "done").await, Some(ResultAnswer::Store));
    assert_eq!(from.elapsed().as_millis() / 100, 5);
}

#[tokio::test(start_paused = true)]
async fn worker_that_stops_has_results_stored_at_once() {
    let World { bus, address, worker, .. } = World::with_places(8).await;
    let subject = |id: &str| subject::result(&key(), Verb::ModelFinished, &CommandId::new(id).unwrap(), &address);
    let ask = async |id: &str, body: &'static str| {
        let body = Bytes::from_static(body.as_bytes());
        bus.transport().request(&subject(id), Vec::new(), body, Duration::from_secs(1)).await
    };
    // It runs until the drain ends it.
    assert!(ask("runs", "slow").await.is_err());
    let asking = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        ask("late", "done").await
    };
    let ((), answer) = tokio::join!(worker.drain(Duration::from_secs(5)), asking);
    assert_eq!(serde_json::from_slice::<ResultAnswer>(&answer.unwrap().payload).unwrap(), ResultAnswer::Store);
    assert!(matches!(ask("later", "done").await, Err(BusError::NoResponders { .. })));
}
