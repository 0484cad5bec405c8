//! Commands of a sender that may use some agents only.

use std::collections::BTreeSet;

use contract::AgentId;
use contract::command::{Command, CommandMeta, ControlReason, ResumeFrom, Start, Verb};
use contract::event::Event;
use contract::ids::{CommandId, SessionId};
use contract::subject::SessionKey;

use crate::world::{World, key};

/// The head of a command of such a sender.
fn meta(world: &World, agent: &str) -> CommandMeta {
    let agents = BTreeSet::from([AgentId::new(agent).unwrap()]);
    CommandMeta { agents: Some(agents), ..CommandMeta::new(world.server.now()) }
}

#[tokio::test(start_paused = true)]
async fn command_of_a_sender_without_the_agent_is_refused() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    for (agent, is_refused) in [("a", true), ("e", false)] {
        let id = world.send_as(Verb::Pause, meta(&world, agent), ControlReason::default()).await;
        let event = world.wait_until_handled(&id).await;
        let code = if let Event::InputIgnored(ignored) = &event { Some(ignored.refusal.code.as_str()) } else { None };
        assert_eq!(code, is_refused.then_some("forbidden"), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn start_that_resumes_a_session_of_another_agent_is_refused() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let resumed = SessionKey { session: SessionId::new("t").unwrap(), ..key() };
    let from = ResumeFrom { session_id: key().session, at: None };
    let start = Start { interactive: true, resume_from: Some(from), ..Start::default() };
    let body = serde_json::to_vec(&Command { meta: meta(&world, "a"), body: start }).unwrap();
    world.bus.send_control(&resumed, Verb::Start, &CommandId::new("u1").unwrap(), body.into()).await.unwrap();
    let refusal = loop {
        let log = world.bus.history(&resumed, 0).await.unwrap();
        let found = log.iter().flat_map(|(_, commit)| &commit.events).find_map(|event| match event {
            Event::InputIgnored(ignored) => Some(ignored.refusal.clone()),
            _ => None,
        });
        match found {
            Some(refusal) => break refusal,
            None => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    };
    assert_eq!(refusal.code.as_str(), "forbidden");
    assert!(refusal.message.contains("session s is of the agent e"), "{}", refusal.message);
}
