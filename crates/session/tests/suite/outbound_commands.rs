//! Data that a session reports about itself to the orchestrator and for metrics.

use contract::ErrorCode;
use contract::command::{Features, MessageMode, Refusal, SendUserMessage, Start};
use contract::commit::{FOLD, Phase};
use contract::ids::CallAttempt;
use contract::model::{Content, ModelFinished};
use contract::settings::{ContinuationSettings, ModelSettings};
use session::audit::{Difference, audit};
use session::{Body, Session};

use crate::talk::{Cast, Talk};

fn send() -> Body {
    Body::Send(SendUserMessage::new(Content::Text("More.".to_owned()), MessageMode::Steer))
}

fn finished() -> Body {
    let json = r#"{"meta":{"v":1,"slot":0,"call":"m1-1","attempt":1},"text":"","finish_reason":"stop",
        "usage":{"input":0,"output":0,"cached":0,"reasoning":0},"cost_usd":0.0,"latency_ms":1}"#;
    Body::ModelFinished(Box::new(serde_json::from_str::<ModelFinished>(json).unwrap()))
}

#[test]
fn session_reports_agent_position_and_trace() {
    let not_started = Talk::not_started("s");
    assert_eq!((not_started.session.who(), not_started.session.position()), (("", ""), ("", 0, 0)));
    assert_eq!(not_started.session.traceparent(), None);

    let model = |id: &str| ModelSettings { id: id.to_owned(), multi_tool: true, ..ModelSettings::default() };
    let mut talk = Talk::cast(Cast { model: model("gold"), ..Cast::default() });
    assert_eq!((talk.session.who(), talk.session.position()), (("e", "gold"), ("e", 1, 1)));
    let begun = talk.session.traceparent().unwrap().to_owned();
    talk.reply("", &["{}"]);
    talk.results("found");
    talk.send_message("and that", MessageMode::Queue);
    assert_eq!(talk.session.position(), ("e", 1, 2));
    assert_eq!(talk.session.traceparent(), Some(begun.as_str()), "all of a turn stands under what began it");
    talk.reply("Done.", &[]);
    assert_eq!(talk.session.position(), ("e", 2, 1), "what waited begins the next one");
    talk.reply("Done.", &[]);
    assert_eq!(talk.session.position(), ("e", 2, 0), "between turns there is no step");
    talk.send_message("and more", MessageMode::Steer);
    assert_ne!(talk.session.traceparent(), Some(begun.as_str()));
}

#[test]
fn tools_are_resolved_only_where_a_turn_may_begin() {
    let start = || {
        let start = Start { prompt: Some(Content::Text("Do it.".to_owned())), ..Start::default() };
        Body::Start(Box::new(session::StartInput {
            start,
            history: Vec::new(),
            composed: Err(Refusal { code: ErrorCode::UnknownAgent, message: String::new() }),
        }))
    };
    let mut talk = Talk::begin(ContinuationSettings::default());
    let wants = |talk: &Talk, body: &Body| talk.session.wants_tools(body);
    assert!(wants(&talk, &start()));
    assert!(!wants(&talk, &send()) && !wants(&talk, &finished()) && !wants(&talk, &Body::Timer), "a turn runs");
    talk.send_message("next", MessageMode::Queue);
    assert!(wants(&talk, &finished()) && wants(&talk, &Body::Timer), "a turn that ends here lets the next one begin");
    talk.reply("Done.", &[]);
    talk.reply("Done.", &[]);
    assert!(wants(&talk, &send()) && !wants(&talk, &finished()), "none runs");
}

