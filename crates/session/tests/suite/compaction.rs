//! The log of an idle session is compacted to one commit, and the session goes on from it.

use std::time::Duration;

use contract::Timestamp;
use contract::command::MessageMode;
use contract::commit::Phase;
use contract::event::Event;
use contract::limits::{COMPACT_AFTER, COMPACT_COMMITS_MIN, IDLE_MAX};
use contract::settings::ContinuationSettings;
use session::{Session, SessionEffect};

use crate::talk::{Cast, Talk};

/// A session that had two turns, and the time of its last commit.
fn idle() -> (Talk, u64) {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("Done.", &[]);
    talk.send_message("And again.", MessageMode::Queue);
    talk.reply("Done again.", &[]);
    let last = talk.now;
    (talk, last)
}

fn compactions(talk: &Talk) -> Vec<u64> {
    let slots = |event: &Event| match event {
        Event::LogCompacted(compacted) => Some(compacted.slots),
        _ => None,
    };
    talk.events.iter().filter_map(slots).collect()
}

/// The state as a replica loads it from what the log has since it was compacted.
fn loaded(talk: &Talk) -> Session {
    let start = talk.session.log_start().unwrap();
    let since: Vec<_> = talk.log.iter().filter(|(slot, _)| *slot >= start).cloned().collect();
    Session::restore(talk.session.key(), &since).unwrap()
}

#[test]
fn idle_log_is_compacted_to_a_commit_that_has_everything() {
    let (mut talk, last) = idle();
    let (messages, summary) = (talk.session.messages(), talk.session.summary());
    let slot = talk.session.next_slot();
    talk.wait(COMPACT_AFTER.saturating_sub(Duration::from_millis(1)));
    assert_eq!(compactions(&talk), [] as [u64; 0]);
    talk.wait(Duration::from_millis(1));
    let compacted = compactions(&talk);
    assert_eq!(compacted.len(), 1);
    let start = talk.session.next_slot() - 1;
    assert!(compacted == [start] && start >= slot, "{compacted:?} {start} {slot}");
    let owed = [
        SessionEffect::Archive { below: start },
        SessionEffect::SetTimer { number: talk.session.timers(), at: Timestamp::from_millis(last).after(IDLE_MAX) },
    ];
    assert_eq!(talk.effects, owed, "the only thing that is due later is its end");
    assert!(talk.session.outstanding().contains(&owed[0]), "also after a reload");

    assert!(talk.session.is_compacted() && !talk.session.is_archived());
    assert_eq!((talk.session.phase(), talk.session.messages()), (Phase::Idle, messages));
    let now = talk.session.summary();
    assert_eq!((now.seq, now.turn, now.spent, now.title), (summary.seq, summary.turn, summary.spent, summary.title));
    assert_eq!(loaded(&talk).snapshot(), talk.session.snapshot(), "the commit stands alone");

    // Nothing more is written until somebody wants something.
    let slots = talk.session.next_slot();
    talk.wait(IDLE_MAX / 2);
    assert_eq!(talk.session.next_slot(), slots);
}

#[test]
fn compacted_session_goes_on_as_if_nothing_had_happened() {
    let (mut talk, _) = idle();
    let (mut other, _) = idle();
    talk.wait(COMPACT_AFTER * 3);
    other.compact_after = IDLE_MAX * 2;
    assert_eq!((compactions(&talk).len(), compactions(&other).len()), (1, 0));
    for talk in [&mut talk, &mut other] {
        talk.send_message("Here?", MessageMode::Queue);
    }
    assert_eq!(loaded(&talk).snapshot(), talk.session.snapshot());
    assert_eq!(talk.session.messages(), other.session.messages());
    assert_eq!((talk.session.seq(), talk.session.turns()), (other.session.seq(), other.session.turns()));
    assert_eq!(talk.session.open_calls(), other.session.open_calls());
    assert!(!talk.session.is_compacted());
    for talk in [&mut talk, &mut other] {
        talk.reply("Here.", &[]);
    }
    assert_eq!(talk.session.messages(), other.session.messages());
    // What was handled before the compaction is known after it.
    let remembered = loaded(&talk);
    for (slot, commit) in &talk.log {
        for input in commit.events.iter().filter_map(Event::closed_input) {
            assert_eq!(remembered.handled(input), Some(*slot), "{input:?}");
        }
    }
    // It rests again.
    talk.wait(COMPACT_AFTER * 3);
    assert_eq!(compactions(&talk).len(), 2);
    assert_eq!(loaded(&talk).snapshot(), talk.session.snapshot());
}

