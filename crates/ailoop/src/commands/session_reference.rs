//! Sessions as people name them: by id, by the short form or the beginning of a generated id, or as the newest one.

use contract::{ErrorCode, SessionId};
use fleet_connection::client::{self, EdgeClient, SessionsApi};
use proto::{GetSessionRequest, ListSessionsRequest};
use terminal::failure::CommandFailure;

use super::fleet_location::connect;
use crate::args::{FleetTarget, SessionRef};

/// Characters of a generated id: nobody shortens one and still writes so many.
const GENERATED_ID_CHARS: usize = 36;
/// Fewest characters that stand for a longer id: a shorter one is more likely to be a mistake.
const BEGINNING_CHARS_MIN: usize = 4;
/// Sessions that a failure names.
const NAMED_MAX: usize = 5;
/// Sessions that are searched for a beginning.
const SEARCHED_MAX: u32 = 100;

/// Returns the id of the session that a person means. An id that nobody has is returned as it is, so that the command
/// itself fails.
pub(super) async fn resolve_session(client: &EdgeClient, text: &str) -> Result<String, CommandFailure> {
    let id = client::session_id(text)?;
    if !(BEGINNING_CHARS_MIN..GENERATED_ID_CHARS).contains(&id.len()) {
        return Ok(id);
    }
    match client.call(GetSessionRequest { session_id: id.clone() }, SessionsApi::get_session).await {
        Ok(_) => return Ok(id),
        Err(failure) if *failure.code() == ErrorCode::UnknownSession => {}
        Err(failure) => return Err(failure),
    }
    let request =
        ListSessionsRequest { limit: Some(SEARCHED_MAX), text: Some(id.clone()), ..ListSessionsRequest::default() };
    let listed = client.call(request, SessionsApi::list_sessions).await?.sessions;
    let found = listed.into_iter().map(|session| session.session_id);
    choose(&id, found.filter(|known| is_shortened(known, &id)).collect())
}

/// As [`resolve_session`], where a text may also be the id of a session that does not exist yet: only a whole short id
/// stands for another one.
pub(super) async fn resolve_or_new(client: &EdgeClient, text: &str) -> Result<String, CommandFailure> {
    if text.len() == SessionId::SHORT_CHARS { resolve_session(client, text).await } else { client::session_id(text) }
}

/// As [`resolve_session`], for an option of a list; without a session the list is of all.
pub(super) async fn resolve_filter(client: &EdgeClient, text: Option<&str>) -> Result<Option<String>, CommandFailure> {
    match text {
        Some(text) => resolve_session(client, text).await.map(Some),
        None => Ok(None),
    }
}

/// Parses a session of a command that reads NATS itself. There is no list of sessions in which a short id is found.
pub(super) fn parse_whole_id(text: &str) -> Result<SessionId, CommandFailure> {
    let is_short = text.len() == SessionId::SHORT_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_short {
        let message = format!("{text} may be the short form of an id, and this command needs the whole id");
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message)
            .help(format!("see `ailoop sessions list --text {text} -o wide`")));
    }
    SessionId::new(text)
        .map_err(|_| CommandFailure::usage(ErrorCode::BadRequest, format!("{text:?} is not a valid session id")))
}

/// Whether a text is the beginning of this id, or of its short form. Only generated ids are shortened: `s1` never
/// stands for `s10`.
fn is_shortened(id: &str, text: &str) -> bool {
    let Ok(session) = SessionId::new(id) else { return false };
    session.short().is_some_and(|short| id.starts_with(text) || short.starts_with(text))
}

/// Connects to the fleet of a command, and finds its session.
pub(super) async fn connect_to_session(
    target: &FleetTarget,
    reference: &SessionRef,
) -> Result<(EdgeClient, String), CommandFailure> {
    let named = reference.session.as_deref().map(client::session_id).transpose()?;
    let client = connect(target).await?;
    let session = find_session(&client, named).await?;
    Ok((client, session))
}

/// Returns the session with this id, short id or beginning of an id; without one the newest session.
pub(super) async fn find_session(client: &EdgeClient, named: Option<String>) -> Result<String, CommandFailure> {
    match named {
        Some(id) => resolve_session(client, &id).await,
        None => newest_session(client).await,
    }
}

/// Returns the id of the newest session that no other one began.
pub(super) async fn newest_session(client: &EdgeClient) -> Result<String, CommandFailure> {
    let request = ListSessionsRequest { limit: Some(SEARCHED_MAX), ..ListSessionsRequest::default() };
    let listed = client.call(request, SessionsApi::list_sessions).await?.sessions;
    let newest = listed.into_iter().find(|session| session.parent.is_none());
    newest.map(|session| session.session_id).ok_or_else(|| {
        CommandFailure::new(ErrorCode::UnknownSession, "there is no session").help("begin one with `ailoop chat`")
    })
}

fn choose(text: &str, mut found: Vec<String>) -> Result<String, CommandFailure> {
    match found.len() {
        0 => Ok(text.to_owned()),
        1 => Ok(found.remove(0)),
        count => {
            let named = found.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if count > NAMED_MAX { ", …" } else { "" };
            let message = format!("{text} stands for {count} sessions: {named}{more}");
            Err(CommandFailure::usage(ErrorCode::BadRequest, message).help("type more of the id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generated_ids_are_shortened() {
        let generated = "01a21797-7c14-70e7-869b-6a0b2b14e2cd";
        assert!(is_shortened(generated, "01a21797-7c14") && !is_shortened(generated, "7c14"));
        assert!(is_shortened(generated, "2b14e2cd") && !is_shortened(generated, "14e2cd"));
        assert!(is_shortened("child-2e847cc85474f77d2d33714fc9030fb4", "c9030fb4"));
        assert!(is_shortened("chat-2e847cc85474f77d2d33714fc9030fb4", "chat-2e84"));
        assert!(!is_shortened("gone-c1", "gone") && !is_shortened("chat-with-anna", "chat"));
    }

    #[test]
    fn beginning_of_one_id_is_that_session() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose("ab", ids(&["abc"])).unwrap(), "abc");
        assert_eq!(choose("ab", ids(&[])).unwrap(), "ab");
        let failure = choose("ab", ids(&["abc", "abd"])).unwrap_err();
        assert_eq!((failure.exit().code(), failure.message()), (2, "ab stands for 2 sessions: abc, abd"));
    }
}
