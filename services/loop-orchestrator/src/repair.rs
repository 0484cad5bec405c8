//! Repairs sessions by performing their outstanding effects again: one session on request, all sessions after the
//! server came back with an older store, when the queues are reset as well.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bus::rpc::serve_until_cancelled;
use bus::work::{Publication, QueueReset};
use bus::{BusError, StreamRewind};
use contract::commit::{Phase, SessionSummary};
use contract::repair::RepairReply;
use contract::subject::SessionKey;
use contract::{Coded as _, ErrorCode};
use futures::{FutureExt, StreamExt};
use session::SessionEffect;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handle_error::HandleError;
use crate::session_runner::SessionRunner;

/// Interval between two checks of the generation of the connection.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two checks of the streams while the connection stays the same.
const STREAM_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Sessions that are repaired at the same time.
const CONCURRENT_REPAIRS: usize = 16;

/// Serves requests to repair a session, until `ending` is cancelled.
pub(crate) async fn serve_requests(runner: Arc<SessionRunner>, ending: CancellationToken) {
    let serve = || {
        let repairing = runner.clone();
        runner.bus.serve_repair(move |key| {
            let runner = repairing.clone();
            // Nobody resets the queues for it.
            async move { to_reply(&key, runner.repair(&key, Publication::Replacing).await) }.boxed()
        })
    };
    serve_until_cancelled(&ending, serve).await;
}

/// Resets the queues and repairs all sessions when a stream went back to an older state, or when a session's log lacks
/// commits. The streams are checked after each reconnect, and every minute, since a stream may be created again while the
/// connection stays the same; and at once when a message of this replica gets a sequence that was given out before.
pub(crate) async fn watch_rewinds(runner: Arc<SessionRunner>, ending: CancellationToken) {
    let _ended = ending.run_until_cancelled(watch_streams(&runner)).await;
}

async fn watch_streams(runner: &Arc<SessionRunner>) {
    let transport = runner.bus.transport();
    let mut generation = transport.generation();
    let mut checked_at = Instant::now();
    // The last reset of the queues at the last check that found nothing.
    let mut known: Option<QueueReset> = None;
    let mut is_reset_due = false;
    let mut is_unchecked = true;
    // Sessions whose repair failed and is retried.
    let mut failed = BTreeSet::new();
    loop {
        let now = transport.generation();
        is_reset_due |= runner.lost_commits.swap(false, Ordering::Relaxed);
        is_unchecked |=
            now != generation || checked_at.elapsed() >= STREAM_CHECK_INTERVAL || transport.may_be_rewound();
        if is_unchecked {
            match check_streams(runner, &mut is_reset_due, &mut known).await {
                Ok(()) => (generation, checked_at, is_unchecked) = (now, Instant::now(), false),
                // The next round checks again.
                Err(error) => tracing::debug!(%error, "cannot check whether the server has an older store; will retry"),
            }
        }
        if is_reset_due {
            let id = uuid::Uuid::new_v4().simple().to_string();
            match runner.bus.reset_queues(known.as_ref(), &id).await {
                Ok(reset) => {
                    (known, is_reset_due) = (Some(reset), false);
                    failed.extend(find_affected_sessions(runner).await);
                }
                Err(error) => tracing::warn!(%error, "the queues are not reset yet"),
            }
        }
        if !failed.is_empty() {
            failed = repair_all(runner, failed).await;
        }
        tokio::time::sleep(CONNECTION_CHECK_INTERVAL).await;
    }
}

/// Notes whether a stream was rewound, so that a reset is due, and where none is, which reset of the queues was the last.
async fn check_streams(
    runner: &SessionRunner,
    is_reset_due: &mut bool,
    known: &mut Option<QueueReset>,
) -> Result<(), BusError> {
    for StreamRewind { stream, seen, last } in runner.bus.transport().rewound().await? {
        *is_reset_due = true;
        tracing::error!(
            stream = stream.name(),
            seen,
            last,
            "the stream was restored to an older state or created again: it lacks messages; sessions are repaired"
        );
    }
    if !*is_reset_due {
        *known = runner.bus.last_queue_reset().await?;
    }
    Ok(())
}

