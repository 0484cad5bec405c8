//! `session/list`: its request to the fleet, and its answer. Pure.

use std::path::{Path, PathBuf};

use proto::{ListSessionsRequest, SessionPage, SessionSummary};
use serde::Deserialize;
use serde_json::{Value, json};

/// Sessions of one part of the list.
const PART_SESSIONS: u32 = 50;

/// Parameters of the request `session/list`.
#[derive(Debug, Deserialize)]
pub(super) struct ListParams {
    pub(super) cwd: Option<PathBuf>,
    cursor: Option<String>,
}

impl ListParams {
    /// Makes the request to the fleet.
    pub(super) fn request(&self) -> ListSessionsRequest {
        let cursor = self.cursor.clone();
        ListSessionsRequest { limit: Some(PART_SESSIONS), cursor, ..ListSessionsRequest::default() }
    }
}

/// Makes the answer. Sessions that another session began are left out. `cwd_of` knows the directory of a session.
pub(super) fn answer(reply: &SessionPage, cwd_of: impl Fn(&str) -> PathBuf) -> Value {
    let own = reply.sessions.iter().filter(|info| info.parent.is_none());
    let sessions: Vec<Value> = own.map(|info| entry(info, &cwd_of(&info.session_id))).collect();
    let mut answer = json!({"sessions": sessions});
    if let Some(next) = &reply.next_cursor {
        answer["nextCursor"] = Value::from(next.as_str());
    }
    answer
}

fn entry(info: &SessionSummary, cwd: &Path) -> Value {
    json!({
        "sessionId": info.session_id, "cwd": cwd, "title": info.title, "updatedAt": info.updated,
        "_meta": {"ailoop": {"phase": info.phase, "agent": info.agent, "model": info.model}}
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_leaves_child_sessions_out_and_has_the_next_cursor() {
        let info = |id: &str, parent: Option<&str>| SessionSummary {
            session_id: id.to_owned(),
            parent: parent.map(str::to_owned),
            title: "T".to_owned(),
            updated: "2026-01-15T10:30:45.000Z".to_owned(),
            ..SessionSummary::default()
        };
        let sessions = vec![info("a", None), info("b", Some("a"))];
        let reply = SessionPage { sessions, next_cursor: Some("next".to_owned()), ..SessionPage::default() };
        let listed = answer(&reply, |id| PathBuf::from(format!("/{id}")));
        assert_eq!((listed["sessions"].as_array().map(Vec::len), &listed["nextCursor"]), (Some(1), &json!("next")));
        let first = &listed["sessions"][0];
        assert_eq!((&first["sessionId"], &first["cwd"], &first["title"]), (&json!("a"), &json!("/a"), &json!("T")));
        assert_eq!(answer(&SessionPage::default(), |_| PathBuf::new()), json!({"sessions": []}));
        let params: ListParams = serde_json::from_value(json!({"cursor": "next"})).unwrap();
        assert_eq!(params.request().cursor.as_deref(), Some("next"));
    }
}
