//! Collects the deltas of any provider into one reply.

use std::collections::BTreeMap;

use contract::limits::{REPLY_BYTES_MAX, TOOL_CALLS_PER_REPLY_MAX};
use contract::model::{FailureKind, FinishReason, ReplayPosition, ToolCall, Usage};

use serde_json::Value;

use crate::failure::CallFailure;

/// Bytes of a token, to estimate usage that a provider does not report.
const BYTES_PER_TOKEN: f64 = 3.6;

/// Maximum characters of a name, an id or a finish reason of a provider.
const WORD_CHARS_MAX: usize = 128;

/// A part of a streamed reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text for the user.
    Text(String),
    /// Reasoning of the model.
    Reasoning(String),
    /// A part of a tool call.
    Call(CallDelta),
    /// A reasoning part that the provider needs in later requests, unchanged.
    Replay(Value),
    /// Token usage; a later value replaces an earlier one.
    Usage(Usage),
    /// Name of the model that answers, as the provider reports it.
    Model(String),
    /// The end of the content; usage may follow.
    Finish {
        /// Finish reason, mapped to the contract.
        reason: FinishReason,
        /// Finish reason as the provider wrote it.
        raw: String,
    },
}

impl Delta {
    /// Cuts names, ids and reasons to a maximum length and replaces control characters, since they go to logs and
    /// terminals. The replacement is no valid character of a tool's name, so no name becomes the name of another tool.
    #[must_use]
    pub(crate) fn sanitize(self) -> Self {
        match self {
            Self::Call(call) => Self::Call(CallDelta {
                slot: call.slot,
                id: call.id.map(|id| sanitize_word(&id)),
                name: call.name.map(|name| sanitize_word(&name)),
                arguments: call.arguments,
            }),
            Self::Model(model) => Self::Model(sanitize_word(&model)),
            Self::Finish { reason, raw } => Self::Finish { reason, raw: sanitize_word(&raw) },
            other @ (Self::Text(_) | Self::Reasoning(_) | Self::Replay(_) | Self::Usage(_)) => other,
        }
    }
}

fn sanitize_word(word: &str) -> String {
    let replace_control = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    word.chars().take(WORD_CHARS_MAX).map(replace_control).collect()
}

/// A part of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallDelta {
    /// Index of the call in the reply, from 0, without gaps.
    pub slot: u32,
    /// Id of the call; the first value counts.
    pub id: Option<String>,
    /// Name of the tool; the first value counts.
    pub name: Option<String>,
    /// Text to append to the arguments.
    pub arguments: String,
}

/// A reply, complete or still growing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelReply {
    /// Text for the user.
    pub text: String,
    /// Reasoning of the model.
    pub reasoning: String,
    /// Usage that the provider reported.
    pub usage: Option<Usage>,
    /// Name of the model that answers, as the provider reports it.
    pub model: String,
    /// Finish reason, mapped and raw; `None` while the reply grows.
    pub finish: Option<(FinishReason, String)>,
    /// Reasoning parts that the provider needs in later requests.
    pub replay: Vec<Value>,
    /// Position of each reasoning part in the reply.
    pub(crate) positions: Vec<ReplayPosition>,
    calls: BTreeMap<u32, ToolCall>,
    bytes: usize,
}

impl ModelReply {
    /// Adds a delta. A reply over [`REPLY_BYTES_MAX`] or twice [`TOOL_CALLS_PER_REPLY_MAX`] is a protocol error.
    pub fn add(&mut self, delta: &Delta) -> Result<(), CallFailure> {
        match delta {
            Delta::Text(text) => self.count_bytes(text).map(|()| self.text.push_str(text)),
            Delta::Reasoning(text) => self.count_bytes(text).map(|()| self.reasoning.push_str(text)),
            Delta::Call(call) => self.add_call(call),
            Delta::Replay(part) => self.count_bytes(&part.to_string()).map(|()| {
                let calls = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
                self.positions.push(ReplayPosition { after_text: !self.text.trim().is_empty(), calls });
                self.replay.push(part.clone());
            }),
            Delta::Usage(usage) => {
                self.usage = Some(*usage);
                Ok(())
            }
            Delta::Model(model) => {
                self.model.clone_from(model);
                Ok(())
            }
            Delta::Finish { reason, raw } => {
                self.finish = Some((*reason, raw.clone()));
                Ok(())
            }
        }
    }

    /// Whether the reply has no text, no reasoning and no calls.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }

    /// The calls in order. A call without arguments gets `{}`, unless the output was cut: then arguments may be
    /// missing.
    pub fn calls(&self) -> Vec<ToolCall> {
        let is_cut = !matches!(
            self.finish,
            Some((FinishReason::Stop | FinishReason::ToolCalls | FinishReason::ContentFilter | FinishReason::Other, _))
        );
        let complete = |call: &ToolCall| {
            let mut call = call.clone();
            if !is_cut && call.function.arguments.trim().is_empty() {
                "{}".clone_into(&mut call.function.arguments);
            }
            call
        };
        self.calls.values().map(complete).collect()
    }

    /// Replaces impossible usage by an estimate. Input and output may be at most `max` or the bytes of the request and
    /// the reply. Returns the reported usage if it was replaced.
    pub(crate) fn bound_usage(&mut self, request_bytes: usize, max: u64) -> Option<Usage> {
        let reported = self.usage?;
        let most = |bytes: usize| max.max(u64::try_from(bytes).unwrap_or(u64::MAX));
        let or_estimate =
            |reported: u64, bytes: usize| if reported <= most(bytes) { reported } else { estimate_tokens(bytes) };
        let (input, output) = (or_estimate(reported.input, request_bytes), or_estimate(reported.output, self.bytes));
        let bounded =
            Usage { input, output, cached: reported.cached.min(input), reasoning: reported.reasoning.min(output) };
        self.usage = Some(bounded);
        (bounded != reported).then_some(reported)
    }

