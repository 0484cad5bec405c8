//! Dead letters: operators list, show, retry and drop messages that were given up.

use std::sync::Arc;

use bus::BusError;
use contract::command::Verb;
use contract::streams::Objects;
use contract::subject::{self, DeadSubject, SessionKey};
use contract::tool::sha256_hex;
use contract::{CommandId, ErrorCode};
use serde_json::Value;
use session_api::{DeadLetterInfo, DeadLetterList, DeadLetterParams, DeadLetterRetry, ListDeadLettersParams};

use crate::access::ApiCaller;
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers, missing_error};
use crate::clock;
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Lists the dead letters of the tenant, or those of one session. Those of a session that was moved are in the cells
    /// where it was.
    pub async fn list_dead_letters(
        &self,
        caller: &ApiCaller,
        params: &ListDeadLettersParams,
    ) -> Result<DeadLetterList, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let session = params.session_id.clone().map(|session| SessionKey { tenant: caller.tenant.clone(), session });
        let list = |cell: Arc<Cell>| {
            let session = session.clone();
            async move {
                let letters = cell.bus.dead_letters(&caller.tenant, session.as_ref()).await?;
                letters.ok_or_else(|| {
                    let message = "there are more than 1,024 dead letters: list those of one session";
                    ApiError::new(ErrorCode::TooLarge, message)
                })
            }
        };
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, list).await?;
        let letters = answers.into_iter().flat_map(|(_, letters)| letters);
        let dead = letters.map(|(at, letter)| describe(at, letter, false)).collect();
        Ok(DeadLetterList { dead, missing_cells: missing })
    }

    /// Returns one dead letter with its body.
    pub async fn get_dead_letter(
        &self,
        caller: &ApiCaller,
        params: DeadLetterParams,
    ) -> Result<DeadLetterInfo, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Light).await?;
        let (_, at, letter) = self.find_dead_letter(caller, params).await?;
        Ok(describe(at, letter, true))
    }

    /// Sends the command of a client again, with a new id and the current time, and removes the letter. Nothing else
    /// can be retried: the loop has given the call of a lost item a result already, and it sets its timers itself.
    pub async fn retry_dead_letter(
        &self,
        caller: &ApiCaller,
        params: DeadLetterParams,
    ) -> Result<DeadLetterRetry, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let (cell, at, letter) = self.find_dead_letter(caller, params).await?;
        let refuse =
            |why: &str| ApiError::new(ErrorCode::NotNow, format!("{} cannot be retried: {why}", format_name(&at)));
        let control = subject::parse_control(&letter.subject).filter(|control| control.verb.is_client());
        let Some(control) = control else {
            return Err(refuse(
                "it is not a command of a client, and the loop has recovered from its loss itself; drop it",
            ));
        };
        if control.verb == Verb::Start {
            return Err(refuse("a session can start only once; start another session"));
        }
        // A large body is in the object store, and for one day only. Its time changes, so it is loaded and stored
        // again.
        let stored = axum::body::Bytes::copy_from_slice(letter.body.get().as_bytes());
        let loaded = match cell.bus.open(Objects::Work, stored).await {
            Ok(loaded) => loaded,
            Err(error @ (BusError::BodyMissing { .. } | BusError::Malformed(_))) => {
                return Err(refuse(&format!("its body is gone or damaged ({error}); drop it")));
            }
            Err(error) => return Err(error.into()),
        };
        let mut body: Value = serde_json::from_slice(&loaded).unwrap_or_default();
        let Some(meta) = body.get_mut("meta").and_then(Value::as_object_mut) else {
            return Err(refuse("its body cannot be read, so it would fail again; drop it"));
        };
        // The client that sent it does not wait any more, and the age of the command counts from now.
        meta.remove("edge");
        meta.insert("time".to_owned(), serde_json::json!(clock::now()));
        let command_id = derive_retry_id(&letter)?;
        let body = serde_json::to_vec(&body).map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
        cell.bus.send_control(&at.key, control.verb, &command_id, body.into()).await?;
        cell.bus.drop_dead(&at).await?;
        Ok(DeadLetterRetry { session_id: at.key.session, command_id })
    }

    /// Removes a dead letter.
    pub async fn drop_dead_letter(
        &self,
        caller: &ApiCaller,
        params: DeadLetterParams,
    ) -> Result<DeadLetterInfo, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Command).await?;
        let (cell, at, letter) = self.find_dead_letter(caller, params).await?;
        cell.bus.drop_dead(&at).await?;
        Ok(describe(at, letter, false))
    }

    async fn find_dead_letter(
        &self,
        caller: &ApiCaller,
        params: DeadLetterParams,
    ) -> Result<(Arc<Cell>, DeadSubject, bus::DeadLetter), ApiError> {
        let DeadLetterParams { session_id: session, kind, id } = params;
        let at = DeadSubject { key: SessionKey { tenant: caller.tenant.clone(), session }, kind, id };
        let find = |cell: Arc<Cell>| {
            let at = at.clone();
            async move {
                let letter = cell.bus.dead_letter(&at).await?;
                Ok(letter.map(|letter| (cell, letter)))
            }
        };
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, find).await?;
        let found = answers.into_iter().find_map(|(_, letter)| letter);
        let (cell, letter) = found.ok_or_else(|| {
            if !missing.is_empty() {
                return missing_error(&missing);
            }
            let message = format!("there is no {}; `ailoop dead list` lists those that exist", format_name(&at));
            ApiError::new(ErrorCode::UnknownDeadLetter, message)
        })?;
        Ok((cell, at, letter))
    }
}

fn format_name(at: &DeadSubject) -> String {
    format!("dead letter {}/{}/{}", at.key.session, at.kind, at.id)
}

/// Derives the id of a retried command. The session may know the old id as handled, and a repeated retry must not
/// become a second command.
fn derive_retry_id(letter: &bus::DeadLetter) -> Result<CommandId, ApiError> {
    let digest = sha256_hex(format!("{} {}", letter.subject, letter.seq).as_bytes());
    CommandId::new(&format!("again-{}", &digest[..32]))
        .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
}

fn describe(at: DeadSubject, letter: bus::DeadLetter, has_body: bool) -> DeadLetterInfo {
    let bus::DeadLetter { code, reason, subject, seq: _, delivered, stored_at, body } = letter;
    let DeadSubject { key, kind, id } = at;
    DeadLetterInfo {
        session_id: key.session,
        kind,
        id,
        code,
        reason,
        delivered,
        stored_at,
        subject,
        body: has_body.then_some(body),
    }
}
