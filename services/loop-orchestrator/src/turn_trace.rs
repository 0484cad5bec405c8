//! Positions in the trace of a turn, and the spans that the end of a turn sends.

use bus::{Bus, BusError};
use contract::commit::Commit;
use contract::event::Event;
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::trace::TraceContext;
use session::Session;
use session_trace::{TurnFacts, turn_spans};

use crate::input::DeliveredInput;

/// Under which span an input is handled: the turn that runs, or the one that the input would begin.
pub(crate) fn input_position(session: &Session, input: &DeliveredInput) -> Option<TraceContext> {
    let may_begin = input.trace.filter(|_| !session.has_running_turn() && input.is_client());
    may_begin.map(|given| given.turn(&session.key(), session.turns() + 1)).or_else(|| session.turn_trace())
}

/// The turn that ends with these events.
pub(crate) fn ended_turn(events: &[Event]) -> Option<u32> {
    events.iter().find_map(|event| {
        let Event::TurnCompleted(completed) = event else { return None };
        Some(completed.turn)
    })
}

/// Sends the spans of a turn that ended with the commit in `slot`; `before` is of the state before it. Returns whether
/// there were any: then the input is to be acknowledged only when they are exported, so that another replica sends them
/// if this one dies.
pub(crate) async fn send_turn(
    bus: &Bus,
    before: &TurnFacts,
    key: &SessionKey,
    turn: u32,
    slot: u64,
) -> Result<bool, BusError> {
    if !telemetry::trace::is_exporting() {
        return Ok(false);
    }
    let commits = match read_turn(bus, key, turn, slot).await {
        Ok(commits) => commits,
        Err(error) if error.is_final() => {
            tracing::warn!(session = %key, turn, %error, "the spans of a turn are not sent: its log cannot be read");
            return Ok(false);
        }
        // The input comes again, and the spans with it.
        Err(error) => return Err(error),
    };
    let with_content = telemetry::trace::carries_content();
    let Some(spans) = turn_spans(key, turn, before, &commits, with_content) else { return Ok(false) };
    let is_sampled = spans.context.is_sampled;
    telemetry::trace::send(spans.spans);
    Ok(is_sampled)
}

/// What the spans of turn `turn` need beside its commits.
pub(crate) fn facts(session: &Session, turn: u32) -> TurnFacts {
    let (agent_id, model) = session.who();
    TurnFacts {
        agent_id: agent_id.to_owned(),
        agent_name: session.agent_name().to_owned(),
        model: model.to_owned(),
        previous: session.trace_before(turn),
    }
}

/// The commits of a turn, from the one that began it to the one in `slot`, which ended it.
async fn read_turn(bus: &Bus, key: &SessionKey, turn: u32, slot: u64) -> Result<Vec<(u64, Commit)>, BusError> {
    let mut commits = Vec::new();
    let mut last = slot;
    loop {
        let mut page = bus.page_until(key, last).await?.unwrap_or_default();
        page.append(&mut commits);
        commits = page;
        let begins = |(_, commit): &(u64, Commit)| {
            commit.events.iter().any(|event| matches!(event, Event::TurnStarted(started) if started.turn == turn))
        };
        let Some(before) = (last / SLOTS_PER_PAGE * SLOTS_PER_PAGE).checked_sub(1) else { return Ok(commits) };
        if commits.iter().any(begins) {
            return Ok(commits);
        }
        last = before;
    }
}
