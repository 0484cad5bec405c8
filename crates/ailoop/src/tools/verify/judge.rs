//! What is made of what was seen. No waiting happens here.

use std::collections::BTreeSet;
use std::time::Duration;

use bus::Message;
use contract::limits;
use contract::tool::{EffectClass, OUTCOME_NONE, OUTCOME_UNKNOWN, ToolSpec, header};
use serde_json::Value;

use super::Check;
use crate::figures::{count, duration, plural};
use crate::tools::ask::{Found, Seen};
use crate::tools::describe::word;
use crate::tools::reply::{Answer, Wrong};

/// Within which a call ends that nobody waits for any more.
const SOON: Duration = Duration::from_secs(1);
const LATE_HINT: &str =
    "compare Ailoop-Deadline with the clock before work that takes long: nobody waits for it any more";
const CANCEL_HINT: &str =
    "subscribe ai_tool_cancel.<tenant>.<tool>, without a queue group, and stop the call that Ailoop-Call names";
/// Bytes of a reply that are shown.
const SHOWN_MAX: usize = 120;

/// Whether executors take the tool as it describes itself; the spec is the one that counts.
pub fn described(found: &Found) -> (Check, Option<ToolSpec>) {
    let name = "described";
    let Some(first) = found.replicas.first() else {
        let hint = "answer $SRV.INFO with an endpoint whose metadata hold ailoop.tool; is it running, on this NATS, and for \
                    this tenant?";
        return (Check::fail(name, "nobody says that it serves this tool", hint), None);
    };
    if let Some(reason) = found.replicas.iter().find_map(|replica| replica.said.as_ref().err()) {
        return (Check::fail(name, reason.clone(), "no executor takes it until it says otherwise"), None);
    }
    let Ok(spec) = &first.said else { return (Check::fail(name, "not at all", ""), None) };
    if spec.description.trim().is_empty() {
        let hint = "the model chooses tools by their ailoop.description: say what it does and when to use it";
        return (Check::note(name, "without a description", hint), Some(spec.clone()));
    }
    let told = format!("{}, version {}, answers within {}", word(spec.effect), spec.version, duration(spec.timeout()));
    (Check::pass(name, told), Some(spec.clone()))
}

/// Whether its schema is one.
pub fn schema(spec: &ToolSpec, compiled: Result<(), &String>) -> Check {
    let name = "schema";
    if let Err(reason) = compiled {
        return Check::fail(name, reason.clone(), "executors refuse it: mend ailoop.parameters");
    }
    let schema: Value = serde_json::from_str(spec.parameters.get()).unwrap_or_default();
    let bytes = spec.parameters.get().len();
    if schema["type"] != "object" {
        let hint = "say {\"type\": \"object\", …}: arguments are an object, and some providers want to be told";
        return Check::note(name, "does not say that arguments are an object", hint);
    }
    let names: Vec<&str> =
        schema["properties"].as_object().into_iter().flat_map(|all| all.keys().map(String::as_str)).collect();
    let names = if names.is_empty() { "no arguments".to_owned() } else { names.join(", ") };
    Check::pass(name, format!("{}; {bytes} of {} bytes", short(&names), limits::TOOL_SCHEMA_BYTES_MAX))
}

/// How many serve it, and whether they say the same.
pub fn replicas(found: &Found) -> Check {
    let name = "replicas";
    let all = found.replicas.len();
    let ids: BTreeSet<_> = found.replicas.iter().map(|replica| &replica.instance).collect();
    if ids.len() < all {
        let hint = "give each process an id of its own: by $SRV.PING.<name>.<id> it is asked whether it lives";
        return Check::fail(name, format!("{all} answers by {}", plural(ids.len() as u64, "service id")), hint);
    }
    if found.named < all {
        let told = format!("{} of {all} say the same at $SRV.INFO.<tool>", found.named);
        let hint = "give the service the tool's name: nobody else can answer there, so no other description counts";
        return Check::fail(name, told, hint);
    }
    if found.pinged < all {
        let told = format!("{} of {all} answer $SRV.PING", found.pinged);
        return Check::fail(name, told, "answer $SRV.PING with the name and id of $SRV.INFO");
    }
    if found.replicas.windows(2).any(|pair| pair[0].said != pair[1].said) {
        let hint = "the greatest version counts; while replicas are replaced this is fine";
        return Check::note(name, format!("{all} that describe the tool differently"), hint);
    }
    if all == 1 {
        let hint = "start it a second time: they share the calls, and either may die";
        return Check::note(name, "one; while it restarts nobody serves the tool", hint);
    }
    Check::pass(name, format!("{all}, which say the same"))
}

