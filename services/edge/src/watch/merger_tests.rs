//! What one viewer receives, row by row, and for any interleaving.

use std::sync::Arc;

use contract::event::{Envelope, Topic};
use contract::{Json, SessionId, TenantId, Timestamp};
use proptest::prelude::*;

use super::merger::{Gone, Merger};
use super::notice::Notice;

fn envelope(seq: Option<u64>, data: &str) -> Envelope {
    Envelope {
        id: String::new(),
        session_id: SessionId::new("s").unwrap(),
        tenant: TenantId::default(),
        seq,
        time: Timestamp::default(),
        trace_id: String::new(),
        data: Json::parse(data).unwrap(),
    }
}

fn fact(seq: u64) -> Arc<Notice> {
    Arc::new(Notice::heard(Topic::UserProcessed, envelope(Some(seq), "{}")).unwrap())
}

fn reply(seq: u64, turn: u32, step: u32) -> Arc<Notice> {
    let data = format!(r#"{{"turn":{turn},"step":{step},"text":""}}"#);
    Arc::new(Notice::heard(Topic::AiFullReceived, envelope(Some(seq), &data)).unwrap())
}

fn turn_end(seq: u64, turn: u32) -> Arc<Notice> {
    let data = format!(r#"{{"turn":{turn}}}"#);
    Arc::new(Notice::heard(Topic::TurnCompleted, envelope(Some(seq), &data)).unwrap())
}

fn end(seq: u64) -> Arc<Notice> {
    Arc::new(Notice::heard(Topic::SessionEnded, envelope(Some(seq), "{}")).unwrap())
}

fn chunk(turn: u32, step: u32, attempt: &str, index: u64) -> Arc<Notice> {
    let data = format!(
        r#"{{"turn":{turn},"step":{step},"attempt":"{attempt}","index":{index},"channel":"text","delta":"x","final":false}}"#
    );
    Arc::new(Notice::heard(Topic::AiChunkReceived, envelope(None, &data)).unwrap())
}

/// What a viewer is fed.
enum Fed {
    Log(Vec<Arc<Notice>>),
    Live(Arc<Notice>),
    View(Option<Arc<Notice>>),
    Exists(u64),
}
use Fed::{Exists, Live, Log, View};

/// What went out, `7` for an event, `t.s/a#i` for a chunk.
fn told(out: &[Arc<Notice>]) -> Vec<String> {
    out.iter()
        .map(|notice| {
            if let Some(seq) = notice.envelope.seq {
                return seq.to_string();
            }
            let data: serde_json::Value = serde_json::from_str(notice.envelope.data.get()).unwrap();
            format!("{}.{}/{}#{}", data["turn"], data["step"], data["attempt"].as_str().unwrap(), data["index"])
        })
        .collect()
}

fn check(from: u64, fed: Vec<Fed>, wanted: &[&str], wants_log: bool) {
    let mut merger = Merger::new(from);
    let mut out = Vec::new();
    for fed in fed {
        match fed {
            Log(events) => merger.log(&events, &mut out).unwrap(),
            Live(event) => merger.live(event, &mut out),
            View(so_far) => merger.view(so_far, &mut out),
            Exists(seq) => merger.exists(seq),
        }
    }
    assert_eq!(told(&out), wanted);
    assert_eq!(merger.wants_log(), wants_log);
}

#[test]
fn events_go_out_once_in_order() {
    check(0, vec![Log(vec![fact(1), fact(2)]), Live(fact(2)), Live(fact(3)), Live(fact(3))], &["1", "2", "3"], false);
    check(3, vec![Log(vec![fact(1), fact(2), fact(3)])], &["3"], false);
    check(0, vec![Live(fact(2)), Live(fact(1))], &["1", "2"], false);
    check(0, vec![Live(fact(3)), Live(fact(2)), Log(vec![fact(1)])], &["1", "2", "3"], false);
}

#[test]
fn a_hole_wants_the_log() {
    check(0, vec![Log(vec![fact(1)]), Live(fact(3))], &["1"], true);
    check(0, vec![Log(vec![fact(1)]), Live(fact(4)), Log(vec![fact(1), fact(2)])], &["1", "2"], true);
    check(0, vec![Log(vec![fact(1)]), Live(fact(3)), Log(vec![fact(1), fact(2)])], &["1", "2", "3"], false);
    check(0, vec![Log(vec![fact(1)]), Exists(2)], &["1"], true);
    check(0, vec![Log(vec![fact(1), fact(2)]), Exists(2)], &["1", "2"], false);
}

#[test]
fn many_events_ahead_are_read_again() {
    let mut fed: Vec<Fed> = (2..2_000).map(|seq| Live(fact(seq))).collect();
    fed.push(Log((1..1_000).map(fact).collect()));
    let wanted: Vec<String> = (1..1_000).map(|seq: u64| seq.to_string()).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    check(0, fed, &wanted, true);
}

#[test]
fn a_cursor_that_is_gone_is_told() {
    let mut merger = Merger::new(2);
    let gone = merger.log(&[fact(5)], &mut Vec::new()).unwrap_err();
    assert_eq!(gone, Gone { wanted: 2, found: 5 });
}

#[test]
fn nothing_follows_the_end() {
    check(
        0,
        vec![View(None), Log(vec![fact(1), end(2)]), Live(fact(3)), Live(chunk(1, 1, "1.1", 0))],
        &["1", "2"],
        false,
    );
    check(0, vec![Live(end(2)), Live(fact(3)), Log(vec![fact(1)])], &["1", "2"], false);
}

#[test]
fn chunks_pass_until_their_reply() {
    let first = || chunk(1, 1, "1.1", 0);
    check(
        0,
        vec![View(None), Live(first()), Log(vec![reply(1, 1, 1)]), Live(chunk(1, 1, "1.1", 1))],
        &["1.1/1.1#0", "1"],
        false,
    );
    check(
        0,
        vec![Log(vec![reply(1, 1, 1)]), View(None), Live(first()), Live(chunk(1, 2, "1.1", 0))],
        &["1", "1.2/1.1#0"],
        false,
    );
    // The reply was heard but not yet given, since a hole stands before it.
    check(0, vec![View(None), Live(reply(2, 1, 1)), Live(first())], &["1.1/1.1#0"], true);
    check(
        0,
        vec![View(None), Log(vec![turn_end(1, 1)]), Live(chunk(1, 9, "1.1", 0)), Live(chunk(2, 1, "1.1", 0))],
        &["1", "2.1/1.1#0"],
        false,
    );
    // A cursor after the reply knows of it all the same.
    check(2, vec![View(None), Log(vec![reply(1, 1, 1)]), Live(first())], &[], false);
}

#[test]
fn an_error_without_a_place_in_the_log_passes() {
    let error = Arc::new(Notice::heard(Topic::Error, envelope(None, "{}")).unwrap());
    let mut merger = Merger::new(1);
    let mut out = Vec::new();
    merger.live(error.clone(), &mut out);
    merger.log(&[end(1)], &mut out).unwrap();
    merger.live(error, &mut out);
    let topics: Vec<Topic> = out.iter().map(|notice| notice.topic).collect();
    assert_eq!(topics, [Topic::Error, Topic::SessionEnded]);
}

#[test]
fn an_older_attempt_is_silent() {
    let fed = vec![View(None), Live(chunk(1, 1, "1.1", 0)), Live(chunk(1, 1, "1.2", 0)), Live(chunk(1, 1, "1.1", 1))];
    check(0, fed, &["1.1/1.1#0", "1.1/1.2#0"], false);
    let fed = vec![View(None), Live(chunk(1, 1, "1.10", 0)), Live(chunk(1, 1, "1.9", 0)), Live(chunk(1, 1, "2.1", 0))];
    check(0, fed, &["1.1/1.10#0", "1.1/2.1#0"], false);
}

#[test]
fn a_late_viewer_gets_the_reply_so_far_once() {
    let held = || vec![Live(chunk(1, 1, "1.1", 4)), Live(chunk(1, 1, "1.1", 5)), Live(chunk(1, 1, "1.1", 6))];
    let mut fed = held();
    fed.push(View(Some(chunk(1, 1, "1.1", 5))));
    fed.push(Live(chunk(1, 1, "1.1", 7)));
    check(0, fed, &["1.1/1.1#5", "1.1/1.1#6", "1.1/1.1#7"], false);
    let mut fed = held();
    fed.push(View(None));
    check(0, fed, &["1.1/1.1#4", "1.1/1.1#5", "1.1/1.1#6"], false);
    let mut fed = held();
    fed.push(Log(vec![reply(1, 1, 1)]));
    fed.push(View(Some(chunk(1, 1, "1.1", 5))));
    check(0, fed, &["1"], false);
}

#[derive(Debug, Clone)]
enum Doing {
    /// A live event arrives: any of the session, also again, also out of order.
    Hear(u64),
    /// A chunk of this step arrives.
    Chunk(u32),
    /// The log is read; the replica that answers is this far.
    Read(u64),
}

fn doings(events: u64) -> impl Strategy<Value = Vec<Doing>> {
    let one = prop_oneof![
        6 => (1..=events).prop_map(Doing::Hear),
        2 => (1..=4_u32).prop_map(Doing::Chunk),
        2 => (0..=events).prop_map(Doing::Read),
    ];
    proptest::collection::vec(one, 0..60)
}

proptest! {
    /// Whatever is lost, repeated or out of order: after one full read, a viewer has the log's order without holes,
    /// and no chunk stands behind its reply.
    #[test]
    fn any_interleaving_yields_the_log(from in 0..20_u64, doings in doings(24)) {
        let at = |seq: u64| match u32::try_from(seq).unwrap() {
            seq if seq % 6 == 0 => reply(u64::from(seq), 1, seq / 6),
            seq => fact(u64::from(seq)),
        };
        let log: Vec<Arc<Notice>> = (1..=24).map(at).collect();
        let mut merger = Merger::new(from);
        let mut out = Vec::new();
        merger.view(None, &mut out);
        for doing in doings {
            match doing {
                Doing::Hear(seq) => merger.live(at(seq), &mut out),
                Doing::Chunk(step) => merger.live(chunk(1, step, "1.1", 0), &mut out),
                Doing::Read(upto) => merger.log(&log[..usize::try_from(upto).unwrap()], &mut out).unwrap(),
            }
        }
        merger.exists(24);
        merger.log(&log, &mut out).unwrap();
        prop_assert!(!merger.wants_log());
        let seqs: Vec<u64> = out.iter().filter_map(|notice| notice.envelope.seq).collect();
        prop_assert_eq!(seqs, (from.max(1)..=24).collect::<Vec<u64>>());
        let told = told(&out);
        for step in 1..=4_u64 {
            let reply = told.iter().position(|one| *one == (step * 6).to_string());
            let late = told.iter().rposition(|one| one.starts_with(&format!("1.{step}/")));
            if let (Some(reply), Some(late)) = (reply, late) {
                prop_assert!(late < reply, "a chunk of step {} behind its reply", step);
            }
        }
    }
}
