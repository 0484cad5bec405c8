//! `session/list`: its request to the fleet, and its answer. Pure.

use std::path::{Path, PathBuf};

use proto::{ListReply, ListRequest, SessionInfo};
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
    pub(super) fn request(&self) -> ListRequest {
        let cursor = self.cursor.clone().unwrap_or_default();
        ListRequest { limit: PART_SESSIONS, cursor, ..ListRequest::default() }
    }
}

/// Makes the answer. Sessions that another session began are left out. `cwd_of` knows the directory of a session.
pub(super) fn answer(reply: &ListReply, cwd_of: impl Fn(&str) -> PathBuf) -> Value {
    let own = reply.sessions.iter().filter(|info| info.parent.is_empty());
    let sessions: Vec<Value> = own.map(|info| entry(info, &cwd_of(&info.session_id))).collect();
    let mut answer = json!({"sessions": sessions});
    if !reply.next_cursor.is_empty() {
        answer["nextCursor"] = Value::from(reply.next_cursor.as_str());
    }
    answer
}

fn entry(info: &SessionInfo, cwd: &Path) -> Value {
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
        let info = |id: &str, parent: &str| SessionInfo {
            session_id: id.to_owned(),
            parent: parent.to_owned(),
            title: "T".to_owned(),
            updated: "2026-01-15T10:30:45.000Z".to_owned(),
            ..SessionInfo::default()
        };
        let sessions = vec![info("a", ""), info("b", "a")];
        let reply = ListReply { sessions, next_cursor: "next".to_owned(), ..ListReply::default() };
        let listed = answer(&reply, |id| PathBuf::from(format!("/{id}")));
        assert_eq!((listed["sessions"].as_array().map(Vec::len), &listed["nextCursor"]), (Some(1), &json!("next")));
        let first = &listed["sessions"][0];
        assert_eq!((&first["sessionId"], &first["cwd"], &first["title"]), (&json!("a"), &json!("/a"), &json!("T")));
        assert_eq!(answer(&ListReply::default(), |_| PathBuf::new()), json!({"sessions": []}));
        let params: ListParams = serde_json::from_value(json!({"cursor": "next"})).unwrap();
        assert_eq!(params.request().cursor, "next");
    }
}