/// Whether the fleet has found it.
pub fn catalogue(known: bool) -> Check {
    if known {
        return Check::pass("catalogue", "the fleet knows it");
    }
    Check::note(
        "catalogue",
        "no executor has found it",
        "is a fleet running on this NATS? The executor's log says why it refuses one; `ailoop tools` lists what it knows",
    )
}

/// Whether arguments that fit are answered. `given`: they are the caller's own, and ought to work.
pub fn fitting(seen: &Seen, arguments: &str, given: bool, last_error: Option<&str>) -> Check {
    let name = "fitting arguments";
    match outcome(seen) {
        Ok(answer) => match &answer.outcome {
            Ok(result) if !answer.is_text => {
                let hint = "answer with UTF-8 text or JSON: the model reads nothing else";
                Check::fail(name, format!("{} that are no text: {}", bytes(answer.bytes), short(result)), hint)
            }
            Ok(result) => Check::pass(name, format!("{} → {} ({})", short(arguments), short(result), time(seen))),
            Err(wrong) if too_large(&wrong.text) => Check::fail(
                name,
                short(&wrong.text),
                "answer with less: a message holds what nats-server's max_payload says",
            ),
            Err(wrong) if given => Check::fail(name, format!("{} → {}", short(arguments), told(wrong)), "see why"),
            Err(wrong) => {
                let hint = "these arguments were made from the schema; pass some that ought to work with --args";
                Check::note(name, format!("{} → {}", short(arguments), told(wrong)), hint)
            }
        },
        Err(silence) => {
            let hint = match last_error {
                Some(error) => format!("its statistics say: {}", short(error)),
                None => {
                    "every call needs one final reply, an error too; a result over max_payload never arrives".to_owned()
                }
            };
            Check::fail(name, format!("{} → {silence}", short(arguments)), hint)
        }
    }
}

/// Whether what cannot be used is answered with an error.
pub fn refused(name: &'static str, what: &str, seen: &Seen) -> Check {
    match outcome(seen) {
        Ok(Answer { outcome: Err(wrong), .. }) if wrong.unknown => {
            let hint = "refuse it before anything is done, with Ailoop-Error alone: the model is told to find out what happened";
            Check::note(name, format!("{what} → {}", told(wrong)), hint)
        }
        Ok(Answer { outcome: Err(wrong), .. }) => Check::pass(name, format!("{what} → {}", told(wrong))),
        Ok(Answer { outcome: Ok(result), .. }) => {
            let hint = "an executor refuses what does not fit the schema, but whoever calls past it is told nothing";
            Check::note(name, format!("{what} → taken: {}", short(result)), hint)
        }
        Err(silence) => {
            let hint =
                "catch whatever the handler throws, and answer with the header Ailoop-Error; its text must be one line";
            Check::fail(name, format!("{what} → {silence}"), hint)
        }
    }
}

/// Whether it is still there after that: it answers, and no replica is missing.
pub fn still_there(seen: &Seen, before: usize, now: usize) -> Check {
    let name = "still there";
    let hint = "what it could not read ended it, or its connection: catch whatever is thrown";
    match outcome(seen) {
        Err(silence) => Check::fail(name, format!("fitting arguments again → {silence}"), hint),
        Ok(_) if now < before => Check::fail(name, format!("{now} of {before} replicas are left"), hint),
        Ok(_) => Check::pass(name, "it answers as before"),
    }
}

