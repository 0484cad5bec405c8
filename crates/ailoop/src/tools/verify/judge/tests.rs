//! What was seen, and what is made of it.

use contract::tool::Approval;
use contract::{Json, ToolName};

use super::*;
use crate::tools::ask::Replica;
use crate::tools::reply::Progress;
use crate::tools::verify::Mark;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn answer(outcome: Result<&str, &str>) -> Answer {
    let text = outcome.unwrap_or_else(|error| error);
    let outcome = outcome.map(str::to_owned).map_err(|text| Wrong { text: text.to_owned(), unknown: false });
    Answer { outcome, bytes: text.len(), is_text: true, trace: None }
}

fn ok(text: &str) -> Seen {
    Seen { answers: vec![(ms(5), answer(Ok(text)))], waited: ms(5), ..Seen::default() }
}

fn error(text: &str) -> Seen {
    Seen { answers: vec![(ms(5), answer(Err(text)))], waited: ms(5), ..Seen::default() }
}

fn silence() -> Seen {
    Seen { waited: ms(2_000), ..Seen::default() }
}

fn nobody() -> Seen {
    Seen { nobody: true, ..Seen::default() }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: ToolName::new("t").unwrap(),
        description: "Does.".to_owned(),
        parameters: Json::parse(r#"{"type":"object","properties":{"a":{}}}"#).unwrap(),
        effect: EffectClass::Pure,
        approval: Approval::Never,
        timeout_ms: None,
        max_output: Some(10),
        instructions: None,
        version: "1.0.0".to_owned(),
    }
}

fn found(replicas: &[(&str, Result<ToolSpec, &str>)]) -> Found {
    let replica = |(id, said): &(&str, Result<ToolSpec, &str>)| Replica {
        instance: ("t".to_owned(), (*id).to_owned()),
        said: said.clone().map_err(str::to_owned),
    };
    Found { replicas: replicas.iter().map(replica).collect(), named: replicas.len(), pinged: replicas.len() }
}

/// The mark, and a part of what is told.
fn check(check: &Check, mark: Mark, told: &str) {
    assert_eq!(check.mark, mark, "{check:?}");
    assert!(check.told.contains(told), "{check:?}");
    assert!(check.hint.is_some() == matches!(mark, Mark::Note | Mark::Fail), "{check:?}");
}

#[test]
fn descriptions() {
    let (said, none) = described(&found(&[]));
    check(&said, Mark::Fail, "nobody says");
    assert_eq!(none, None);
    let bad = found(&[("1", Ok(spec())), ("2", Err("the queue group must be \"tools\""))]);
    check(&described(&bad).0, Mark::Fail, "queue group");
    let (said, spec_of) = described(&found(&[("1", Ok(spec()))]));
    check(&said, Mark::Pass, "pure, version 1.0.0, answers within 1 min 00 s");
    assert_eq!(spec_of, Some(spec()));
    let mute = ToolSpec { description: " ".to_owned(), ..spec() };
    check(&described(&found(&[("1", Ok(mute))])).0, Mark::Note, "without a description");

    check(&schema(&spec(), Ok(())), Mark::Pass, "a; 39 of 32768 bytes");
    check(&schema(&spec(), Err(&"broken".to_owned())), Mark::Fail, "broken");
    let loose = ToolSpec { parameters: Json::parse("{}").unwrap(), ..spec() };
    check(&schema(&loose, Ok(())), Mark::Note, "does not say");
    check(&catalogue(false), Mark::Note, "no executor");
}

#[test]
fn how_many_serve_it() {
    let other = ToolSpec { version: "2.0.0".to_owned(), ..spec() };
    check(&replicas(&found(&[("1", Ok(spec()))])), Mark::Note, "one");
    check(&replicas(&found(&[("1", Ok(spec())), ("2", Ok(spec()))])), Mark::Pass, "2, which say the same");
    check(&replicas(&found(&[("1", Ok(spec())), ("2", Ok(other))])), Mark::Note, "differently");
    check(&replicas(&found(&[("1", Ok(spec())), ("1", Ok(spec()))])), Mark::Fail, "2 answers by 1 service id");
    let deaf = Found { pinged: 1, ..found(&[("1", Ok(spec())), ("2", Ok(spec()))]) };
    check(&replicas(&deaf), Mark::Fail, "1 of 2 answer $SRV.PING");
    let elsewhere = Found { named: 0, ..found(&[("1", Ok(spec()))]) };
    check(&replicas(&elsewhere), Mark::Fail, "0 of 1 say the same at $SRV.INFO.<tool>");
}

#[test]
fn arguments_that_fit() {
    check(&fitting(&ok("3"), "{}", false, None), Mark::Pass, "{} → 3 (5 ms)");
    check(&fitting(&error("no such file"), "{}", false, None), Mark::Note, "error: no such file");
    check(&fitting(&error("no such file"), "{}", true, None), Mark::Fail, "error: no such file");
    for text in [
        "the result has 9 bytes, which is more than NATS carries",
        "nats: maximum payload exceeded",
        "'max_payload' size exceeded",
    ] {
        check(&fitting(&error(text), "{}", false, None), Mark::Fail, text);
    }
    check(&fitting(&silence(), "{}", false, None), Mark::Fail, "no answer within 2.0 s");
    let mute = fitting(&silence(), "{}", false, Some("boom"));
    assert_eq!(mute.hint.as_deref(), Some("its statistics say: boom"));
    let mut binary = ok("\u{fffd}");
    binary.answers[0].1.is_text = false;
    check(&fitting(&binary, "{}", false, None), Mark::Fail, "no text");
}

