//! Lost bodies, states over a limit, and effects that fail.

use std::time::Duration;

use bus_memory::{Action, Fault, Operation};
use contract::ErrorCode;
use contract::command::{ControlReason, MessageMode, SendUserMessage, Verb};
use contract::commit::Phase;
use contract::event::{Event, InputIgnored};
use contract::limits::{INLINE_BYTES_MAX, MESSAGE_BYTES_MAX, QUEUED_BYTES_MAX};
use contract::model::Content;
use contract::streams::{Objects, Stream};
use contract::subject::{self, DeadKind};

use crate::world::{World, drain, first_model_call, key, next_code};

#[tokio::test(start_paused = true)]
async fn command_body_lost_command_is_a_dead_letter_and_stop_is_handled() {
    let mut world = World::new().await;
    let orchestrator = world.orchestrator().await;
    world.start().await;
    drain(orchestrator).await;
    let mut errors = world.errors().await;
    let content = Content::from("x".repeat(INLINE_BYTES_MAX + 1).as_str());
    let lost = world.send(Verb::SendUserMessage, SendUserMessage::new(content, MessageMode::Queue)).await;
    let stored = world.wait_for_message(Stream::Control, &subject::control(&key(), Verb::SendUserMessage, &lost)).await;
    let reference: serde_json::Value = serde_json::from_slice(&stored.payload).unwrap();
    let blob = reference["$blob"].as_str().unwrap();
    world.bus.transport().delete_object(Objects::Work, blob, stored.generation).await.unwrap();

    let _orchestrator = world.orchestrator().await;
    let stop = world.send(Verb::Stop, ControlReason::default()).await;
    assert!(matches!(world.wait_until_handled(&stop).await, Event::InputHandled(_)));
    assert_eq!(next_code(&mut errors).await, "bad_request");
    world.wait_for_message(Stream::Dead, &subject::dead(&key(), DeadKind::Control, &lost)).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_messages_at_byte_limit_message_is_refused_and_stop_is_handled() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.control(Verb::Pause).await;
    let large = "x".repeat(MESSAGE_BYTES_MAX);
    for _ in 0..QUEUED_BYTES_MAX / MESSAGE_BYTES_MAX {
        assert!(matches!(world.send_message(&large).await, Event::InputHandled(_)));
    }
    let Event::InputIgnored(InputIgnored { refusal, .. }) = world.send_message("one more").await else {
        panic!("accepted")
    };
    assert_eq!(refusal.code, ErrorCode::TooManyWaiting);
    assert!(matches!(world.control(Verb::Stop).await, Event::InputHandled(_)));
}

/// Refuses to publish model calls.
fn no_model_stream(op: &Operation<'_>) -> Fault {
    let is_call = op.action == Action::Append && op.subject.starts_with("ai_loop.model");
    if is_call { Fault::NotDone } else { Fault::None }
}

#[tokio::test(start_paused = true)]
async fn effect_fails_other_effects_are_performed_and_timer_is_set() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let idle = world.wait_for_message(Stream::Timer, &subject::timer_set(&key())).await;
    world.faults.set(Some(no_model_stream));
    world.send_message("Hello").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let set = world.wait_for_message(Stream::Timer, &subject::timer_set(&key())).await;
    assert_ne!(set.payload, idle.payload, "the timer of the turn is set although its call is not published");
    world.faults.set(None);
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    let head = world.bus.head(&key(), bus::Read::Leader).await.unwrap().unwrap();
    assert_eq!(head.meta.phase, Phase::Running);
}