/// The same call a second time: `again` after the first, `both` at once.
pub fn repeated(name: &'static str, effect: EffectClass, first: &Seen, again: &Seen) -> Check {
    let pair = match (outcome(first), outcome(again)) {
        (Ok(first), Ok(again)) => (first, again),
        (Err(silence), _) | (_, Err(silence)) => {
            let hint = "a call whose replica died is made again under the same id: answer every one of them";
            return Check::fail(name, format!("one of two → {silence}"), hint);
        }
    };
    let alike = alike(pair.0, pair.1);
    match effect {
        EffectClass::Idempotent if !alike => {
            let hint = "the second answer is the one that counts when the first was lost: give the same one";
            let told = format!("answered differently: {}, then {}", said(pair.0), said(pair.1));
            Check::fail(name, told, hint)
        }
        EffectClass::Idempotent => Check::pass(name, "answered alike; that it took effect once is for you to see"),
        EffectClass::Pure | EffectClass::AtMostOnce | EffectClass::Reconcilable if alike => {
            Check::pass(name, "answered alike")
        }
        EffectClass::Pure | EffectClass::AtMostOnce | EffectClass::Reconcilable => Check::pass(name, "both answered"),
    }
}

/// What a `reconcilable` tool says of a call that it never got.
pub fn probed(answer: Option<&Message>) -> Check {
    let name = "probe";
    let hint = "answer on ai_tool_probe.<tenant>.<tool>: the result, or Ailoop-Outcome: none or unknown";
    let Some(answer) = answer else {
        return Check::fail(name, "nobody answers what became of a call".to_owned(), hint);
    };
    match (answer.header(header::OUTCOME), answer.header(header::ERROR)) {
        (Some(OUTCOME_NONE), _) => Check::pass(name, "says of a call that never came that it took no effect"),
        (Some(OUTCOME_UNKNOWN), _) | (_, Some(_)) => {
            Check::pass(name, "cannot tell of a call that never came; its outcome is unknown then")
        }
        (_, None) => Check::fail(name, "has a result of a call that never came".to_owned(), hint),
    }
}

/// A call whose deadline has passed.
pub fn late(seen: &Seen) -> Check {
    let name = "deadline";
    match outcome(seen) {
        Ok(Answer { outcome: Err(wrong), .. }) => {
            Check::pass(name, format!("passed already → {} ({})", told(wrong), time(seen)))
        }
        Ok(Answer { outcome: Ok(_), .. }) if seen.answers.iter().all(|(after, _)| *after <= SOON) => {
            Check::pass(name, format!("passed already → answered anyway ({})", time(seen)))
        }
        Ok(Answer { outcome: Ok(_), .. }) => {
            Check::note(name, format!("passed already → worked all the same ({})", time(seen)), LATE_HINT)
        }
        Err(silence) => Check::note(name, format!("passed already → {silence}"), LATE_HINT),
    }
}

/// A call that was cancelled after a while. `at` is when that was.
pub fn cancelled(at: Option<Duration>, seen: &Seen) -> Check {
    let name = "cancel";
    let Some(at) = at else {
        return Check::skip(name, "the call ends too fast to tell: pass --args for one that takes seconds");
    };
    let soon = |(after, _): &&(Duration, Answer)| *after >= at;
    if let Some((after, answer)) = seen.answers.iter().find(soon) {
        let took = after.saturating_sub(at);
        let told = format!("answered {} after it: {}", duration(took), said(answer));
        if took > SOON {
            return Check::note(name, told, CANCEL_HINT);
        }
        return Check::pass(name, told);
    }
    if !seen.answers.is_empty() {
        return Check::skip(name, "the call ended before it was cancelled: pass --args for one that takes longer");
    }
    // A progress that was on its way may still come.
    let later = at + Duration::from_millis(500);
    if seen.progress.iter().any(|(after, _)| *after > later) {
        return Check::note(name, "the call goes on", CANCEL_HINT);
    }
    let told =
        format!("no answer within {}: it stopped, or works on for nobody", duration(seen.waited.saturating_sub(at)));
    Check::note(name, told, "answer a cancelled call with an error, so that its caller need not wait")
}

