//! Pruning of a transcript that outgrows its model's window, and the size of the transcript.

use contract::Json;
use contract::event::{ContextPruned, Event, Spent};
use contract::limits::RESULT_KEEP_BYTES;
use contract::model::{Content, Message};

use crate::check;
use crate::shorten::read;
use crate::tokens::{TokenBudget, TokenMeasurement};
use crate::transcript::{MessageKind, MessagePosition, Transcript};

/// A result that is cut must be this much longer than what is left of it.
const WORTH_BYTES: usize = 512;
/// Instruction to the model to summarise the turns that are removed.
const SUM_UP: &str = "Sum up the conversation so far for yourself: you will go on with the summary in its place. Keep \
                      what was asked, what was decided and why, what was done with which result, names, paths and \
                      numbers that are still needed, and what is open. Write plain text, no more than 500 words.";

impl Transcript {
    /// Tokens of the request as it would be now.
    pub(crate) fn tokens(&self) -> u64 {
        TokenMeasurement::tokens(self.measured, self.bytes())
    }

    /// No fewer than the tokens after these events.
    pub(crate) fn tokens_at_most(&self, events: &[Event]) -> u64 {
        let more: usize = events.iter().map(bytes_of).sum();
        TokenMeasurement::tokens(self.measured, self.bytes() + more)
    }

    /// Whether there is anything from before a turn.
    pub(crate) fn has_before(&self, turn: u32) -> bool {
        self.positions().any(|place| place.turn < turn)
    }

    /// Plans the removals that make the request of this step fit; none if it fits, or if nothing can be removed.
    ///
    /// Results of older steps are cut first, then whole turns go, then replies of this turn with their results, then
    /// the last results are cut. The system prompt and the user messages of this turn always stay.
    pub(crate) fn plan(&self, turn: u32, step: u32, room: TokenBudget) -> Option<ContextPruned> {
        if self.tokens() <= room.most {
            return None;
        }
        let mut plan = ContextPruned {
            turn,
            cut: Vec::new(),
            keep_bytes: RESULT_KEEP_BYTES,
            before_turn: 0,
            before_step: 0,
            summary: None,
            tokens_before: self.tokens(),
            tokens_after: 0,
            spent: Spent::default(),
        };
        // The running step is not in the transcript yet, unless it is tried again: the last step there is that of the
        // last reply.
        let last = self
            .positions()
            .filter(|p| p.turn == turn && p.kind == MessageKind::Reply)
            .map(|p| p.step)
            .max()
            .unwrap_or(0);
        self.cut_results(&mut plan, room, |at, of| (at, of) != (turn, last));
        let turns: Vec<u32> = self.numbers(|place| (place.turn < turn).then_some(place.turn));
        for before in turns.iter().map(|turn| turn + 1) {
            if self.after(&plan) <= room.wanted {
                break;
            }
            plan.before_turn = before;
        }
        let steps =
            self.numbers(|p| (p.turn == turn && p.kind == MessageKind::Reply && p.step < last).then_some(p.step));
        for before in steps.iter().map(|step| step + 1) {
            if self.after(&plan) <= room.wanted {
                break;
            }
            plan.before_step = before.min(step);
        }
        self.cut_results(&mut plan, room, |at, of| (at, of) == (turn, last));
        plan.tokens_after = self.after(&plan);
        let nothing = plan.cut.is_empty() && plan.before_turn == 0 && plan.before_step == 0;
        (!nothing).then_some(plan)
    }

    /// Cuts large results of chosen steps, the oldest first, until there is room.
    fn cut_results(&self, plan: &mut ContextPruned, room: TokenBudget, chosen: impl Fn(u32, u32) -> bool) {
        let mut tokens = self.after(plan);
        for (message, place) in self.positioned_messages() {
            if tokens <= room.wanted {
                return;
            }
            let large = message.get().len() > RESULT_KEEP_BYTES + WORTH_BYTES;
            if place.kind != MessageKind::Result || !large || !chosen(place.turn, place.step) {
                continue;
            }
            if let Some(Message::Tool { tool_call_id, .. }) = read(message) {
                let saved = message.get().len().saturating_sub(RESULT_KEEP_BYTES);
                tokens = tokens.saturating_sub(TokenMeasurement::tokens(self.measured, saved));
                plan.cut.push(tool_call_id);
            }
        }
    }

    fn after(&self, plan: &ContextPruned) -> u64 {
        let mut after = self.clone();
        after.prune(plan);
        after.tokens()
    }

    fn numbers(&self, number: impl Fn(MessagePosition) -> Option<u32>) -> Vec<u32> {
        let set: std::collections::BTreeSet<u32> = self.positions().filter_map(number).collect();
        set.into_iter().collect()
    }

    /// Returns the messages of a request to summarise everything before a turn.
    pub(crate) fn to_sum_up(&self, before: u32) -> Vec<Json> {
        let asked = Message::User { content: Content::Text(SUM_UP.to_owned()) };
        let older =
            self.positioned_messages().filter(|(_, place)| place.turn < before).map(|(message, _)| message.clone());
        self.system().cloned().into_iter().chain(older).chain([Json::of(&asked)]).collect()
    }
}

