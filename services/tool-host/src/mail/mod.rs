//! The mail tools, and the mail of clients, over the mailboxes of one tenant.
//!
//! Their NATS user may also read and write these mailboxes; no other user may.

mod address;
mod mail_format;
mod mail_service;
mod refusal;

use std::time::Duration;

use ailoop_tool::{Call, Effect, Reply, Tool, ToolError};
use bus::Bus;
use bus::rpc::serve_until_cancelled;
use contract::TenantId;
use futures::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub use mail_service::{MailCaller, MailService, ReplyMailArguments, SendMailArguments};
pub use refusal::MailRefusal;

use super::connect::Login;
use address::CHECK_MAIL;

/// Timeout of one call of a mail tool.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Settings of the mail tools.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "mail")]
pub struct MailConfig {
    /// The NATS user of these tools, where users have permissions.
    pub login: Option<Login>,
}

/// Serves the mailboxes of a tenant to clients, until `ending`.
pub(super) async fn serve_clients(bus: Bus, tenant: TenantId, mail_service: MailService, ending: CancellationToken) {
    let serve = || {
        let mail_service = mail_service.clone();
        bus.serve_mail(&tenant, move |request| {
            let mail_service = mail_service.clone();
            async move { mail_service.handle_request(request).await }.boxed()
        })
    };
    serve_until_cancelled(&ending, serve).await;
}

/// Builds `send_mail`, `check_mail` and `reply_mail`.
pub(super) fn tools(mail_service: &MailService) -> Vec<Tool> {
    let send = tool("send_mail", mail_service, async |service: MailService, caller: MailCaller, call: Call| {
        Ok(service.send(&caller, &call.arguments()?).await?)
    })
    .effect(Effect::Idempotent)
    .description(
        "Sends a mail to another agent, or to people. It is read when they work next: nobody is woken by it, and an \
         answer comes as a mail too.",
    )
    .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
        "to": {"type": "string", "minLength": 1, "description": "An agent's key or first name, such as eamonn; user for people."},
        "subject": {"type": "string", "minLength": 1, "description": "What it is about, in one line."},
        "text": {"type": "string", "minLength": 1, "description":
            "All that the other agent needs: what you want, why, and where the material is."},
    }, "required": ["to", "subject", "text"]}));
    let check = tool(CHECK_MAIL, mail_service, async |service: MailService, caller: MailCaller, _call: Call| {
        Ok(service.check(&caller).await?)
    })
    .effect(Effect::Pure)
    .description(
        "Lists the mails to you that you have not answered or closed yet, oldest first; `more` says how many are not \
         shown. Looking changes nothing.",
    )
    .parameters(json!({"type": "object", "additionalProperties": false, "properties": {}}));
    let reply = tool("reply_mail", mail_service, async |service: MailService, caller: MailCaller, call: Call| {
        Ok(service.reply(&caller, &call.arguments()?).await?)
    })
    .effect(Effect::Idempotent)
    .description(
        "Answers a mail to you and closes it, so that it is not listed again. An empty text closes it without an \
         answer.",
    )
    .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
        "id": {"type": "string", "minLength": 1, "description": "The mail's id, as check_mail lists it."},
        "text": {"type": "string", "description": "The answer; empty where none is needed."},
    }, "required": ["id", "text"]}));
    vec![send, check, reply]
}

/// Builds a tool that calls the mail service for the agent of the calling session.
fn tool<T, F, Fut>(name: &str, mail_service: &MailService, work: F) -> Tool
where
    T: Serialize,
    F: Fn(MailService, MailCaller, Call) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
{
    let mail_service = mail_service.clone();
    Tool::new(name).timeout(TIMEOUT).handler(move |call: Call| {
        let mail_service = mail_service.clone();
        async move {
            let caller = MailCaller::new(call.agent(), call.id())?;
            Ok(Reply::from(json!(work(mail_service, caller, call).await?)))
        }
    })
}
