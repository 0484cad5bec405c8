//! Dead letters: what failed for good, for those who operate the fleet.

use bus::BusError;
use contract::command::Verb;
use contract::streams::Objects;
use contract::subject::{self, DeadKind, DeadSubject, SessionKey};
use contract::tool::sha256_hex;
use contract::{CommandId, ErrorCode, Json, SessionId, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::api_error::ApiError;
use crate::authentication::ApiCaller;
use crate::clock;
use crate::fair_queue::RequestCost;
use crate::params;
use crate::session_api::SessionApi;

/// A dead letter in a list: everything but its contents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DeadLetterInfo {
    /// The session that it belongs to.
    pub(crate) session_id: SessionId,
    /// What it was.
    pub(crate) kind: DeadKind,
    /// Its id among those of the session and kind.
    pub(crate) id: CommandId,
    /// Stable: why.
    pub(crate) code: ErrorCode,
    /// Why, for people.
    pub(crate) reason: String,
    /// How often the original was delivered.
    pub(crate) delivered: u64,
    /// When the original was stored.
    pub(crate) stored_at: Timestamp,
    /// The original's subject.
    pub(crate) subject: String,
    /// Its body, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Json>,
}

/// What became of a dead letter that was sent again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DeadLetterRetry {
    /// The session.
    pub(crate) session_id: SessionId,
    /// The new id of the command.
    pub(crate) command_id: CommandId,
}

impl SessionApi {
    /// The tenant's dead letters, or those of one session.
    pub(crate) async fn list_dead_letters(
        &self,
        caller: &ApiCaller,
        params: &params::ListDeadLettersParams,
    ) -> Result<Vec<DeadLetterInfo>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let session = params.session_id.clone().map(|session| SessionKey { tenant: caller.tenant.clone(), session });
        let letters = self.bus().dead_letters(&caller.tenant, session.as_ref()).await?;
        let letters = letters.ok_or_else(|| {
            ApiError::new(ErrorCode::TooLarge, "there are more than 1,024 dead letters: ask for those of one session")
        })?;
        Ok(letters.into_iter().map(|(at, letter)| describe(at, letter, false)).collect())
    }

    /// One dead letter with its contents.
    pub(crate) async fn get_dead_letter(
        &self,
        caller: &ApiCaller,
        params: params::DeadLetterParams,
    ) -> Result<DeadLetterInfo, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Light).await?;
        let (at, letter) = self.find_dead_letter(caller, params).await?;
        Ok(describe(at, letter, true))
    }

    /// Sends a client's command once more, under a new id and as of now, and removes the letter. Nothing else can be
    /// sent again: the loop has long given the call of a lost item its result, and sets its timers itself.
    pub(crate) async fn retry_dead_letter(
        &self,
        caller: &ApiCaller,
        params: params::DeadLetterParams,
    ) -> Result<DeadLetterRetry, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let (at, letter) = self.find_dead_letter(caller, params).await?;
        let refuse =
            |why: &str| ApiError::new(ErrorCode::NotNow, format!("{} cannot be sent again: {why}", format_name(&at)));
        let control = subject::parse_control(&letter.subject).filter(|control| control.verb.is_client());
        let Some(control) = control else {
            return Err(refuse("it is no command of a client, and the loop has made up for it by itself; drop it"));
        };
        if control.verb == Verb::Start {
            return Err(refuse("a session starts once; start another one"));
        }
        // A large body was stored apart, and for a day only. It is read and stored again, since its time changes.
        let stored = axum::body::Bytes::copy_from_slice(letter.body.get().as_bytes());
        let loaded = match self.bus().open(Objects::Work, stored).await {
            Ok(loaded) => loaded,
            Err(error @ (BusError::BodyMissing { .. } | BusError::Malformed(_))) => {
                return Err(refuse(&format!("its body is gone, or is not what was stored ({error}); drop it")));
            }
            Err(error) => return Err(error.into()),
        };
        let mut body: Value = serde_json::from_slice(&loaded).unwrap_or_default();
        let Some(meta) = body.get_mut("meta").and_then(Value::as_object_mut) else {
            return Err(refuse("its body cannot be read, so that it would fail again; drop it"));
        };
        // Whoever sent it waits no more, and it is not as old as it looks.
        meta.remove("edge");
        meta.insert("time".to_owned(), serde_json::json!(clock::now()));
        let command_id = derive_retry_id(&letter)?;
        let body = serde_json::to_vec(&body).map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
        self.bus().send_control(&at.key, control.verb, &command_id, body.into()).await?;
        self.bus().drop_dead(&at).await?;
        Ok(DeadLetterRetry { session_id: at.key.session, command_id })
    }

    /// Throws a dead letter away.
    pub(crate) async fn drop_dead_letter(
        &self,
        caller: &ApiCaller,
        params: params::DeadLetterParams,
    ) -> Result<DeadLetterInfo, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Command).await?;
        let (at, letter) = self.find_dead_letter(caller, params).await?;
        self.bus().drop_dead(&at).await?;
        Ok(describe(at, letter, false))
    }

    async fn find_dead_letter(
        &self,
        caller: &ApiCaller,
        params: params::DeadLetterParams,
    ) -> Result<(DeadSubject, bus::DeadLetter), ApiError> {
        let params::DeadLetterParams { session_id: session, kind, id } = params;
        let at = DeadSubject { key: SessionKey { tenant: caller.tenant.clone(), session }, kind, id };
        let letter = self.bus().dead_letter(&at).await?.ok_or_else(|| {
            let message = format!("there is no {}; `ailoop dead list` shows those that there are", format_name(&at));
            ApiError::new(ErrorCode::BadRequest, message)
        })?;
        Ok((at, letter))
    }
}

fn format_name(at: &DeadSubject) -> String {
    format!("dead letter {}/{}/{}", at.key.session, at.kind, at.id)
}

/// The id under which a letter's command is sent again: its old one may be known as handled, and whoever repeats the
/// retry must not make it two commands.
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
