//! Turns observed replies into checks. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use bus::CoreMessage;
use contract::limits;
use contract::tool::{EffectClass, OUTCOME_NONE, OUTCOME_UNKNOWN, ToolSpec, header};
use serde_json::Value;
use terminal::format;

use super::Check;
use crate::tool_client::{CallRecord, ToolReplicas};
use crate::tool_reply::{FinalReply, TrialError};

/// Time in which a late or cancelled call should end.
const END_SOON_MAX: Duration = Duration::from_secs(1);
const LATE_HINT: &str =
    "compare Ailoop-Deadline with the clock before long work: after the deadline its result is ignored";
const CANCEL_HINT: &str =
    "subscribe ai_tool_cancel.<tenant>.<tool>, without a queue group, and stop the call that Ailoop-Call names";
/// Bytes of a reply that are shown.
const SHOWN_BYTES_MAX: usize = 120;

/// Checks that executors accept the description; returns it.
pub(crate) fn check_description(found: &ToolReplicas) -> (Check, Option<ToolSpec>) {
    let name = "described";
    let Some(first) = found.replicas.first() else {
        let hint = "answer $SRV.INFO with an endpoint whose metadata hold ailoop.tool; is it running, on this NATS, and for \
                    this tenant?";
        return (Check::fail(name, "no service describes this tool", hint), None);
    };
    if let Some(reason) = found.replicas.iter().find_map(|replica| replica.spec.as_ref().err()) {
        return (
            Check::fail(name, reason.clone(), "executors refuse the tool until its description is corrected"),
            None,
        );
    }
    let Ok(spec) = &first.spec else { return (Check::fail(name, "not at all", ""), None) };
    if spec.description.trim().is_empty() {
        let hint = "the model chooses tools by their ailoop.description: say what it does and when to use it";
        return (Check::note(name, "without a description", hint), Some(spec.clone()));
    }
    let finding =
        format!("{}, version {}, answers within {}", spec.effect, spec.version, format::duration(spec.timeout()));
    (Check::pass(name, finding), Some(spec.clone()))
}

/// Checks the schema of the arguments.
pub(crate) fn check_schema(spec: &ToolSpec, compiled: Result<(), &String>) -> Check {
    let name = "schema";
    if let Err(reason) = compiled {
        return Check::fail(name, reason.clone(), "executors refuse it: correct ailoop.parameters");
    }
    let schema: Value = serde_json::from_str(spec.parameters.get()).unwrap_or_default();
    let bytes = spec.parameters.get().len();
    if schema["type"] != "object" {
        let hint = "say {\"type\": \"object\", …}: arguments are an object, and some providers require it";
        return Check::note(name, "does not say that arguments are an object", hint);
    }
    let names: Vec<&str> =
        schema["properties"].as_object().into_iter().flat_map(|all| all.keys().map(String::as_str)).collect();
    let names = if names.is_empty() { "no arguments".to_owned() } else { names.join(", ") };
    Check::pass(name, format!("{}; {bytes} of {} bytes", shorten(&names), limits::TOOL_SCHEMA_BYTES_MAX))
}

/// Checks the number of replicas, and that their descriptions agree.
pub(crate) fn check_replicas(found: &ToolReplicas) -> Check {
    let name = "replicas";
    let all = found.replicas.len();
    let ids: BTreeSet<_> = found.replicas.iter().map(|replica| &replica.instance).collect();
    if ids.len() < all {
        let hint = "give each process an id of its own: executors check it by $SRV.PING.<name>.<id>";
        return Check::fail(name, format!("{all} answers by {}", format::plural(ids.len() as u64, "service id")), hint);
    }
    if found.named_count < all {
        let finding = format!("{} of {all} say the same at $SRV.INFO.<tool>", found.named_count);
        let hint =
            "give the service the tool's name: only tools of that name answer there, so only that description counts";
        return Check::fail(name, finding, hint);
    }
    if found.pinged_count < all {
        let finding = format!("{} of {all} answer $SRV.PING", found.pinged_count);
        return Check::fail(name, finding, "answer $SRV.PING with the name and id of $SRV.INFO");
    }
    if found.replicas.windows(2).any(|pair| pair[0].spec != pair[1].spec) {
        let hint = "the greatest version counts; while replicas are replaced this is fine";
        return Check::note(name, format!("{all} that describe the tool differently"), hint);
    }
    if all == 1 {
        let hint = "start it a second time: they share the calls, and either may fail";
        return Check::note(name, "one; while it restarts the tool is unavailable", hint);
    }
    Check::pass(name, format!("{all}, which say the same"))
}

