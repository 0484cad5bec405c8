//! Reads what the decision about a start needs: the tools, the transcript that it resumes from, and the composed prompt.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bus::{Bus, BusError, Read};
use contract::command::{Refusal, Start};
use contract::compose::{ComposeReply, ComposeRequest, Composed};
use contract::limits::RESUME_BYTES_MAX;
use contract::model::Message;
use contract::subject::SessionKey;
use contract::tool::{ASK_USER, DELEGATE, ToolSpec};
use contract::{AgentId, ErrorCode, Json, TenantId};
use service::fresh::Fresh;
use session::{RestoreError, Session, StartInput, check};
use tokio::time::Instant;

/// Maximum age of the tools and the prompt with which a session begins. A burst of sessions then reads them once.
const READ_AGE_MAX: Duration = Duration::from_millis(250);
/// Bytes of all tools that are kept, and of all prompts with their requests, as JSON.
const TOOLS_BYTES_MAX: u64 = 16 << 20;
const PROMPTS_BYTES_MAX: u64 = 8 << 20;

/// Tools and prompts that starts have read, kept for the next starts.
#[derive(Debug)]
pub(crate) struct StartReads {
    tools: Fresh<TenantId, Arc<Vec<ToolSpec>>>,
    /// By the JSON of the request without its tools. Those tools stand beside the prompt; nobody else may keep them.
    prompts: Fresh<String, (Arc<Composed>, Weak<Vec<ToolSpec>>)>,
}

impl Default for StartReads {
    fn default() -> Self {
        let (tools, prompts) = (TOOLS_BYTES_MAX, PROMPTS_BYTES_MAX);
        Self { tools: Fresh::new(READ_AGE_MAX, tools), prompts: Fresh::new(READ_AGE_MAX, prompts) }
    }
}

/// Reads all that the decision about a start needs, and the tools. Nothing of it depends on the state of the session. The
/// sender may use these agents; all of them where none are given.
pub(crate) async fn resolve_start(
    bus: &Bus,
    reads: &StartReads,
    tenant: &TenantId,
    start: &Start,
    agents: Option<&BTreeSet<AgentId>>,
) -> Result<(StartInput, Arc<Vec<ToolSpec>>), BusError> {
    let resumed = match check::start(start) {
        Err(refusal) => Err(refusal),
        Ok(()) => load_history(bus, tenant, start, agents).await?,
    };
    let tools = list_tools(bus, reads, tenant).await?;
    let input = match resumed {
        Ok((history, resumed)) => {
            let request = ComposeRequest::of_start(tenant.clone(), &resumed, Vec::new());
            let request = ComposeRequest { named_features: start.features.clone(), ..request };
            let composed = compose(bus, reads, request, &tools).await?;
            StartInput { start: resumed, history, composed }
        }
        // A start that will be refused needs no prompt.
        Err(refusal) => StartInput { start: start.clone(), history: Vec::new(), composed: Err(refusal) },
    };
    Ok((input, tools))
}

/// Lists the tools of the tenant, and those that the loop performs itself.
pub(crate) async fn list_tools(
    bus: &Bus,
    reads: &StartReads,
    tenant: &TenantId,
) -> Result<Arc<Vec<ToolSpec>>, BusError> {
    if let Some(tools) = reads.tools.get(tenant) {
        return Ok(tools);
    }
    let at = Instant::now();
    let mut tools = bus.tools(tenant).await?;
    tools.retain(|tool| ![DELEGATE, ASK_USER].contains(&tool.name.as_str()));
    tools.extend([session::delegate_spec(), session::ask_user_spec()]);
    let tools = Arc::new(tools);
    reads.tools.put(tenant.clone(), tools.clone(), Json::of(&*tools).get().len(), at);
    Ok(tools)
}

/// Asks the composer for the prompt of a session with these tools, unless it has just composed the same one.
pub(crate) async fn compose(
    bus: &Bus,
    reads: &StartReads,
    request_without_tools: ComposeRequest,
    tools: &Arc<Vec<ToolSpec>>,
) -> Result<Result<Box<Composed>, Refusal>, BusError> {
    let text = Json::of(&request_without_tools).get().to_owned();
    if let Some((composed, _)) = reads.prompts.get(&text).filter(|(_, with)| with.ptr_eq(&Arc::downgrade(tools))) {
        return Ok(Ok(Box::new((*composed).clone())));
    }
    let at = Instant::now();
    let request = ComposeRequest { tools: tools.to_vec(), ..request_without_tools };
    Ok(match bus.compose(&request).await? {
        ComposeReply::Composed(composed) if composed.ai_config.is_none() && request.ai_config.needs_composer() => {
            let why = "the prompt-composer that answers has an older version, which does not know ai_config";
            return Err(BusError::Unavailable(why.to_owned()));
        }
        ComposeReply::Composed(composed) => {
            let bytes = text.len() + composed.prompt.len();
            reads.prompts.put(text, (Arc::new((*composed).clone()), Arc::downgrade(tools)), bytes, at);
            Ok(composed)
        }
        ComposeReply::Refused { code, message } => Err(Refusal { code, message }),
    })
}

/// Loads the transcript of the session that a start resumes from. Also returns the start with the settings of that
/// session.
async fn load_history(
    bus: &Bus,
    tenant: &TenantId,
    start: &Start,
    agents: Option<&BTreeSet<AgentId>>,
) -> Result<Result<(Vec<Message>, Start), Refusal>, BusError> {
    let Some(from) = &start.resume_from else { return Ok(Ok((Vec::new(), start.clone()))) };
    let key = SessionKey { tenant: tenant.clone(), session: from.session_id.clone() };
    let refuse = |code, message| Ok(Err(Refusal { code, message }));
    if let Some(at) = from.at
        && let Some(head) = bus.head(&key, Read::Leader).await?
        && at > head.end()
    {
        let message =
            format!("there is no slot {at}: the log of session {} ends with slot {}", from.session_id, head.end());
        return refuse(ErrorCode::BadRequest, message);
    }
    let Some(commits) = bus.load_until(&key, from.at).await? else {
        if bus.head(&key, Read::Leader).await?.is_some() {
            let message = format!("the archive no longer has session {} as of that slot", from.session_id);
            return refuse(ErrorCode::Resync, message);
        }
        return refuse(ErrorCode::UnknownSession, format!("there is no session {} to resume from", from.session_id));
    };
    let older = match Session::restore(key, &commits) {
        Ok(older) => older,
        Err(RestoreError::Newer { .. }) => {
            let message = format!("session {} was written by a newer version; resume from it there", from.session_id);
            return refuse(ErrorCode::NotNow, message);
        }
        Err(error @ RestoreError::Snapshot(_)) => return Err(BusError::Malformed(error.to_string())),
    };
    let (agent, _) = older.who();
    if agents.is_some_and(|agents| !agents.iter().any(|allowed| allowed.as_str() == agent)) {
        let message = format!("session {} is of the agent {agent}, which the sender may not use", from.session_id);
        return refuse(ErrorCode::Forbidden, message);
    }
    let messages = older.export_transcript();
    let bytes: usize = messages.iter().map(|message| Json::of(message).get().len()).sum();
    if bytes > RESUME_BYTES_MAX {
        let message = format!("the transcript has {bytes} bytes; a session resumes from at most {RESUME_BYTES_MAX}");
        return refuse(ErrorCode::TooLarge, message);
    }
    Ok(Ok((messages, older.continued_by(start.clone()))))
}
