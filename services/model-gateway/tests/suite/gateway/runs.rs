//! Two runs of one attempt: the costs of both are reported, whichever result is taken. A worker that claims a run of
//! another one.

use std::sync::Arc;
use std::time::Duration;

use bus::rpc::RpcHandler;
use contract::command::Verb;
use contract::commit::Phase;
use contract::fleet::{CallHolder, OfferOutcome};
use contract::model::ModelFinished;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use contract::{CallId, SessionId};
use futures::FutureExt;

use super::world::{World, poll_until};

/// Pending results of the session, the oldest first.
async fn read_results(world: &World) -> Vec<ModelFinished> {
    let inbox = world.bus.inbox(&world.key).await.unwrap();
    let bus::control::Inbox::Messages(messages) = inbox else { unreachable!() };
    let mut results = Vec::new();
    for message in messages {
        let verb = subject::parse_control(&message.subject).map(|control| control.verb);
        if verb == Some(Verb::ModelFinished) {
            let body = world.bus.open(Objects::Work, message.payload).await.unwrap();
            results.push(serde_json::from_slice(&body).unwrap());
        }
    }
    results
}

/// Freezes a gateway during a call, which another gateway then runs.
async fn run_twice(world: &World) -> (bus_memory::ClientLifecycle, Vec<model_gateway::Gateway>) {
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    world.publish_item(&world.item("hello")).await;
    let (frozen, life) = world.start_gateway("frozen").await;
    poll_until(async || world.bus.view(&world.key).await.unwrap()).await;
    life.freeze();
    let (next, _) = world.start_gateway("next").await;
    poll_until(async || read_results(world).await.pop()).await;
    (life, vec![frozen, next])
}

#[tokio::test(start_paused = true)]
async fn second_result_of_an_attempt_is_stored_beside_the_pending_one() {
    let world = World::new();
    let (life, _gateways) = run_twice(&world).await;
    life.thaw();
    let both = poll_until(async || Some(read_results(&world).await).filter(|results| results.len() == 2)).await;
    assert!(both.iter().all(|result| result.meta.attempt == 1 && result.usage.total() > 0), "{both:?}");
    assert!(!both[0].run.is_empty() && both[0].run != both[1].run, "{both:?}");
}

#[tokio::test(start_paused = true)]
async fn second_result_of_an_attempt_after_the_first_was_taken_has_another_run() {
    let world = World::new();
    let (life, _gateways) = run_twice(&world).await;
    let taken = read_results(&world).await.remove(0);
    let bus = world.bus.transport();
    bus.purge(Stream::Control, &subject::control(&world.key, Verb::ModelFinished, &World::result_id())).await.unwrap();
    world.commit(1, Phase::Idle, &[]).await;
    life.thaw();
    let late = poll_until(async || read_results(&world).await.pop()).await;
    assert!(late.usage.total() > 0 && late.run != taken.run, "{late:?}");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(read_results(&world).await.len(), 1, "it is reported once");
}

#[tokio::test(start_paused = true)]
async fn worker_that_claims_a_call_of_another_delays_that_call_alone_and_until_it_ends() {
    let world = World::new();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    world.publish_item(&world.item("hello")).await;
    let (_first, life) = world.start_gateway("first").await;
    poll_until(async || world.bus.view(&world.key).await.unwrap()).await;
    life.kill();
    let claim: RpcHandler = Arc::new(|_| {
        let claim = CallHolder { offer: Some(OfferOutcome::Taken), ..CallHolder::default() };
        std::future::ready(serde_json::to_vec(&claim).ok().map(Into::into)).boxed()
    });
    let claims = subject::call_holder(&world.key, &CallId::model(1, 1));
    let liar = world.bus.serve(&claims, None, claim).await.unwrap();
    let (_next, _) = world.start_gateway("next").await;

    let mut other = World::on(world.server.clone());
    other.key = SessionKey { session: SessionId::new("s2").unwrap(), ..world.key.clone() };
    other.commit(0, Phase::Running, &["m1-1.1"]).await;
    other.publish_item(&other.item("hello")).await;
    other.wait_for_finished().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(read_results(&world).await.is_empty(), "its item waits for the worker that claims it");
    drop(liar);
    world.wait_for_finished().await;
}
