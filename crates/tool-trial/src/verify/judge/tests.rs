//! Observed replies, and the checks that follow.

use contract::tool::ApprovalPolicy;
use contract::{Json, ToolName};

use super::*;
use crate::tool_client::ToolReplica;
use crate::tool_reply::ProgressReply;
use crate::verify::Mark;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn answer(outcome: Result<&str, &str>) -> FinalReply {
    let text = outcome.unwrap_or_else(|error| error);
    let outcome = outcome.map(str::to_owned).map_err(|text| TrialError { text: text.to_owned(), is_unknown: false });
    FinalReply { outcome, bytes: text.len(), is_text: true, trace_id: None }
}

fn ok(text: &str) -> CallRecord {
    CallRecord { answers: vec![(ms(5), answer(Ok(text)))], waited: ms(5), ..CallRecord::default() }
}

fn error(text: &str) -> CallRecord {
    CallRecord { answers: vec![(ms(5), answer(Err(text)))], waited: ms(5), ..CallRecord::default() }
}

fn silence() -> CallRecord {
    CallRecord { waited: ms(2_000), ..CallRecord::default() }
}

fn no_subscriber() -> CallRecord {
    CallRecord { has_no_subscriber: true, ..CallRecord::default() }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: ToolName::new("t").unwrap(),
        description: "Does.".to_owned(),
        parameters: Json::parse(r#"{"type":"object","properties":{"a":{}}}"#).unwrap(),
        effect: EffectClass::Pure,
        approval: ApprovalPolicy::Never,
        timeout_ms: None,
        max_output: Some(10),
        instructions: None,
        version: "1.0.0".to_owned(),
    }
}

fn found(replicas: &[(&str, Result<ToolSpec, &str>)]) -> ToolReplicas {
    let replica = |(id, spec): &(&str, Result<ToolSpec, &str>)| ToolReplica {
        instance: ("t".to_owned(), (*id).to_owned()),
        spec: spec.clone().map_err(str::to_owned),
    };
    ToolReplicas {
        replicas: replicas.iter().map(replica).collect(),
        named_count: replicas.len(),
        pinged_count: replicas.len(),
    }
}

/// Compares the mark and a part of the finding.
fn check(check: &Check, mark: Mark, finding: &str) {
    assert_eq!(check.mark, mark, "{check:?}");
    assert!(check.finding.contains(finding), "{check:?}");
    assert!(check.hint.is_some() == matches!(mark, Mark::Note | Mark::Fail), "{check:?}");
}

#[test]
fn descriptions_valid_or_not_are_judged() {
    let (result, none) = check_description(&found(&[]));
    check(&result, Mark::Fail, "no service describes");
    assert_eq!(none, None);
    let bad = found(&[("1", Ok(spec())), ("2", Err("the queue group must be \"tools\""))]);
    check(&check_description(&bad).0, Mark::Fail, "queue group");
    let (result, spec_of) = check_description(&found(&[("1", Ok(spec()))]));
    check(&result, Mark::Pass, "pure, version 1.0.0, answers within 1 min 00 s");
    assert_eq!(spec_of, Some(spec()));
    let silent = ToolSpec { description: " ".to_owned(), ..spec() };
    check(&check_description(&found(&[("1", Ok(silent))])).0, Mark::Note, "without a description");

    check(&check_schema(&spec(), Ok(())), Mark::Pass, "a; 39 of 32768 bytes");
    check(&check_schema(&spec(), Err(&"broken".to_owned())), Mark::Fail, "broken");
    let loose = ToolSpec { parameters: Json::parse("{}").unwrap(), ..spec() };
    check(&check_schema(&loose, Ok(())), Mark::Note, "does not say");
    check(&check_catalogue(false), Mark::Note, "no executor");
}

#[test]
fn replicas_number_and_descriptions_are_judged() {
    let other = ToolSpec { version: "2.0.0".to_owned(), ..spec() };
    check(&check_replicas(&found(&[("1", Ok(spec()))])), Mark::Note, "one");
    check(&check_replicas(&found(&[("1", Ok(spec())), ("2", Ok(spec()))])), Mark::Pass, "2, which say the same");
    check(&check_replicas(&found(&[("1", Ok(spec())), ("2", Ok(other))])), Mark::Note, "differently");
    check(&check_replicas(&found(&[("1", Ok(spec())), ("1", Ok(spec()))])), Mark::Fail, "2 answers by 1 service id");
    let without_ping = ToolReplicas { pinged_count: 1, ..found(&[("1", Ok(spec())), ("2", Ok(spec()))]) };
    check(&check_replicas(&without_ping), Mark::Fail, "1 of 2 answer $SRV.PING");
    let elsewhere = ToolReplicas { named_count: 0, ..found(&[("1", Ok(spec()))]) };
    check(&check_replicas(&elsewhere), Mark::Fail, "0 of 1 say the same at $SRV.INFO.<tool>");
}

#[test]
fn valid_arguments_answer_is_judged() {
    check(&check_valid_arguments(&ok("3"), "{}", false, None), Mark::Pass, "{} → 3 (5 ms)");
    check(&check_valid_arguments(&error("no such file"), "{}", false, None), Mark::Note, "error: no such file");
    check(&check_valid_arguments(&error("no such file"), "{}", true, None), Mark::Fail, "error: no such file");
    for text in [
        "the result has 9 bytes, which is more than NATS carries",
        "nats: maximum payload exceeded",
        "'max_payload' size exceeded",
    ] {
        check(&check_valid_arguments(&error(text), "{}", false, None), Mark::Fail, text);
    }
    check(&check_valid_arguments(&silence(), "{}", false, None), Mark::Fail, "no answer within 2.0 s");
    let silent = check_valid_arguments(&silence(), "{}", false, Some("boom"));
    assert_eq!(silent.hint.as_deref(), Some("its statistics say: boom"));
    let mut binary = ok("\u{fffd}");
    binary.answers[0].1.is_text = false;
    check(&check_valid_arguments(&binary, "{}", false, None), Mark::Fail, "not text");
}

