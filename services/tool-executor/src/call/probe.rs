//! Probes of `reconcilable` tools: the tool is asked for the outcome of a lost call, and the call is never sent again.

use std::pin::pin;
use std::time::Duration;

use bus::{BusError, CoreMessage};
use bytes::Bytes;
use contract::subject;
use contract::tool::{EffectClass, OUTCOME_NONE, OUTCOME_UNKNOWN, Outcome, header};
use contract::{ErrorCode, Timestamp, limits};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::dispatch::identity_headers;
use super::replica_check::{ReplicaAnswer, ask_replicas};
use super::tool_reply::ToolAnswer;
use super::{ToolCall, ToolCallHandler};

/// Time that a tool has to answer one probe.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Pause between two probes: the tool may be reconnecting.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time after the call's deadline for which the tool is probed: the loop gives up a little later.
const AFTER_DEADLINE: Duration = limits::TOOL_CALL_GRACE.saturating_sub(Duration::from_secs(2));
/// Time after the latest deadline that the tool got, from which on "no effect" counts. Until then the request may wait
/// in a socket, or a handler may work on it without a trace in the tool's store; after it the tool refuses the request
/// as late.
const NO_EFFECT_AFTER: Duration = Duration::from_secs(2);
/// Answers "no effect" in a row, from then on, after which the call counts as not made.
const NO_EFFECT_ANSWERS: u32 = 2;
/// Reason why the outcome stays unknown while "no effect" does not count yet.
const NO_EFFECT_YET: &str = "it shows no effect so far, but may still accept the call";

/// Answer of a tool about a lost call.
#[derive(Debug, PartialEq, Eq)]
enum ProbeOutcome {
    /// It took effect, with this result.
    Done(String),
    /// It has taken no effect.
    NoEffect,
    /// The tool does not know now, with its reason.
    Unknown(String),
}

impl ToolCallHandler {
    /// Replaces the answer of a reconcilable call whose outcome is unknown: probes the tool until shortly before the
    /// loop gives up. `accepted_until` is the latest deadline that the tool was told: until then a replica may accept
    /// the call. `None`: the log no longer wants an answer.
    pub(super) async fn reconcile(
        &self,
        work: &ToolCall,
        mut answer: ToolAnswer,
        accepted_until: Timestamp,
    ) -> Option<ToolAnswer> {
        if answer.outcome != Outcome::Unknown || work.item.effect != EffectClass::Reconcilable {
            return Some(answer);
        }
        let (now, deadline) = (self.clock.now(), work.item.meta.deadline);
        // The loop gives a call that is open after its item's deadline more time, since a pause or an extension. It
        // ends the probes where it gives up earlier.
        let known_deadline = if deadline > now { deadline } else { accepted_until };
        let end = Instant::now() + known_deadline.since(now) + AFTER_DEADLINE;
        let no_effect_from = Instant::now() + accepted_until.since(now) + NO_EFFECT_AFTER;
        let (mut no_effect, mut why) = (0, None);
        let mut closed = pin!(self.bus.until_closed(&work.key, &work.call, work.item.meta.slot));
        loop {
            let probed = tokio::select! {
                () = work.cancelled.cancelled() => break,
                probed = timeout_at(end, self.probe(work)) => probed,
            };
            let Ok(probed) = probed else { break };
            match probed {
                Ok(Some(ProbeOutcome::Done(result))) => return Some(ToolAnswer::new(Outcome::Ok, result)),
                Ok(Some(ProbeOutcome::NoEffect)) if Instant::now() >= no_effect_from => no_effect += 1,
                Ok(Some(ProbeOutcome::NoEffect)) => why = Some(NO_EFFECT_YET.to_owned()),
                Ok(None) => no_effect = 0,
                Ok(Some(ProbeOutcome::Unknown(reason))) => (no_effect, why) = (0, Some(reason)),
                Err(error) => {
                    no_effect = 0;
                    tracing::debug!(session = %work.key, call = %work.call, %error, "no answer to a probe");
                }
            }
            if no_effect >= NO_EFFECT_ANSWERS {
                let text = "the call was lost before the tool carried it out: it took no effect, and may be made again";
                return Some(ToolAnswer::error(ErrorCode::Unavailable, text));
            }
            tokio::select! {
                () = work.cancelled.cancelled() => break,
                () = &mut closed => return None,
                () = sleep_until(end) => break,
                () = sleep(RETRY_AFTER) => {}
            }
        }
        if let Some(why) = why {
            answer.content = format!("{}\nThe tool does not know the outcome either: {why}", answer.content);
        }
        Some(answer)
    }

