//! Diagnosis of a session that makes no progress: what it waits for, who works on it, and what failed last.

use bus::{DeadLetter, Inbox, Stored};
use contract::client_tool::OpenClientCall;
use contract::command::Verb;
use contract::commit::Commit;
use contract::event::{Event, InputKind, InputRef};
use contract::fleet::{ReplicaStatus, WorkerService};
use contract::streams::{Queue, Stream};
use contract::subject::{self, ControlSubject, DeadSubject};
use contract::{CallId, Timestamp};
use session::{Session, Wait};
use session_api::{DeadLetterName, Finding, QueueStatus, SessionDescription, SessionError, WaitInfo};

use super::SessionApi;
use super::reach::ReachedSession;
use super::status::queue_status;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::clock;
use crate::fair_queue::RequestCost;
use crate::session_log::fold_session;

/// Errors of the log that are shown: the last ones.
const ERRORS_SHOWN_MAX: usize = 5;
/// Dead letters that are shown.
const LETTERS_SHOWN_MAX: usize = 5;

/// Counts the commands, and the results of open calls, that the session has not handled. What it has handled may stay in
/// its stream for a moment. The id of a result begins with its call and attempt.
fn count_unhandled(session: &Session, messages: &[Stored]) -> u64 {
    let open: Vec<String> = session.open_calls().iter().map(|call| call.replace('.', "-")).collect();
    let is_unhandled = |message: &&Stored| {
        let Some(ControlSubject { verb, id, .. }) = subject::parse_control(&message.subject) else { return true };
        let is_result_of = |call: &String| {
            id.as_str().strip_prefix(call.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        if verb.is_client() {
            session.handled(&InputRef { kind: InputKind::Control(verb), id }).is_none()
        } else {
            verb == Verb::ExtendToolCall || open.iter().any(is_result_of)
        }
    };
    messages.iter().filter(is_unhandled).count() as u64
}

impl SessionApi {
    /// Gathers what is known about a session: its log, the workers of its open calls, its queues and dead letters.
    pub async fn describe_session(
        &self,
        caller: &ApiCaller,
        reached: &ReachedSession,
    ) -> Result<SessionDescription, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let (cell, key) = (self.cell_of(reached).await?, reached.key());
        // Before the log is read: what is handled meanwhile does not count as waiting.
        let inbox = cell.bus.inbox(key).await?;
        let commits = cell.bus.load_latest(key).await?.ok_or_else(|| Self::unknown_session(key))?;
        let session = fold_session(key, &commits)?;
        if session.seq() == 0 {
            return Err(Self::unknown_session(key));
        }
        let mut waits = Vec::new();
        for wait in session.waits() {
            let holder = match worker_call(&wait) {
                Some((_, open)) => cell.bus.call_holder(key, open).await?,
                None => None,
            };
            waits.push(WaitInfo { since: began(&wait, &commits), holder, wait });
        }
        let waiting_inputs = match inbox {
            Inbox::Messages(messages) => count_unhandled(&session, &messages),
            Inbox::TooMany => cell.bus.transport().count(Stream::Control, &subject::control_inbox(key)).await?,
        };
        let mut wanted: Vec<Queue> = waits.iter().filter_map(|wait| Some(worker_call(&wait.wait)?.0)).collect();
        wanted.extend((waiting_inputs > 0 || waits.is_empty()).then_some(Queue::Inputs));
        wanted.dedup();
        let mut queues = Vec::new();
        for queue in wanted {
            queues.push(queue_status(&cell.bus, queue).await?);
        }
        let letters = cell.bus.dead_letters(&key.tenant, Some(key)).await?.unwrap_or_default();
        let described = SessionDescription {
            now: clock::now(),
            summary: session.summary(),
            waits,
            waiting_inputs,
            timer: session.timer(),
            queues,
            errors: last_errors(&commits),
            dead_letters: letters.into_iter().take(LETTERS_SHOWN_MAX).map(letter_name).collect(),
            findings: Vec::new(),
        };
        // They take 0.7 s to answer, and are asked only where a worker seems to be missing.
        let waits_for_worker = described.queues.iter().any(|queue| queue.pullers == 0);
        let replicas = if waits_for_worker { cell.bus.replicas().await? } else { Vec::new() };
        let findings = Diagnosis { session: &described, replicas: &replicas }.find();
        Ok(SessionDescription { findings, ..described })
    }
}

/// The queue and the id of a call that a worker runs.
fn worker_call(wait: &Wait) -> Option<(Queue, &CallId)> {
    match wait {
        Wait::ModelCall { call, .. } => Some((Queue::Model, call)),
        Wait::ToolCall { call, child: None, .. } => Some((Queue::Tool, call)),
        Wait::ToolCall { child: Some(_), .. }
        | Wait::User
        | Wait::Resume { .. }
        | Wait::Gate(_)
        // Nobody in the fleet performs it.
        | Wait::ClientCall(_)
        | Wait::Retry { .. }
        | Wait::PendingCalls { .. } => None,
    }
}

/// Returns the time of the commit that opened a call. A wait for a resume has a time of its own.
fn began(wait: &Wait, commits: &[(u64, Commit)]) -> Option<Timestamp> {
    let opened = match wait {
        Wait::ModelCall { slot, .. } | Wait::ToolCall { slot, .. } => *slot,
        Wait::Resume { since } => return *since,
        // That of a client's call says so itself.
        Wait::User | Wait::Gate(_) | Wait::ClientCall(_) | Wait::Retry { .. } | Wait::PendingCalls { .. } => {
            return None;
        }
    };
    commits.iter().find(|(slot, _)| *slot == opened).map(|(_, commit)| commit.meta.time)
}

fn last_errors(commits: &[(u64, Commit)]) -> Vec<SessionError> {
    let newest_first = commits.iter().rev().flat_map(|(_, commit)| {
        let error_of = |event: &Event| if let Event::Error(error) = event { Some(error.clone()) } else { None };
        let errors = commit.events.iter().rev().filter_map(error_of);
        errors.map(|error| SessionError { time: commit.meta.time, error })
    });
    newest_first.take(ERRORS_SHOWN_MAX).collect()
}

fn letter_name((at, letter): (DeadSubject, DeadLetter)) -> DeadLetterName {
    let name = format!("{}/{}/{}", at.key.session, at.kind, at.id);
    DeadLetterName { name, code: letter.code, reason: letter.reason }
}

/// A session that makes no progress, and the processes that might work on it.
struct Diagnosis<'a> {
    session: &'a SessionDescription,
    replicas: &'a [ReplicaStatus],
}

