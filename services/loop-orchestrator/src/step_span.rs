//! The span of a step of the loop.

use session::Session;

use crate::input::DeliveredInput;

/// Opens the span under which an input is handled. While a turn runs, the parent is the trace of the turn in the log,
/// so that it is the same for each sender and replica. Between turns the parent is the trace of the sender.
pub(crate) fn open_step_span(session: &Session, input: &DeliveredInput) -> tracing::Span {
    let (agent, turn, step) = session.position();
    let span = telemetry::span::step(input.key.session.as_str(), turn, step, agent);
    let (sender, committed) = (input.traceparent.as_deref(), session.traceparent());
    let runs = session.running_turn().is_some();
    let parent = if runs { committed.or(sender) } else { sender.or(committed) };
    if let Some(parent) = parent {
        telemetry::trace::set_parent(&span, parent);
        let trace = telemetry::trace::trace_id;
        if let Some(other) = sender.filter(|sender| trace(sender) != trace(parent)) {
            telemetry::trace::link(&span, other);
        }
    }
    span
}
