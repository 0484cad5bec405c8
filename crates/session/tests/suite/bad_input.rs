//! Input that is wrong for the session it comes to: each has a stable code and changes nothing.

use contract::command::{
    Answer, AnswerDecision, Configure, ContinuationOverride, Features, MessageMode, SendUserMessage, Verb,
};
use contract::ids::CallAttempt;
use contract::limits::ITERATIONS_MAX;
use contract::model::{Content, Part};
use contract::settings::{Cap, ContinuationSettings, LimitAction, LimitsOverride};
use contract::tool::Outcome;
use contract::{CallId, Json, Timestamp};
use session::Body;

use crate::talk::Talk;

type Send = fn(&mut Talk);
type Row = (&'static str, fn() -> Talk, &'static str, Send);

fn call(call: &str, attempt: u32) -> CallAttempt {
    CallAttempt { call: CallId::new(call).unwrap(), attempt }
}

/// Answers a gate; without a hash with one that no arguments have.
fn answer(talk: &mut Talk, gate: &str, sha256: &str, decision: AnswerDecision, more: impl FnOnce(&mut Answer)) {
    let sha256 = if sha256.is_empty() { "0".repeat(64) } else { sha256.to_owned() };
    let mut answer = Answer::new(CallId::new(gate).unwrap(), sha256, decision);
    more(&mut answer);
    talk.command(Verb::Answer, Body::Answer(answer));
}

fn send_message(talk: &mut Talk, content: Content, mode: MessageMode) {
    talk.command(Verb::SendUserMessage, Body::Send(SendUserMessage::new(content, mode)));
}

fn set(talk: &mut Talk, continuation: ContinuationOverride) {
    talk.configure(Configure { continuation: Some(continuation), ..Configure::default() }, None);
}

fn limits(limits: LimitsOverride) -> ContinuationOverride {
    ContinuationOverride { limits: Some(limits), ..ContinuationOverride::default() }
}

/// A session whose model waits, one whose calls run and wait for a person, and one at a limit.
fn thinking() -> Talk {
    Talk::begin(ContinuationSettings::default())
}

