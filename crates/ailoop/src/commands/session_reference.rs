//! Sessions as people name them: by id, by the beginning of an id, or as the newest one.

use contract::ErrorCode;
use proto::{ListRequest, SessionRequest};

use crate::client::{self, EdgeClient, bounded};
use crate::failure::CommandFailure;

/// Characters of a generated id: nobody shortens one and still writes so many.
pub(super) const GENERATED_ID_CHARS: usize = 36;
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
    match client.sessions().get(bounded(SessionRequest { session_id: id.clone() })).await {
        Ok(_) => return Ok(id),
        Err(status) if client::error_code(&status) == ErrorCode::UnknownSession => {}
        Err(status) => return Err(client.failure(&status)),
    }
    let request = ListRequest { limit: SEARCHED_MAX, text: id.clone(), ..ListRequest::default() };
    let found = list(client, request).await?;
    choose(&id, found.into_iter().filter(|known| known.starts_with(&id)).collect())
}

/// Returns the id of the newest session.
pub(super) async fn newest_session(client: &EdgeClient) -> Result<String, CommandFailure> {
    let newest = list(client, ListRequest { limit: 1, ..ListRequest::default() }).await?.into_iter().next();
    newest.ok_or_else(|| {
        CommandFailure::new(ErrorCode::UnknownSession, "there is no session").help("begin one with `ailoop chat`")
    })
}

async fn list(client: &EdgeClient, request: ListRequest) -> Result<Vec<String>, CommandFailure> {
    let reply = client.sessions().list(bounded(request)).await.map_err(|status| client.failure(&status))?;
    Ok(reply.into_inner().sessions.into_iter().map(|session| session.session_id).collect())
}

fn choose(text: &str, mut found: Vec<String>) -> Result<String, CommandFailure> {
    match found.len() {
        0 => Ok(text.to_owned()),
        1 => Ok(found.remove(0)),
        count => {
            let named = found.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if count > NAMED_MAX { ", …" } else { "" };
            let message = format!("{count} sessions begin with {text}: {named}{more}");
            Err(CommandFailure::usage(ErrorCode::BadRequest, message).help("type more of the id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_of_one_id_is_that_session() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose("ab", ids(&["abc"])).unwrap(), "abc");
        assert_eq!(choose("ab", ids(&[])).unwrap(), "ab");
        let failure = choose("ab", ids(&["abc", "abd"])).unwrap_err();
        assert_eq!((failure.exit().code(), failure.message()), (2, "2 sessions begin with ab: abc, abd"));
    }
}
