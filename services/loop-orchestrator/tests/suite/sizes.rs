//! Bodies that are gone, states that grow too large, effects that fail.

use std::time::Duration;

use bus::memory::{Action, Fault, Op};
use contract::ErrorCode;
use contract::command::{ControlReason, MessageMode, SendUserMessage, Verb};
use contract::commit::Phase;
use contract::event::{Event, InputIgnored};
use contract::limits::{INLINE_BYTES_MAX, MESSAGE_BYTES_MAX, QUEUED_BYTES_MAX};
use contract::model::Content;
use contract::streams::{Objects, Stream};
use contract::subject::{self, DeadKind};

use crate::world::{World, end, key, model_call, next_code};

#[tokio::test(start_paused = true)]
async fn command_whose_body_is_gone_is_a_dead_letter_and_stop_is_handled() {
    let mut world = World::new().await;
    let orchestrator = world.orchestrator().await;
    world.start().await;
    end(orchestrator).await;
    let mut errors = world.errors().await;
    let content = Content::from("x".repeat(INLINE_BYTES_MAX + 1).as_str());
    let lost = world.send(Verb::SendUserMessage, SendUserMessage { content, mode: MessageMode::Queue }).await;
    let stored = world.holds(Stream::Control, &subject::control(&key(), Verb::SendUserMessage, &lost)).await;
    let reference: serde_json::Value = serde_json::from_slice(&stored.payload).unwrap();
    world.bus.transport().delete_object(Objects::Work, reference["$blob"].as_str().unwrap()).await.unwrap();

    let _orchestrator = world.orchestrator().await;
    let stop = world.send(Verb::Stop, ControlReason::default()).await;
    assert!(matches!(world.handled(&stop).await, Event::InputHandled(_)));
    assert_eq!(next_code(&mut errors).await, "bad_request");
    world.holds(Stream::Dead, &subject::dead(&key(), DeadKind::Control, &lost)).await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_have_a_limit_in_bytes_and_stop_goes_through() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.tell(Verb::Pause).await;
    let large = "x".repeat(MESSAGE_BYTES_MAX);
    for _ in 0..QUEUED_BYTES_MAX / MESSAGE_BYTES_MAX {
        assert!(matches!(world.say(&large).await, Event::InputHandled(_)));
    }
    let Event::InputIgnored(InputIgnored { refusal, .. }) = world.say("one more").await else { panic!("taken") };
    assert_eq!(refusal.code, ErrorCode::TooManyWaiting);
    assert!(matches!(world.tell(Verb::Stop).await, Event::InputHandled(_)));
}

/// Model calls cannot be published.
fn no_model_stream(op: &Op<'_>) -> Fault {
    let is_call = op.action == Action::Append && op.subject.starts_with("ai_loop.model");
    if is_call { Fault::NotDone } else { Fault::None }
}

#[tokio::test(start_paused = true)]
async fn effect_that_fails_takes_no_other_with_it_and_the_timer_is_set() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let idle = world.holds(Stream::Timer, &subject::timer_set(&key())).await;
    world.faults.set(Some(no_model_stream));
    world.say("Hello").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let set = world.holds(Stream::Timer, &subject::timer_set(&key())).await;
    assert_ne!(set.payload, idle.payload, "the timer of the turn is set although its call is not published");
    world.faults.set(None);
    world.holds(Stream::Model, &model_call()).await;
    let head = world.bus.head(&key(), bus::Read::Leader).await.unwrap().unwrap();
    assert_eq!(head.meta.phase, Phase::Running);
}
