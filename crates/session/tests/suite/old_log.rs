//! Logs of older versions still fold. `logs/fold-<n>.jsonl` was written by the version that counted its fold as n; it
//! is never written again.

use contract::commit::{Commit, FOLD, Phase, SessionCounters, SessionSummary};
use contract::event::{ContextPruned, Event, Spent};
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::{Json, SessionId, TenantId};
use serde::Deserialize;
use session::Session;

#[derive(Deserialize)]
struct Line {
    slot: u64,
    commit: Commit,
}

fn key() -> SessionKey {
    SessionKey { tenant: TenantId::default(), session: SessionId::new("s0").unwrap() }
}

fn values(messages: &[Json]) -> Vec<serde_json::Value> {
    messages.iter().map(|message| serde_json::from_str(message.get()).unwrap()).collect()
}

#[test]
fn a_log_of_the_first_fold_still_folds() {
    let lines = include_str!("logs/fold-1.jsonl").lines();
    let commits: Vec<(u64, Commit)> = lines
        .map(|line| serde_json::from_str::<Line>(line).unwrap())
        .map(|Line { slot, commit }| (slot, commit))
        .collect();
    assert!(commits.iter().all(|(_, commit)| commit.meta.fold == 1 && !commit.is_newer()), "fold {FOLD} reads fold 1");
    let unsnapped: Vec<(u64, Commit)> =
        commits.iter().cloned().map(|(slot, commit)| (slot, Commit { snapshot: None, ..commit })).collect();
    let whole = Session::replay(key(), &unsnapped).unwrap();
    assert_eq!((whole.next_slot(), whole.phase()), (141, Phase::Ended));

    // From each page's snapshot on, as an orchestrator reads it.
    for page in 0..=2 {
        let from: Vec<(u64, Commit)> =
            commits.iter().filter(|(slot, _)| *slot >= page * SLOTS_PER_PAGE).cloned().collect();
        assert_eq!(from[0].1.snapshot.is_some(), page > 0);
        let session = Session::replay(key(), &from).unwrap();
        assert_eq!((session.seq(), session.phase()), (whole.seq(), whole.phase()), "page {page}");
        assert!(values(&session.messages()) == values(&whole.messages()), "page {page}: another transcript");
        // Turns were not counted then: from a page on there are only those of the page.
        let uncounted = |session: &Session| SessionSummary { tally: SessionCounters::default(), ..session.summary() };
        assert_eq!(uncounted(&session), uncounted(&whole), "page {page}");
    }

    // Places in the transcript were not known then: what a snapshot shows can be pruned all the same.
    let page: Vec<(u64, Commit)> = commits.iter().filter(|(slot, _)| *slot == SLOTS_PER_PAGE).cloned().collect();
    let mut session = Session::replay(key(), &page).unwrap();
    let before = session.messages().len();
    let pruned = ContextPruned {
        turn: session.summary().turn,
        cut: Vec::new(),
        keep_bytes: 0,
        before_turn: 1,
        before_step: 0,
        summary: None,
        tokens_before: 0,
        tokens_after: 0,
        spent: Spent::default(),
    };
    session.fold(SLOTS_PER_PAGE + 1, session.summary().updated, &[Event::ContextPruned(pruned)]);
    let roles: Vec<String> =
        values(&session.messages()).iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect();
    assert!(roles.len() < before && roles[..2] == ["system", "user"], "{roles:?}");

    // And at each slot the state is that of the log, whatever the page.
    let mut live = Session::new(key());
    for (slot, commit) in &unsnapped {
        live.fold(*slot, commit.meta.time, &commit.events);
        assert_eq!(
            live.seq() + 1,
            commits.get(usize::try_from(slot + 1).unwrap()).map_or(live.seq() + 1, |next| next.1.meta.seq)
        );
        assert!(!commit.events.contains(&Event::Unknown), "slot {slot}");
    }
}