/// Checks that the catalogue of the fleet has the tool.
pub(crate) fn check_catalogue(is_known: bool) -> Check {
    if is_known {
        return Check::pass("catalogue", "the fleet knows it");
    }
    Check::note(
        "catalogue",
        "no executor has found it",
        "is a fleet running on this NATS? The executor's log says why it refuses one; `ailoop tools` lists what it knows",
    )
}

/// Checks that valid arguments get a result. `is_from_caller`: the caller passed them, so they should work.
pub(crate) fn check_valid_arguments(
    record: &CallRecord,
    arguments: &str,
    is_from_caller: bool,
    last_error: Option<&str>,
) -> Check {
    let name = "fitting arguments";
    match outcome_of(record) {
        Ok(answer) => match &answer.outcome {
            Ok(result) if !answer.is_text => {
                let hint = "answer with UTF-8 text or JSON: the model reads nothing else";
                Check::fail(name, format!("{} that are not text: {}", bytes(answer.bytes), shorten(result)), hint)
            }
            Ok(result) => {
                Check::pass(name, format!("{} → {} ({})", shorten(arguments), shorten(result), answer_time(record)))
            }
            Err(error) if is_too_large(&error.text) => Check::fail(
                name,
                shorten(&error.text),
                "answer with less: a message holds what nats-server's max_payload says",
            ),
            Err(error) if is_from_caller => Check::fail(
                name,
                format!("{} → {}", shorten(arguments), error_text(error)),
                "correct the tool or the arguments",
            ),
            Err(error) => {
                let hint = "these arguments were made from the schema; pass some that should work with --args";
                Check::note(name, format!("{} → {}", shorten(arguments), error_text(error)), hint)
            }
        },
        Err(silence) => {
            let hint = match last_error {
                Some(error) => format!("its statistics say: {}", shorten(error)),
                None => {
                    "every call needs one final reply, an error too; a result over max_payload never arrives".to_owned()
                }
            };
            Check::fail(name, format!("{} → {silence}", shorten(arguments)), hint)
        }
    }
}

/// Checks that an invalid call gets an error.
pub(crate) fn check_refusal(name: &'static str, what: &str, record: &CallRecord) -> Check {
    match outcome_of(record) {
        Ok(FinalReply { outcome: Err(error), .. }) if error.is_unknown => {
            let hint = "refuse it before any effect, with Ailoop-Error alone: after an unknown outcome the model must find out what happened";
            Check::note(name, format!("{what} → {}", error_text(error)), hint)
        }
        Ok(FinalReply { outcome: Err(error), .. }) => Check::pass(name, format!("{what} → {}", error_text(error))),
        Ok(FinalReply { outcome: Ok(result), .. }) => {
            let hint = "executors refuse invalid arguments, but other callers get no error";
            Check::note(name, format!("{what} → accepted: {}", shorten(result)), hint)
        }
        Err(silence) => {
            let hint = "catch every exception of the handler, and answer with the header Ailoop-Error; its text must be one line";
            Check::fail(name, format!("{what} → {silence}"), hint)
        }
    }
}

/// Checks that the tool still answers after the invalid calls, with all replicas.
pub(crate) fn check_survival(record: &CallRecord, before: usize, now: usize) -> Check {
    let name = "still there";
    let hint = "an invalid call ended the process or its connection: catch every exception";
    match outcome_of(record) {
        Err(silence) => Check::fail(name, format!("fitting arguments again → {silence}"), hint),
        Ok(_) if now < before => Check::fail(name, format!("{now} of {before} replicas remain"), hint),
        Ok(_) => Check::pass(name, "it answers as before"),
    }
}

