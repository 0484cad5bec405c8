//! Tasks folded from parts of a turn and from a log.

use contract::command::{AnswerDecision, MessageMode};
use contract::commit::{Commit, CommitMeta, FOLD, Phase, VERSION};
use contract::event::{
    AiFullReceived, Event, GateClosed, GateKind, GateOpened, StopReason, TurnCompleted, TurnStarted, UserProcessed,
};
use contract::model::{Content, FinishReason};
use contract::settings::OnExpiry;
use contract::spent::Spent;
use contract::subject::SessionKey;
use contract::{CallId, CommandId, ErrorCode, SessionId, TenantId, Timestamp};
use edge_core::turn::{TurnOutcome, TurnPart, TurnStart};
use serde_json::{Value, json};

use super::loaded_task::LoadedTask;
use super::task::{AgentTask, TaskPhase, TaskUpdate};

fn reply(turn: u32, step: u32, text: &str) -> AiFullReceived {
    AiFullReceived {
        call: CallId::model(turn, step),
        turn,
        step,
        text: text.to_owned(),
        raw: None,
        reasoning: String::new(),
        tool_calls: Vec::new(),
        finish_reason: FinishReason::Stop,
        raw_finish_reason: String::new(),
        spent: Spent::default(),
        provider: String::new(),
        model: String::new(),
        latency_ms: 1,
        replay: None,
    }
}

fn text(step: u32, delta: &str) -> TurnPart {
    TurnPart::Text { step, delta: delta.to_owned() }
}

fn whole(step: u32, text: &str) -> TurnPart {
    TurnPart::ReplyEnd { step, reply: Box::new(reply(1, step, text)) }
}

fn end(stop_reason: StopReason, final_response: &str) -> TurnPart {
    let error = (stop_reason == StopReason::Error).then(|| (ErrorCode::ModelQuota, "no money".to_owned()));
    let final_response = final_response.to_owned();
    TurnPart::End(Box::new(TurnOutcome { turn: 1, stop_reason, final_response, spent: Spent::default(), error }))
}

fn gate(id: &str) -> GateOpened {
    GateOpened {
        gate: CallId::new(id).unwrap(),
        kind: GateKind::Limit(StopReason::CostLimit),
        arguments_sha256: "a".repeat(64),
        expires: Timestamp::default(),
        tool: None,
        arguments: None,
        on_expiry: OnExpiry::Deny,
    }
}

fn closed(id: &str) -> GateClosed {
    let gate = CallId::new(id).unwrap();
    let (by, arguments, arguments_sha256, note) = (None, None, None, None);
    GateClosed { gate, decision: AnswerDecision::Approve, by, arguments, arguments_sha256, note }
}

/// A task that works, and its updates by the parts that follow.
fn follow(parts: Vec<TurnPart>) -> (AgentTask, Vec<TaskUpdate>) {
    let mut task = AgentTask::new("s.1".parse().unwrap(), Timestamp::default());
    task.is_started = true;
    let updates = parts.into_iter().flat_map(|part| task.push(part, Timestamp::from_millis(5))).collect();
    (task, updates)
}

fn artifact(step: u32, text: &str, is_append: bool, is_last: bool) -> TaskUpdate {
    TaskUpdate::Artifact { id: format!("step-{step}"), text: text.to_owned(), is_append, is_last }
}

fn artifacts(task: &AgentTask) -> Vec<(String, String)> {
    let json = task.to_json(None, true);
    let all = json["artifacts"].as_array().cloned().unwrap_or_default();
    let of = |artifact: &Value, field: &str| artifact.pointer(field).unwrap().as_str().unwrap().to_owned();
    all.iter().map(|artifact| (of(artifact, "/artifactId"), of(artifact, "/parts/0/text"))).collect()
}

#[test]
fn chunks_are_appended_and_the_whole_reply_closes_the_artifact() {
    let (task, updates) = follow(vec![text(1, "Good "), text(1, "day."), whole(1, "Good day.")]);
    let wanted = [artifact(1, "Good ", false, false), artifact(1, "day.", true, false), artifact(1, "", true, true)];
    assert_eq!(updates, wanted);
    assert_eq!(artifacts(&task), [("step-1".to_owned(), "Good day.".to_owned())]);
}

#[test]
fn reply_that_differs_from_its_chunks_replaces_them() {
    let (task, updates) = follow(vec![text(1, "I think"), text(1, "\n\nNo."), whole(1, "No."), whole(2, "")]);
    assert_eq!(updates.last(), Some(&artifact(1, "No.", false, true)), "{updates:?}");
    assert_eq!(artifacts(&task), [("step-1".to_owned(), "No.".to_owned())]);
}

#[test]
fn text_that_the_loop_adds_at_a_limit_is_an_artifact_of_its_own() {
    let parts = vec![whole(1, "Half."), end(StopReason::MaxIterations, "Half.\n\nThe turn ended without an answer.")];
    let (task, updates) = follow(parts);
    let ending = ("ending".to_owned(), "The turn ended without an answer.".to_owned());
    assert_eq!((artifacts(&task).pop(), updates.last()), (Some(ending), Some(&TaskUpdate::Status)));
    assert_eq!(task.phase(), TaskPhase::Completed);
    let status = task.to_json(None, true)["status"].clone();
    assert_eq!(status["message"]["metadata"]["stop_reason"], "max_iterations");
}

