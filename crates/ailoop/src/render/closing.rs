//! The line that closes a turn.

use contract::Timestamp;
use contract::event::{StopReason, TurnCompleted};

use crate::figures;
use crate::terminal::{Output, Style};

/// What is counted of the turn at hand.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) tools: u64,
    began: Option<Timestamp>,
    trace_id: String,
}

impl Turn {
    /// Notes when the turn's first notification was decided, and its trace.
    pub(super) fn heard(&mut self, time: Option<Timestamp>, trace_id: &str) {
        self.began = self.began.or(time);
        if !trace_id.is_empty() {
            trace_id.clone_into(&mut self.trace_id);
        }
    }

    /// The closing line; the next turn counts from zero.
    pub(super) fn close(&mut self, turn: &TurnCompleted, time: Option<Timestamp>) -> Output {
        let counted = std::mem::take(self);
        let (style, how) = match turn.stop_reason {
            StopReason::Completed => (Style::Good, "✓ done"),
            StopReason::MaxIterations => (Style::Warn, "‼ stopped at the limit of iterations"),
            StopReason::Timeout => (Style::Warn, "‼ stopped at the limit of time"),
            StopReason::TokenLimit => (Style::Warn, "‼ stopped at the limit of tokens"),
            StopReason::CostLimit => (Style::Warn, "‼ stopped at the limit of cost"),
            StopReason::ToolCallLimit => (Style::Warn, "‼ stopped at the limit of tool calls"),
            StopReason::Repetition => (Style::Warn, "‼ stopped: the model repeats the same call"),
            StopReason::NoProgress => (Style::Warn, "‼ stopped: nothing new for several steps"),
            StopReason::Stopped => (Style::Warn, "‼ stopped"),
            StopReason::Error => (Style::Bad, "× failed"),
        };
        let mut parts = vec![
            figures::plural(turn.iterations.into(), "step"),
            figures::plural(counted.tools, "tool"),
            figures::plural(turn.spent.usage.total(), "token"),
        ];
        if turn.spent.cost_usd > 0.0 {
            parts.push(format!("${:.4}", turn.spent.cost_usd));
        }
        if let (Some(began), Some(time)) = (counted.began, time) {
            parts.push(figures::duration(time.since(began)));
        }
        if !counted.trace_id.is_empty() {
            parts.push(format!("trace {}", counted.trace_id));
        }
        Output::Note(style, format!("{how}  {}", parts.join(" · ")))
    }
}
