//! The mail tools: ordinary NATS tools that this process serves itself, over mailboxes that only the executor touches.
//!
//! Their NATS user may take calls and answer them, as every tool's; what they store goes over the executor's own
//! connection, so that no tool can ask JetStream for anything.

mod letter;
mod office;
mod recipient;

use std::time::Duration;

use ailoop_tool::{Call, Effect, Reply, ServeError, Serving, Tool, ToolError, Tools};
use bus::NatsConfig;
use contract::{TenantId, ToolName};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use service::Secret;

pub use office::{Caller, PostOffice, ReplyMail, SendMail};

use crate::connect::{as_user, connect};

/// How long one call of a mail tool may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Calls of one mail tool that run at the same time.
const CONCURRENCY: usize = 8;
/// The tool by which mail is read: whoever has it has a mailbox.
const CHECK: &str = "check_mail";
const SEND: &str = "send_mail";
const REPLY: &str = "reply_mail";

/// Whose agents may write to each other, and as which NATS user the tools are served.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "mail")]
pub struct MailConfig {
    /// Whose sessions may use the tools.
    #[schemars(with = "String")]
    pub tenant: TenantId,
    /// The NATS user of the tools, where tools and executors are different users.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
}

/// The mail tools, being served.
pub struct MailTools {
    serving: Serving,
}

impl MailTools {
    /// Connects and serves `send_mail`, `check_mail` and `reply_mail` over an office.
    pub async fn start(config: &MailConfig, nats: &NatsConfig, office: PostOffice) -> Result<Self, ServeError> {
        let nats = as_user(nats, config.user.as_ref(), config.password.as_ref());
        let tools = Tools::new(connect(&nats, "mail tools").await?);
        let tools = tools.tenant(config.tenant.as_str()).concurrency(CONCURRENCY);
        let tools = [send_mail(&office), check_mail(&office), reply_mail(&office)].into_iter().fold(tools, Tools::tool);
        Ok(Self { serving: tools.serve().await? })
    }

    /// The tools that a configuration serves.
    pub(crate) fn names(config: &MailConfig) -> impl Iterator<Item = (TenantId, ToolName)> {
        let names = [SEND, CHECK, REPLY].into_iter();
        names.filter_map(|name| Some((config.tenant.clone(), ToolName::new(name).ok()?)))
    }

    /// Takes no more calls and finishes those that run, up to `timeout`.
    pub async fn stop(self, timeout: Duration) {
        self.serving.stop(timeout).await;
    }
}

impl std::fmt::Debug for MailTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MailTools")
    }
}

/// A tool whose work is done by the office, for the agent whose session calls.
fn tool<F, Fut>(name: &str, effect: Effect, office: &PostOffice, work: F) -> Tool
where
    F: Fn(PostOffice, Caller, Call) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, ToolError>> + Send + 'static,
{
    let office = office.clone();
    Tool::new(name).effect(effect).timeout(TIMEOUT).handler(move |call: Call| {
        let office = office.clone();
        async move {
            let caller = Caller::new(call.agent(), call.id())?;
            Ok(Reply::from(work(office, caller, call).await?))
        }
    })
}

fn send_mail(office: &PostOffice) -> Tool {
    tool(SEND, Effect::Idempotent, office, async |office: PostOffice, caller: Caller, call: Call| {
        office.send(&caller, &call.arguments()?).await
    })
    .description(
        "Sends a mail to another agent. It is read when that agent works next: nobody is woken by it, and an answer \
         comes as a mail too.",
    )
    .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
        "to": {"type": "string", "minLength": 1, "description": "An agent's key or first name, such as eamonn."},
        "subject": {"type": "string", "minLength": 1, "description": "What it is about, in one line."},
        "text": {"type": "string", "minLength": 1, "description":
            "All that the other agent needs: what you want, why, and where the material is."},
    }, "required": ["to", "subject", "text"]}))
}

fn check_mail(office: &PostOffice) -> Tool {
    tool(CHECK, Effect::Pure, office, async |office: PostOffice, caller: Caller, _call: Call| {
        office.check(&caller).await
    })
    .description(
        "Lists the mails to you that you have not answered or closed yet, oldest first; `more` says how many are not \
         shown. Looking changes nothing.",
    )
    .parameters(json!({"type": "object", "additionalProperties": false, "properties": {}}))
}

fn reply_mail(office: &PostOffice) -> Tool {
    tool(REPLY, Effect::Idempotent, office, async |office: PostOffice, caller: Caller, call: Call| {
        office.reply(&caller, &call.arguments()?).await
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
