//! Commands of a sender that may use some agents only.

use std::collections::BTreeSet;

use contract::client_tool::{AnswerToolCall, ClientOutcome};
use contract::command::{Answer, AnswerDecision, Configure, ControlReason, MessageMode, SendUserMessage, Start, Verb};
use contract::commit::Phase;
use contract::model::Content;
use contract::settings::ContinuationSettings;
use contract::{AgentId, CallId};
use session::{Body, ConfigureInput};

use crate::talk::{Cast, Talk};

fn agents(names: &[&str]) -> BTreeSet<AgentId> {
    names.iter().map(|name| AgentId::new(name).unwrap()).collect()
}

fn call() -> CallId {
    CallId::new("c1-1-1").unwrap()
}

/// Each command to a session that runs.
fn commands() -> Vec<(Verb, Body)> {
    let reason = ControlReason::default;
    let configure = Configure { model: Some("m".to_owned()), ..Configure::default() };
    let answered = AnswerToolCall { call: call(), outcome: ClientOutcome::Ok, content: "x".to_owned() };
    vec![
        (Verb::SendUserMessage, Body::Send(SendUserMessage::new(Content::from("x"), MessageMode::Queue))),
        (Verb::Answer, Body::Answer(Answer::new(call(), "0".repeat(64), AnswerDecision::Approve))),
        (Verb::AnswerToolCall, Body::AnswerToolCall(answered)),
        (Verb::Configure, Body::Configure(Box::new(ConfigureInput { configure, composed: None }))),
        (Verb::Pause, Body::Pause(reason())),
        (Verb::Resume, Body::Resume(reason())),
        (Verb::ClearHistory, Body::Clear(reason())),
        (Verb::CancelTurn, Body::CancelTurn(reason())),
        (Verb::Stop, Body::Stop(reason())),
    ]
}

#[test]
fn command_to_a_session_of_another_agent_is_refused() {
    let verbs: BTreeSet<Verb> = commands().into_iter().map(|(verb, _)| verb).collect();
    let clients = Verb::ALL.iter().copied().filter(|verb| verb.is_client() && *verb != Verb::Start);
    assert_eq!(verbs, clients.collect());
    let mut talk = Talk::begin(ContinuationSettings::default());
    let before = (talk.session.phase(), talk.session.messages().len());
    for (verb, body) in commands() {
        talk.agents = Some(agents(&["a", "p"]));
        talk.command(verb, body.clone());
        assert_eq!(talk.refused(), Some("forbidden"), "{verb}");
        assert_eq!((talk.session.phase(), talk.session.messages().len()), before, "{verb}");
    }
    for (verb, body) in commands() {
        let mut talk = Talk::begin(ContinuationSettings::default());
        talk.agents = Some(agents(&["e", "p"]));
        talk.command(verb, body);
        assert_ne!(talk.refused(), Some("forbidden"), "{verb}");
    }
}

#[test]
fn start_of_another_agent_is_refused_whatever_it_resumes() {
    for (allowed, refused) in
        [(Some(agents(&["a"])), Some("forbidden")), (Some(agents(&["a", "e"])), None), (None, None)]
    {
        let mut talk = Talk::not_started("s");
        talk.agents = allowed;
        let start = Start { prompt: Some(Content::from("x")), ..Start::default() };
        talk.start("start", start, Ok(Cast::default()));
        assert_eq!(talk.refused(), refused);
        assert_eq!(talk.session.phase() == Phase::Running, refused.is_none());
    }
}

#[test]
fn change_to_another_agent_is_refused_and_the_agent_stays() {
    let change = || Configure { agent: Some(AgentId::new("p").unwrap()), ..Configure::default() };
    for (allowed, refused, agent) in
        [(Some(agents(&["e"])), Some("forbidden"), "e"), (Some(agents(&["e", "p"])), None, "p"), (None, None, "p")]
    {
        let mut talk = Talk::begin(ContinuationSettings::default());
        talk.agents = allowed;
        talk.configure(change(), Some(Cast { agent: "p", ..Cast::default() }));
        assert_eq!((talk.refused(), talk.session.summary().agent.as_str()), (refused, agent));
    }
}

#[test]
fn child_of_an_allowed_agent_is_started_without_a_limit() {
    let mut talk = Talk::not_started("s");
    talk.agents = Some(agents(&["e"]));
    talk.start("start", Start { prompt: Some(Content::from("x")), ..Start::default() }, Ok(Cast::default()));
    talk.reply("", &[r#"{"agent":"p","task":"Write it."}"#]);
    let start = talk.session.child_start(&talk.open()[0]).unwrap().body;
    assert_eq!((start.body.agent, start.meta.agents), (AgentId::new("p").ok(), None));
}