#[test]
fn configure_recomposes_only_for_model_or_features() {
    let talk = Talk::begin(ContinuationSettings::default());
    let configure = |model: Option<&str>, enable: &[&str]| contract::command::Configure {
        client_tools: None,
        agent: None,
        model: model.map(str::to_owned),
        features: Features { enable: enable.iter().map(ToString::to_string).collect(), disable: Vec::new() },
        continuation: Some(contract::command::ContinuationOverride::default()),
        ai_config: contract::AiConfig::default(),
    };
    assert_eq!(talk.session.recomposes(&configure(None, &[])), None);
    let asked = |configure| talk.session.recomposes(&configure).map(|asked| (asked.model, asked.features.enable));
    let own = ModelSettings::default().id;
    assert_eq!(asked(configure(Some("other"), &[])), Some((Some("other".to_owned()), Vec::new())));
    assert_eq!(asked(configure(None, &["mailbox"])), Some((Some(own), vec!["mailbox".to_owned()])));
}

#[test]
fn item_and_exported_transcript_hold_the_open_calls() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("I look.", &[r#"{"path":"a"}"#, r#"{"path":"b"}"#]);
    let open = talk.open()[0].clone();
    let item = talk.session.tool_item(&open).unwrap();
    assert_eq!((item.tool.as_str(), item.arguments.get()), ("look", r#"{"path":"a"}"#));
    assert!(talk.session.tool_item(&CallAttempt { attempt: open.attempt + 1, ..open.clone() }).is_none());
    assert!(talk.session.model_item(&open).is_none());
    // Taken over while a call is open: the call is answered there, under an id that is not ours.
    let taken = serde_json::to_value(talk.session.export_transcript()).unwrap();
    let roles: Vec<&str> = taken.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool"]);
    assert_eq!(taken[1]["tool_calls"][0]["id"], taken[2]["tool_call_id"]);
    assert_eq!(taken[1]["tool_calls"][1]["id"], taken[3]["tool_call_id"]);
    assert_ne!(taken[2]["tool_call_id"], taken[3]["tool_call_id"]);
    assert_ne!(taken[2]["tool_call_id"], open.call.as_str());
}

#[test]
fn audit_of_a_changed_log_reports_slot_and_difference() {
    type Change = fn(&mut contract::commit::Commit);
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("", &["{}"]);
    talk.send_message("and more", MessageMode::Steer);
    talk.results("found");
    talk.reply("Done.", &[]);
    let key = || contract::subject::SessionKey {
        tenant: contract::TenantId::new("acme").unwrap(),
        session: contract::SessionId::new("s").unwrap(),
    };
    let differs = |change: &dyn Fn(&mut contract::commit::Commit), at: Option<u64>| {
        let mut log = talk.log.clone();
        change(&mut log[3].1);
        audit(key(), &log, at).differs
    };
    assert_eq!(differs(&|_| {}, None), []);
    let changes: [(&str, Change); 5] = [
        ("phase", |commit| commit.meta.phase = Phase::Paused),
        ("open", |commit| commit.meta.open.clear()),
        ("seq", |commit| commit.meta.seq += 1),
        ("control_seq", |commit| commit.meta.control_seq += 1),
        ("snapshot", |commit| commit.snapshot = Some(contract::Json::parse("{}").unwrap())),
    ];
    for (what, change) in changes {
        assert_eq!(differs(&change, None), [Difference { slot: 3, what }]);
        assert_eq!(differs(&change, Some(2)), [], "it stops where it is asked to");
        assert_eq!(differs(&change, Some(3)).len(), 1);
    }
    // What an older fold knew less of is not held against it.
    let older = |commit: &mut contract::commit::Commit| {
        changes[4].1(commit);
        commit.meta.fold = FOLD - 1;
    };
    assert_eq!(differs(&older, None), []);
    // Three commands came, the last of them in the third slot.
    let control_seqs: Vec<u64> = talk.log.iter().map(|(_, commit)| commit.meta.control_seq).collect();
    assert_eq!(control_seqs, [1, 1, 3, 3, 3]);
    let at = audit(key(), &talk.log, Some(1)).session;
    assert_eq!((at.next_slot(), Session::new(key()).next_slot()), (2, 0));
}
