//! The commit: one message in the log, create-only in its slot.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

use crate::Json;
use crate::event::{Envelope, Event, Topic};
use crate::ids::{CellName, CommandId, may_be_same_commit};
use crate::subject::SessionKey;
use crate::timestamp::Timestamp;

pub use crate::transcript_part::{PartRef, TranscriptPart};
pub use crate::version::{FOLD, FOLD_OLDEST, PARKING_FOLD, VERSION};

/// Head of a commit: enough for workers and viewers, without reading the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommitMeta {
    /// Version of the contract.
    pub v: u32,
    /// Random id of the body, by which a writer recognises its own commit.
    pub commit: String,
    /// The id of the commit in the slot before: the history that this commit belongs to. Empty in slot 0, and where an
    /// older version wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prev: String,
    /// Version of the fold that decided.
    pub fold: u32,
    /// The session's phase after this commit.
    pub phase: Phase,
    /// The open calls after this commit, `<call>.<attempt>`.
    pub open: Vec<String>,
    /// Stream sequence of the last client command handled.
    pub control_seq: u64,
    /// Settings of the session's timer so far: the number of the last one.
    #[serde(default, skip_serializing_if = "crate::default::is_default")]
    pub timers: u64,
    /// `seq` of this commit's first public event, whether or not it holds one.
    pub seq: u64,
    /// Time of the decision.
    pub time: Timestamp,
    /// The turn's trace, 32 hex digits; empty where nothing is traced.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// The slot before which all was in the archive when the session was archived, or imported. Its commit carries a
    /// snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<u64>,
    /// The slot with which the log begins, of a log that was compacted or imported. Its commit carries a snapshot, and
    /// what is before it is in the archive for as long as that keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_start: Option<u64>,
    /// The cell that has the session instead of this one. The commit carries a snapshot, and stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<CellName>,
}

impl CommitMeta {
    /// Whether the session was archived: each of its commits then stands alone, with a snapshot, and has an end.
    pub fn is_archived(&self) -> bool {
        self.phase == Phase::Ended && self.archived.is_some()
    }

    /// The slot with which the log begins, as far as this commit knows: nothing before it is needed for the state.
    pub fn first_slot(&self) -> u64 {
        self.archived.max(self.log_start).unwrap_or(0)
    }

    /// Whether a commit with this head may follow the commit `prev`. A commit of an older version names no commit
    /// before it, and is accepted.
    pub fn follows(&self, prev: &str) -> bool {
        may_be_same_commit(&self.prev, prev)
    }

    /// Whether this try of this call may run.
    pub fn is_open(&self, call: &crate::ids::CallAttempt) -> bool {
        let name = call.to_string();
        self.open.contains(&name)
    }
}

/// Phase of a session, as workers and lists see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for the user.
    Idle,
    /// A turn is running.
    Running,
    /// No new call starts.
    Paused,
    /// The session has ended or does not exist.
    Ended,
}

/// A commit: the events of one slot of the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "WrittenCommit")]
pub struct Commit {
    /// Head of the commit, for workers and viewers.
    pub meta: CommitMeta,
    /// On a page's first slot, and where the log begins anew: the state before this commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Json>,
    /// Messages before this commit that are in no part yet. They are here beside a snapshot, which leaves them out, and
    /// as the next part where there are many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<TranscriptPart>,
    /// Events in the order in which they happened. Those of a newer version are read as [`Event::Unknown`].
    pub events: Vec<Event>,
}

/// A commit whose events are not read yet.
#[derive(Deserialize)]
struct WrittenCommit {
    meta: CommitMeta,
    #[serde(default)]
    snapshot: Option<Json>,
    #[serde(default)]
    transcript: Option<TranscriptPart>,
    events: Vec<Json>,
}

impl TryFrom<WrittenCommit> for Commit {
    type Error = serde_json::Error;

    fn try_from(written: WrittenCommit) -> Result<Self, serde_json::Error> {
        let WrittenCommit { meta, snapshot, transcript, events } = written;
        let events = crate::event::read_all(&events, meta.fold > FOLD)?;
        Ok(Self { meta, snapshot, transcript, events })
    }
}

impl Commit {
    /// Whether a writer of this version must not build on it (I8): it was decided by a newer fold, or says something
    /// that this version does not know.
    pub fn is_newer(&self) -> bool {
        self.meta.fold > FOLD || self.events.contains(&Event::Unknown)
    }

    /// The session's last `seq` after it.
    pub fn last_seq(&self) -> u64 {
        let public = self.events.iter().filter(|event| event.topic().is_some()).count();
        (self.meta.seq + public as u64).saturating_sub(1)
    }

    /// The turn that it began with a message; none when the message waits, or another commit brought it.
    pub fn turn_of(&self, message: &CommandId) -> Option<u32> {
        turn_of(&self.events, message)
    }

