//! One turn: an input is applied once, whatever happens to the commit, the effects and the acknowledgement.

use std::time::Duration;

use bus_memory::{Action, Fault, Operation};
use contract::command::{ControlReason, MessageMode, SendUserMessage, Verb};
use contract::commit::Phase;
use contract::event::{Event, Topic};
use contract::ids::{CallAttempt, CallId, CommandId};
use contract::model::{FinishReason, ModelFinished, ResultMeta, Usage};
use contract::streams::Stream;
use contract::subject;

use crate::world::{World, drain, first_model_call, key};

/// A reply to a model call that ends the turn.
fn final_reply(call: &CallAttempt) -> ModelFinished {
    ModelFinished {
        meta: ResultMeta { v: 1, slot: 0, call: call.call.clone(), attempt: call.attempt, opened_by: String::new() },
        text: r#"Hello! {"continuation":{"status":"TERMINATE"}}"#.to_owned(),
        reasoning: String::new(),
        tool_calls: Vec::new(),
        finish_reason: FinishReason::Stop,
        raw_finish_reason: "stop".to_owned(),
        usage: Usage { input: 10, output: 5, ..Usage::default() },
        cost_usd: 0.0,
        provider: "test".to_owned(),
        model: "test".to_owned(),
        latency_ms: 1,
        replay: None,
        run: String::new(),
    }
}

fn first_call() -> CallAttempt {
    CallAttempt { call: CallId::model(1, 1), attempt: 1 }
}

impl World {
    /// Answers a model call as a gateway does: the same id however often the result is sent.
    async fn answer(&self, call: &CallAttempt) -> CommandId {
        let id = bus::call::result_id(call, "").unwrap();
        let body = serde_json::to_vec(&final_reply(call)).unwrap();
        self.bus.send_control(&key(), Verb::ModelFinished, &id, body.into()).await.unwrap();
        id
    }

    /// Counts the events of the log for which `is` holds.
    async fn count(&self, is: fn(&Event) -> bool) -> usize {
        self.log().await.iter().flat_map(|(_, commit)| &commit.events).filter(|event| is(event)).count()
    }
}

fn is_turn_completed(event: &Event) -> bool {
    matches!(event, Event::TurnCompleted(_))
}

/// The append of a commit.
fn is_commit(op: &Operation<'_>) -> bool {
    op.action == Action::Append && op.subject.starts_with("ai_loop.log")
}

#[tokio::test(start_paused = true)]
async fn model_call_answered_turn_completes_and_viewers_receive_it() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let mut viewer =
        world.bus.transport().subscribe(&subject::event(&key(), Topic::TurnCompleted), None).await.unwrap();
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    let result = world.answer(&first_call()).await;

    world.wait_until_handled(&result).await;
    assert_eq!(world.count(is_turn_completed).await, 1);
    let head = world.bus.head(&key(), bus::Read::Leader).await.unwrap().unwrap();
    assert_eq!(head.meta.phase, Phase::Idle);
    assert!(futures::StreamExt::next(&mut viewer).await.is_some(), "viewers receive the end of the turn");
    world.wait_until_gone(Stream::Control, &subject::control(&key(), Verb::ModelFinished, &result)).await;
}

#[tokio::test(start_paused = true)]
async fn result_sent_again_turn_ends_once() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    let result = world.answer(&first_call()).await;
    let waiting = subject::control(&key(), Verb::ModelFinished, &result);
    world.wait_until_handled(&result).await;
    world.wait_until_gone(Stream::Control, &waiting).await;
    let length = world.log().await.len();

    world.answer(&first_call()).await;
    world.wait_until_gone(Stream::Control, &waiting).await;
    assert_eq!(world.log().await.len(), length, "a result that is in the log is not written again");
}

#[tokio::test(start_paused = true)]
async fn result_of_a_call_that_was_never_made_ends_no_turn() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    let other = CallAttempt { call: CallId::model(7, 3), attempt: 1 };
    let result = world.answer(&other).await;

    world.wait_until_gone(Stream::Control, &subject::control(&key(), Verb::ModelFinished, &result)).await;
    assert_eq!(world.count(is_turn_completed).await, 0);
    let result = world.answer(&first_call()).await;
    world.wait_until_handled(&result).await;
    assert_eq!(world.count(is_turn_completed).await, 1);
}

