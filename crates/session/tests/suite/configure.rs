//! `configure`: settings of a session that runs.

use contract::command::{Configure, ContinuationOverride, Features, MessageMode};
use contract::event::Event;
use contract::model::{FailureKind, Streaming, StreamingOverride};
use contract::settings::{ContinuationSettings, LimitAction, Limits, ModelSettings, OnError};
use contract::tool::ApprovalPolicy;
use serde_json::json;

use crate::talk::{Cast, Talk, rule};

const GO_ON: &str = r#"{"response":"More.","continuation":{"status":"CONTINUE"}}"#;

fn settings(over: ContinuationOverride) -> Configure {
    Configure { continuation: Some(over), ..Configure::default() }
}

fn refused(talk: &Talk) -> Option<String> {
    match talk.events.last() {
        Some(Event::InputIgnored(ignored)) => Some(ignored.refusal.message.clone()),
        _ => None,
    }
}

#[test]
fn configured_limits_hold_in_the_running_turn() {
    let mut talk = Talk::begin(ContinuationSettings { max_iterations: 2, ..ContinuationSettings::default() });
    talk.reply(GO_ON, &[]);
    talk.configure(settings(ContinuationOverride { max_iterations: Some(4), ..ContinuationOverride::default() }), None);
    for _ in 0..2 {
        talk.reply(GO_ON, &[]);
        assert_eq!(talk.stop_reason(), None);
    }
    talk.reply(GO_ON, &[]);
    talk.last_word();
    assert_eq!(talk.stop_reason(), Some("max_iterations"));
}

#[test]
fn configured_timeout_applies_to_the_running_turn() {
    let mut talk = Talk::begin(ContinuationSettings {
        timeout: 600,
        on_limit: LimitAction::End,
        ..ContinuationSettings::default()
    });
    talk.wait(std::time::Duration::from_secs(50));
    talk.configure(settings(ContinuationOverride { timeout: Some(60), ..ContinuationOverride::default() }), None);
    talk.wait(std::time::Duration::from_secs(9));
    assert_eq!(talk.stop_reason(), None);
    talk.wait(std::time::Duration::from_secs(2));
    assert_eq!(talk.stop_reason(), Some("timeout"));
}