    /// Probes once. `None`: a replica still works on the call, or whether one does is unknown.
    async fn probe(&self, work: &ToolCall) -> Result<Option<ProbeOutcome>, BusError> {
        let (tenant, tool) = (&work.key.tenant, &work.item.tool);
        let call = work.item.call_key(tenant, &work.key.session);
        match ask_replicas(&self.bus, subject::service_info(tool), call).await {
            ReplicaAnswer::Running | ReplicaAnswer::NatsUnavailable => return Ok(None),
            // A tool that does not know the header may still answer a probe.
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear | ReplicaAnswer::Silent => {}
        }
        let body = Bytes::copy_from_slice(work.item.arguments.get().as_bytes());
        let probe = subject::tool_probe(tenant, tool);
        let answer =
            self.bus.transport().request(&probe, identity_headers(&work.key, &work.item), body, ANSWER_MAX).await?;
        Ok(Some(parse_probe_reply(&answer)))
    }
}

/// Only a plain result proves that the call took effect.
fn parse_probe_reply(message: &CoreMessage) -> ProbeOutcome {
    let unknown = |why: &str| ProbeOutcome::Unknown(why.to_owned());
    let body = std::str::from_utf8(&message.payload);
    let error = message.header(header::ERROR).or_else(|| message.header(header::SERVICE_ERROR));
    match (message.header(header::OUTCOME), error, message.header(header::PROGRESS), body) {
        (Some(OUTCOME_NONE), ..) => ProbeOutcome::NoEffect,
        (Some(OUTCOME_UNKNOWN), error, ..) => unknown(error.unwrap_or("it does not say why")),
        (_, Some(error), ..) => unknown(error),
        (Some(other), None, ..) => {
            let outcome: String = other.chars().take(40).collect();
            ProbeOutcome::Unknown(format!("its answer has the outcome {outcome:?}, which is none or unknown"))
        }
        (None, None, Some(_), _) => unknown("its answer is about progress and not about the outcome"),
        (None, None, None, Ok(body)) => ProbeOutcome::Done(body.to_owned()),
        (None, None, None, Err(_)) => unknown("its answer is not UTF-8 text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_reply_is_a_result_only_without_outcome_and_error() {
        let parse = |headers: &[(&str, &str)], body: &'static [u8]| {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            parse_probe_reply(&CoreMessage {
                subject: String::new(),
                reply: None,
                headers,
                payload: Bytes::from_static(body),
            })
        };
        let unknown = |why: &str| ProbeOutcome::Unknown(why.to_owned());
        assert_eq!(parse(&[], b"paid"), ProbeOutcome::Done("paid".to_owned()));
        assert_eq!(parse(&[("Ailoop-Outcome", "none"), ("Ailoop-Error", "never seen")], b""), ProbeOutcome::NoEffect);
        assert_eq!(
            parse(&[("Ailoop-Outcome", "unknown"), ("Ailoop-Error", "the bank is away")], b""),
            unknown("the bank is away")
        );
        // An error of the probe is not the outcome of the call.
        assert_eq!(parse(&[("Ailoop-Error", "bad")], b"x"), unknown("bad"));
        assert_eq!(parse(&[("Nats-Service-Error", "bad")], b""), unknown("bad"));
        assert_eq!(
            parse(&[("Ailoop-Progress", "50 %")], b""),
            unknown("its answer is about progress and not about the outcome")
        );
        assert!(matches!(parse(&[("Ailoop-Outcome", "None")], b"x"), ProbeOutcome::Unknown(_)), "a word of nobody's");
        assert_eq!(parse(&[], b"\xff"), unknown("its answer is not UTF-8 text"));
    }
}
