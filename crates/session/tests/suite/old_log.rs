//! Logs of older versions still fold. `logs/fold-<n>.jsonl` was written by the version that counted its fold as n; it
//! is never written again.

use std::collections::BTreeMap;

use contract::command::{ControlReason, MessageMode, Start, Verb};
use contract::commit::{Commit, FOLD, Phase, SessionCounters, SessionSummary};
use contract::event::{ContextPruned, Event, Spent};
use contract::limits::SLOTS_PER_PAGE;
use contract::model::{Content, Message, Usage};
use contract::subject::SessionKey;
use contract::{Json, SessionId, TenantId};
use serde::Deserialize;
use serde_json::json;
use session::{Body, Session};

use crate::talk::{Cast, Talk};

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
    // The starts of turns were no public events then, and take no `seq` now.
    assert_eq!(Some(whole.seq()), commits.last().map(|(_, commit)| commit.last_seq()));

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

/// The log as an older fold wrote it. Those below 14 did not keep which commit opened a model call. Those below 13 kept
/// no replies that were called off, did not count what a session used itself, and took every message of a history for
/// one of the user.
fn as_fold(fold: u32, log: &mut [(u64, Commit)]) {
    for (_, commit) in log {
        commit.meta.fold = fold;
        if let Some(snapshot) = &mut commit.snapshot {
            let mut stored: BTreeMap<String, Json> = serde_json::from_str(snapshot.get()).unwrap();
            let mut state: serde_json::Value = serde_json::from_str(stored["core"].get()).unwrap();
            let fields = state.as_object_mut().unwrap();
            if let Some(turn) = fields["turn"].as_object_mut() {
                turn.remove("opened_by");
            }
            for cut in fields.get_mut("cut_calls").and_then(serde_json::Value::as_array_mut).into_iter().flatten() {
                cut.as_object_mut().unwrap().remove("opened_by");
            }
            if fold < 13 {
                fields.remove("cut_calls");
                fields.remove("spent_own");
                if let Some(turn) = fields["turn"].as_object_mut() {
                    turn.remove("spent_own");
                }
            }
            stored.insert("core".to_owned(), Json::of(&state));
            *snapshot = Json::of(&stored);
        }
        if let Some(part) = commit.transcript.as_mut().filter(|_| fold < 13) {
            let mut places: Vec<serde_json::Value> = serde_json::from_str(part.positions.get()).unwrap();
            for place in places.iter_mut().filter(|place| place["turn"] == 0) {
                place["kind"] = json!("said");
            }
            part.positions = Json::of(&places);
        }
    }
}

/// The session as a writer reads it: from the last snapshot on.
fn read_from_last_snapshot(log: &[(u64, Commit)]) -> Session {
    let last = log.iter().rposition(|(_, commit)| commit.snapshot.is_some()).unwrap();
    let mut page = log[last..].to_vec();
    let part = page[0].1.transcript.as_mut().unwrap();
    let find = |slot: u64| log.iter().find(|(at, _)| *at == slot).unwrap().1.transcript.clone().unwrap();
    part.earlier = part.before.iter().map(|part| find(part.slot)).collect();
    Session::replay(SessionKey { tenant: TenantId::new("acme").unwrap(), session: SessionId::new("s").unwrap() }, &page)
        .unwrap()
}

/// A reply that an older version called off is not kept when it comes to this one, and the log still folds to what its
/// writers saw: an export, a move or an import checks that. `Talk` does at each input.
#[test]
fn log_that_began_on_the_fold_before_goes_on_and_audits() {
    let history = vec![
        Message::User { content: Content::Text("What is 6 by 7?".to_owned()) },
        Message::Assistant { content: "42.".to_owned(), reasoning: String::new(), tool_calls: vec![], replay: None },
    ];
    for (fold, commits_before) in [12, 13].into_iter().flat_map(|fold| [1, 3, 4, 5, 7].map(|commits| (fold, commits))) {
        let mut talk = Talk::not_started("s");
        let start = Start { prompt: Some(Content::Text("Go on.".to_owned())), interactive: true, ..Start::default() };
        talk.start_from(history.clone(), "start", start, Ok(Cast::default()));
        let call = talk.model_call();
        talk.command(Verb::CancelTurn, Body::CancelTurn(ControlReason::default()));
        while talk.log.len() < commits_before {
            talk.send_message("And now?", MessageMode::Queue);
            talk.reply("Nothing.", &[]);
        }
        as_fold(fold, &mut talk.log);
        talk.session = read_from_last_snapshot(&talk.log);
        talk.reply_late(&call, "The port is", Usage { input: 10, output: 5, ..Usage::default() }, 0.5);
        if talk.call().is_none() {
            talk.send_message("And the host?", MessageMode::Queue);
        }
        let call = talk.model_call();
        talk.command(Verb::CancelTurn, Body::CancelTurn(ControlReason::default()));
        talk.send_message("And now?", MessageMode::Queue);
        talk.reply("Nothing.", &[]);
        // What is inserted in the middle makes the writer store everything anew, the places of the history included.
        talk.reply_late(&call, "The host is", Usage { input: 10, output: 5, ..Usage::default() }, 0.5);
        for _ in 0..4 {
            talk.send_message("And now?", MessageMode::Queue);
            talk.reply("Nothing.", &[]);
        }
    }
}

#[test]
fn model_call_that_an_older_version_opened_names_no_commit_and_every_reply_to_it_is_believed() {
    for commits_before in [1, 4] {
        let mut talk = Talk::cast(Cast::default());
        while talk.log.len() < commits_before {
            talk.send_message("And now?", MessageMode::Queue);
        }
        as_fold(13, &mut talk.log);
        talk.session = read_from_last_snapshot(&talk.log);
        // Snapshots of this version are written, and compared with the log, while the call runs.
        for _ in 0..3 {
            talk.send_message("And now?", MessageMode::Queue);
        }
        assert_eq!(talk.item().opened_by, "");
        "another".clone_into(&mut talk.opened_by);
        talk.reply("Done.", &[]);
        assert_eq!((talk.stop_reason(), talk.model_call().call.as_str()), (Some("completed"), "m2-1"));
        assert_eq!(talk.item().opened_by, (talk.session.next_slot() - 1).to_string());
    }
}