/// The settings that the last change came to.
fn configured(talk: &Talk) -> ContinuationSettings {
    let found = talk.events.iter().rev().find_map(|event| match event {
        Event::Configured(configured) => Some(configured.agent.continuation.clone()),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn configured_limit_changes_alone_and_null_removes_it() {
    let limits = Limits { tokens: Some(900), tool_calls: Some(7), ..Limits::default() };
    let mut talk = Talk::begin(ContinuationSettings { limits, ..ContinuationSettings::default() });
    for (sent_message, wanted) in [
        (r#"{"cost_usd": 0.5}"#, Limits { cost_usd: Some(0.5), ..limits }),
        (r#"{"tokens": null, "repetition": 0}"#, Limits { tokens: None, cost_usd: Some(0.5), repetition: 0, ..limits }),
    ] {
        let limits = Some(serde_json::from_str(sent_message).unwrap());
        talk.configure(settings(ContinuationOverride { limits, ..ContinuationOverride::default() }), None);
        assert_eq!(configured(&talk).limits, wanted, "{sent_message}");
    }
    // The session's own settings stay when it is composed again.
    let model = Configure { model: Some("other".to_owned()), ..Configure::default() };
    talk.configure(model, Some(Cast { continuation: ContinuationSettings::default(), ..Cast::default() }));
    let own = Limits { tokens: None, cost_usd: Some(0.5), repetition: 0, ..Limits::default() };
    assert_eq!(configured(&talk).limits, own);
}

#[test]
fn continuation_disabled_and_enabled_takes_effect() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let switch = |enabled| settings(ContinuationOverride { enabled: Some(enabled), ..ContinuationOverride::default() });
    talk.configure(switch(false), None);
    talk.reply(GO_ON, &[]);
    assert_eq!((talk.stop_reason(), talk.source().as_str()), (Some("completed"), "default"));
    talk.send_message("more", MessageMode::Steer);
    assert!(!talk.item().tools.iter().any(|tool| tool.get().contains("\"continuation\"")), "no signal is offered");
    // Tools are not continuation: their results go back to the model.
    talk.reply("", &["{}"]);
    talk.results("found");
    talk.configure(switch(true), None);
    talk.reply(GO_ON, &[]);
    assert_eq!(talk.source(), "default", "the call that was under way had asked for no signal");
    talk.send_message("more", MessageMode::Steer);
    talk.reply(GO_ON, &[]);
    assert_eq!(talk.source(), "explicit");
    assert!(talk.item().tools.iter().any(|tool| tool.get().contains("\"continuation\"")));
}

#[test]
fn configured_model_answers_the_next_call_and_settings_stay() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.configure(settings(ContinuationOverride { max_iterations: Some(3), ..ContinuationOverride::default() }), None);
    let model = ModelSettings { id: "other".to_owned(), structured_output: true, ..ModelSettings::default() };
    let continuation = ContinuationSettings {
        limits: Limits { tool_calls: Some(9), ..Limits::default() },
        ..ContinuationSettings::default()
    };
    let configure = Configure {
        model: Some("other".to_owned()),
        features: Features { enable: vec!["mailbox".to_owned()], disable: Vec::new() },
        ..Configure::default()
    };
    let recompose = talk.session.recomposes(&configure).unwrap();
    assert_eq!(
        (recompose.model.as_deref(), recompose.features.enable.as_slice()),
        (Some("other"), &["mailbox".to_owned()][..])
    );
    talk.configure(configure, Some(Cast { continuation, model, ..Cast::default() }));
    talk.reply(GO_ON, &[]);
    let item = talk.item();
    assert_eq!(item.model, "other");
    assert!(item.response_format.is_some_and(|format| format.get().contains("json_schema")), "it signals by its form");
    let continuation = configured(&talk);
    assert_eq!((continuation.max_iterations, continuation.limits.tool_calls), (3, Some(9)));
}

#[test]
fn fallback_answers_until_a_model_is_configured() {
    let model = |id: &str| ModelSettings { id: id.to_owned(), ..ModelSettings::default() };
    let cast = |first: &str| Cast {
        continuation: ContinuationSettings { on_error: OnError::Fallback, ..ContinuationSettings::default() },
        model: model(first),
        fallbacks: vec![model("second")],
        ..Cast::default()
    };
    let mut talk = Talk::cast(cast("first"));
    talk.fail(FailureKind::Auth);
    assert_eq!(talk.item().model, "second");
    talk.configure(settings(ContinuationOverride { max_iterations: Some(9), ..ContinuationOverride::default() }), None);
    talk.reply(GO_ON, &[]);
    assert_eq!(talk.item().model, "second", "limits change no model");
    talk.configure(Configure { model: Some("third".to_owned()), ..Configure::default() }, Some(cast("third")));
    talk.reply(GO_ON, &[]);
    assert_eq!(talk.item().model, "third");
}

#[test]
fn invalid_configuration_is_refused_and_changes_nothing() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.configure(Configure::default(), None);
    assert!(refused(&talk).unwrap().contains("nothing"));
    for over in [
        ContinuationOverride { max_iterations: Some(0), ..ContinuationOverride::default() },
        ContinuationOverride { timeout: Some(0), ..ContinuationOverride::default() },
        ContinuationOverride { termination_patterns: Some(vec!["(".to_owned()]), ..ContinuationOverride::default() },
    ] {
        talk.configure(settings(over), None);
        assert!(refused(&talk).is_some());
    }
    assert!(!talk.events.iter().any(|event| matches!(event, Event::Configured(_))));
}

#[test]
fn approval_rules_after_the_start_do_not_change() {
    let mut talk = Talk::cast(Cast { approvals: vec![rule("look", ApprovalPolicy::Always)], ..Cast::default() });
    // Composed anew, the agent's file says otherwise by now.
    let model = Configure { model: Some("other".to_owned()), ..Configure::default() };
    talk.configure(model, Some(Cast { approvals: vec![rule("look", ApprovalPolicy::Never)], ..Cast::default() }));
    talk.reply("", &[r#"{"path":"a"}"#]);
    assert_eq!(talk.session.gates().len(), 1);
}

/// Returns the parameters of the open model call.
fn parameters(talk: &Talk) -> serde_json::Value {
    serde_json::Value::Object(talk.item().parameters)
}

fn ai_config(value: serde_json::Value) -> contract::AiConfig {
    serde_json::from_value(value).unwrap()
}

/// A session that says so much of its prompt and requests, with a composer of an older version.
fn with_ai_config(value: serde_json::Value) -> Talk {
    let start = contract::command::Start {
        prompt: Some(contract::model::Content::Text("Do it.".to_owned())),
        interactive: true,
        ai_config: ai_config(value),
        ..contract::command::Start::default()
    };
    let mut talk = Talk::not_started("s");
    talk.start("start", start, Ok(Cast::default()));
    talk
}

#[test]
fn tool_choice_of_a_session_counts_for_each_step_of_each_turn() {
    let mut talk = with_ai_config(json!({"parameters": {"seed": 7}, "tool_choice": ["required", "none"]}));
    assert_eq!(parameters(&talk), json!({"seed": 7, "tool_choice": "required"}));
    talk.reply("", &["{}"]);
    talk.results("found");
    assert_eq!(parameters(&talk), json!({"seed": 7, "tool_choice": "none"}));
    talk.reply(GO_ON, &[]);
    assert_eq!(parameters(&talk), json!({"seed": 7}));
    talk.reply("Done.", &[]);
    talk.send_message("Again.", MessageMode::Steer);
    assert_eq!(parameters(&talk), json!({"seed": 7, "tool_choice": "required"}));
}

#[test]
fn parameters_that_are_configured_go_over_those_of_the_start_and_leave_the_others() {
    let mut talk = with_ai_config(json!({"parameters": {"seed": 7, "temperature": 1}}));
    let change = json!({"parameters": {"temperature": 0}});
    talk.configure(Configure { ai_config: ai_config(change), ..Configure::default() }, Some(Cast::default()));
    talk.reply(GO_ON, &[]);
    assert_eq!(parameters(&talk), json!({"seed": 7, "temperature": 0}));
    // What is configured later without a word on requests leaves them.
    talk.configure(settings(ContinuationOverride { timeout: Some(60), ..ContinuationOverride::default() }), None);
    talk.reply(GO_ON, &[]);
    assert_eq!(parameters(&talk), json!({"seed": 7, "temperature": 0}));
}

#[test]
fn streaming_of_a_session_goes_over_that_of_its_files_and_lasts() {
    let files = |value| Cast { ai_config: Some(ai_config(json!({"streaming": value}))), ..Cast::default() };
    let streaming = |talk: &Talk| {
        let Streaming { enabled, chunk_ms, first_byte, idle, .. } = talk.item().streaming;
        (enabled, chunk_ms, first_byte, idle)
    };
    let start = contract::command::Start {
        prompt: Some(contract::model::Content::Text("Do it.".to_owned())),
        interactive: true,
        streaming: Some(StreamingOverride { idle: Some(60), ..StreamingOverride::default() }),
        ai_config: ai_config(json!({"streaming": {"idle": 50, "chunk_ms": 5}})),
        ..contract::command::Start::default()
    };
    let mut talk = Talk::not_started("s");
    talk.start("start", start, Ok(files(json!({"enabled": false, "chunk_ms": 100, "idle": 100}))));
    assert_eq!(streaming(&talk), (false, 5, 30, 60));
    // Another model has other files; what the session says itself stays.
    let other = Configure { model: Some("other".to_owned()), ..Configure::default() };
    talk.configure(other, Some(files(json!({"first_byte": 120}))));
    talk.reply(GO_ON, &[]);
    assert_eq!(streaming(&talk), (true, 5, 120, 60));
    let change = json!({"streaming": {"idle": 7}});
    let change = Configure { ai_config: ai_config(change), ..Configure::default() };
    talk.configure(change, Some(files(json!({"first_byte": 120}))));
    talk.reply(GO_ON, &[]);
    assert_eq!(streaming(&talk), (true, 5, 120, 7));
    talk.configure(settings(ContinuationOverride { timeout: Some(60), ..ContinuationOverride::default() }), None);
    talk.reply(GO_ON, &[]);
    assert_eq!(streaming(&talk), (true, 5, 120, 7));
    let resumed = talk.session.continued_by(contract::command::Start::default());
    assert_eq!(resumed.own_ai_config(), ai_config(json!({"streaming": {"idle": 7, "chunk_ms": 5}})));
}

#[test]
fn ai_config_that_cannot_be_used_is_refused_and_changes_nothing() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let deep = json!({"parameters": {"a": "x".repeat(20_000)}});
    for (value, expected) in
        [(json!({"tool_choice": ["any"]}), "ai_config.tool_choice[0] must be"), (deep, "`parameters`")]
    {
        let configure = Configure { ai_config: ai_config(value), ..Configure::default() };
        talk.configure(configure, None);
        let why = refused(&talk).unwrap();
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn session_resumed_from_another_keeps_its_settings() {
    use contract::command::Start;
    let mut talk = with_ai_config(json!({"parameters": {"seed": 7}}));
    talk.configure(settings(ContinuationOverride { timeout: Some(60), ..ContinuationOverride::default() }), None);
    let same = talk.session.continued_by(Start::default());
    assert_eq!(same.agent.as_ref().map(contract::AgentId::as_str), Some("e"));
    assert_eq!(same.model.as_deref(), Some(""), "the model of the test has no name");
    assert_eq!(same.continuation.as_ref().and_then(|over| over.timeout), Some(60));
    assert_eq!(same.ai_config, ai_config(json!({"parameters": {"seed": 7}})));
    // What the new one says itself goes over that. The model of another agent is that agent's.
    let start = Start {
        agent: Some(contract::AgentId::new("p").unwrap()),
        parameters: json!({"seed": 8}).as_object().unwrap().clone(),
        continuation: Some(ContinuationOverride { timeout: Some(90), ..ContinuationOverride::default() }),
        ..Start::default()
    };
    let other = talk.session.continued_by(start);
    assert_eq!((other.agent.as_ref().map(contract::AgentId::as_str), &other.model), (Some("p"), &None));
    assert_eq!(other.continuation.as_ref().and_then(|over| over.timeout), Some(90));
    assert_eq!(other.own_ai_config(), ai_config(json!({"parameters": {"seed": 8}})));
}

#[test]
fn retries_follow_the_setting_of_the_session() {
    for retries in [0, 2] {
        let mut talk = Talk::begin(ContinuationSettings { retries, ..ContinuationSettings::default() });
        for _ in 0..retries {
            talk.fail(FailureKind::Overloaded);
            assert_eq!(talk.stop_reason(), None);
            talk.wait(std::time::Duration::from_mins(1));
        }
        talk.fail(FailureKind::Overloaded);
        assert_eq!(talk.stop_reason(), Some("error"), "{retries} retries");
    }
}

#[test]
fn reply_to_a_call_that_opened_before_the_model_changed_is_read_as_that_call_asked() {
    let structured =
        || Cast { model: ModelSettings { structured_output: true, ..ModelSettings::default() }, ..Cast::default() };
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.configure(Configure { model: Some("other".to_owned()), ..Configure::default() }, Some(structured()));
    let shown = |talk: &Talk| {
        let found = talk.events.iter().rev().find_map(|event| match event {
            Event::AiFullReceived(reply) => Some(reply.text.clone()),
            _ => None,
        });
        found.unwrap()
    };
    let envelope = r#"{"response": "ok", "continuation": {"status": "CONTINUE"}}"#;
    let json = r#"{"response": "ok", "tool_calls": []}"#;
    talk.reply(&format!("{json}\n{GO_ON}"), &[]);
    assert!(shown(&talk).starts_with(json), "the call asked for a pseudo-call, not for an envelope: {}", shown(&talk));
    talk.reply(envelope, &[]);
    assert_eq!(shown(&talk), "ok");
}

#[test]
fn configured_agent_brings_prompt_tools_and_model_and_transcript_stays() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("The plan is written.", &[]);
    let agent = Some(contract::AgentId::new("p").unwrap());
    let hand_over = Configure { agent: agent.clone(), ..Configure::default() };
    let wanted = talk.session.recomposes(&hand_over).unwrap();
    assert_eq!((Some(&wanted.agent), wanted.model, wanted.tools), (agent.as_ref(), None, None), "those of the agent");
    let model = ModelSettings { id: "theirs".to_owned(), ..ModelSettings::default() };
    let rules = vec![rule("look", ApprovalPolicy::Always)];
    talk.configure(hand_over, Some(Cast { agent: "p", model, approvals: rules, ..Cast::default() }));
    let configured = talk.events.iter().rev().find_map(|event| match event {
        Event::Configured(configured) => Some(configured),
        _ => None,
    });
    let configured = configured.unwrap();
    assert_eq!((configured.agent.id.as_str(), configured.agent.approvals.len()), ("p", 1));

    talk.send_message("Execute it.", MessageMode::Steer);
    let item = talk.item();
    assert_eq!((item.model.as_str(), item.meta.agent.as_str()), ("theirs", "p"));
    assert!(item.messages.iter().any(|message| message.get().contains("The plan is written.")));
    talk.reply("", &[r#"{"path":"a"}"#]);
    assert_eq!(talk.gate().tool.unwrap().as_str(), "look", "its rules hold");
}