    /// Its public events, as viewers receive them. The same commit always gives the same envelopes.
    pub fn envelopes(&self, key: &SessionKey, slot: u64) -> Vec<(Topic, Envelope)> {
        envelopes(&self.meta, &self.events, &EventTexts::default(), key, slot)
    }
}

/// As [`Commit::turn_of`], for a caller that has the events alone.
pub fn turn_of(events: &[Event], message: &CommandId) -> Option<u32> {
    events.iter().find_map(|event| {
        let started = event.turn_started()?;
        started.messages.contains(message).then_some(started.turn)
    })
}

/// JSON of the public events of a commit, serialised once for viewers and for the log.
#[derive(Debug, Clone, Default)]
pub struct EventTexts(Vec<Option<Json>>);

impl EventTexts {
    /// The fields of each public event.
    pub fn of(events: &[Event]) -> Result<Self, serde_json::Error> {
        let texts = events.iter().map(|event| event.topic().map(|_| event.try_data()).transpose());
        texts.collect::<Result<_, _>>().map(Self)
    }

    /// The text of the event in this position; none where it is not public, or not serialised yet.
    fn get(&self, position: usize) -> Option<&Json> {
        self.0.get(position)?.as_ref()
    }
}

/// The events of a commit, as the log has them.
#[derive(Debug, Clone, Copy)]
pub struct EventList<'a> {
    /// In the order in which they happened.
    pub events: &'a [Event],
    /// JSON of those events that are serialised already.
    pub texts: &'a EventTexts,
}

impl Serialize for EventList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// An event in the form of its own type.
        #[derive(Serialize)]
        struct Tagged<'a> {
            r#type: &'static str,
            data: &'a Json,
        }
        let mut list = serializer.serialize_seq(Some(self.events.len()))?;
        for (position, event) in self.events.iter().enumerate() {
            match self.texts.get(position) {
                Some(data) => list.serialize_element(&Tagged { r#type: event.name(), data })?,
                None => list.serialize_element(event)?,
            }
        }
        list.end()
    }
}

/// As [`Commit::envelopes`], for a caller that has the parts of a commit.
pub fn envelopes(
    meta: &CommitMeta,
    events: &[Event],
    texts: &EventTexts,
    key: &SessionKey,
    slot: u64,
) -> Vec<(Topic, Envelope)> {
    let public = events.iter().enumerate().filter_map(|(position, event)| Some((position, event, event.topic()?)));
    (meta.seq..)
        .zip(public)
        .map(|(seq, (position, event, topic))| {
            let envelope = Envelope {
                id: format!("{}-{slot}-{position}", key.session),
                session_id: key.session.clone(),
                tenant: key.tenant.clone(),
                seq: Some(seq),
                time: meta.time,
                trace_id: meta.trace_id.clone(),
                data: event.public_data(texts.get(position)),
            };
            (topic, envelope)
        })
        .collect()
}

/// A commit's part of the transcript, read without its events.
#[derive(Debug, Clone, Deserialize)]
pub struct CommitPart {
    /// Head of the commit, for workers and viewers.
    pub meta: CommitMeta,
    /// The part, if it has one.
    #[serde(default)]
    pub transcript: Option<TranscriptPart>,
}

/// A commit's beginning, read without the rest.
#[derive(Debug, Clone, Deserialize)]
pub struct CommitHead {
    /// Head of the commit, for workers and viewers.
    pub meta: CommitMeta,
}

/// Sort key of a session in lists: the newest first.
pub type ListPlace = (Reverse<Timestamp>, Reverse<crate::SessionId>);

impl SessionSummary {
    /// Sort key of the session in lists.
    pub fn place(&self) -> ListPlace {
        (Reverse(self.started), Reverse(self.session_id.clone()))
    }

    /// Its place among the lines that the session had.
    pub fn version(&self) -> SummaryVersion {
        SummaryVersion { updated: self.updated, seq: self.seq }
    }

    /// Whether a person or a client must answer before the turn goes on.
    pub fn waits_for_answer(&self) -> bool {
        !self.gates.is_empty() || !self.client_calls.is_empty()
    }
}

/// A session as lists show it: its line in the index, KV `ai_loop_sessions`, which may lag behind its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSummary {
    /// Id of the session.
    pub session_id: crate::SessionId,
    /// Tenant that owns the session.
    pub tenant: crate::TenantId,
    /// Phase of the session.
    pub phase: Phase,
    /// Id of the session's agent.
    pub agent: String,
    /// Id of the session's model.
    pub model: String,
    /// The beginning of its first message.
    pub title: String,
    /// Number of the last turn, from 1; 0 before the first.
    pub turn: u32,
    /// Number of the running step, from 1; 0 between turns.
    pub step: u32,
    /// Number of the last public event.
    pub seq: u64,
    /// Time of the first commit.
    pub started: Timestamp,
    /// Time of the session's last commit.
    pub updated: Timestamp,
    /// Tokens and money of the subtree: of this session, and of the sessions below it.
    pub spent: crate::event::Spent,
    /// Tokens and money of this session alone. None if an older version counted any of them, since it did not separate
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_own: Option<crate::event::Spent>,
    /// Reason why its last turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<crate::event::StopReason>,
    /// The session that asked for it, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<crate::SessionId>,
    /// Counters of its turns, for statistics.
    #[serde(default)]
    pub tally: SessionCounters,
    /// Gates that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<OpenGate>,
    /// Calls that wait for a client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_calls: Vec<crate::client_tool::OpenClientCall>,
}

