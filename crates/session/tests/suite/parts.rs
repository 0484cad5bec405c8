//! Parts of the transcript: what the log has need not be repeated.

use std::time::Duration;

use contract::command::MessageMode;
use contract::commit::Commit;
use contract::event::Event;
use contract::limits::{ARCHIVE_AFTER, SLOTS_PER_PAGE, TRANSCRIPT_PART_BYTES};
use contract::settings::ContinuationSettings;
use session::Session;

use crate::talk::Talk;

fn turns(talk: &mut Talk, count: usize) {
    for turn in 0..count {
        talk.reply(&format!("Answer {turn}."), &[]);
        talk.send_message(&format!("Question {turn}."), MessageMode::Queue);
    }
}

/// Messages that the item of the open call repeats.
fn repeated(talk: &Talk) -> usize {
    let item = talk.session.model_item(&talk.model_call()).unwrap();
    item.after.map_or(item.messages.len(), |after| 1 + after.messages.len())
}

#[test]
fn call_repeats_only_what_is_in_no_part() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    turns(&mut talk, 40);
    assert_eq!(talk.session.messages().len(), 82);
    assert!(repeated(&talk) <= 6, "{}", repeated(&talk));
    assert_eq!(talk.item().messages, talk.session.messages());
    let kept = talk.session.kept_slots();
    assert!(kept.len() > 10 && kept.is_sorted(), "{kept:?}");
}

#[test]
fn part_is_wanted_when_much_would_be_repeated() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let mut before = talk.session.clone();
    talk.reply(&"x".repeat(TRANSCRIPT_PART_BYTES), &[]);
    // The same reply, folded without any part beside it.
    let (slot, commit) = talk.log.last().unwrap();
    before.fold_commit(*slot, &Commit { transcript: None, snapshot: None, ..commit.clone() });
    assert!(before.wants_part(TRANSCRIPT_PART_BYTES));
    let (next, part) = (before.next_slot(), before.next_part());
    before.add_part(next, "next", &part);
    assert!(!before.wants_part(TRANSCRIPT_PART_BYTES));
}

#[test]
fn transcript_that_is_changed_is_stored_anew_and_old_parts_leave() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    turns(&mut talk, 10);
    let old = talk.session.kept_slots();
    assert!(!old.is_empty());
    talk.reply("Done.", &[]);
    talk.clear();
    assert!(talk.session.kept_slots().is_empty() && talk.session.leaving_slots().is_empty());
    talk.send_message("Begin anew.", MessageMode::Queue);
    let page = |talk: &Talk| (talk.session.next_slot() - 1) / SLOTS_PER_PAGE;
    while page(&talk) == 0 {
        turns(&mut talk, 1);
    }
    assert!(talk.session.leaving_slots().starts_with(&old), "they leave with the page");
    assert!(talk.session.kept_slots().iter().all(|slot| !old.contains(slot)));
    while page(&talk) == 1 {
        turns(&mut talk, 1);
    }
    assert!(talk.session.leaving_slots().is_empty(), "and that is tried once");
}

#[test]
fn page_without_the_parts_before_it_is_not_folded() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    turns(&mut talk, 40);
    let begins = |(_, commit): &&(u64, Commit)| {
        commit.snapshot.is_some() && commit.transcript.as_ref().is_some_and(|part| !part.before.is_empty())
    };
    let page = talk.log.iter().rev().find(begins).unwrap().clone();
    let refused = Session::replay(talk.session.key(), std::slice::from_ref(&page)).unwrap_err();
    assert!(refused.to_string().contains("parts of the transcript"), "{refused}");

    let (slot, mut commit) = page;
    let part = commit.transcript.as_mut().unwrap();
    let find = |slot: u64| talk.log.iter().find(|(at, _)| *at == slot).unwrap().1.transcript.clone().unwrap();
    part.earlier = part.before.iter().map(|part| find(part.slot)).collect();
    let read = Session::replay(talk.session.key(), &[(slot, commit)]).unwrap();
    let whole: Vec<(u64, Commit)> = talk.log.iter().filter(|(at, _)| *at <= slot).cloned().collect();
    let whole = Session::replay(talk.session.key(), &whole).unwrap();
    assert_eq!((read.messages(), read.kept_slots()), (whole.messages(), whole.kept_slots()));
}

#[test]
fn archived_session_keeps_no_parts() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    turns(&mut talk, 10);
    talk.stop();
    talk.wait(ARCHIVE_AFTER + Duration::from_millis(1));
    assert!(talk.events.iter().any(|event| matches!(event, Event::SessionArchived(_))));
    assert_eq!(talk.session.kept_slots(), Vec::<u64>::new());
}
