//! `delegate`: two sessions and what goes between them, in every order.

use std::time::Duration;

use contract::command::{AnswerDecision, Refusal, Start, Verb};
use contract::commit::Phase;
use contract::event::{Event, InputIgnored, InputKind, InputRef, Spent};
use contract::limits::{ARCHIVE_AFTER, HANDLED_IDS_MAX};
use contract::model::Usage;
use contract::settings::{ContinuationSettings, LimitAction, Limits};
use contract::tool::Outcome;
use contract::{CommandId, ErrorCode, Timestamp};
use session::{Decision, SessionEffect};

use crate::talk::{Cast, Talk, rule};

const ASK: &str = r#"{"agent":"p","task":"Plan it."}"#;
const ASK_OTHER: &str = r#"{"agent":"q","task":"Check it."}"#;

fn parent(limits: Limits) -> Talk {
    Talk::begin(ContinuationSettings { timeout: 600, limits, ..ContinuationSettings::default() })
}

/// The start of the child that performs the only open call.
fn start_of(parent: &Talk) -> (String, Start) {
    let call = parent.open()[0].clone();
    assert!(parent.session.outstanding().contains(&SessionEffect::StartChild(call.clone())));
    let word = parent.session.child_start(&call).unwrap();
    assert_eq!((word.verb, word.id.as_str()), (Verb::Start, "start"));
    assert!(word.body.body.agent.is_some());
    (word.to.session.to_string(), word.body.body)
}

fn planner() -> Cast {
    Cast { agent: "p", ..Cast::default() }
}

/// A parent whose child has begun.
fn pair(limits: Limits) -> (Talk, Talk) {
    let mut parent = parent(limits);
    parent.reply("", &[ASK]);
    let (session, start) = start_of(&parent);
    let mut child = Talk::not_started(&session);
    child.now = parent.now;
    child.start("start", start, Ok(planner()));
    (parent, child)
}

fn outcome(talk: &Talk) -> (Outcome, String) {
    let result = talk.events.iter().rev().find_map(|event| match event {
        Event::ToolCallResult(result) => Some((result.outcome, result.content.clone())),
        _ => None,
    });
    result.unwrap()
}

#[test]
fn child_ended_call_gets_its_result() {
    let (mut parent, mut child) = pair(Limits::default());
    assert!(child.item().messages[1].get().contains("Plan it."));
    assert_eq!(start_of(&parent).1.agent.unwrap().as_str(), "p");
    assert_eq!(child.session.summary().parent.unwrap().as_str(), "s");
    child.reply_that_cost("The plan.", &[], Usage { input: 7, output: 3, ..Usage::default() }, 0.25);
    assert_eq!(child.session.phase(), Phase::Ended);
    assert!(
        child.effects.contains(&SessionEffect::ReportToParent)
            && child.session.outstanding().contains(&SessionEffect::ReportToParent)
    );
    parent.receive_result(child.session.parent_report().unwrap());
    let (outcome, content) = outcome(&parent);
    assert_eq!(outcome, Outcome::Ok);
    assert!(content.contains("The plan.") && content.contains("completed"), "{content}");
    assert_eq!(parent.session.summary().spent.usage.total(), 10, "the parent pays");
    assert!(parent.call().is_some(), "its next step begins");
    parent.reply("Done.", &[]);
    assert_eq!(parent.stop_reason(), Some("completed"));
}

/// Commits so many refused inputs that the session forgets all that it has handled before.
fn forget_inputs(talk: &mut Talk) {
    let refused = |number: usize| {
        Event::InputIgnored(InputIgnored {
            input: InputRef { kind: InputKind::Timer, id: CommandId::new(&number.to_string()).unwrap() },
            control_seq: None,
            control_at: None,
            refusal: Refusal { code: ErrorCode::NotNow, message: "the timer was set anew".to_owned() },
            usage: None,
            call: None,
            late: None,
            parent_command_number: None,
            parent: None,
        })
    };
    let events = (1_000_000..1_000_000 + HANDLED_IDS_MAX).map(refused).collect();
    let decision = Decision { at: Timestamp::from_millis(talk.now), events, effects: Vec::new() };
    talk.commit(&decision);
}

#[test]
fn report_comes_again_after_its_id_was_forgotten_costs_count_once() {
    let (mut parent, mut child) = pair(Limits::default());
    child.reply_that_cost("The plan.", &[], Usage { input: 7, output: 3, ..Usage::default() }, 0.25);
    let report = child.session.parent_report().unwrap();
    parent.receive_result(report.clone());
    let spent = parent.session.summary().spent;
    assert_eq!(spent.usage.total(), 10);
    forget_inputs(&mut parent);
    parent.receive_result(report);
    assert_eq!(parent.session.summary().spent, spent);
}

