//! Performs again what sessions are owed: one on request, all after the server was put back to an older state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus::Rewound;
use bus::rpc::serve_until_cancelled;
use contract::ErrorCode;
use contract::commit::Phase;
use contract::repair::RepairReply;
use contract::subject::SessionKey;
use futures::{FutureExt, StreamExt};
use session::Effect;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::shell::{Shell, Trouble};

/// How often it is looked whether the connection is still the one that it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often streams are looked at while the connection stands.
const LOOK_ANYWAY: Duration = Duration::from_mins(1);
/// Sessions that are repaired at the same time.
const AT_ONCE: usize = 16;

/// Answers requests to repair a session, until it is to end.
pub(crate) async fn serve(shell: Arc<Shell>, ending: CancellationToken) {
    let serve = || {
        let repairing = shell.clone();
        shell.bus.serve_repair(move |key| {
            let shell = repairing.clone();
            async move { reply(&key, shell.repair(&key).await) }.boxed()
        })
    };
    serve_until_cancelled(&ending, serve).await;
}

/// Repairs every session when a stream is found to end before where it was seen to end. That is looked for after each reconnect, and
/// every minute: a stream may have been made anew under a connection that stands.
pub(crate) async fn watch(shell: Arc<Shell>, ending: CancellationToken) {
    let _ended = ending.run_until_cancelled(look_out(&shell)).await;
}

async fn look_out(shell: &Arc<Shell>) {
    let transport = shell.bus.transport();
    let mut generation = transport.generation();
    let mut looked_at = Instant::now();
    // Those that could not be repaired yet.
    let mut failed = BTreeSet::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = transport.generation();
        if now == generation && failed.is_empty() && looked_at.elapsed() < LOOK_ANYWAY {
            continue;
        }
        match transport.rewound().await {
            Ok(rewound) => {
                (generation, looked_at) = (now, Instant::now());
                if !rewound.is_empty() {
                    failed.extend(sessions_after(shell, &rewound).await);
                }
            }
            // It is looked again.
            Err(error) => tracing::debug!(%error, "nobody knows yet whether the server has an older store"),
        }
        if !failed.is_empty() {
            failed = repair_all(shell, failed).await;
        }
    }
}

/// The sessions to be repaired: what the index knows, and what this replica worked on, since the index may be older than both.
async fn sessions_after(shell: &Shell, rewound: &[Rewound]) -> BTreeSet<SessionKey> {
    for Rewound { stream, seen, last } in rewound {
        tracing::error!(
            stream = stream.name(),
            seen,
            last,
            "the stream was put back to an older state, or made anew: what came after is lost; sessions are repaired"
        );
    }
    let mut keys: BTreeSet<SessionKey> = shell.cache.keys().into_iter().collect();
    match shell.bus.indexed_sessions().await {
        Ok(summaries) => keys.extend(
            summaries
                .into_iter()
                .filter(|summary| summary.phase != Phase::Ended)
                .map(|summary| SessionKey { tenant: summary.tenant, session: summary.session_id }),
        ),
        Err(error) => {
            tracing::error!(%error, "the index cannot be read: run `ailoop repair` when the server is well again");
        }
    }
    keys
}

/// Repairs sessions; returns those of which the bus did not let it, to be tried again.
async fn repair_all(shell: &Arc<Shell>, keys: BTreeSet<SessionKey>) -> BTreeSet<SessionKey> {
    let sessions = keys.len();
    let failed: BTreeSet<SessionKey> = futures::stream::iter(keys)
        .map(|key| async move {
            match shell.repair(&key).await {
                Ok(_) => None,
                Err(Trouble::Bus(error)) if !error.is_final() => {
                    tracing::warn!(session = %key, %error, "not repaired yet");
                    Some(key)
                }
                Err(trouble) => {
                    tracing::error!(session = %key, ?trouble, "not repaired");
                    None
                }
            }
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    tracing::warn!(sessions, failed = failed.len(), "what the sessions are owed was performed again");
    failed
}

fn reply(key: &SessionKey, repaired: Result<Vec<Effect>, Trouble>) -> RepairReply {
    let refused = |code, message| RepairReply::Refused { code, message };
    match repaired {
        Ok(effects) => RepairReply::Repaired(effects.iter().map(describe).collect()),
        Err(Trouble::Bus(error)) => refused(error.code(), error.to_string()),
        Err(Trouble::Newer { fold }) => refused(
            ErrorCode::NotNow,
            format!(
                "a newer version runs session {} (fold {fold}); ask again: one of its replicas may answer",
                key.session
            ),
        ),
        Err(Trouble::Skewed(skew)) => refused(ErrorCode::Unavailable, skew.to_string()),
        Err(Trouble::Busy) => refused(ErrorCode::Unavailable, "other replicas work on it; try again".to_owned()),
        Err(Trouble::Poison | Trouble::Split) => refused(ErrorCode::Internal, "the loop panicked".to_owned()),
        Err(Trouble::Internal(why)) => refused(ErrorCode::Internal, why),
    }
}

/// An effect as an operator reads it.
fn describe(effect: &Effect) -> String {
    match effect {
        Effect::CallModel(call) => format!("model call {call}"),
        Effect::CallTool(call) => format!("tool call {call}"),
        Effect::Cancel { call, .. } => format!("cancel of {call}"),
        Effect::SetTimer { number, at } => format!("timer {number}, due at {at}"),
        Effect::StartChild(call) => format!("start of the child of {call}"),
        Effect::CommandChild(call) => format!("command to the child of {call}"),
        Effect::ReportToParent => "report to the parent".to_owned(),
        Effect::CancelTimer => "end of the timer".to_owned(),
        Effect::Index => "line of the index".to_owned(),
        Effect::Archive { below } => format!("archive below slot {below}"),
    }
}
