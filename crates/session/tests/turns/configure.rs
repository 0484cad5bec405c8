//! `configure`: settings of a session that runs.

use contract::command::{Configure, ContinuationOverride, Features, Mode};
use contract::event::Event;
use contract::model::FailureKind;
use contract::settings::{ContinuationSettings, Limits, ModelSettings, OnError};
use contract::tool::Approval;

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
fn limits_hold_at_once_in_a_turn_that_runs() {
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
fn the_clock_of_a_running_turn_is_set_anew() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 600, ..ContinuationSettings::default() });
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
fn each_limit_is_changed_by_itself_and_null_takes_one_off() {
    let limits = Limits { tokens: Some(900), tool_calls: Some(7), ..Limits::default() };
    let mut talk = Talk::begin(ContinuationSettings { limits, ..ContinuationSettings::default() });
    for (said, wanted) in [
        (r#"{"cost_usd": 0.5}"#, Limits { cost_usd: Some(0.5), ..limits }),
        (r#"{"tokens": null, "repetition": 0}"#, Limits { tokens: None, cost_usd: Some(0.5), repetition: 0, ..limits }),
    ] {
        let limits = Some(serde_json::from_str(said).unwrap());
        talk.configure(settings(ContinuationOverride { limits, ..ContinuationOverride::default() }), None);
        assert_eq!(configured(&talk).limits, wanted, "{said}");
    }
    // What the session has said of its own stays when it is composed anew.
    let model = Configure { model: Some("other".to_owned()), ..Configure::default() };
    talk.configure(model, Some(Cast { continuation: ContinuationSettings::default(), ..Cast::default() }));
    let own = Limits { tokens: None, cost_usd: Some(0.5), repetition: 0, ..Limits::default() };
    assert_eq!(configured(&talk).limits, own);
}

#[test]
fn continuation_is_switched_off_and_on() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let switch = |enabled| settings(ContinuationOverride { enabled: Some(enabled), ..ContinuationOverride::default() });
    talk.configure(switch(false), None);
    talk.reply(GO_ON, &[]);
    assert_eq!((talk.stop_reason(), talk.source().as_str()), (Some("completed"), "default"));
    talk.say("more", Mode::Steer);
    assert!(!talk.item().tools.iter().any(|tool| tool.get().contains("\"continuation\"")), "no signal is offered");
    // Tools are not continuation: their results go back to the model.
    talk.reply("", &["{}"]);
    talk.results("found");
    talk.configure(switch(true), None);
    talk.reply(GO_ON, &[]);
    assert_eq!(talk.source(), "explicit");
    assert!(talk.item().tools.iter().any(|tool| tool.get().contains("\"continuation\"")));
}

#[test]
fn another_model_answers_from_the_next_call_on_and_own_settings_stay() {
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
        (recompose.model.as_str(), recompose.features.enable.as_slice()),
        ("other", &["mailbox".to_owned()][..])
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
fn a_fallback_answers_on_until_another_model_is_asked_for() {
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
fn what_cannot_be_used_is_refused_and_changes_nothing() {
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
fn what_needs_approval_is_settled_at_the_beginning() {
    let mut talk = Talk::cast(Cast { approvals: vec![rule("look", Approval::Always)], ..Cast::default() });
    // Composed anew, the agent's file says otherwise by now.
    let model = Configure { model: Some("other".to_owned()), ..Configure::default() };
    talk.configure(model, Some(Cast { approvals: vec![rule("look", Approval::Never)], ..Cast::default() }));
    talk.reply("", &[r#"{"path":"a"}"#]);
    assert_eq!(talk.session.gates().len(), 1);
}
