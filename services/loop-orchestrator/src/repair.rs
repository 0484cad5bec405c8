//! Performs again what sessions are owed: one on request, all after the server was put back to an older state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus::Rewound;
use contract::ErrorCode;
use contract::commit::Phase;
use contract::repair::RepairReply;
use contract::subject::SessionKey;
use futures::{FutureExt, StreamExt};
use session::Effect;
use tokio_util::sync::CancellationToken;

use crate::shell::{Shell, Trouble};

/// How often it is looked whether the connection is still the one that it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Sessions that are repaired at the same time.
const AT_ONCE: usize = 16;

/// Answers requests to repair a session, until it is to end.
pub(crate) async fn serve(shell: Arc<Shell>, ending: CancellationToken) {
    let bus = shell.bus.clone();
    let subscribed = async {
        loop {
            let shell = shell.clone();
            let repair = move |key: SessionKey| {
                let shell = shell.clone();
                async move { reply(&key, shell.repair(&key).await) }.boxed()
            };
            match bus.serve_repair(repair).await {
                Ok(serving) => return serving,
                Err(error) => tracing::debug!(%error, "nobody can ask for a repair yet"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let serving = ending.run_until_cancelled(subscribed).await;
    ending.cancelled().await;
    drop(serving);
}

/// Repairs every session after each reconnect that finds the server with an older store.
pub(crate) async fn watch(shell: Arc<Shell>, ending: CancellationToken) {
    let transport = shell.bus.transport();
    let mut generation = transport.generation();
    while ending.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        let now = transport.generation();
        if now == generation {
            continue;
        }
        match transport.rewound().await {
            Ok(rewound) => {
                generation = now;
                if !rewound.is_empty() && ending.run_until_cancelled(repair_all(&shell, &rewound)).await.is_none() {
                    return;
                }
            }
            // It is looked again.
            Err(error) => tracing::debug!(%error, "nobody knows yet whether the server has an older store"),
        }
    }
}

async fn repair_all(shell: &Arc<Shell>, rewound: &[Rewound]) {
    for Rewound { stream, seen, last } in rewound {
        tracing::error!(
            stream = stream.name(),
            seen,
            last,
            "the stream was put back to an older state, or made anew: what came after is lost; sessions are repaired"
        );
    }
    // What the index knows, and what this replica worked on: the index may be older than both.
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
    let sessions = keys.len();
    let failed = futures::stream::iter(keys)
        .map(|key| async move {
            match shell.repair(&key).await {
                Ok(_) => 0,
                Err(error) => {
                    tracing::error!(session = %key, ?error, "not repaired: `ailoop repair` tries again");
                    1
                }
            }
        })
        .buffer_unordered(AT_ONCE)
        .fold(0_usize, |sum, failed| std::future::ready(sum + failed))
        .await;
    tracing::warn!(sessions, failed, "what the sessions are owed was performed again");
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
        Effect::TellChild(call) => format!("command to the child of {call}"),
        Effect::TellParent => "report to the parent".to_owned(),
        Effect::CancelTimer => "end of the timer".to_owned(),
        Effect::Index => "line of the index".to_owned(),
        Effect::Archive { below } => format!("archive below slot {below}"),
    }
}