/// The place of a line of the session index among those that its session had: the greatest is the newest. The time
/// decides, since the number of the last event goes back where a session of the same id was erased and started again,
/// and where commits were lost and the session went on. The time of a session's commits never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct SummaryVersion {
    /// Time of the session's last commit.
    pub updated: Timestamp,
    /// Number of the last public event, which orders the commits of one millisecond.
    pub seq: u64,
}

/// A gate that waits for a person, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenGate {
    /// Id of the gate: that of its call, or of its limit.
    pub gate: crate::CallId,
    /// Whether it asks for approval, an answer, or more of a limit.
    pub kind: crate::event::GateKind,
    /// The call's tool, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<crate::ToolName>,
    /// The call's arguments, or the beginning of their text where it is long.
    #[serde(default)]
    pub arguments: String,
    /// Whether `arguments` is only the beginning; `gate.opened` has the whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shortened: bool,
    /// SHA-256 in hex of the arguments; an answer must name the same.
    pub arguments_sha256: String,
    /// Time at which the gate closes by itself.
    pub expires: Timestamp,
}

/// Counters of the turns of a session, for statistics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default)]
pub struct SessionCounters {
    /// Turns that ended, by stop reason.
    pub turns: std::collections::BTreeMap<String, u32>,
    /// Steps of those turns.
    pub iterations: u32,
    /// Decisions, by source without its detail.
    pub decisions: std::collections::BTreeMap<String, u32>,
    /// Turns that ended as completed and that the user had to ask to go on.
    pub premature: u32,
    /// Tool calls that were identified.
    pub tool_calls: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: &str) -> String {
        format!(
            r#"{{"meta":{{"v":1,"commit":"c","fold":1,"phase":"idle","open":[],"control_seq":0,"seq":1,
                "time":"2024-01-15T10:30:45.123Z","news":true}},"events":{events}}}"#
        )
    }

    fn commit(events: &str) -> Result<Commit, serde_json::Error> {
        serde_json::from_str(&written(events))
    }

    #[test]
    fn events_serialised_once_are_the_same_in_the_log_and_for_viewers() {
        let error = r#"{"code":"internal","message":"a \"b\"","retryable":false,"during":"c"}"#;
        let timer = r#"{"number":1,"at":"2024-01-15T10:30:45.123Z"}"#;
        let text = format!(r#"[{{"type":"timer_set","data":{timer}}},{{"type":"error","data":{error}}}]"#);
        let commit = commit(&text).unwrap();
        let texts = EventTexts::of(&commit.events).unwrap();
        assert_eq!((texts.get(0).is_some(), texts.get(1).map(Json::get)), (false, Some(error)));
        let list = EventList { events: &commit.events, texts: &texts };
        assert_eq!(serde_json::to_string(&list).unwrap(), text);
        let key = SessionKey { tenant: crate::TenantId::default(), session: crate::SessionId::new("s").unwrap() };
        assert_eq!(envelopes(&commit.meta, &commit.events, &texts, &key, 3), commit.envelopes(&key, 3));
    }

    #[test]
    fn i8_newer_commit_observer_reads_it_and_writer_refuses() {
        let timer = r#"{"type":"timer_set","data":{"number":1,"at":"2024-01-15T10:30:45.123Z","new":1}}"#;
        let known = commit(&format!("[{timer}]")).unwrap();
        assert!(!known.is_newer());
        for news in [r#"{"type":"dream","data":{"deep":[1,{"a":null}]}}"#, r#"{"type":"dream"}"#] {
            let commit = commit(&format!("[{news},{timer}]")).unwrap();
            assert!(commit.is_newer(), "{news}");
            assert_eq!(commit.events[1], known.events[0], "{news}");
        }
        let changed = r#"[{"type":"timer_set","data":{"number":"x"}}]"#;
        assert!(commit(changed).is_err(), "what this version wrote is damage where it cannot be read");
        let newer = format!(r#""fold":{}"#, FOLD + 1);
        let text = written(changed).replace(r#""fold":1"#, &newer);
        let commit: Commit = serde_json::from_str(&text).unwrap();
        assert!(commit.is_newer() && commit.events == [Event::Unknown], "a newer version may say more in an event");
    }
}