/// Checks the answers to two deliveries of one call.
pub(crate) fn check_redelivery(
    name: &'static str,
    effect: EffectClass,
    first: &CallRecord,
    second: &CallRecord,
) -> Check {
    let pair = match (outcome_of(first), outcome_of(second)) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(silence), _) | (_, Err(silence)) => {
            let hint = "a call is redelivered under the same id if its replica fails: answer every delivery";
            return Check::fail(name, format!("one of two → {silence}"), hint);
        }
    };
    let is_same = is_same_answer(pair.0, pair.1);
    match effect {
        EffectClass::Idempotent if !is_same => {
            let hint = "the second answer is the one that counts when the first was lost: give the same one";
            let finding = format!("answered differently: {}, then {}", answer_text(pair.0), answer_text(pair.1));
            Check::fail(name, finding, hint)
        }
        EffectClass::Idempotent => Check::pass(name, "same answers; check yourself that it took effect once"),
        EffectClass::Pure | EffectClass::AtMostOnce | EffectClass::Reconcilable if is_same => {
            Check::pass(name, "same answers")
        }
        EffectClass::Pure | EffectClass::AtMostOnce | EffectClass::Reconcilable => Check::pass(name, "both answered"),
    }
}

/// Checks how a `reconcilable` tool answers the probe of a call that it never received.
pub(crate) fn check_probe(answer: Option<&CoreMessage>) -> Check {
    let name = "probe";
    let hint = "answer on ai_tool_probe.<tenant>.<tool>: the result, or Ailoop-Outcome: none or unknown";
    let Some(answer) = answer else {
        return Check::fail(name, "the probe of a call is not answered".to_owned(), hint);
    };
    match (answer.header(header::OUTCOME), answer.header(header::ERROR)) {
        (Some(OUTCOME_NONE), _) => Check::pass(name, "a call that was never sent had no effect"),
        (Some(OUTCOME_UNKNOWN), _) | (_, Some(_)) => {
            Check::pass(name, "a call that was never sent has an unknown outcome")
        }
        (_, None) => Check::fail(name, "a call that was never sent has a result".to_owned(), hint),
    }
}

/// Checks the answer to a call whose deadline has passed.
pub(crate) fn check_deadline(record: &CallRecord) -> Check {
    let name = "deadline";
    match outcome_of(record) {
        Ok(FinalReply { outcome: Err(error), .. }) => {
            Check::pass(name, format!("passed already → {} ({})", error_text(error), answer_time(record)))
        }
        Ok(FinalReply { outcome: Ok(_), .. }) if record.answers.iter().all(|(after, _)| *after <= END_SOON_MAX) => {
            Check::pass(name, format!("passed already → answered nevertheless ({})", answer_time(record)))
        }
        Ok(FinalReply { outcome: Ok(_), .. }) => {
            Check::note(name, format!("passed already → executed nevertheless ({})", answer_time(record)), LATE_HINT)
        }
        Err(silence) => Check::note(name, format!("passed already → {silence}"), LATE_HINT),
    }
}

/// Checks the answer to a call that was cancelled at `cancelled_at` after its start.
pub(crate) fn check_cancel(cancelled_at: Option<Duration>, record: &CallRecord) -> Check {
    let name = "cancel";
    let Some(at) = cancelled_at else {
        return Check::skip(name, "the call ends too fast to tell: pass --args for one that takes seconds");
    };
    let is_after_cancel = |(after, _): &&(Duration, FinalReply)| *after >= at;
    if let Some((after, answer)) = record.answers.iter().find(is_after_cancel) {
        let took = after.saturating_sub(at);
        let finding = format!("answered {} after it: {}", format::duration(took), answer_text(answer));
        if took > END_SOON_MAX {
            return Check::note(name, finding, CANCEL_HINT);
        }
        return Check::pass(name, finding);
    }
    if !record.answers.is_empty() {
        return Check::skip(name, "the call ended before it was cancelled: pass --args for one that takes longer");
    }
    // Progress that was sent before the cancellation may still arrive.
    let later = at + Duration::from_millis(500);
    if record.progress.iter().any(|(after, _)| *after > later) {
        return Check::note(name, "the call goes on", CANCEL_HINT);
    }
    let finding = format!(
        "no answer within {}: it stopped, or it still works",
        format::duration(record.waited.saturating_sub(at))
    );
    Check::note(name, finding, "answer a cancelled call with an error, so that its caller need not wait")
}