/// Whether each call got one final reply.
pub fn single(all: &[&Seen], replicas: usize) -> Check {
    let name = "one reply";
    let most = all.iter().map(|seen| seen.answers.len()).max().unwrap_or_default();
    if most > 1 {
        let hint = if replicas > 1 {
            "every replica answers: subscribe in the queue group `tools`; or mark what is not the last with Ailoop-Progress"
        } else {
            "mark what is not the last reply with the header Ailoop-Progress: the first without it is the result"
        };
        return Check::fail(name, format!("{most} final replies to one call"), hint);
    }
    Check::pass(name, format!("{} got no more than one final reply", plural(all.len() as u64, "call")))
}

/// How progress was told.
pub fn progress(all: &[&Seen]) -> Check {
    let name = "progress";
    let mut told = all.iter().flat_map(|seen| &seen.progress);
    let Some((_, first)) = told.next() else {
        return Check::skip(name, "none was told: where a call takes seconds, it helps");
    };
    if let Some(instance) = &first.instance {
        return Check::pass(name, format!("{}, from {instance}", short(&first.text)));
    }
    let hint = "send Ailoop-Instance: <service name>.<service id> with it: then its death is found within seconds";
    Check::note(name, format!("{}, from somebody", short(&first.text)), hint)
}

/// Whether the largest result reaches the model as it is.
pub fn size(all: &[&Seen], spec: &ToolSpec) -> Check {
    let name = "size";
    let largest = all.iter().flat_map(|seen| &seen.answers).map(|(_, answer)| answer.bytes).max().unwrap_or_default();
    let most = spec.output_bytes_max();
    if largest > most {
        let hint = "the middle is left out: answer with less, or say a greater ailoop.max_output (64 KiB at most)";
        return Check::note(name, format!("{} of which the model reads {}", bytes(largest), count(most as u64)), hint);
    }
    Check::pass(name, format!("at most {}; the model reads up to {}", bytes(largest), count(most as u64)))
}

/// Which trace it says its reply belongs to.
pub fn trace(seen: &Seen, asked: &str) -> Check {
    let name = "trace";
    match seen.answer().map(|answer| answer.trace.as_deref()) {
        None => Check::skip(name, "no answer to look at"),
        Some(None) => Check::pass(name, "a call with traceparent is answered"),
        Some(Some(trace)) if trace == asked => Check::pass(name, "its reply goes on with the trace"),
        Some(Some(_)) => {
            Check::note(name, "its reply is of another trace", "take traceparent of the call for your spans")
        }
    }
}

/// The first final reply, or what came instead.
fn outcome(seen: &Seen) -> Result<&Answer, String> {
    match seen.answer() {
        Some(answer) => Ok(answer),
        None if seen.nobody => Err("nobody is there".to_owned()),
        None if seen.lost => Err("the connection was lost".to_owned()),
        None => Err(format!("no answer within {}", duration(seen.waited))),
    }
}

/// JSON by meaning, text by letters.
fn alike(one: &Answer, other: &Answer) -> bool {
    let value = |text: &String| serde_json::from_str::<Value>(text).ok();
    match (&one.outcome, &other.outcome) {
        (Ok(one), Ok(other)) => {
            one == other || value(one).is_some_and(|value_of_one| value(other) == Some(value_of_one))
        }
        (Err(one), Err(other)) => one == other,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// What libraries and the SDK say of a result that NATS does not carry.
fn too_large(error: &str) -> bool {
    let error = error.to_lowercase();
    error.contains("more than nats carries") || (error.contains("payload") && error.contains("max"))
}

fn said(answer: &Answer) -> String {
    match &answer.outcome {
        Ok(result) => short(result),
        Err(wrong) => told(wrong),
    }
}

fn told(wrong: &Wrong) -> String {
    format!("{}: {}", wrong.word(), short(&wrong.text))
}

fn time(seen: &Seen) -> String {
    seen.answers.first().map_or_else(String::new, |(after, _)| duration(*after))
}

fn bytes(number: usize) -> String {
    plural(number as u64, "byte")
}

fn short(text: &str) -> String {
    let text = text.trim();
    if text.len() <= SHOWN_MAX {
        return text.to_owned();
    }
    format!("{}… ({} bytes)", &text[..text.floor_char_boundary(SHOWN_MAX)], count(text.len() as u64))
}

#[cfg(test)]
mod tests;