/// Lists the sessions to repair: those of the index, and those of the cache, since the index may be older than the log.
async fn find_affected_sessions(runner: &SessionRunner) -> BTreeSet<SessionKey> {
    let mut keys: BTreeSet<SessionKey> = runner.cache.session_keys().into_iter().collect();
    let add = |SessionSummary { tenant, session_id: session, phase, .. }: SessionSummary| {
        if phase != Phase::Ended {
            keys.insert(SessionKey { tenant, session });
        }
    };
    if let Err(error) = runner.bus.each_indexed_session(add).await {
        tracing::error!(%error, "cannot read the session index; run `ailoop repair` when the server works again");
    }
    keys
}

/// Repairs sessions. Returns those whose repair failed because of the bus, to be retried.
async fn repair_all(runner: &Arc<SessionRunner>, keys: BTreeSet<SessionKey>) -> BTreeSet<SessionKey> {
    let sessions = keys.len();
    let failed: BTreeSet<SessionKey> = futures::stream::iter(keys)
        .map(|key| async move {
            match runner.repair(&key, Publication::Again).await {
                Ok(_) => None,
                Err(HandleError::Bus(error)) if !error.is_final() => {
                    tracing::warn!(session = %key, %error, "not repaired yet");
                    Some(key)
                }
                Err(error) => {
                    tracing::error!(session = %key, ?error, "not repaired");
                    None
                }
            }
        })
        .buffer_unordered(CONCURRENT_REPAIRS)
        .filter_map(std::future::ready)
        .collect()
        .await;
    tracing::warn!(sessions, failed = failed.len(), "what the sessions are owed was performed again");
    failed
}

fn to_reply(key: &SessionKey, repaired: Result<Vec<SessionEffect>, HandleError>) -> RepairReply {
    let refused = |code, message| RepairReply::Refused { code, message };
    match repaired {
        Ok(effects) => RepairReply::Repaired(effects.iter().map(describe_effect).collect()),
        Err(HandleError::Bus(error)) => refused(error.code(), error.to_string()),
        Err(HandleError::Newer { fold }) => refused(
            ErrorCode::NotNow,
            format!(
                "a newer version runs session {} (fold {fold}); try again: one of its replicas may answer",
                key.session
            ),
        ),
        Err(HandleError::Skewed(skew)) => refused(ErrorCode::Unavailable, skew.to_string()),
        Err(HandleError::Busy) => {
            refused(ErrorCode::Unavailable, "other replicas work on the session; try again".to_owned())
        }
        Err(HandleError::Poison | HandleError::Split) => refused(ErrorCode::Internal, "the loop panicked".to_owned()),
        Err(HandleError::Internal(why)) => refused(ErrorCode::Internal, why),
    }
}

/// Describes an effect for an operator.
fn describe_effect(effect: &SessionEffect) -> String {
    match effect {
        SessionEffect::CallModel(call) => format!("model call {call}"),
        SessionEffect::CallTool(call) => format!("tool call {call}"),
        SessionEffect::Cancel { call, .. } => format!("cancel of {call}"),
        SessionEffect::SetTimer { number, at } => format!("timer {number}, due at {at}"),
        SessionEffect::StartChild(call) => format!("start of the child of {call}"),
        SessionEffect::CommandChild(call) => format!("command to the child of {call}"),
        SessionEffect::ReportToParent => "report to the parent".to_owned(),
        SessionEffect::CancelTimer => "end of the timer".to_owned(),
        SessionEffect::Index => "line of the index".to_owned(),
        SessionEffect::Archive { below } => format!("archive below slot {below}"),
    }
}