/// Checks that each call got at most one final reply.
pub(crate) fn check_single_reply(all: &[&CallRecord], replicas: usize) -> Check {
    let name = "one reply";
    let most = all.iter().map(|record| record.answers.len()).max().unwrap_or_default();
    if most > 1 {
        let hint = if replicas > 1 {
            "every replica answers: subscribe in the queue group `tools`; or mark what is not the last with Ailoop-Progress"
        } else {
            "mark what is not the last reply with the header Ailoop-Progress: the first without it is the result"
        };
        return Check::fail(name, format!("{most} final replies to one call"), hint);
    }
    Check::pass(name, format!("{} got no more than one final reply", format::plural(all.len() as u64, "call")))
}

/// Checks that progress names the replica.
pub(crate) fn check_progress(all: &[&CallRecord]) -> Check {
    let name = "progress";
    let mut replies = all.iter().flat_map(|record| &record.progress);
    let Some((_, first)) = replies.next() else {
        return Check::skip(name, "the tool sent none: it helps if calls take seconds");
    };
    if let Some(instance) = &first.instance {
        return Check::pass(name, format!("{}, from {instance}", shorten(&first.text)));
    }
    let hint = "send Ailoop-Instance: <service name>.<service id> with it: then its loss is detected within seconds";
    Check::note(name, format!("{}, from an unnamed replica", shorten(&first.text)), hint)
}

/// Checks that the largest result is passed to the model without cuts.
pub(crate) fn check_size(all: &[&CallRecord], spec: &ToolSpec) -> Check {
    let name = "size";
    let largest =
        all.iter().flat_map(|record| &record.answers).map(|(_, answer)| answer.bytes).max().unwrap_or_default();
    let limit = spec.output_bytes_max();
    if largest > limit {
        let hint = "the middle is left out: answer with less, or set a greater ailoop.max_output (64 KiB at most)";
        return Check::note(
            name,
            format!("{} of which the model reads {}", bytes(largest), format::count(limit as u64)),
            hint,
        );
    }
    Check::pass(name, format!("at most {}; the model reads up to {}", bytes(largest), format::count(limit as u64)))
}

/// Checks the trace id of a reply.
pub(crate) fn check_trace(record: &CallRecord, expected: &str) -> Check {
    let name = "trace";
    match record.first_answer().map(|answer| answer.trace_id.as_deref()) {
        None => Check::skip(name, "no answer to look at"),
        Some(None) => Check::pass(name, "a call with traceparent is answered"),
        Some(Some(trace)) if trace == expected => Check::pass(name, "its reply continues the trace"),
        Some(Some(_)) => {
            Check::note(name, "its reply has another trace id", "use traceparent of the call for your spans")
        }
    }
}

/// Returns the first final reply, or why there is none.
fn outcome_of(record: &CallRecord) -> Result<&FinalReply, String> {
    match record.first_answer() {
        Some(answer) => Ok(answer),
        None if record.has_no_subscriber => Err("no process subscribes".to_owned()),
        None if record.has_gap => Err("the connection was lost".to_owned()),
        None => Err(format!("no answer within {}", format::duration(record.waited))),
    }
}

/// Compares JSON by value, and text by characters.
fn is_same_answer(one: &FinalReply, other: &FinalReply) -> bool {
    let value = |text: &String| serde_json::from_str::<Value>(text).ok();
    match (&one.outcome, &other.outcome) {
        (Ok(one), Ok(other)) => {
            one == other || value(one).is_some_and(|value_of_one| value(other) == Some(value_of_one))
        }
        (Err(one), Err(other)) => one == other,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// Whether the error is one that client libraries and the tool library report for a result over `max_payload`.
fn is_too_large(error: &str) -> bool {
    let error = error.to_lowercase();
    error.contains("more than nats carries") || (error.contains("payload") && error.contains("max"))
}

fn answer_text(answer: &FinalReply) -> String {
    match &answer.outcome {
        Ok(result) => shorten(result),
        Err(error) => error_text(error),
    }
}

fn error_text(error: &TrialError) -> String {
    format!("{}: {}", error.outcome_word(), shorten(&error.text))
}

fn answer_time(record: &CallRecord) -> String {
    record.answers.first().map_or_else(String::new, |(after, _)| format::duration(*after))
}

fn bytes(number: usize) -> String {
    format::plural(number as u64, "byte")
}

fn shorten(text: &str) -> String {
    let text = text.trim();
    if text.len() <= SHOWN_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}… ({} bytes)", &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)], format::count(text.len() as u64))
}

#[cfg(test)]
mod tests;
