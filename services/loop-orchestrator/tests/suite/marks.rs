//! The mark of handled commands: it covers no command that was not looked at. It is believed only in a session that has
//! forgotten ids of inputs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::transport::Ack;
use bus_memory::{Action, Fault, Operation};
use contract::command::{ControlReason, MessageMode, SendUserMessage, Start, Verb};
use contract::event::Event;
use contract::ids::CommandId;
use contract::limits::INLINE_BYTES_MAX;
use contract::streams::Stream;
use contract::subject;

use crate::world::{World, drain, first_model_call, key};

/// Longer than any other step: the delivery of a command whose body is read so slowly comes last.
const SLOW: Duration = Duration::from_mins(2);

impl World {
    /// Sends a message whose body is an object, since it is large.
    async fn send_large_message(&mut self) -> CommandId {
        let text = "x".repeat(INLINE_BYTES_MAX + 1);
        self.send(Verb::SendUserMessage, SendUserMessage::new(text.as_str().into(), MessageMode::Queue)).await
    }
}

#[tokio::test(start_paused = true)]
async fn start_is_sent_again_command_before_it_is_handled() {
    let mut world = World::new().await;
    world.forget_inputs().await;
    let first = world.orchestrator().await;
    world.start().await;
    drain(first).await;

    // The next replica knows nothing of the session, and takes the start for that of a new one.
    world.faults.set(Some(|op| if op.action == Action::GetObject { Fault::Delay(SLOW) } else { Fault::None }));
    let _second = world.orchestrator().await;
    let message = world.send_large_message().await;
    let again = world.send(Verb::Start, Start { interactive: true, ..Start::default() }).await;
    assert!(matches!(world.wait_until_handled(&again).await, Event::InputIgnored(_)));
    assert!(matches!(world.wait_until_handled(&message).await, Event::InputHandled(_)));
}

/// The second command of a test is not acknowledged.
fn second_command_waits(op: &Operation<'_>) -> Fault {
    let is_second = op.subject.rsplit('.').next() == Some("u2");
    if op.action == Action::Ack(Ack::Done) && is_second { Fault::NotDone } else { Fault::None }
}

#[tokio::test(start_paused = true)]
async fn log_lacks_commits_that_a_replica_knows_command_before_a_known_one_is_handled() {
    let mut world = World::new().await;
    world.forget_inputs().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let older = world.server.backup(&[Stream::Log]);
    world.faults.set(Some(second_command_waits));
    let message = world.send_large_message().await;
    world.wait_until_handled(&message).await;
    let known = world.control(Verb::Pause).await.closed_input().unwrap().id.clone();
    world.wait_until_gone(Stream::Control, &subject::control(&key(), Verb::Pause, &known)).await;

    // The replica has a state in which both commands are handled. The client sends the one again that does not wait.
    world.faults.set(Some(|op| if op.action == Action::GetObject { Fault::Delay(SLOW) } else { Fault::None }));
    world.server.restore(&older);
    world.repeat(Verb::Pause, &known, ControlReason::default()).await;
    assert!(matches!(world.wait_until_handled(&known).await, Event::InputHandled(_)));
    assert!(matches!(world.wait_until_handled(&message).await, Event::InputHandled(_)));
}

/// Items of calls that were published.
static PUBLISHED: AtomicUsize = AtomicUsize::new(0);

/// No command is acknowledged, and items are counted.
fn no_command_is_acknowledged(op: &Operation<'_>) -> Fault {
    if op.action == Action::Append && op.subject.starts_with("ai_loop.model.") {
        PUBLISHED.fetch_add(1, Ordering::SeqCst);
    }
    if op.action == Action::Ack(Ack::Done) { Fault::NotDone } else { Fault::None }
}

#[tokio::test(start_paused = true)]
async fn command_in_the_log_waits_before_another_one_its_effects_are_not_performed_again() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.faults.set(Some(no_command_is_acknowledged));
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    assert_eq!(PUBLISHED.load(Ordering::SeqCst), 1);
    world.send_message("Are you there?").await;
    assert_eq!(PUBLISHED.load(Ordering::SeqCst), 1, "the next delivery of the first command performs what is owed");
}