#[tokio::test(start_paused = true)]
async fn result_for_an_erased_session_leaves_no_log() {
    let world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    let result = world.answer(&first_call()).await;
    world.wait_until_gone(Stream::Control, &subject::control(&key(), Verb::ModelFinished, &result)).await;
    assert!(world.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn answer_to_a_commit_lost_input_takes_one_slot() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let length = world.log().await.len();
    world.faults.set(Some(|op| if is_commit(op) { Fault::AckLost } else { Fault::None }));
    let pause = world.send(Verb::Pause, ControlReason::default()).await;
    world.wait_until_handled(&pause).await;
    world.faults.set(None);

    world.control(Verb::Resume).await;
    assert_eq!(world.log().await.len(), length + 2, "each of the two commands has one slot");
}

#[tokio::test(start_paused = true)]
async fn log_is_away_input_waits_and_is_handled_when_it_is_back() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let length = world.log().await.len();
    world.faults.set(Some(|op| if is_commit(op) { Fault::NotDone } else { Fault::None }));
    let pause = world.send(Verb::Pause, ControlReason::default()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(world.log().await.len(), length);
    world.wait_for_message(Stream::Control, &subject::control(&key(), Verb::Pause, &pause)).await;

    world.faults.set(None);
    assert!(matches!(world.wait_until_handled(&pause).await, Event::InputHandled(_)));
}

#[tokio::test(start_paused = true)]
async fn acknowledgement_lost_input_is_delivered_again_and_applied_once() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let length = world.log().await.len();
    world.faults.set(Some(|op| if matches!(op.action, Action::Ack(_)) { Fault::NotDone } else { Fault::None }));
    let pause = world.send(Verb::Pause, ControlReason::default()).await;
    world.wait_until_handled(&pause).await;
    let waiting = subject::control(&key(), Verb::Pause, &pause);
    world.wait_for_message(Stream::Control, &waiting).await;

    world.faults.set(None);
    world.wait_until_gone(Stream::Control, &waiting).await;
    assert_eq!(world.log().await.len(), length + 1);
}

#[tokio::test(start_paused = true)]
async fn replica_dies_after_commit_another_publishes_the_call() {
    let mut world = World::new().await;
    let first = world.orchestrator().await;
    world.start().await;
    world.faults.set(Some(|op| if is_commit(op) { Fault::Crash { done: true } } else { Fault::None }));
    let length = world.log().await.len();
    let message = SendUserMessage::new("Hello".into(), MessageMode::Queue);
    world.send(Verb::SendUserMessage, message).await;
    while world.log().await.len() == length {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.faults.set(None);
    let call = world.bus.transport().last(Stream::Model, &first_model_call(), bus::Read::Leader).await.unwrap();
    assert!(call.is_none(), "the replica died before it published the call");

    let _second = world.orchestrator().await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    assert_eq!(world.log().await.len(), length + 1, "the message is not applied again");
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn two_replicas_of_one_session_each_input_takes_one_slot() {
    let mut world = World::new().await;
    let (first, second) = (world.orchestrator().await, world.orchestrator().await);
    world.start().await;
    let length = world.log().await.len();
    let mut sent = Vec::new();
    for verb in [Verb::Pause, Verb::Resume].into_iter().cycle().take(20) {
        sent.push(world.send(verb, ControlReason::default()).await);
    }
    for id in &sent {
        assert!(matches!(world.wait_until_handled(id).await, Event::InputHandled(_)));
    }
    // Reading the log verifies that each commit names the one before it.
    let log = world.log().await;
    let handled = log.iter().flat_map(|(_, commit)| &commit.events).filter_map(Event::closed_input);
    let handled: Vec<_> = handled.map(|input| &input.id).collect();
    for id in &sent {
        assert_eq!(handled.iter().filter(|other| **other == id).count(), 1, "{id} is applied once");
    }
    assert!(log.len() <= length + sent.len());
    drain(first).await;
    drain(second).await;
}
