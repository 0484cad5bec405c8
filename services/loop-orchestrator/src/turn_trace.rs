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

/// A turn that ends, and what its spans need beside its commits.
#[derive(Debug)]
pub(crate) struct EndedTurn {
    number: u32,
    pub(crate) facts: TurnFacts,
    /// The state says that the trace is not sampled. False where the state does not know the turn's trace.
    is_left_out: bool,
    /// The slot with which the log began when the turn ended, or later; 0 if it was never compacted.
    log_start: u64,
}

impl EndedTurn {
    /// The turn that ends with these events. `session` is the state before them, or a later one.
    pub(crate) fn find(session: &Session, events: &[Event]) -> Option<Self> {
        let number = events.iter().find_map(|event| {
            let Event::TurnCompleted(completed) = event else { return None };
            Some(completed.turn)
        })?;
        let (agent_id, model) = session.who();
        let facts = TurnFacts {
            agent_id: agent_id.to_owned(),
            agent_name: session.agent_name().to_owned(),
            model: model.to_owned(),
            previous: session.trace_before(number),
        };
        let trace = session.turn_trace().filter(|_| session.turns() == number);
        let log_start = session.log_start().unwrap_or(0);
        Some(Self { number, facts, log_start, is_left_out: trace.is_some_and(|trace| !trace.is_sampled) })
    }
}

/// Sends the spans of a turn that ended with the commit in `slot`. Returns whether there were any: then the input is to be
/// acknowledged only when they are exported, so that another replica sends them if this one dies.
pub(crate) async fn send_turn(bus: &Bus, ended: &EndedTurn, key: &SessionKey, slot: u64) -> Result<bool, BusError> {
    // Most turns are not sampled, and reading their logs would cost more than all other spans.
    if ended.is_left_out || !telemetry::trace::is_exporting() {
        return Ok(false);
    }
    let turn = ended.number;
    let commits = match read_turn(bus, key, turn, ended.log_start, slot).await {
        Ok(commits) => commits,
        Err(error) if error.is_final() => {
            tracing::warn!(session = %key, turn, %error, "the spans of a turn are not sent: its log cannot be read");
            return Ok(false);
        }
        // The input comes again, and the spans with it.
        Err(error) => return Err(error),
    };
    let with_content = telemetry::trace::carries_content();
    let Some(spans) = turn_spans(key, turn, &ended.facts, &commits, with_content) else { return Ok(false) };
    let is_sampled = spans.context.is_sampled;
    telemetry::trace::send(spans.spans);
    Ok(is_sampled)
}

/// The commits of a turn, from the one that began it to the one in `slot`, which ended it. A log is compacted between
/// two turns, so it has all of this one from slot `log_start` on.
async fn read_turn(
    bus: &Bus,
    key: &SessionKey,
    turn: u32,
    log_start: u64,
    slot: u64,
) -> Result<Vec<(u64, Commit)>, BusError> {
    let mut commits = Vec::new();
    let mut last = slot;
    loop {
        let first = (last / SLOTS_PER_PAGE * SLOTS_PER_PAGE).max(log_start);
        let mut page = bus.commits(key, first, last).await?.unwrap_or_default();
        page.append(&mut commits);
        commits = page;
        let begins = |(_, commit): &(u64, Commit)| {
            commit.events.iter().any(|event| event.turn_started().is_some_and(|started| started.turn == turn))
        };
        let Some(before) = first.checked_sub(1).filter(|_| first > log_start) else { return Ok(commits) };
        if commits.iter().any(begins) {
            return Ok(commits);
        }
        last = before;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use contract::event::{StopReason, TurnCompleted, TurnStarted};
    use contract::spent::Spent;
    use contract::{SessionId, TenantId, Timestamp};

    use super::*;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    /// Whether the spans of turn 1 are left out, by a state in which these turns have begun.
    fn is_left_out(begun: &[Option<&str>]) -> bool {
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let mut session = Session::new(key);
        for (turn, traceparent) in (1..).zip(begun) {
            let traceparent = traceparent.map(str::to_owned);
            let started = TurnStarted { turn, traceparent, messages: Vec::new(), premature: false };
            session.fold(session.next_slot(), Timestamp::default(), &[Event::TurnStarted(started)]);
        }
        let completed = TurnCompleted {
            turn: 1,
            stop_reason: StopReason::Completed,
            status: None,
            iterations: 1,
            final_response: String::new(),
            spent: Spent::default(),
            spent_own: None,
            by: None,
            note: None,
        };
        EndedTurn::find(&session, &[Event::TurnCompleted(completed)]).unwrap().is_left_out
    }

    #[test]
    fn log_of_a_turn_is_read_unless_its_trace_is_known_not_to_be_sampled() {
        assert!(is_left_out(&[Some(UNSAMPLED)]));
        assert!(!is_left_out(&[Some(SAMPLED)]));
        // The state does not know the trace of the turn: no trace, a later turn, a turn that begins and ends at once.
        assert!(!is_left_out(&[None]));
        assert!(!is_left_out(&[Some(SAMPLED), Some(UNSAMPLED)]));
        assert!(!is_left_out(&[]));
    }
}
