//! Events that one viewer receives, for particular inputs and for any interleaving.

use std::sync::Arc;

use contract::event::{Envelope, Topic};
use contract::{Json, SessionId, TenantId, Timestamp};
use proptest::prelude::*;

use super::merger::{EventMerger, LogGap};
use super::viewer_event::ViewerEvent;

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

fn fact(seq: u64) -> Arc<ViewerEvent> {
    Arc::new(ViewerEvent::from_envelope(Topic::UserProcessed, envelope(Some(seq), "{}")).unwrap())
}

fn reply(seq: u64, turn: u32, step: u32) -> Arc<ViewerEvent> {
    let data = format!(r#"{{"turn":{turn},"step":{step},"text":""}}"#);
    Arc::new(ViewerEvent::from_envelope(Topic::AiFullReceived, envelope(Some(seq), &data)).unwrap())
}

fn turn_end(seq: u64, turn: u32) -> Arc<ViewerEvent> {
    let data = format!(r#"{{"turn":{turn}}}"#);
    Arc::new(ViewerEvent::from_envelope(Topic::TurnCompleted, envelope(Some(seq), &data)).unwrap())
}

fn end(seq: u64) -> Arc<ViewerEvent> {
    Arc::new(ViewerEvent::from_envelope(Topic::SessionEnded, envelope(Some(seq), "{}")).unwrap())
}

fn chunk(turn: u32, step: u32, attempt: &str, index: u64) -> Arc<ViewerEvent> {
    let data = format!(
        r#"{{"turn":{turn},"step":{step},"attempt":"{attempt}","index":{index},"channel":"text","delta":"x","final":false}}"#
    );
    Arc::new(ViewerEvent::from_envelope(Topic::AiChunkReceived, envelope(None, &data)).unwrap())
}

/// One input of the merger.
enum MergerInput {
    Log(Vec<Arc<ViewerEvent>>),
    Live(Arc<ViewerEvent>),
    Snapshot(Option<Arc<ViewerEvent>>),
    KnownSeq(u64),
}
use MergerInput::{KnownSeq, Live, Log, Snapshot};

/// Formats what went out: `7` for an event, `t.s/a#i` for a chunk.
fn format_output(out: &[Arc<ViewerEvent>]) -> Vec<String> {
    out.iter()
        .map(|event| {
            if let Some(seq) = event.envelope.seq {
                return seq.to_string();
            }
            let data: serde_json::Value = serde_json::from_str(event.envelope.data.get()).unwrap();
            format!("{}.{}/{}#{}", data["turn"], data["step"], data["attempt"].as_str().unwrap(), data["index"])
        })
        .collect()
}

fn check(from: u64, inputs: Vec<MergerInput>, wanted: &[&str], is_log_needed: bool) {
    let mut merger = EventMerger::new(from);
    let mut out = Vec::new();
    for input in inputs {
        match input {
            Log(events) => merger.merge_log(&events, &mut out).unwrap(),
            Live(event) => merger.merge_live(event, &mut out),
            Snapshot(snapshot) => merger.merge_snapshot(snapshot, &mut out),
            KnownSeq(seq) => merger.raise_known_seq(seq),
        }
    }
    assert_eq!(format_output(&out), wanted);
    assert_eq!(merger.is_log_needed(), is_log_needed);
}

#[test]
fn events_repeated_or_reordered_go_out_once_in_order() {
    check(0, vec![Log(vec![fact(1), fact(2)]), Live(fact(2)), Live(fact(3)), Live(fact(3))], &["1", "2", "3"], false);
    check(3, vec![Log(vec![fact(1), fact(2), fact(3)])], &["3"], false);
    check(0, vec![Live(fact(2)), Live(fact(1))], &["1", "2"], false);
    check(0, vec![Live(fact(3)), Live(fact(2)), Log(vec![fact(1)])], &["1", "2", "3"], false);
}

#[test]
fn gap_in_live_events_needs_log() {
    check(0, vec![Log(vec![fact(1)]), Live(fact(3))], &["1"], true);
    check(0, vec![Log(vec![fact(1)]), Live(fact(4)), Log(vec![fact(1), fact(2)])], &["1", "2"], true);
    check(0, vec![Log(vec![fact(1)]), Live(fact(3)), Log(vec![fact(1), fact(2)])], &["1", "2", "3"], false);
    check(0, vec![Log(vec![fact(1)]), KnownSeq(2)], &["1"], true);
    check(0, vec![Log(vec![fact(1), fact(2)]), KnownSeq(2)], &["1", "2"], false);
}

#[test]
fn events_beyond_buffer_are_read_from_log() {
    let mut inputs: Vec<MergerInput> = (2..2_000).map(|seq| Live(fact(seq))).collect();
    inputs.push(Log((1..1_000).map(fact).collect()));
    let wanted: Vec<String> = (1..1_000).map(|seq: u64| seq.to_string()).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    check(0, inputs, &wanted, true);
}

#[test]
fn cursor_before_log_start_is_reported() {
    let mut merger = EventMerger::new(2);
    let gap = merger.merge_log(&[fact(5)], &mut Vec::new()).unwrap_err();
    assert_eq!(gap, LogGap { wanted: 2, found: 5 });
}

#[test]
fn events_after_session_end_are_dropped() {
    check(
        0,
        vec![Snapshot(None), Log(vec![fact(1), end(2)]), Live(fact(3)), Live(chunk(1, 1, "1.1", 0))],
        &["1", "2"],
        false,
    );
    check(0, vec![Live(end(2)), Live(fact(3)), Log(vec![fact(1)])], &["1", "2"], false);
}

#[test]
fn chunks_after_their_reply_are_dropped() {
    let first = || chunk(1, 1, "1.1", 0);
    check(
        0,
        vec![Snapshot(None), Live(first()), Log(vec![reply(1, 1, 1)]), Live(chunk(1, 1, "1.1", 1))],
        &["1.1/1.1#0", "1"],
        false,
    );
    check(
        0,
        vec![Log(vec![reply(1, 1, 1)]), Snapshot(None), Live(first()), Live(chunk(1, 2, "1.1", 0))],
        &["1", "1.2/1.1#0"],
        false,
    );
    // The reply was received but has not gone out, since there is a gap before it.
    check(0, vec![Snapshot(None), Live(reply(2, 1, 1)), Live(first())], &["1.1/1.1#0"], true);
    check(
        0,
        vec![Snapshot(None), Log(vec![turn_end(1, 1)]), Live(chunk(1, 9, "1.1", 0)), Live(chunk(2, 1, "1.1", 0))],
        &["1", "2.1/1.1#0"],
        false,
    );
    // A reply before the cursor makes its chunks obsolete too.
    check(2, vec![Snapshot(None), Log(vec![reply(1, 1, 1)]), Live(first())], &[], false);
}

#[test]
fn error_without_seq_passes_until_session_end() {
    let error = Arc::new(ViewerEvent::from_envelope(Topic::Error, envelope(None, "{}")).unwrap());
    let mut merger = EventMerger::new(1);
    let mut out = Vec::new();
    merger.merge_live(error.clone(), &mut out);
    merger.merge_log(&[end(1)], &mut out).unwrap();
    merger.merge_live(error, &mut out);
    let topics: Vec<Topic> = out.iter().map(|event| event.topic).collect();
    assert_eq!(topics, [Topic::Error, Topic::SessionEnded]);
}

#[test]
fn chunks_of_older_attempt_are_dropped() {
    let inputs =
        vec![Snapshot(None), Live(chunk(1, 1, "1.1", 0)), Live(chunk(1, 1, "1.2", 0)), Live(chunk(1, 1, "1.1", 1))];
    check(0, inputs, &["1.1/1.1#0", "1.1/1.2#0"], false);
    let inputs =
        vec![Snapshot(None), Live(chunk(1, 1, "1.10", 0)), Live(chunk(1, 1, "1.9", 0)), Live(chunk(1, 1, "2.1", 0))];
    check(0, inputs, &["1.1/1.10#0", "1.1/2.1#0"], false);
}

#[test]
fn late_viewer_gets_reply_snapshot_once() {
    let live_chunks = || vec![Live(chunk(1, 1, "1.1", 4)), Live(chunk(1, 1, "1.1", 5)), Live(chunk(1, 1, "1.1", 6))];
    let mut inputs = live_chunks();
    inputs.push(Snapshot(Some(chunk(1, 1, "1.1", 5))));
    inputs.push(Live(chunk(1, 1, "1.1", 7)));
    check(0, inputs, &["1.1/1.1#5", "1.1/1.1#6", "1.1/1.1#7"], false);
    let mut inputs = live_chunks();
    inputs.push(Snapshot(None));
    check(0, inputs, &["1.1/1.1#4", "1.1/1.1#5", "1.1/1.1#6"], false);
    let mut inputs = live_chunks();
    inputs.push(Log(vec![reply(1, 1, 1)]));
    inputs.push(Snapshot(Some(chunk(1, 1, "1.1", 5))));
    check(0, inputs, &["1"], false);
}

#[derive(Debug, Clone)]
enum TestStep {
    /// A live event arrives: any of the session, perhaps again or out of order.
    Live(u64),
    /// A chunk of this step arrives.
    Chunk(u32),
    /// The log is read from a replica that has events up to this `seq`.
    Read(u64),
}

fn steps(events: u64) -> impl Strategy<Value = Vec<TestStep>> {
    let one = prop_oneof![
        6 => (1..=events).prop_map(TestStep::Live),
        2 => (1..=4_u32).prop_map(TestStep::Chunk),
        2 => (0..=events).prop_map(TestStep::Read),
    ];
    proptest::collection::vec(one, 0..60)
}

proptest! {
    /// Events may be lost, repeated or out of order. After one full read, a viewer has the order of the log without
    /// gaps, and no chunk comes after its reply.
    #[test]
    fn any_interleaving_yields_the_log(from in 0..20_u64, steps in steps(24)) {
        let at = |seq: u64| match u32::try_from(seq).unwrap() {
            seq if seq % 6 == 0 => reply(u64::from(seq), 1, seq / 6),
            seq => fact(u64::from(seq)),
        };
        let log: Vec<Arc<ViewerEvent>> = (1..=24).map(at).collect();
        let mut merger = EventMerger::new(from);
        let mut out = Vec::new();
        merger.merge_snapshot(None, &mut out);
        for step_input in steps {
            match step_input {
                TestStep::Live(seq) => merger.merge_live(at(seq), &mut out),
                TestStep::Chunk(step) => merger.merge_live(chunk(1, step, "1.1", 0), &mut out),
                TestStep::Read(slot_count) => merger.merge_log(&log[..usize::try_from(slot_count).unwrap()], &mut out).unwrap(),
            }
        }
        merger.raise_known_seq(24);
        merger.merge_log(&log, &mut out).unwrap();
        prop_assert!(!merger.is_log_needed());
        let seqs: Vec<u64> = out.iter().filter_map(|event| event.envelope.seq).collect();
        prop_assert_eq!(seqs, (from.max(1)..=24).collect::<Vec<u64>>());
        let output = format_output(&out);
        for step in 1..=4_u64 {
            let reply = output.iter().position(|one| *one == (step * 6).to_string());
            let late = output.iter().rposition(|one| one.starts_with(&format!("1.{step}/")));
            if let (Some(reply), Some(late)) = (reply, late) {
                prop_assert!(late < reply, "a chunk of step {} after its reply", step);
            }
        }
    }
}