#[test]
fn report_of_a_child_that_was_called_off_counts_once() {
    let (mut parent, mut child) = pair(Limits::default());
    let call = parent.open()[0].call.clone();
    parent.stop();
    child.reply_that_cost("The plan.", &[ASK_OTHER], Usage { input: 7, output: 3, ..Usage::default() }, 0.25);
    child.receive(parent.session.child_command(&call).unwrap());
    let report = child.session.parent_report().unwrap();
    for _ in 0..2 {
        parent.receive_result(report.clone());
        assert_eq!(parent.session.summary().spent.usage.total(), 10);
        forget_inputs(&mut parent);
    }
}

#[test]
fn archived_child_owes_no_report() {
    let (_, mut child) = pair(Limits::default());
    child.reply("The plan.", &[]);
    assert!(child.session.outstanding().contains(&SessionEffect::ReportToParent));
    child.wait(ARCHIVE_AFTER);
    assert!(child.session.is_archived() && !child.effects.contains(&SessionEffect::ReportToParent));
    assert!(!child.session.outstanding().contains(&SessionEffect::ReportToParent));
}

#[test]
fn parent_and_child_name_their_own_spend_beside_that_of_the_subtree() {
    let (mut parent, mut child) = pair(Limits::default());
    child.reply_that_cost("The plan.", &[], Usage { input: 7, output: 3, ..Usage::default() }, 0.25);
    parent.receive_result(child.session.parent_report().unwrap());
    parent.reply_that_cost("Done.", &[], Usage { input: 100, ..Usage::default() }, 0.5);
    let usd = |spent: Spent| spent.cost_usd;
    let figures = |talk: &Talk| {
        let summary = talk.session.summary();
        (usd(summary.spent), summary.spent_own.map(usd))
    };
    assert_eq!((figures(&parent), figures(&child)), ((0.75, Some(0.5)), (0.25, Some(0.25))));
    let ended = parent.events.iter().find_map(|event| match event {
        Event::TurnCompleted(completed) => Some((usd(completed.spent), completed.spent_own.map(usd))),
        _ => None,
    });
    assert_eq!(ended, Some((0.75, Some(0.5))), "the turn names both, and its limits count the first");
}

#[test]
fn session_of_which_an_older_version_ran_a_part_does_not_name_its_own_spend() {
    let (parent, _) = pair(Limits::default());
    let mut log = parent.log.clone();
    log[0].1.meta.fold = 12;
    let key = parent.session.key();
    let read = session::Session::replay(key, &log[..1]).unwrap();
    assert_eq!(read.summary().spent_own, None);
    assert!(!serde_json::to_string(&read.summary()).unwrap().contains("spent_own"), "it is no figure, and not zero");
}

#[test]
fn same_call_performed_by_any_replica_starts_the_same_child() {
    let (parent, _) = pair(Limits::default());
    let again: session::Session = serde_json::from_str(parent.session.snapshot().get()).unwrap();
    let call = parent.open()[0].clone();
    assert_eq!(again.child_start(&call), parent.session.child_start(&call));
    assert!(again.tool_item(&call).is_none(), "no executor gets it");
}

