//! Archiving of a session: page by page while it lives, and completely some time after its end.

use std::time::Duration;

use contract::command::MessageMode;
use contract::commit::Phase;
use contract::event::Event;
use contract::limits::{ARCHIVE_AFTER, IDLE_MAX, SLOTS_PER_PAGE};
use contract::settings::ContinuationSettings;
use contract::{CellName, ErrorCode, Timestamp};
use session::SessionEffect;

use crate::talk::{Cast, Talk};

fn refusals(talk: &Talk) -> Vec<ErrorCode> {
    let code = |event: &Event| match event {
        Event::InputIgnored(ignored) => Some(ignored.refusal.code.clone()),
        _ => None,
    };
    talk.events.iter().filter_map(code).collect()
}

#[test]
fn ended_session_is_archived_by_its_timer() {
    let mut talk = Talk::once(Cast::default());
    talk.reply("Done.", &[]);
    assert_eq!(talk.session.phase(), Phase::Ended);
    let set = talk.effects.iter().any(|effect| matches!(effect, SessionEffect::SetTimer { .. }));
    assert!(set && !talk.effects.contains(&SessionEffect::CancelTimer));
    assert!(
        talk.session.outstanding().iter().any(|effect| matches!(effect, SessionEffect::SetTimer { .. })),
        "also after a reload"
    );
    let (slots, summary, messages) = (talk.session.next_slot(), talk.session.summary(), talk.session.messages());

    talk.wait(ARCHIVE_AFTER.saturating_sub(Duration::from_millis(1)));
    assert_eq!((talk.session.is_archived(), talk.session.messages()), (false, messages));
    talk.wait(Duration::from_millis(1));
    let owed = vec![SessionEffect::Archive { below: slots }, SessionEffect::Index];
    assert_eq!((talk.session.archived(), &talk.effects), (Some(slots), &owed));
    assert_eq!(talk.session.outstanding(), owed);
    assert!(talk.session.messages().is_empty() && talk.session.snapshot().get().len() < 4_000);
    let left = talk.session.summary();
    assert_eq!((left.title, left.spent, left.seq), (summary.title, summary.spent, summary.seq));

    // A late command is refused, and the tombstone does not grow.
    talk.send_message("Are you there?", MessageMode::Queue);
    assert_eq!(refusals(&talk), [ErrorCode::SessionEnded]);
    talk.wait(ARCHIVE_AFTER * 50);
    assert_eq!((talk.session.archived(), talk.session.next_slot()), (Some(slots), slots + 2));
}

#[test]
fn long_session_archives_its_old_pages() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let mut left = Vec::new();
    while talk.session.next_slot() <= 3 * SLOTS_PER_PAGE {
        talk.reply("Done.", &[]);
        left.extend(archived(&talk.effects).map(|below| (talk.session.next_slot() - 1, below)));
        talk.send_message("And again.", MessageMode::Queue);
        left.extend(archived(&talk.effects).map(|below| (talk.session.next_slot() - 1, below)));
    }
    let page = SLOTS_PER_PAGE;
    assert_eq!(left, [(2 * page, page), (3 * page, 2 * page)]);
    let owed = talk.session.outstanding();
    assert_eq!(archived(&owed).collect::<Vec<_>>(), [2 * page], "what was not done is owed");
}

fn archived(effects: &[SessionEffect]) -> impl Iterator<Item = u64> {
    effects.iter().filter_map(|effect| match effect {
        SessionEffect::Archive { below } => Some(*below),
        _ => None,
    })
}

#[test]
fn imported_session_handles_local_commands() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("Done.", &[]);
    let (slot, messages) = (talk.session.next_slot(), talk.session.messages());
    assert!(talk.session.control_seq() > 0);
    assert!(talk.session.import(Timestamp::default(), Timestamp::default()).is_some());
    let decision = talk.session.import(Timestamp::from_millis(9_000_000), Timestamp::from_millis(1)).unwrap();
    let set = SessionEffect::SetTimer { number: 2, at: Timestamp::from_millis(9_000_000).after(IDLE_MAX) };
    assert_eq!(decision.effects, [SessionEffect::Index, set], "it may be idle for as long as any");
    talk.commit(&decision);
    assert_eq!((talk.session.control_seq(), talk.session.archived()), (0, Some(slot)));
    assert_eq!((talk.session.phase(), talk.session.messages()), (Phase::Idle, messages));

    talk.send_message("Here?", MessageMode::Queue);
    assert!(talk.session.import(Timestamp::default(), Timestamp::default()).is_none(), "in a turn");
    assert!(Talk::not_started("u").session.import(Timestamp::default(), Timestamp::default()).is_none());
}

#[test]
fn session_moved_to_another_cell_refuses_everything() {
    let cell = |name: &str| CellName::new(name).unwrap();
    let mut talk = Talk::begin(ContinuationSettings::default());
    let now = Timestamp::from_millis(9_000_000);
    assert!(talk.session.move_to(now, cell("b")).is_none(), "in a turn");
    talk.reply("Done.", &[]);
    let slots = talk.session.next_slot();
    let decision = talk.session.move_to(now, cell("b")).unwrap();
    assert_eq!(decision.effects, [SessionEffect::Archive { below: slots }, SessionEffect::Index]);
    talk.commit(&decision);
    assert_eq!((talk.session.moved(), talk.session.archived()), (Some(&cell("b")), Some(slots)));
    assert_eq!((talk.session.phase(), talk.session.timer().is_none()), (Phase::Ended, true));
    assert_eq!(talk.session.outstanding(), decision.effects);
    talk.send_message("Here?", MessageMode::Queue);
    assert_eq!((refusals(&talk), talk.session.moved()), (vec![ErrorCode::SessionMoved], Some(&cell("b"))));

    // A log that never had the session keeps its id, and so does one from which it went and to which it comes back.
    let mut expecting = Talk::not_started("u");
    let decision = expecting.session.move_to(now, cell("a")).unwrap();
    assert_eq!(decision.effects, [SessionEffect::Archive { below: 0 }, SessionEffect::Index]);
    let decision = talk.session.move_to(now, cell("c")).unwrap();
    assert_eq!(decision.effects, [SessionEffect::Archive { below: 0 }, SessionEffect::Index]);
    expecting.session.fold(0, now, &decision.events);
    assert_eq!(expecting.session.moved(), Some(&cell("c")));
}

#[test]
fn imported_ended_session_is_archived_at_once() {
    let mut talk = Talk::once(Cast::default());
    talk.reply("Done.", &[]);
    let (slot, title) = (talk.session.next_slot(), talk.session.summary().title);
    let decision = talk.session.import(Timestamp::from_millis(9_000_000), Timestamp::default()).unwrap();
    assert_eq!(decision.effects, [SessionEffect::Index, SessionEffect::Archive { below: slot }]);
    talk.commit(&decision);
    assert!(talk.session.is_archived() && talk.session.messages().is_empty());
    assert_eq!(talk.session.summary().title, title);
}
