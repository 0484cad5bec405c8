//! The mail tools, and the mail of clients, over the mailboxes of one tenant.
//!
//! Their NATS user may also read and write these mailboxes; no other user may.

mod letter;
mod office;
mod recipient;
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

pub use office::{Caller, PostOffice, ReplyMail, SendMail};
pub use refusal::MailRefusal;

use super::connect::Login;

/// How long one call of a mail tool may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The tool by which mail is read: whoever has it has a mailbox.
const CHECK: &str = "check_mail";
const SEND: &str = "send_mail";
const REPLY: &str = "reply_mail";

/// As which NATS user the mail tools are served.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "mail")]
pub struct MailConfig {
    /// The NATS user of these tools, where users have permissions.
    pub login: Option<Login>,
}

/// Lets clients reach the mailboxes of a tenant, until it is to end.
pub(super) async fn serve_clients(bus: Bus, tenant: TenantId, office: PostOffice, ending: CancellationToken) {
    let serve = || {
        let office = office.clone();
        bus.serve_mail(&tenant, move |request| {
            let office = office.clone();
            async move { office.answer(request).await }.boxed()
        })
    };
    serve_until_cancelled(&ending, serve).await;
}

/// `send_mail`, `check_mail` and `reply_mail` over an office.
pub(super) fn tools(office: &PostOffice) -> Vec<Tool> {
    vec![send_mail(office), check_mail(office), reply_mail(office)]
}

/// A tool whose work is done by the office, for the agent whose session calls.
fn tool<T, F, Fut>(name: &str, effect: Effect, office: &PostOffice, work: F) -> Tool
where
    T: Serialize,
    F: Fn(PostOffice, Caller, Call) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
{
    let office = office.clone();
    Tool::new(name).effect(effect).timeout(TIMEOUT).handler(move |call: Call| {
        let office = office.clone();
        async move {
            let caller = Caller::new(call.agent(), call.id())?;
            Ok(Reply::from(json!(work(office, caller, call).await?)))
        }
    })
}

fn send_mail(office: &PostOffice) -> Tool {
    tool(SEND, Effect::Idempotent, office, async |office: PostOffice, caller: Caller, call: Call| {
        Ok(office.send(&caller, &call.arguments()?).await?)
    })
    .description(
        "Sends a mail to another agent, or to people. It is read when they work next: nobody is woken by it, and an \
         answer comes as a mail too.",
    )
    .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
        "to": {"type": "string", "minLength": 1, "description": "An agent's key or first name, such as eamonn; user for people."},
        "subject": {"type": "string", "minLength": 1, "description": "What it is about, in one line."},
        "text": {"type": "string", "minLength": 1, "description":
            "All that the other agent needs: what you want, why, and where the material is."},
    }, "required": ["to", "subject", "text"]}))
}

fn check_mail(office: &PostOffice) -> Tool {
    tool(CHECK, Effect::Pure, office, async |office: PostOffice, caller: Caller, _call: Call| {
        Ok(office.check(&caller).await?)
    })
    .description(
        "Lists the mails to you that you have not answered or closed yet, oldest first; `more` says how many are not \
         shown. Looking changes nothing.",
    )
    .parameters(json!({"type": "object", "additionalProperties": false, "properties": {}}))
}

fn reply_mail(office: &PostOffice) -> Tool {
    tool(REPLY, Effect::Idempotent, office, async |office: PostOffice, caller: Caller, call: Call| {
        Ok(office.reply(&caller, &call.arguments()?).await?)
    })
    .description(
        "Answers a mail to you and closes it, so that it is not listed again. An empty text closes it without an \
         answer.",
    )
    .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
        "id": {"type": "string", "minLength": 1, "description": "The mail's id, as check_mail lists it."},
        "text": {"type": "string", "description": "The answer; empty where none is needed."},
    }, "required": ["id", "text"]}))
}