impl Diagnosis<'_> {
    /// Finds the reasons why the session makes no progress, the most important first.
    fn find(&self) -> Vec<Finding> {
        let id = &self.session.summary.session_id;
        let mut findings = Vec::new();
        if !self.session.dead_letters.is_empty() {
            findings.push(Finding::new(
                "messages of the session failed for good",
                format!("look at them with `ailoop dead list --session {id}`"),
            ));
        }
        findings.extend(self.find_missing_worker(Queue::Inputs));
        findings.extend(self.session.waits.iter().filter_map(|wait| self.find_in(wait)));
        findings
    }

    fn find_missing_worker(&self, queue: Queue) -> Option<Finding> {
        let status = self.session.queues.iter().find(|status| status.queue == queue.durable())?;
        no_worker(status, WorkerService::of(queue), self.replicas)
    }

    fn find_in(&self, wait: &WaitInfo) -> Option<Finding> {
        let id = &self.session.summary.session_id;
        match &wait.wait {
            Wait::User | Wait::PendingCalls { .. } => None,
            Wait::Resume { .. } => {
                Some(Finding::new("the session is paused", format!("`ailoop resume {id}` lets it go on")))
            }
            Wait::Gate(gate) => Some(Finding::new(
                format!("a person must answer gate {}", gate.gate),
                "see `ailoop approvals`; without an answer it closes by itself at the time that it names",
            )),
            Wait::ClientCall(OpenClientCall { call, tool, deadline, .. }) => Some(Finding::new(
                format!("the session waits for the client: call {call} of tool {tool} until {deadline}"),
                "a client answers it with `session.answer_call`; without an answer the model reads `timeout` then",
            )),
            Wait::Retry { .. } => Some(Finding::new(
                "a model call failed, and is made again later",
                "see the errors; the next attempt needs nothing from you",
            )),
            Wait::ToolCall { child: Some(child), .. } => {
                Some(Finding::new(format!("session {child} does the work"), format!("see `ailoop describe {child}`")))
            }
            Wait::ModelCall { deadline, .. } => self.find_in_call(wait, Queue::Model, *deadline),
            Wait::ToolCall { deadline, .. } => self.find_in_call(wait, Queue::Tool, *deadline),
        }
    }

    fn find_in_call(&self, wait: &WaitInfo, queue: Queue, deadline: Timestamp) -> Option<Finding> {
        if let Some(note) = wait.holder.as_ref().and_then(|holder| holder.note.as_ref()) {
            return Some(Finding::new(
                format!("the {} that has the call says: {note}", WorkerService::of(queue).noun),
                "the call goes on by itself until its deadline",
            ));
        }
        if wait.holder.is_some() {
            return None;
        }
        if let Some(finding) = self.find_missing_worker(queue) {
            return Some(finding);
        }
        (deadline <= self.session.now).then(|| {
            Finding::new(
                "the deadline of the call has passed, and no orchestrator has noticed",
                "see `ailoop status`: is an orchestrator there, and does the queue `due` move? Else `ailoop repair`",
            )
        })
    }
}

/// Explains why no worker takes items of a queue; `None` if one does or can. A worker that is killed leaves its items
/// held.
fn no_worker(queue: &QueueStatus, worker: WorkerService, replicas: &[ReplicaStatus]) -> Option<Finding> {
    let QueueStatus { queue, waiting, held, pullers, .. } = queue;
    if *pullers > 0 {
        return None;
    }
    let mut there = replicas.iter().filter(|replica| replica.serves(worker.service)).peekable();
    if there.peek().is_none() {
        return Some(Finding::new(
            format!("no {} answers: the queue `{queue}` has {waiting} waiting, {held} held", worker.noun),
            format!("start {}; `ailoop status` shows which processes there are", worker.one),
        ));
    }
    let has_room = |replica: &ReplicaStatus| replica.work.get(*queue).is_none_or(|load| load.running < load.max);
    if there.any(has_room) {
        return None;
    }
    Some(Finding::new(
        format!("every place of the queue `{queue}` is taken: {waiting} waiting, {held} held"),
        format!("see who holds them with `ailoop status`; add {}, or wait", worker.one),
    ))
}