#[test]
fn end_decides_the_state_and_chunks_without_their_reply_are_gone() {
    let rows = [
        (StopReason::Completed, TaskPhase::Completed),
        (StopReason::Stopped, TaskPhase::Canceled),
        (StopReason::Error, TaskPhase::Failed),
    ];
    for (stop_reason, phase) in rows {
        let parts = vec![text(1, "So"), end(stop_reason, ""), whole(1, "late")];
        let (task, updates) = follow(parts);
        assert_eq!((task.phase(), artifacts(&task).len(), updates.len()), (phase, 0, 2), "{updates:?}");
    }
    let (task, _) = follow(vec![end(StopReason::Error, "")]);
    assert_eq!(task.to_json(None, true)["status"]["message"]["metadata"]["code"], "model_quota");
}

#[test]
fn task_waits_until_the_last_gate_is_closed() {
    let open = |id| TurnPart::GateOpened(Box::new(gate(id)));
    let close = |id| TurnPart::GateClosed(Box::new(closed(id)));
    let (task, updates) = follow(vec![open("g1"), open("g2"), close("g1")]);
    assert_eq!((task.phase(), updates.len()), (TaskPhase::InputRequired, 3));
    assert_eq!(task.to_json(None, true)["status"]["message"]["parts"][1]["data"]["gate"], "g2");
    let (task, updates) = follow(vec![open("g1"), open("g2"), close("g1"), close("g2"), close("g2")]);
    assert_eq!((task.phase(), updates.len(), task.changed), (TaskPhase::Working, 4, Timestamp::from_millis(5)));
    let history = |length| task.to_json(length, true)["history"].as_array().map_or(0, Vec::len);
    assert_eq!((history(None), history(Some(3)), history(Some(0))), (4, 3, 0));
}

fn user(id: &str, mode: MessageMode) -> Event {
    let (message_id, content) = (CommandId::new(id).unwrap(), Content::from("Hi"));
    Event::UserProcessed(UserProcessed { message_id, content, mode, client_tools: None })
}

fn started(turn: u32, message: &str) -> Event {
    let messages = vec![CommandId::new(message).unwrap()];
    Event::TurnStarted(TurnStarted { turn, traceparent: None, messages, premature: false })
}

fn completed(turn: u32) -> Event {
    Event::TurnCompleted(TurnCompleted {
        turn,
        stop_reason: StopReason::Completed,
        status: None,
        iterations: 1,
        final_response: String::new(),
        spent: Spent::default(),
        spent_own: None,
        by: None,
        note: None,
    })
}

/// Reads the task of a slot from commits with these events, one commit for each slot.
fn read(slot: u64, commits: &[Vec<Event>]) -> Option<LoadedTask> {
    let commit = |(slot, events): (u64, &Vec<Event>)| {
        let meta = CommitMeta {
            v: VERSION,
            commit: format!("c{slot}"),
            prev: String::new(),
            fold: FOLD,
            phase: Phase::Running,
            open: Vec::new(),
            control_seq: 0,
            timers: 0,
            seq: slot * 10 + 1,
            time: Timestamp::from_millis(slot),
            trace_id: String::new(),
            archived: None,
            log_start: None,
            moved: None,
        };
        (slot, Commit { meta, snapshot: None, transcript: None, events: events.clone() })
    };
    let session = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
    let commits: Vec<_> = (0..).zip(commits).map(commit).collect();
    LoadedTask::read(&session, slot, &commits).filter(LoadedTask::is_task)
}

#[test]
fn message_that_waits_has_nothing_of_the_turn_before_its_own() {
    let answer = |turn, text| Event::AiFullReceived(Box::new(reply(turn, 1, text)));
    let mut log = vec![
        vec![user("m1", MessageMode::Queue), started(1, "m1")],
        vec![user("m2", MessageMode::Queue)],
        vec![answer(1, "one")],
    ];
    let waiting = read(1, &log).unwrap();
    assert_eq!((waiting.task.phase(), waiting.task.changed), (TaskPhase::Submitted, Timestamp::from_millis(1)));
    let begun = waiting.to_turn();
    let start = TurnStart::Waiting { message: CommandId::new("m2").unwrap() };
    assert_eq!((begun.seq, begun.start), (21, start));
    log.push(vec![completed(1), started(2, "m2"), answer(2, "two"), completed(2)]);
    for (slot, text) in [(0, "one"), (1, "two")] {
        let found = read(slot, &log).unwrap();
        assert_eq!((found.task.phase(), artifacts(&found.task).remove(0).1.as_str()), (TaskPhase::Completed, text));
        assert_eq!(found.to_turn().start, TurnStart::Running);
    }
    assert!(read(2, &log).is_none(), "a commit without a message");
}

#[test]
fn message_that_a_running_turn_reads_is_no_task_but_is_in_its_history() {
    let log = vec![
        vec![user("m1", MessageMode::Queue), started(1, "m1")],
        vec![user("m2", MessageMode::Steer)],
        vec![completed(1)],
    ];
    assert!(read(1, &log).is_none());
    let history = read(0, &log).unwrap().task.to_json(None, true)["history"].clone();
    let ids: Vec<&Value> = history.as_array().unwrap().iter().map(|message| &message["messageId"]).collect();
    assert_eq!(ids, [&json!("m1"), &json!("m2")]);
    let idle = vec![vec![user("m1", MessageMode::Steer), started(1, "m1")]];
    assert_eq!(read(0, &idle).unwrap().task.phase(), TaskPhase::Working, "one that begins a turn is one");
}