#[test]
fn delegation_in_a_circle_too_deep_or_malformed_is_refused() {
    for (arguments, code) in [
        (r#"{"agent":"e","task":"again"}"#, ErrorCode::DelegationRefused),
        (r#"{"agent":"p","task":"  "}"#, ErrorCode::InvalidArguments),
        (r#"{"agent":"P!","task":"x"}"#, ErrorCode::InvalidArguments),
        (r#"{"agent":"p"}"#, ErrorCode::InvalidArguments),
        (r#"{"agent":"p","task":"x","model":"gold"}"#, ErrorCode::InvalidArguments),
    ] {
        let mut talk = parent(Limits::default());
        talk.reply("", &[arguments]);
        let found = talk.events.iter().rev().find_map(|event| match event {
            Event::ToolCallResult(result) => Some((result.outcome, result.code.clone())),
            _ => None,
        });
        assert_eq!(found, Some((Outcome::Error, Some(code))), "{arguments}");
        assert!(talk.call().is_some(), "the model reads it");
    }

    // An alias hides a circle until the child is composed; then the parent is commanded.
    let mut talk = parent(Limits::default());
    talk.reply("", &[r#"{"agent":"eamonn","task":"again"}"#]);
    let (session, start) = start_of(&talk);
    let mut child = Talk::not_started(&session);
    child.start("start", start, Ok(Cast::default()));
    assert_eq!(child.effects, [SessionEffect::ReportToParent]);
    talk.receive_result(child.session.parent_report().unwrap());
    let (outcome_, content) = outcome(&talk);
    assert!(outcome_ == Outcome::Error && content.contains("delegation_refused"), "{content}");

    // Five may stand above, not six.
    let (_, mut child) = pair(Limits::default());
    for (depth, agent) in ["q", "r", "u", "v", "w"].into_iter().enumerate() {
        let call = format!(r#"{{"agent":"{agent}","task":"deeper"}}"#);
        child.reply("", &[&call]);
        if depth == 4 {
            assert_eq!(outcome(&child).0, Outcome::Error);
            return;
        }
        let (session, start) = start_of(&child);
        child = Talk::not_started(&session);
        child.start("start", start, Ok(Cast { agent, ..Cast::default() }));
    }
}

#[test]
fn child_that_cannot_start_gives_a_result() {
    let (mut parent, _) = pair(Limits::default());
    let (session, start) = start_of(&parent);
    let mut child = Talk::not_started(&session);
    let refusal = Refusal { code: ErrorCode::UnknownAgent, message: "there is no agent p; there are a, e".to_owned() };
    child.start("start", start, Err(refusal));
    assert!(child.session.outstanding().contains(&SessionEffect::ReportToParent));
    parent.receive_result(child.session.parent_report().unwrap());
    let (outcome, content) = outcome(&parent);
    assert!(outcome == Outcome::Error && content.contains("there is no agent p"), "{content}");
}

#[test]
fn stop_and_pause_reach_children_and_late_commands_are_ignored() {
    let (mut parent, mut child) = pair(Limits::default());
    parent.pause();
    let call = parent.open()[0].call.clone();
    let pause = parent.session.child_command(&call).unwrap();
    assert_eq!((pause.verb, pause.body.meta.parent_command_number), (Verb::Pause, Some(1)));
    parent.resume();
    let resume = parent.session.child_command(&call).unwrap();
    // The words overtake each other.
    child.receive(resume);
    child.receive(pause);
    assert_eq!(child.session.phase(), Phase::Running, "an older word undoes no newer one");
    parent.stop();
    assert_eq!(parent.session.phase(), Phase::Ended);
    assert!(parent.session.outstanding().contains(&SessionEffect::CommandChild(call.clone())), "also after a reload");
    child.receive(parent.session.child_command(&call).unwrap());
    assert_eq!(child.session.phase(), Phase::Ended);
    let late = child.session.parent_report().unwrap();
    assert_eq!(late.body.outcome, Outcome::Cancelled);
    parent.receive_result(late);
    assert!(!parent.session.outstanding().contains(&SessionEffect::CommandChild(call)), "it has answered");
}

#[test]
fn parent_commands_out_of_order_the_last_one_counts() {
    let (mut parent, mut child) = pair(Limits::default());
    let call = parent.open()[0].call.clone();
    let mut words = Vec::new();
    for pauses in [true, false, true] {
        if pauses {
            parent.pause();
        } else {
            parent.resume();
        }
        words.push(parent.session.child_command(&call).unwrap());
    }
    let [first, second, third] = <[_; 3]>::try_from(words).unwrap();
    for word in [first, third, second] {
        child.receive(word);
    }
    assert_eq!(child.session.phase(), Phase::Paused);
}

#[test]
fn stop_commands_children_and_cancels_tools() {
    let mut talk = parent(Limits::default());
    talk.reply("", &["{}", ASK]);
    talk.pause();
    talk.stop();
    let commanded: Vec<String> = talk
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ChildCommanded(commanded) => Some(format!("{} {}", commanded.verb, commanded.call)),
            Event::CallCancelled(cancelled) => Some(format!("cancelled {}", cancelled.call)),
            _ => None,
        })
        .collect();
    assert_eq!(commanded, ["pause c1-1-2", "cancelled c1-1-1", "stop c1-1-2"]);
}

#[test]
fn parent_command_before_start_takes_effect() {
    for (verb, phase) in [(Verb::Stop, Phase::Ended), (Verb::Pause, Phase::Paused)] {
        let (mut parent, _) = pair(Limits::default());
        let (session, start) = start_of(&parent);
        let call = parent.open()[0].call.clone();
        match verb {
            Verb::Stop => parent.stop(),
            _ => parent.pause(),
        }
        let mut child = Talk::not_started(&session);
        child.receive(parent.session.child_command(&call).unwrap());
        child.start("start", start, Ok(planner()));
        assert_eq!(child.session.phase(), phase, "{verb}");
        assert!(child.open().is_empty(), "{verb}: no call opens");
        assert_eq!(child.session.parent_report().is_some(), verb == Verb::Stop);
    }
}

#[test]
fn remaining_budget_is_divided_among_children() {
    let limits = Limits { tokens: Some(1_000), cost_usd: Some(1.0), tool_calls: Some(12), ..Limits::default() };
    let mut parent = parent(limits);
    let usage = Usage { input: 150, output: 50, ..Usage::default() };
    parent.reply_that_cost("", &[ASK, r#"{"agent":"t","task":"Test it."}"#], usage, 0.2);
    let starts: Vec<Start> =
        parent.open().iter().map(|call| parent.session.child_start(call).unwrap().body.body).collect();
    for start in &starts {
        let share = start.parent.as_ref().unwrap().share;
        assert_eq!((share.tokens, share.tool_calls), (Some(400), Some(5)));
        assert!((share.cost_usd.unwrap() - 0.4).abs() < 1e-9);
        assert_eq!(share.timeout, Some(600), "no longer than the parent's turn");
    }
    let mut child = Talk::not_started("c");
    child.now = parent.now;
    let own = Limits { tokens: Some(90_000), tool_calls: Some(2), ..Limits::default() };
    let continuation = ContinuationSettings { limits: own, timeout: 900, ..ContinuationSettings::default() };
    child.start("start", starts[0].clone(), Ok(Cast { agent: "p", continuation, ..Cast::default() }));
    let settings = child.events.iter().find_map(|event| match event {
        Event::SessionStarted(started) => Some(started.agent.continuation.clone()),
        _ => None,
    });
    let settings = settings.unwrap();
    assert_eq!((settings.limits.tokens, settings.limits.tool_calls, settings.timeout), (Some(400), Some(2), 600));
    child.reply_that_cost("More.", &["{}"], Usage { input: 400, ..Usage::default() }, 0.1);
    child.results("found");
    assert_eq!(child.stop_reason(), Some("token_limit"));
    let report = child.session.parent_report().unwrap();
    assert_eq!(report.body.outcome, Outcome::Error, "a limit is no success");
    assert_eq!(
        report.body.used.unwrap().spent,
        Spent { usage: Usage { input: 400, ..Usage::default() }, cost_usd: 0.1 }
    );
}

#[test]
fn child_that_never_commits_times_out() {
    let (mut parent, _) = pair(Limits::default());
    // The turn's time: its call cannot take longer.
    parent.wait(Duration::from_secs(599));
    assert_eq!(parent.stop_reason(), None);
    parent.wait(Duration::from_secs(30));
    parent.last_word();
    assert_eq!((parent.stop_reason(), outcome(&parent).0), (Some("timeout"), Outcome::Unknown));
    let commanded = parent
        .events
        .iter()
        .any(|event| matches!(event, Event::ChildCommanded(commanded) if commanded.verb == Verb::Stop));
    assert!(commanded, "the child is commanded to stop");
}

#[test]
fn pause_shifts_the_deadline_of_a_child() {
    let (mut parent, mut child) = pair(Limits::default());
    parent.pause();
    parent.wait(Duration::from_hours(3));
    assert_eq!(parent.stop_reason(), None);
    parent.resume();
    parent.wait(Duration::from_secs(500));
    assert_eq!(parent.stop_reason(), None, "the child has its time");
    child.reply("The plan.", &[]);
    parent.receive_result(child.session.parent_report().unwrap());
    assert_eq!(outcome(&parent).0, Outcome::Ok);
}

#[test]
fn granted_budget_is_divided_among_children() {
    let limits = Limits { cost_usd: Some(1.0), ..Limits::default() };
    let asking =
        ContinuationSettings { timeout: 600, limits, on_limit: LimitAction::Ask, ..ContinuationSettings::default() };
    let mut talk = Talk::begin(asking);
    talk.reply_that_cost("", &["{}"], Usage::default(), 1.25);
    talk.results("found");
    talk.answer(AnswerDecision::Approve);
    talk.reply("", &[ASK]);
    assert_eq!(start_of(&talk).1.parent.unwrap().share.cost_usd, Some(0.75));
}

#[test]
fn child_task_changed_to_invalid_arguments_is_refused() {
    let delegate = rule(contract::tool::DELEGATE, contract::tool::ApprovalPolicy::Always);
    let mut talk = Talk::cast(Cast { approvals: vec![delegate], ..Cast::default() });
    talk.reply("", &[r#"{"agent":"p","task":"find it"}"#]);
    let approve = |talk: &mut Talk, arguments: &str| {
        let changed = contract::Json::parse(arguments).unwrap();
        talk.answer_with(AnswerDecision::Approve, |answer| answer.arguments = Some(changed));
    };
    for bad in ["{}", r#"{"agent":"p"}"#, r#"{"agent":"../p","task":"find it"}"#] {
        approve(&mut talk, bad);
        assert!(talk.refused().is_some(), "{bad}");
        assert_eq!(talk.session.gates().len(), 1, "{bad}");
    }
    approve(&mut talk, r#"{"agent":"p","task":"find the other one"}"#);
    assert!(talk.session.gates().is_empty());
}
