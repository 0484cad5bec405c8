//! Mail between people and agents. Executors keep the mailboxes, and the edge sends them requests.

use std::time::Duration;

use bus::BusError;
use contract::mail::{MailAction, MailList, MailRequest, MailResponse, PEOPLE, RepliedMail, SentMail};
use contract::{AgentId, CommandId, ErrorCode};

use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;
use crate::params::{self, ListMailParams, ReplyMailParams, SendMailParams};
use crate::session_api::SessionApi;

/// When a client should retry a request that no executor answered.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl SessionApi {
    /// Lists the mails that wait in a mailbox, oldest first.
    pub(crate) async fn list_mail(&self, caller: &ApiCaller, params: ListMailParams) -> Result<MailList, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let request = mail_request(params.mailbox, params::generate_id()?, MailAction::List)?;
        match self.ask_mail(caller, &request, None).await? {
            MailResponse::Mails(list) => Ok(list),
            other @ (MailResponse::Sent(_) | MailResponse::Closed(_) | MailResponse::Refused { .. }) => {
                Err(unexpected_response(&other))
            }
        }
    }

    pub(crate) async fn send_mail(&self, caller: &ApiCaller, params: SendMailParams) -> Result<SentMail, ApiError> {
        let SendMailParams { mailbox, command_id, to, subject, text } = params;
        match self.write_mail(caller, mailbox, command_id, MailAction::Send { to, subject, text }).await? {
            MailResponse::Sent(sent) => Ok(sent),
            other @ (MailResponse::Mails(_) | MailResponse::Closed(_) | MailResponse::Refused { .. }) => {
                Err(unexpected_response(&other))
            }
        }
    }

    pub(crate) async fn reply_mail(
        &self,
        caller: &ApiCaller,
        params: ReplyMailParams,
    ) -> Result<RepliedMail, ApiError> {
        let ReplyMailParams { mailbox, command_id, id: mail, text } = params;
        match self.write_mail(caller, mailbox, command_id, MailAction::Reply { mail, text }).await? {
            MailResponse::Closed(closed) => Ok(closed),
            other @ (MailResponse::Mails(_) | MailResponse::Sent(_) | MailResponse::Refused { .. }) => {
                Err(unexpected_response(&other))
            }
        }
    }

    async fn write_mail(
        &self,
        caller: &ApiCaller,
        mailbox: Option<AgentId>,
        command_id: Option<CommandId>,
        action: MailAction,
    ) -> Result<MailResponse, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Command).await?;
        let (id, advice) = if let Some(id) = command_id {
            (id, "repeat it with the same `command_id`, and nothing is stored twice".to_owned())
        } else {
            let id: CommandId = params::generate_id()?;
            let advice =
                format!("repeat it with `command_id` {id}, which the edge generated, and nothing is stored twice");
            (id, advice)
        };
        self.ask_mail(caller, &mail_request(mailbox, id, action)?, Some(&advice)).await
    }

    /// Sends a request to an executor. For a write, `advice` tells how to repeat it if its outcome is unknown.
    async fn ask_mail(
        &self,
        caller: &ApiCaller,
        request: &MailRequest,
        advice: Option<&str>,
    ) -> Result<MailResponse, ApiError> {
        match self.bus().ask_mail(&caller.tenant, request).await {
            Ok(MailResponse::Refused { code: ErrorCode::Unavailable, message }) => {
                let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
                Err(ApiError::new(ErrorCode::Unavailable, message + &advice).with_retry_after(RETRY_AFTER))
            }
            Ok(MailResponse::Refused { code, message }) => Err(ApiError::new(code, message)),
            Ok(response) => Ok(response),
            Err(BusError::NoResponders { .. }) => {
                let message = "no tool-host serves mailboxes now: start one with `tool_host.mail`";
                Err(ApiError::new(ErrorCode::Unavailable, message).with_retry_after(RETRY_AFTER))
            }
            Err(error @ (BusError::Timeout { .. } | BusError::Unavailable(_))) => {
                let advice = advice.map_or_else(
                    || "try again".to_owned(),
                    |advice| format!("whether the request took effect is unknown: {advice}"),
                );
                let message = format!("{error}; {advice}");
                Err(ApiError::new(ErrorCode::Unavailable, message).with_retry_after(RETRY_AFTER))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn mail_request(mailbox: Option<AgentId>, id: CommandId, action: MailAction) -> Result<MailRequest, ApiError> {
    let mailbox = mailbox.map_or_else(|| params::parse("mailbox", PEOPLE), Ok)?;
    Ok(MailRequest { mailbox, id, action })
}

/// Error for a response of the wrong kind.
fn unexpected_response(response: &MailResponse) -> ApiError {
    let kind = match response {
        MailResponse::Mails(_) => "mails",
        MailResponse::Sent(_) => "sent",
        MailResponse::Closed(_) => "closed",
        MailResponse::Refused { .. } => "refused",
    };
    ApiError::new(ErrorCode::Internal, format!("the executor sent a response of the wrong kind, {kind:?}"))
}
