//! `session/list`: the sessions of the tenant, newest first.

use std::path::PathBuf;

use futures::FutureExt as _;
use proto::{ListRequest, SessionInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use crate::acp::wire::RpcError;

/// Sessions of one part of the list.
const PART_SESSIONS: u32 = 50;

/// Parameters of `session/list`.
#[derive(Debug, Deserialize)]
pub(super) struct ListParams {
    cwd: Option<PathBuf>,
    #[serde(default)]
    cursor: Option<String>,
}

impl Shared {
    /// Lists sessions. Those that another session began are left out.
    pub(super) async fn list_sessions(&self, params: ListParams) -> Result<Value, RpcError> {
        let request = ListRequest {
            limit: PART_SESSIONS,
            cursor: params.cursor.clone().unwrap_or_default(),
            ..ListRequest::default()
        };
        let reply = self.link.call(request, |mut api, request| async move { api.list(request).await }.boxed()).await?;
        // A session has no directory: that of this editor, where it is open here, else the one that is asked about.
        let elsewhere = params.cwd.or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        let cwd_of = |session: &str| self.lock().get(session).map(|handle| handle.cwd.clone());
        let sessions: Vec<Value> = reply
            .sessions
            .iter()
            .filter(|info| info.parent.is_empty())
            .map(|info| entry(info, &cwd_of(&info.session_id).unwrap_or_else(|| elsewhere.clone())))
            .collect();
        let mut answer = json!({"sessions": sessions});
        if !reply.next_cursor.is_empty() {
            answer["nextCursor"] = Value::from(reply.next_cursor);
        }
        Ok(answer)
    }
}

fn entry(info: &SessionInfo, cwd: &std::path::Path) -> Value {
    json!({
        "sessionId": info.session_id, "cwd": cwd, "title": info.title, "updatedAt": info.updated,
        "_meta": {"ailoop": {"phase": info.phase, "agent": info.agent, "model": info.model}}
    })
}
