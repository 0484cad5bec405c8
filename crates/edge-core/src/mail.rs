//! Mail between people and agents. Executors keep the mailboxes, and the edge sends them requests.

use std::sync::Arc;

use bus::BusError;
use contract::limits::MAILS_SHOWN_MAX;
use contract::mail::{MailAction, MailList, MailRequest, MailResponse, PEOPLE, RepliedMail, SentMail};
use contract::{AgentId, CommandId, ErrorCode};
use session_api::{ListMailParams, MailboxPage, ReplyMailParams, SendMailParams};

use crate::access::ApiCaller;
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers, TenantCells, missing_error};
use crate::fair_queue::RequestCost;
use crate::params;

impl SessionApi {
    /// Lists the mails that wait in a mailbox, oldest first.
    pub async fn list_mail(&self, caller: &ApiCaller, params: ListMailParams) -> Result<MailboxPage, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let request = mail_request(params.mailbox, params::generate_id()?, MailAction::List)?;
        let list = |cell: Arc<Cell>| {
            let request = &request;
            async move {
                match ask_mail(&cell, caller, request, None).await? {
                    MailResponse::Mails(list) => Ok(list),
                    other @ (MailResponse::Sent(_) | MailResponse::Closed(_) | MailResponse::Refused { .. }) => {
                        Err(unexpected_response(&other))
                    }
                }
            }
        };
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, list).await?;
        let mut lists = answers.into_iter().map(|(_, list)| list);
        let mut all = lists.next().ok_or_else(|| missing_error(&missing))?;
        for MailList { more, mails } in lists {
            all.more += more;
            all.mails.extend(mails);
        }
        if self.cells().are_several() {
            all.mails.sort_by(|one, other| (one.sent, &one.id).cmp(&(other.sent, &other.id)));
            all.more += all.mails.len().saturating_sub(MAILS_SHOWN_MAX);
            all.mails.truncate(MAILS_SHOWN_MAX);
        }
        let MailList { more, mails } = all;
        Ok(MailboxPage { mails, more, missing_cells: missing })
    }

    /// Sends a mail to a mailbox.
    pub async fn send_mail(&self, caller: &ApiCaller, params: SendMailParams) -> Result<SentMail, ApiError> {
        let SendMailParams { mailbox, command_id, to, subject, text } = params;
        let cell = self.cells().of_mail(&caller.tenant)?;
        let action = MailAction::Send { to, subject, text };
        match self.write_mail(&[cell], caller, mailbox, command_id, action).await? {
            MailResponse::Sent(sent) => Ok(sent),
            other @ (MailResponse::Mails(_) | MailResponse::Closed(_) | MailResponse::Refused { .. }) => {
                Err(unexpected_response(&other))
            }
        }
    }

    /// Answers a mail, which closes it.
    pub async fn reply_mail(&self, caller: &ApiCaller, params: ReplyMailParams) -> Result<RepliedMail, ApiError> {
        let ReplyMailParams { mailbox, command_id, id: mail, text } = params;
        let TenantCells { reached, missing } = self.cells().of_tenant(&caller.tenant);
        if reached.is_empty() {
            return Err(missing_error(&missing));
        }
        let cells: Vec<Arc<Cell>> = reached.into_iter().map(|(_, cell)| cell).collect();
        let replied = self.write_mail(&cells, caller, mailbox, command_id, MailAction::Reply { mail, text }).await;
        match replied {
            // The mail may be in a cell that was not asked.
            Err(error) if error.code == ErrorCode::UnknownMail && !missing.is_empty() => Err(missing_error(&missing)),
            Err(error) => Err(error),
            Ok(MailResponse::Closed(closed)) => Ok(closed),
            Ok(other @ (MailResponse::Mails(_) | MailResponse::Sent(_) | MailResponse::Refused { .. })) => {
                Err(unexpected_response(&other))
            }
        }
    }

    /// Writes in the first of some cells that knows the mail. Each cell has mailboxes of its own.
    async fn write_mail(
        &self,
        cells: &[Arc<Cell>],
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
        let request = mail_request(mailbox, id, action)?;
        let mut outcome = Err(ApiError::no_answer("cell"));
        for cell in cells {
            outcome = ask_mail(cell, caller, &request, Some(&advice)).await;
            match &outcome {
                Err(error) if error.code == ErrorCode::UnknownMail => {}
                Ok(_) | Err(_) => break,
            }
        }
        outcome
    }
}

/// Sends a request to an executor. For a write, `advice` tells how to repeat it if its outcome is unknown.
async fn ask_mail(
    cell: &Cell,
    caller: &ApiCaller,
    request: &MailRequest,
    advice: Option<&str>,
) -> Result<MailResponse, ApiError> {
    match cell.bus.ask_mail(&caller.tenant, request).await {
        Ok(MailResponse::Refused { code: ErrorCode::Unavailable, message }) => {
            let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
            Err(ApiError::unavailable(message + &advice))
        }
        Ok(MailResponse::Refused { code, message }) => Err(ApiError::new(code, message)),
        Ok(response) => Ok(response),
        Err(BusError::NoResponders { .. }) => {
            Err(ApiError::unavailable("no tool-host serves mailboxes now: start one with `tool_host.mail`"))
        }
        Err(error @ (BusError::Timeout { .. } | BusError::Unavailable(_))) => {
            let advice = advice.map_or_else(
                || "try again".to_owned(),
                |advice| format!("whether the request took effect is unknown: {advice}"),
            );
            Err(ApiError::unavailable(format!("{error}; {advice}")))
        }
        Err(error) => Err(error.into()),
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