#[test]
fn invalid_call_must_be_refused() {
    let refusal = |record: &CallRecord| check_refusal("garbage", "no JSON", record);
    check(&refusal(&error("what?")), Mark::Pass, "no JSON → error: what?");
    let mut unsure = error("broke off");
    unsure.answers[0].1.outcome = Err(TrialError { text: "broke off".to_owned(), is_unknown: true });
    check(&refusal(&unsure), Mark::Note, "no JSON → unknown: broke off");
    check(&refusal(&ok("fine")), Mark::Note, "accepted: fine");
    check(&refusal(&silence()), Mark::Fail, "no answer within 2.0 s");
    check(&refusal(&no_subscriber()), Mark::Fail, "no process subscribes");
    check(&check_survival(&ok("3"), 2, 2), Mark::Pass, "as before");
    check(&check_survival(&ok("3"), 2, 1), Mark::Fail, "1 of 2 replicas");
    check(&check_survival(&no_subscriber(), 2, 0), Mark::Fail, "no process subscribes");
}

#[test]
fn redelivered_call_answers_are_compared() {
    use EffectClass::{Idempotent, Pure};
    let twice = |effect, first: &CallRecord, second: &CallRecord| check_redelivery("repeated", effect, first, second);
    check(&twice(Idempotent, &ok(r#"{"a":1,"b":2}"#), &ok(r#"{"b":2, "a":1}"#)), Mark::Pass, "same answers");
    check(&twice(Idempotent, &ok("1"), &ok("2")), Mark::Fail, "answered differently: 1, then 2");
    check(&twice(Idempotent, &ok("1"), &error("exists")), Mark::Fail, "then error: exists");
    check(&twice(Idempotent, &ok("1"), &silence()), Mark::Fail, "no answer");
    check(&twice(Pure, &ok("1"), &ok("2")), Mark::Pass, "both answered");
    check(&twice(Pure, &silence(), &ok("2")), Mark::Fail, "no answer");
}

#[test]
fn late_and_cancelled_calls_should_end_soon() {
    check(&check_deadline(&error("too late")), Mark::Pass, "error: too late");
    check(&check_deadline(&ok("1")), Mark::Pass, "answered nevertheless");
    let slow = CallRecord { answers: vec![(ms(4_000), answer(Ok("1")))], waited: ms(4_000), ..CallRecord::default() };
    check(&check_deadline(&slow), Mark::Note, "executed nevertheless (4.0 s)");
    check(&check_cancel(Some(ms(300)), &slow), Mark::Note, "answered 3.7 s after it: 1");
    check(&check_deadline(&silence()), Mark::Note, "no answer");
    let progress = |after| (ms(after), ProgressReply { text: "on".to_owned(), instance: None });
    let working = |after: &[u64]| CallRecord { progress: after.iter().copied().map(progress).collect(), ..silence() };
    check(&check_cancel(None, &ok("1")), Mark::Skip, "too fast");
    let mut stopped = working(&[100]);
    stopped.answers.push((ms(320), answer(Err("cancelled"))));
    check(&check_cancel(Some(ms(300)), &stopped), Mark::Pass, "answered 20 ms after it: error: cancelled");
    check(&check_cancel(Some(ms(300)), &working(&[100, 310])), Mark::Note, "no answer within 1.7 s");
    check(&check_cancel(Some(ms(300)), &working(&[100, 1_100])), Mark::Note, "the call goes on");
}

#[test]
fn all_replies_are_judged_together() {
    let mut two = ok("1");
    two.answers.push((ms(50), answer(Ok("2"))));
    check(&check_single_reply(&[&ok("1"), &silence()], 1), Mark::Pass, "2 calls");
    check(&check_single_reply(&[&ok("1"), &two], 1), Mark::Fail, "2 final replies");
    assert!(check_single_reply(&[&two], 2).hint.unwrap().contains("queue group"));
    check(&check_size(&[&ok("1"), &ok("1234567890")], &spec()), Mark::Pass, "at most 10 bytes");
    check(&check_size(&[&ok("12345678901")], &spec()), Mark::Note, "11 bytes of which the model reads 10");
    check(&check_progress(&[&ok("1")]), Mark::Skip, "sent none");
    let with_progress = |instance: Option<&str>| {
        let progress = ProgressReply { text: "half".to_owned(), instance: instance.map(str::to_owned) };
        CallRecord { progress: vec![(ms(1), progress)], ..ok("1") }
    };
    check(&check_progress(&[&with_progress(Some("t.1"))]), Mark::Pass, "half, from t.1");
    check(&check_progress(&[&with_progress(None)]), Mark::Note, "half, from an unnamed replica");
    let traced = |trace: &str| {
        let mut record = ok("1");
        record.answers[0].1.trace_id = Some(trace.to_owned());
        record
    };
    check(&check_trace(&ok("1"), "t"), Mark::Pass, "is answered");
    check(&check_trace(&traced("t"), "t"), Mark::Pass, "continues");
    check(&check_trace(&traced("u"), "t"), Mark::Note, "another trace id");
}
