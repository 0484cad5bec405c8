//! The mark of handled client commands: what it covers, and what it does not cover in a stream that was put back.

use contract::Timestamp;
use contract::command::Verb;
use contract::event::{Event, InputHandled, InputKind, InputRef};
use contract::ids::{CommandId, SessionId, TenantId};
use contract::limits::HANDLED_IDS_MAX;
use contract::subject::SessionKey;
use session::Session;

fn input(n: u64) -> InputRef {
    InputRef { kind: InputKind::Control(Verb::Pause), id: CommandId::new(&format!("u{n}")).unwrap() }
}

fn at(n: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + n)
}

/// A session that handled as many commands, each with its sequence, at its time.
fn session(commands: impl IntoIterator<Item = (u64, u64)>) -> Session {
    let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
    let mut session = Session::new(key);
    for (slot, (seq, time)) in (0..).zip(commands) {
        let (control_seq, control_at) = (Some(seq), Some(at(time)));
        let event = InputHandled { input: input(time), control_seq, control_at, parent_command_number: None };
        session.fold(slot, at(time), &[Event::InputHandled(event)]);
    }
    session
}

#[test]
fn command_below_the_mark_counts_as_handled_only_where_ids_were_forgotten() {
    let few = session((1..=5).map(|n| (n, n)));
    assert!(few.has_handled(&input(3), Some(3), Some(at(3))), "its id is remembered");
    assert!(!few.has_handled(&input(99), Some(3), Some(at(3))), "no id was forgotten, so it was never handled");

    let many = session((1..=HANDLED_IDS_MAX as u64 + 5).map(|n| (n, n)));
    assert!(many.has_handled(&input(3), Some(3), Some(at(3))), "its id is forgotten");
    let next = HANDLED_IDS_MAX as u64 + 6;
    assert!(!many.has_handled(&input(next), Some(next), Some(at(next))));
    assert!(!many.has_handled(&input(next), Some(7), Some(at(next))), "an old sequence, given out again later");
    assert!(many.has_handled(&input(0), Some(7), None), "an older version does not tell when");
}

#[test]
fn mark_follows_a_stream_that_counts_again() {
    let session = session([(10, 1), (11, 2), (3, 7), (4, 8)]);
    assert_eq!(session.control_seq(), 4);
    let out_of_order = self::session([(10, 1), (9, 1)]);
    assert_eq!(out_of_order.control_seq(), 10, "taken no later: the mark stays");
}