#[test]
fn arguments_that_do_not() {
    let refused = |seen: &Seen| refused("garbage", "no JSON", seen);
    check(&refused(&error("what?")), Mark::Pass, "no JSON → error: what?");
    let mut unsure = error("broke off");
    unsure.answers[0].1.outcome = Err(Wrong { text: "broke off".to_owned(), unknown: true });
    check(&refused(&unsure), Mark::Note, "no JSON → unknown: broke off");
    check(&refused(&ok("fine")), Mark::Note, "taken: fine");
    check(&refused(&silence()), Mark::Fail, "no answer within 2.0 s");
    check(&refused(&nobody()), Mark::Fail, "nobody is there");
    check(&still_there(&ok("3"), 2, 2), Mark::Pass, "as before");
    check(&still_there(&ok("3"), 2, 1), Mark::Fail, "1 of 2 replicas");
    check(&still_there(&nobody(), 2, 0), Mark::Fail, "nobody is there");
}

#[test]
fn the_same_call_twice() {
    use EffectClass::{Idempotent, Pure};
    let twice = |effect, first: &Seen, again: &Seen| repeated("repeated", effect, first, again);
    check(&twice(Idempotent, &ok(r#"{"a":1,"b":2}"#), &ok(r#"{"b":2, "a":1}"#)), Mark::Pass, "alike");
    check(&twice(Idempotent, &ok("1"), &ok("2")), Mark::Fail, "answered differently: 1, then 2");
    check(&twice(Idempotent, &ok("1"), &error("exists")), Mark::Fail, "then error: exists");
    check(&twice(Idempotent, &ok("1"), &silence()), Mark::Fail, "no answer");
    check(&twice(Pure, &ok("1"), &ok("2")), Mark::Pass, "both answered");
    check(&twice(Pure, &silence(), &ok("2")), Mark::Fail, "no answer");
}

#[test]
fn when_nobody_waits() {
    check(&late(&error("too late")), Mark::Pass, "error: too late");
    check(&late(&ok("1")), Mark::Pass, "answered anyway");
    let slow = Seen { answers: vec![(ms(4_000), answer(Ok("1")))], waited: ms(4_000), ..Seen::default() };
    check(&late(&slow), Mark::Note, "worked all the same (4.0 s)");
    check(&cancelled(Some(ms(300)), &slow), Mark::Note, "answered 3.7 s after it: 1");
    check(&late(&silence()), Mark::Note, "no answer");
    let progress = |after| (ms(after), Progress { text: "on".to_owned(), instance: None });
    let working = |after: &[u64]| Seen { progress: after.iter().copied().map(progress).collect(), ..silence() };
    check(&cancelled(None, &ok("1")), Mark::Skip, "too fast");
    let mut stopped = working(&[100]);
    stopped.answers.push((ms(320), answer(Err("cancelled"))));
    check(&cancelled(Some(ms(300)), &stopped), Mark::Pass, "answered 20 ms after it: error: cancelled");
    check(&cancelled(Some(ms(300)), &working(&[100, 310])), Mark::Note, "no answer within 1.7 s");
    check(&cancelled(Some(ms(300)), &working(&[100, 1_100])), Mark::Note, "the call goes on");
}

#[test]
fn all_replies_together() {
    let mut two = ok("1");
    two.answers.push((ms(50), answer(Ok("2"))));
    check(&single(&[&ok("1"), &silence()], 1), Mark::Pass, "2 calls");
    check(&single(&[&ok("1"), &two], 1), Mark::Fail, "2 final replies");
    assert!(single(&[&two], 2).hint.unwrap().contains("queue group"));
    check(&size(&[&ok("1"), &ok("1234567890")], &spec()), Mark::Pass, "at most 10 bytes");
    check(&size(&[&ok("12345678901")], &spec()), Mark::Note, "11 bytes of which the model reads 10");
    check(&progress(&[&ok("1")]), Mark::Skip, "none");
    let told = |instance: Option<&str>| {
        let progress = Progress { text: "half".to_owned(), instance: instance.map(str::to_owned) };
        Seen { progress: vec![(ms(1), progress)], ..ok("1") }
    };
    check(&progress(&[&told(Some("t.1"))]), Mark::Pass, "half, from t.1");
    check(&progress(&[&told(None)]), Mark::Note, "half, from somebody");
    let traced = |trace: &str| {
        let mut seen = ok("1");
        seen.answers[0].1.trace = Some(trace.to_owned());
        seen
    };
    check(&trace(&ok("1"), "t"), Mark::Pass, "is answered");
    check(&trace(&traced("t"), "t"), Mark::Pass, "goes on");
    check(&trace(&traced("u"), "t"), Mark::Note, "another trace");
}