    /// The reported usage, else an estimate from the bytes of request and reply.
    pub(crate) fn usage_or_estimate(&self, request_bytes: usize) -> Usage {
        // Some providers report the input when a reply begins, and the output when it ends.
        let counted = self.usage.map(|usage| {
            let so_far = if self.finish.is_none() { estimate_tokens(self.bytes) } else { 0 };
            Usage { output: usage.output.max(so_far), ..usage }
        });
        counted.unwrap_or_else(|| Usage {
            input: estimate_tokens(request_bytes),
            output: estimate_tokens(self.bytes),
            cached: 0,
            reasoning: estimate_tokens(self.reasoning.len()),
        })
    }

    /// Usage of a failed request: zero if the provider reported none and nothing of the reply arrived.
    pub(crate) fn usage_if_failed(&self, request_bytes: usize) -> Usage {
        match self.usage {
            None if self.is_empty() => Usage::default(),
            Some(_) | None => self.usage_or_estimate(request_bytes),
        }
    }

    fn add_call(&mut self, delta: &CallDelta) -> Result<(), CallFailure> {
        self.count_bytes(&delta.arguments)?;
        self.count_bytes(delta.name.as_deref().unwrap_or_default())?;
        if !self.calls.contains_key(&delta.slot) && self.calls.len() == 2 * TOOL_CALLS_PER_REPLY_MAX {
            return Err(CallFailure::new(
                FailureKind::ProtocolError,
                format!("the reply holds more than {} tool calls", 2 * TOOL_CALLS_PER_REPLY_MAX),
            ));
        }
        let call = self.calls.entry(delta.slot).or_insert_with(|| ToolCall::new("", "", ""));
        if let (true, Some(id)) = (call.id.is_empty(), &delta.id) {
            call.id.clone_from(id);
        }
        if let (true, Some(name)) = (call.function.name.is_empty(), &delta.name) {
            call.function.name.clone_from(name);
        }
        call.function.arguments.push_str(&delta.arguments);
        Ok(())
    }

    fn count_bytes(&mut self, text: &str) -> Result<(), CallFailure> {
        self.bytes += text.len();
        if self.bytes <= REPLY_BYTES_MAX {
            return Ok(());
        }
        Err(CallFailure::new(
            FailureKind::ProtocolError,
            format!("the reply is over the limit of {REPLY_BYTES_MAX} bytes"),
        ))
    }
}

/// Estimates the tokens of so many bytes.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn estimate_tokens(bytes: usize) -> u64 {
    (bytes as f64 / BYTES_PER_TOKEN).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(slot: u32, id: &str, name: &str, arguments: &str) -> Delta {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Delta::Call(CallDelta { slot, id: some(id), name: some(name), arguments: arguments.to_owned() })
    }

    fn finish(reason: FinishReason) -> Delta {
        Delta::Finish { reason, raw: String::new() }
    }

    #[test]
    fn call_with_two_ids_and_names_has_the_first_ones() {
        let mut reply = ModelReply::default();
        for delta in [call(0, "a", "f", "{"), call(0, "b", "g", "}"), finish(FinishReason::ToolCalls)] {
            reply.add(&delta).unwrap();
        }
        assert_eq!(reply.calls(), [ToolCall::new("a", "f", "{}")]);
    }

    #[test]
    fn call_without_arguments_has_an_empty_object_unless_the_reply_was_cut() {
        for (reason, expected) in
            [(FinishReason::Stop, "{}"), (FinishReason::Length, ""), (FinishReason::Cancelled, "")]
        {
            let mut reply = ModelReply::default();
            reply.add(&call(0, "a", "f", "")).unwrap();
            reply.add(&finish(reason)).unwrap();
            assert_eq!(reply.calls()[0].function.arguments, expected, "{reason:?}");
        }
    }

    #[test]
    fn reply_over_its_limit_is_a_protocol_error() {
        let mut reply = ModelReply::default();
        let mega = Delta::Text("x".repeat(1 << 20));
        for _ in 0..REPLY_BYTES_MAX >> 20 {
            reply.add(&mega).unwrap();
        }
        assert_eq!(reply.add(&Delta::Reasoning("x".into())).unwrap_err().kind, FailureKind::ProtocolError);
    }

    #[test]
    fn unfinished_reply_without_reported_output_is_estimated() {
        let mut reply = ModelReply::default();
        let begun = Usage { input: 9, output: 1, cached: 0, reasoning: 0 };
        reply.add(&Delta::Usage(begun)).unwrap();
        reply.add(&Delta::Text("x".repeat(3_600))).unwrap();
        assert_eq!(reply.usage_if_failed(100).output, 1_000);
        reply.add(&Delta::Usage(Usage { output: 900, ..begun })).unwrap();
        reply.add(&finish(FinishReason::Stop)).unwrap();
        assert_eq!(reply.usage_or_estimate(100).output, 900);
    }

    #[test]
    fn usage_not_reported_is_estimated() {
        let mut reply = ModelReply::default();
        reply.add(&Delta::Text("x".repeat(36))).unwrap();
        assert_eq!(reply.usage_or_estimate(360), Usage { input: 100, output: 10, cached: 0, reasoning: 0 });
        let reported = Usage { input: 1, output: 2, cached: 0, reasoning: 0 };
        reply.add(&Delta::Usage(reported)).unwrap();
        reply.add(&finish(FinishReason::Stop)).unwrap();
        assert_eq!(reply.usage_or_estimate(360), reported);
    }
}