/// Upper bound of the bytes that an event adds to the transcript, most of them escaped once.
fn bytes_of(event: &Event) -> usize {
    const FRAME: usize = 256;
    match event {
        Event::AiFullReceived(reply) => Json::of(reply).get().len() + FRAME,
        Event::AiCutReceived(cut) => Json::of(cut).get().len() + FRAME,
        Event::ToolCallResult(result) => Json::of(result).get().len() + FRAME,
        Event::UserProcessed(user) => Json::of(user).get().len() + FRAME,
        Event::SessionStarted(started) => Json::of(started).get().len() + FRAME,
        Event::ToolsResolved(tools) => Json::of(tools).get().len(),
        Event::ContinuationProgress(progress) => progress.nudge.as_ref().map_or(0, |nudge| 2 * nudge.len() + FRAME),
        Event::Configured(configured) => {
            let prompt = configured.prompt.as_ref().map_or(0, |prompt| 2 * prompt.text.len() + FRAME);
            prompt + check::client_tools_bytes(configured.client_tools.as_deref())
        }
        Event::InputHandled(_)
        | Event::InputIgnored(_)
        | Event::SessionEnded(_)
        | Event::TurnStarted(_)
        | Event::PrivateTurnStarted(_)
        | Event::ModelCallOpened(_)
        | Event::ModelCallFailed(_)
        | Event::CallCancelled(_)
        | Event::ModelCallInterrupted(_)
        | Event::ToolCallIdentified(_)
        | Event::ToolCallOpened(_)
        | Event::ClientCallOpened(_)
        | Event::ToolCallExtended(_)
        | Event::StatusPaused(_)
        | Event::StatusResumed(_)
        | Event::TurnCompleted(_)
        | Event::GateOpened(_)
        | Event::GateClosed(_)
        | Event::ModelFellBack(_)
        | Event::LimitReached(_)
        | Event::SummaryOpened(_)
        | Event::JudgeOpened(_)
        | Event::ContextPruned(_)
        | Event::ChildCommanded(_)
        | Event::ContextCleared(_)
        | Event::TimerSet(_)
        | Event::SessionArchived(_)
        | Event::SessionImported(_)
        | Event::LogCompacted(_)
        | Event::SessionMoved(_)
        | Event::Error(_)
        | Event::Unknown => FRAME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_estimate_of_events_is_an_upper_bound() {
        let texts = ["", "short", &"long ".repeat(900), &"\"quoted\"\n".repeat(500), &"\u{e4}".repeat(2_000)];
        for text in texts {
            let quoted = serde_json::to_string(text).unwrap();
            for event in [
                format!(
                    r#"{{"type":"message.user_processed","data":{{"message_id":"m","content":{quoted},"mode":"steer"}}}}"#
                ),
                format!(
                    r#"{{"type":"message.ai_full_received","data":{{"call":"m1-1","turn":1,"step":1,"text":{quoted},
                        "tool_calls":[{{"id":"c1-1-1","type":"function","function":{{"name":"look","arguments":{quoted}}}}}],
                        "finish_reason":"stop","spent":{{"usage":{{"input":0,"output":0}},"cost_usd":0.0}},"latency_ms":1}}}}"#
                ),
                format!(
                    r#"{{"type":"tool_call.result_processed","data":{{"call":"c1-1-1","tool":"look","outcome":"ok",
                        "content":{quoted},"duration_ms":1}}}}"#
                ),
                format!(
                    r#"{{"type":"continuation.progress","data":{{"agent_id":"e","turn":1,"iteration":1,"max_iterations":5,
                        "progress":{{"current_step":1,"total_steps":null,"completion_percentage":null,"steps_completed":[],
                        "steps_remaining":[]}},"current_tools":[],"continues":true,"source":"explicit","reason":"",
                        "excerpt":"","status":"CONTINUE","call_ids":[],"nudge":{quoted}}}}}"#
                ),
            ] {
                let event: Event = serde_json::from_str(&event).unwrap();
                assert!(event != Event::Unknown);
                let mut transcript = Transcript::default();
                // The result belongs to a call of this reply.
                let asked = r#"{"type":"message.ai_full_received","data":{"call":"m1-1","turn":1,"step":1,"text":"",
                    "tool_calls":[{"id":"c1-1-1","type":"function","function":{"name":"look","arguments":"{}"}}],
                    "finish_reason":"stop","spent":{"usage":{"input":0,"output":0},"cost_usd":0.0},"latency_ms":1}}"#;
                transcript.apply(&serde_json::from_str(asked).unwrap());
                let opened = r#"{"type":"model_call_opened","data":{"call":"m1-2","attempt":1,"turn":1,"step":2,
                    "deadline":"2026-01-15T10:30:45Z"}}"#;
                let events = [event, serde_json::from_str(opened).unwrap()];
                let (before, guess) = (transcript.bytes(), transcript.tokens_at_most(&events));
                for event in &events {
                    transcript.apply(event);
                }
                assert!(guess >= transcript.tokens(), "{} bytes by {}", text.len(), events[0].name());
                let more = transcript.bytes().saturating_sub(before);
                assert!(bytes_of(&events[0]) <= 3 * more + 1_024, "{more} bytes by {}", events[0].name());
                assert!(guess <= TokenMeasurement::tokens(None, before + 3 * more + 2_048), "{guess} tokens");
            }
        }
    }

    #[test]
    fn has_before_is_true_only_after_an_earlier_turn() {
        let mut transcript = Transcript::default();
        assert!(!transcript.has_before(3));
        let user = |id: &str| {
            format!(
                r#"{{"type":"message.user_processed","data":{{"message_id":"{id}","content":"x","mode":"queue"}}}}"#
            )
        };
        let turn = |n: u32, id: &str| format!(r#"{{"type":"turn_started","data":{{"turn":{n},"messages":["{id}"]}}}}"#);
        for event in [user("a"), turn(2, "a")] {
            transcript.apply(&serde_json::from_str(&event).unwrap());
        }
        assert_eq!([1, 2, 3, 4].map(|turn| transcript.has_before(turn)), [false, false, true, true]);
    }
}