#[test]
fn log_that_is_short_or_in_a_turn_is_not_compacted() {
    let (mut talk, _) = idle();
    talk.compact_after = Duration::ZERO;
    talk.send_message("Once more.", MessageMode::Queue);
    talk.wait(Duration::from_secs(1));
    assert_eq!((talk.session.phase(), compactions(&talk)), (Phase::Running, Vec::new()), "a turn needs its log");
    talk.reply("Done.", &[]);
    talk.wait(Duration::ZERO);
    assert_eq!(compactions(&talk).len(), 1, "at once");

    // An older commit would be one message in the archive.
    let mut talk = Talk::not_started("s");
    let start = contract::command::Start { interactive: true, ..contract::command::Start::default() };
    talk.start("start", start, Ok(Cast::default()));
    assert!(talk.session.next_slot() < COMPACT_COMMITS_MIN);
    talk.wait(COMPACT_AFTER * 20);
    assert_eq!((compactions(&talk), talk.session.next_slot()), (Vec::new(), 1));

    // It ends, and is archived.
    let (mut talk, _) = idle();
    talk.stop();
    talk.wait(COMPACT_AFTER * 20);
    assert_eq!(compactions(&talk), [] as [u64; 0]);
    assert!(talk.session.is_archived());
}

#[test]
fn paused_session_with_a_waiting_message_is_compacted_and_resumed() {
    let (mut talk, _) = idle();
    talk.pause();
    talk.send_message("Later.", MessageMode::Queue);
    talk.wait(COMPACT_AFTER * 3);
    assert_eq!(compactions(&talk).len(), 1);
    assert_eq!(loaded(&talk).snapshot(), talk.session.snapshot());
    assert_eq!(talk.session.phase(), Phase::Paused);
    talk.resume();
    assert_eq!(talk.session.phase(), Phase::Running);
    assert!(talk.item().messages.iter().any(|message| message.get().contains("Later.")));
}

#[test]
fn compacted_session_ends_when_nobody_wants_anything_and_is_archived() {
    let (mut talk, last) = idle();
    talk.wait(IDLE_MAX);
    assert_eq!(compactions(&talk).len(), 1);
    assert!(talk.session.phase() == Phase::Ended && !talk.session.is_archived(), "it is not archived before its time");
    assert_eq!(talk.now, last + u64::try_from(IDLE_MAX.as_millis()).unwrap());
    let start = talk.session.log_start();
    assert!(start.is_some() && talk.session.archived().is_none());
    assert_eq!(loaded(&talk).snapshot(), talk.session.snapshot(), "the log has what it needs until then");
    talk.wait(contract::limits::ARCHIVE_AFTER);
    assert!(talk.session.is_archived());
}

#[test]
fn imported_session_that_ends_keeps_its_log_until_it_is_archived() {
    let (mut talk, _) = idle();
    let decision = talk.session.import(Timestamp::from_millis(9_000_000), Timestamp::from_millis(1)).unwrap();
    talk.commit(&decision);
    let title = talk.session.summary().title;
    talk.stop();
    let (_, commit) = talk.log.last().unwrap();
    assert!(!commit.meta.is_archived(), "it cannot be read without the commit that imported it");
    assert_eq!(commit.meta.log_start, talk.session.log_start());
    assert_eq!((loaded(&talk).summary().title, talk.session.is_archived()), (title, false));
}

#[test]
fn refused_command_postpones_a_compaction_like_any_other() {
    let (mut talk, _) = idle();
    talk.wait(COMPACT_AFTER);
    assert_eq!(compactions(&talk).len(), 1);
    for _ in 0..8 {
        talk.wait(Duration::from_mins(5));
        talk.resume();
        assert_eq!(talk.refused(), Some("not_now"));
    }
    assert_eq!(compactions(&talk).len(), 1, "a page of the archive is not written for each of them");
    talk.wait(COMPACT_AFTER);
    assert_eq!(compactions(&talk).len(), 2);
}