fn acting() -> Talk {
    let mut talk = thinking();
    talk.reply("", &[r#"{"path":"a"}"#, r#"{"act":"write"}"#]);
    talk
}

fn asking() -> Talk {
    let limited =
        ContinuationSettings { max_iterations: 1, on_limit: LimitAction::Ask, ..ContinuationSettings::default() };
    let mut talk = Talk::begin(limited);
    talk.reply(r#"{"response":"More.","continuation":{"status":"CONTINUE"}}"#, &[]);
    talk
}

/// The state without what every input leaves behind: its id, the time and the counters of the log.
fn meaning(talk: &Talk) -> serde_json::Value {
    let mut state: serde_json::Value = serde_json::from_str(talk.session.snapshot().get()).unwrap();
    let core = state["core"].as_object_mut().unwrap();
    for passes in ["slots", "updated", "control_seq", "commit"] {
        core.remove(passes).unwrap();
    }
    state.as_object_mut().unwrap().remove("handled");
    state
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table reads best whole")]
fn wrong_input_is_ignored_under_a_stable_code_and_changes_nothing() {
    use AnswerDecision::{Answer as ExpectedText, Approve, Deny};
    let rows: &[Row] = &[
        // Gates.
        ("answer, no gate", thinking, "gate_closed", |t| answer(t, "c1-1-1", "", Approve, |_| {})),
        ("answer, gate of a limit that is not reached", thinking, "gate_closed", |t| {
            answer(t, "limit-1-1", "", Approve, |_| {});
        }),
        ("answer, a call that needs none", acting, "gate_closed", |t| answer(t, "c1-1-1", "", Approve, |_| {})),
        ("answer, a call of the reply that is not there", acting, "gate_closed", |t| {
            answer(t, "c1-1-9", "", Deny, |_| {});
        }),
        ("answer, no hash", acting, "bad_request", |t| answer(t, "c1-1-2", "", Approve, |_| {})),
        ("answer, `answer` to an approval", acting, "bad_request", |t| t.answer(ExpectedText)),
        ("answer, `deny` with arguments", acting, "bad_request", |t| {
            t.answer_with(Deny, |answer| answer.arguments = Json::parse("{}").ok());
        }),
        ("answer, arguments that are a list", acting, "bad_request", |t| {
            t.answer_with(Approve, |answer| answer.arguments = Json::parse("[]").ok());
        }),
        ("answer, another limit's hash", asking, "bad_request", |t| answer(t, "limit-1-1", "0", Approve, |_| {})),
        ("answer, `answer` to a limit", asking, "bad_request", |t| t.answer(ExpectedText)),
        ("answer, the limit's second gate", asking, "gate_closed", |t| answer(t, "limit-1-2", "", Deny, |_| {})),
        // Reports of workers.
        ("result, no such call", thinking, "not_now", |t| {
            t.result_of("r", call("c1-1-1", 1), Outcome::Ok, "x");
        }),
        ("result, a model call", thinking, "not_now", |t| t.result_of("r", call("m1-1", 1), Outcome::Ok, "x")),
        ("result, attempt 0", acting, "not_now", |t| t.result_of("r", call("c1-1-1", 0), Outcome::Ok, "x")),
        ("result, an attempt to come", acting, "not_now", |t| t.result_of("r", call("c1-1-1", 2), Outcome::Ok, "x")),
        ("result, a call that waits for a person", acting, "not_now", |t| {
            t.result_of("r", call("c1-1-2", 1), Outcome::Ok, "x");
        }),
        ("extension, no such call", thinking, "not_now", |t| t.extend(&call("c1-1-1", 1), Timestamp::from_millis(1))),
        ("extension, another attempt", acting, "not_now", |t| {
            t.extend(&call("c1-1-1", 2), Timestamp::from_millis(u64::MAX));
        }),
        ("extension, an earlier deadline", acting, "not_now", |t| {
            t.extend(&call("c1-1-1", 1), Timestamp::from_millis(1));
        }),
        ("reply, another step", thinking, "not_now", |t| t.reply_to(CallId::model(1, 2), "x")),
        ("reply, a tool call", acting, "not_now", |t| t.reply_to(CallId::new("c1-1-1").unwrap(), "x")),
        ("reply, attempt 0", thinking, "not_now", |t| t.reply_of(0, "x")),
        ("reply, an attempt to come", thinking, "not_now", |t| t.reply_of(2, "x")),
        ("failure, an attempt to come", thinking, "not_now", |t| t.fail_of(2)),
        // Messages.
        ("message, no byte", thinking, "empty_message", |t| {
            send_message(t, Content::Text(String::new()), MessageMode::Steer);
        }),
        ("message, spaces", acting, "empty_message", |t| {
            send_message(t, Content::Text(" \n\t".to_owned()), MessageMode::Interrupt);
        }),
        ("message, no part", thinking, "empty_message", |t| {
            send_message(t, Content::Parts(Vec::new()), MessageMode::Queue);
        }),
        ("message, empty parts", thinking, "empty_message", |t| {
            send_message(t, Content::Parts(vec![Part::Text { text: String::new() }]), MessageMode::Steer);
        }),
        // Control.
        ("resume without a pause", thinking, "not_now", Talk::resume),
        ("clear while a turn runs", thinking, "not_now", Talk::clear),
        // Settings.
        ("configure, nothing", thinking, "bad_request", |t| t.configure(Configure::default(), None)),
        ("configure, no setting", thinking, "bad_request", |t| set(t, ContinuationOverride::default())),
        ("configure, no limit", thinking, "bad_request", |t| set(t, limits(LimitsOverride::default()))),
        ("configure, no step", thinking, "bad_request", |t| {
            set(t, ContinuationOverride { max_iterations: Some(0), ..ContinuationOverride::default() });
        }),
        ("configure, too many steps", thinking, "bad_request", |t| {
            let steps = Some(ITERATIONS_MAX + 1);
            set(t, ContinuationOverride { max_iterations: steps, ..ContinuationOverride::default() });
        }),
        ("configure, no second", thinking, "bad_request", |t| {
            set(t, ContinuationOverride { timeout: Some(0), ..ContinuationOverride::default() });
        }),
        ("configure, no token", thinking, "bad_request", |t| {
            set(t, limits(LimitsOverride { tokens: Cap::At(0), ..LimitsOverride::default() }));
        }),
        ("configure, no tool call", thinking, "bad_request", |t| {
            set(t, limits(LimitsOverride { tool_calls: Cap::At(0), ..LimitsOverride::default() }));
        }),
        ("configure, debts", thinking, "bad_request", |t| {
            set(t, limits(LimitsOverride { cost_usd: Cap::At(-1.0), ..LimitsOverride::default() }));
        }),
        ("configure, a pattern that is none", thinking, "bad_request", |t| {
            let patterns = Some(vec!["(".to_owned()]);
            set(t, ContinuationOverride { termination_patterns: patterns, ..ContinuationOverride::default() });
        }),
        ("configure, a feature on and off", thinking, "bad_request", |t| {
            let both = vec!["mailbox".to_owned()];
            let features = Features { enable: both.clone(), disable: both };
            t.configure(Configure { features, ..Configure::default() }, None);
        }),
    ];
    let mut wrong = Vec::new();
    for (what, session, code, send) in rows {
        let mut talk = session();
        let before = (meaning(&talk), talk.session.outstanding());
        send(&mut talk);
        let changed = (meaning(&talk), talk.session.outstanding()) != before;
        if talk.refused() != Some(*code) || changed {
            wrong.push(format!("{what}: {:?}, changed {changed}", talk.refused()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
