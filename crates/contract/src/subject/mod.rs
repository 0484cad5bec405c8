//! The only place where subjects are built and read (I6).
//!
//! Public topics live under `ai_loop.`; requests, tools, timers, mail, archives and dead letters under other roots, so
//! that no viewer's filter matches them and hides "no responders".

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command::Verb;
use crate::event::Topic;
use crate::ids::{AgentId, CallAttempt, CallId, CommandId, MailId, SessionId, TenantId, ToolName};
use crate::streams::Bucket;
use crate::words::words;

/// Declares functions that build subjects and filters, each with its format and what stands in that.
macro_rules! subjects {
    ($($(#[$doc:meta])* pub fn $name:ident($($argument:ident: $type:ty),*) = $format:literal $(, $value:expr)*;)*) => {
        $(
            $(#[$doc])*
            pub fn $name($($argument: $type),*) -> Subject {
                Subject(format!($format $(, $value)*))
            }
        )*
    };
}

pub mod every;

/// The word after the tenant in the keys of noted requests, which stand beside the index of sessions.
pub const REQUEST: &str = "request";

/// A complete subject or a filter. There is no way to make one from a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(String);

impl Subject {
    /// The subject as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Subject {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Key of a session: its two ids, which are part of nearly every subject.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// Tenant that owns the session.
    pub tenant: TenantId,
    /// Id of the session within its tenant.
    pub session: SessionId,
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.session)
    }
}

/// Address of a mailbox: a tenant's agent or its people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MailboxKey {
    /// Tenant that owns the mailbox.
    pub tenant: TenantId,
    /// The agent, by its key.
    pub agent: AgentId,
}

impl fmt::Display for MailboxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.agent)
    }
}

subjects! {
    /// Inputs of a session: `ai_loop.control.<verb>.<tenant>.<session>.<id>`.
    pub fn control(key: &SessionKey, verb: Verb, id: &CommandId) =
        "ai_loop.control.{verb}.{}.{}.{id}", key.tenant, key.session;

    /// Every waiting input of one verb, of all sessions of a tenant.
    pub fn control_of(tenant: &TenantId, verb: Verb) = "ai_loop.control.{verb}.{tenant}.*.*";

    /// Every entry of a tenant in a bucket whose keys are `<tenant>.<name>`.
    pub fn bucket_entries(bucket: Bucket, tenant: &TenantId) = "$KV.{}.{tenant}.*", bucket.name();

    /// Every message of a tenant in the log.
    pub fn log_of(tenant: &TenantId) = "ai_loop.log.{tenant}.*.*.*";

    /// Every message of a tenant in the archive.
    pub fn archive_of(tenant: &TenantId) = "ai_archive.{tenant}.*.*";

    /// Every waiting input of one session.
    pub fn control_inbox(key: &SessionKey) = "ai_loop.control.*.{}.{}.*", key.tenant, key.session;

    /// One commit of the log: `ai_loop.log.<tenant>.<session>.<page>.<slot>`.
    pub fn log_slot(key: &SessionKey, slot: u64) =
        "ai_loop.log.{}.{}.{}.{slot}", key.tenant, key.session, slot / crate::limits::SLOTS_PER_PAGE;

    /// Every slot of one page.
    pub fn log_page(key: &SessionKey, page: u64) = "ai_loop.log.{}.{}.{page}.*", key.tenant, key.session;

    /// Every slot of one session.
    pub fn log_session(key: &SessionKey) = "ai_loop.log.{}.{}.>", key.tenant, key.session;

    /// `ai_archive.<tenant>.<session>.<page>`: a page that left the log.
    pub fn archive_page(key: &SessionKey, page: u64) = "ai_archive.{}.{}.{page}", key.tenant, key.session;

    /// Every archived page of one session.
    pub fn archive_session(key: &SessionKey) = "ai_archive.{}.{}.*", key.tenant, key.session;

    /// One model call: `ai_loop.model.call.<tenant>.<session>.<call>.<attempt>`.
    pub fn model_item(key: &SessionKey, call: &CallAttempt) =
        "ai_loop.model.call.{}.{}.{}.{}", key.tenant, key.session, call.call, call.attempt;

    /// Every model call of a tenant.
    pub fn model_items_of(tenant: &TenantId) = "ai_loop.model.call.{tenant}.*.*.*";

    /// One tool call: `ai_loop.tool.call.<tenant>.<tool>.<session>.<call>.<attempt>`.
    pub fn tool_item(key: &SessionKey, tool: &ToolName, call: &CallAttempt) =
        "ai_loop.tool.call.{}.{tool}.{}.{}.{}", key.tenant, key.session, call.call, call.attempt;

    /// Every tool call of a tenant.
    pub fn tool_items_of(tenant: &TenantId) = "ai_loop.tool.call.{tenant}.*.*.*.*";

    /// Every model call of a session.
    pub fn model_items_of_session(key: &SessionKey) = "ai_loop.model.call.{}.{}.*.*", key.tenant, key.session;

    /// Every tool call of a session.
    pub fn tool_items_of_session(key: &SessionKey) = "ai_loop.tool.call.{}.*.{}.*.*", key.tenant, key.session;

    /// Every claim of a session.
    pub fn claims_of(key: &SessionKey) = "$KV.{}.{}.{}.>", Bucket::Claims.name(), key.tenant, key.session;

    /// A session's line of the index.
    pub fn index_entry(key: &SessionKey) = "$KV.{}.{}.{}", Bucket::Sessions.name(), key.tenant, key.session;

    /// `ai_timer.set.<tenant>.<session>.wake`: publishing again re-arms, purging cancels.
    pub fn timer_set(key: &SessionKey) = "ai_timer.set.{}.{}.wake", key.tenant, key.session;

    /// `ai_timer.due.<tenant>.<session>.wake`: a timer that is due.
    pub fn timer_due(key: &SessionKey) = "ai_timer.due.{}.{}.wake", key.tenant, key.session;

    /// `ai_loop.<topic>.<tenant>.<session>`: a public event.
    pub fn event(key: &SessionKey, topic: Topic) = "ai_loop.{topic}.{}.{}", key.tenant, key.session;

    /// One topic of every session of a tenant.
    pub fn tenant_topic(tenant: &TenantId, topic: Topic) = "ai_loop.{topic}.{tenant}.*";

    /// Events of every tool call of a tenant.
    pub fn tool_calls_of(tenant: &TenantId) = "ai_loop.tool_call.*.{tenant}.*";

    /// `ai_rpc.done.<edge>.<id>`: notice of the loop to the edge that the commit of a command is in the log.
    pub fn done(edge: &CommandId, id: &CommandId) = "ai_rpc.done.{edge}.{id}";

    /// Every notice for one edge replica.
    pub fn done_of(edge: &CommandId) = "ai_rpc.done.{edge}.*";

    /// `ai_rpc.cancel.<tenant>.<session>`: something of this session is no longer wanted.
    pub fn cancel(key: &SessionKey) = "ai_rpc.cancel.{}.{}", key.tenant, key.session;

    /// Every cancel, for workers.
    pub fn cancel_all() = "ai_rpc.cancel.*.*";

    /// `ai_rpc.call.<tenant>.<session>.<call>`: answered by the worker that runs this call now.
    pub fn call_holder(key: &SessionKey, call: &CallId) = "ai_rpc.call.{}.{}.{call}", key.tenant, key.session;

    /// `ai_rpc.view.<tenant>.<session>`: answered by the gateway that streams to this session now.
    pub fn view(key: &SessionKey) = "ai_rpc.view.{}.{}", key.tenant, key.session;

    /// `ai_rpc.result.<verb>.<tenant>.<session>.<id>.<replica>`: the result of a call, for the orchestrator that asked
    /// for it. The answer is a [`crate::fleet::ResultAnswer`].
    pub fn result(key: &SessionKey, verb: Verb, id: &CommandId, replica: &CommandId) =
        "ai_rpc.result.{verb}.{}.{}.{id}.{replica}", key.tenant, key.session;

    /// Every result that is sent to one orchestrator.
    pub fn results_for(replica: &CommandId) = "ai_rpc.result.*.*.*.*.{replica}";

    /// The composer's request subject.
    pub fn compose() = "ai_rpc.prompt.compose";

    /// Request to the composer for the list of agents.
    pub fn agents() = "ai_rpc.prompt.agents";

    /// Request to an orchestrator to perform a session's outstanding effects again.
    pub fn repair() = "ai_rpc.session.repair";

    /// Request to the gateways about the budgets of tenants.
    pub fn budgets() = "ai_rpc.model.budgets";

    /// Request to the gateways to propose a model for agents that name none.
    pub fn model_proposal() = "ai_rpc.model.default";

    /// Request to every process of the services to describe itself.
    pub fn fleet_status() = "ai_rpc.fleet.status";

    /// Subject of a mail: `ai_mail.<tenant>.<agent>.<mail>`.
    pub fn mail(at: &MailboxKey, mail: &MailId) = "ai_mail.{}.{}.{mail}", at.tenant, at.agent;

    /// `ai_rpc.mail.<tenant>`: requests of clients to the mailboxes of a tenant.
    pub fn mail_request(tenant: &TenantId) = "ai_rpc.mail.{tenant}";

    /// Every mail in every mailbox of a tenant.
    pub fn mail_of(tenant: &TenantId) = "ai_mail.{tenant}.*.*";

    /// Every mail in one mailbox.
    pub fn mailbox(at: &MailboxKey) = "ai_mail.{}.{}.*", at.tenant, at.agent;

    /// Announcement that a tool came, changed or went.
    pub fn tool_announce() = "ai_rpc.tool.announce";

    /// Requests of operators to the executors about tools.
    pub fn tool_request() = "ai_rpc.tool.request";

    /// `ai_tool.<tenant>.<tool>`: a tool's own subject.
    pub fn tool(tenant: &TenantId, tool: &ToolName) = "ai_tool.{tenant}.{tool}";

    /// `ai_tool_probe.<tenant>.<tool>`: probe of a `reconcilable` tool for the outcome of a call.
    pub fn tool_probe(tenant: &TenantId, tool: &ToolName) = "ai_tool_probe.{tenant}.{tool}";

    /// Cancels of a tool's calls: `ai_tool_cancel.<tenant>.<tool>`.
    pub fn tool_cancel(tenant: &TenantId, tool: &ToolName) = "ai_tool_cancel.{tenant}.{tool}";

    /// `$SRV.INFO`: discovery of the NATS services protocol.
    pub fn services_info() = "$SRV.INFO";

    /// `$SRV.INFO.<tool>`: the description of a tool. Only its servers may subscribe.
    pub fn service_info(tool: &ToolName) = "$SRV.INFO.{tool}";

    /// `$SRV.PING`: discovery of all service instances.
    pub fn services_ping() = "$SRV.PING";

    /// `$SRV.STATS`: statistics of all service instances.
    pub fn services_stats() = "$SRV.STATS";

    /// `ai_dead.<tenant>.<session>.<kind>.<id>`: an input or item that failed for good.
    pub fn dead(key: &SessionKey, kind: DeadKind, id: &CommandId) =
        "ai_dead.{}.{}.{kind}.{id}", key.tenant, key.session;

    /// `ai_dead.unknown.unknown.item.<id>`: a dead letter whose session is unknown.
    pub fn dead_unknown(id: &CommandId) = "ai_dead.unknown.unknown.{}.{id}", DeadKind::Item;

    /// Every dead letter of a tenant.
    pub fn dead_of(tenant: &TenantId) = "ai_dead.{tenant}.*.*.*";

    /// Every dead letter of a session.
    pub fn dead_of_session(key: &SessionKey) = "ai_dead.{}.{}.*.*", key.tenant, key.session;
}

/// The two filters of one session's viewer: topics of one token, and of two.
pub fn viewer(key: &SessionKey) -> [Subject; 2] {
    [
        Subject(format!("ai_loop.*.{}.{}", key.tenant, key.session)),
        Subject(format!("ai_loop.*.*.{}.{}", key.tenant, key.session)),
    ]
}

/// `$SRV.PING.<name>.<id>`: whether one replica of a service is there. `instance` is `<name>.<id>`, as a tool says it;
/// none where that is not two tokens.
pub fn service_ping(instance: &str) -> Option<Subject> {
    let (name, id) = instance.split_once('.')?;
    let name = ToolName::new(name).ok()?;
    let id = ToolName::new(id).ok()?;
    Some(Subject(format!("$SRV.PING.{name}.{id}")))
}

/// The queue group in which replicas of a tool share its calls.
pub const TOOL_QUEUE: &str = "tools";
/// The queue group in which orchestrators share requests.
pub const ORCHESTRATOR_QUEUE: &str = "orchestrators";
/// The queue group in which executors share requests.
pub const EXECUTOR_QUEUE: &str = "executors";
/// The queue group in which gateways share requests.
pub const GATEWAY_QUEUE: &str = "gateways";
/// The queue group in which composers share requests.
pub const COMPOSER_QUEUE: &str = "composers";
/// The queue group in which tool-hosts share requests to mailboxes.
pub const MAIL_QUEUE: &str = "mail";

/// The inbox prefix of a user, or of a connection without one. Permissions tell the answers of one user from those of
/// others by this prefix.
pub fn inbox_prefix(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    format!("_INBOX_{}", name.chars().map(plain).collect::<String>())
}

words! {
    /// Kind of a message that became a dead letter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(inline)]
    pub enum DeadKind {
        /// An input of a session: a client's command, or a worker's report.
        Control = "control",
        /// A work item of a model call.
        Model = "model",
        /// A work item of a tool call.
        Tool = "tool",
        /// A timer that was due.
        Timer = "timer",
        /// A message of unknown kind.
        Item = "item",
    }

    /// Its word in a subject.
    fn as_str;
}

/// Parsed subject of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadSubject {
    /// Tenant and id of the session.
    pub key: SessionKey,
    /// Kind of message that failed.
    pub kind: DeadKind,
    /// The command's id, `<call>-<attempt>` of a call, or `seq-<sequence>`.
    pub id: CommandId,
}

/// Reads a dead letter's subject; `None` when it is not one, or its session is unknown.
pub fn parse_dead(subject: &str) -> Option<DeadSubject> {
    let mut t = subject.strip_prefix("ai_dead.")?.split('.');
    let (tenant, session, kind, id) = (t.next()?, t.next()?, t.next()?, t.next()?);
    let id = CommandId::new(id).ok()?;
    t.next().is_none().then_some(DeadSubject { key: key(tenant, session)?, kind: DeadKind::parse(kind)?, id })
}

/// Parsed subject of a control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlSubject {
    /// Tenant and id of the session.
    pub key: SessionKey,
    /// Verb of the command or report.
    pub verb: Verb,
    /// Id of the command, from its subject.
    pub id: CommandId,
}

/// Parsed subject of a commit in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSubject {
    /// Tenant and id of the session.
    pub key: SessionKey,
    /// Slot of the commit in the log.
    pub slot: u64,
}

/// Parsed subject of a work item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemSubject {
    /// Tenant and id of the session.
    pub key: SessionKey,
    /// Call and attempt of the item.
    pub call: CallAttempt,
    /// The tool; none for a model call.
    pub tool: Option<ToolName>,
}

fn key(tenant: &str, session: &str) -> Option<SessionKey> {
    Some(SessionKey { tenant: TenantId::new(tenant).ok()?, session: SessionId::new(session).ok()? })
}

/// Reads a number that is written as we write it: one number, one subject.
fn number<T: FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number: &T| number.to_string() == text)
}

/// Reads a control subject; `None` when it is not one.
pub fn parse_control(subject: &str) -> Option<ControlSubject> {
    let mut t = subject.strip_prefix("ai_loop.control.")?.split('.');
    let parsed = parse_control_tokens(&mut t)?;
    t.next().is_none().then_some(parsed)
}

fn parse_control_tokens<'a>(t: &mut impl Iterator<Item = &'a str>) -> Option<ControlSubject> {
    let (verb, tenant, session, id) = (t.next()?, t.next()?, t.next()?, t.next()?);
    Some(ControlSubject { key: key(tenant, session)?, verb: Verb::parse(verb)?, id: CommandId::new(id).ok()? })
}

/// Reads the subject of a result that is sent to an orchestrator; `None` when it is not one.
pub fn parse_result(subject: &str) -> Option<ControlSubject> {
    let mut t = subject.strip_prefix("ai_rpc.result.")?.split('.');
    let (parsed, _replica) = (parse_control_tokens(&mut t)?, t.next()?);
    (t.next().is_none() && parsed.verb.is_result()).then_some(parsed)
}

/// Reads the session of a control subject whose verb or id may be anything: for telling its owner what was wrong.
pub fn parse_control_key(subject: &str) -> Option<SessionKey> {
    let mut t = subject.strip_prefix("ai_loop.control.")?.split('.').skip(1);
    key(t.next()?, t.next()?)
}

/// Reads a log subject; `None` when it is not one.
pub fn parse_log(subject: &str) -> Option<LogSubject> {
    let mut t = subject.strip_prefix("ai_loop.log.")?.split('.');
    let (tenant, session, page, slot) = (t.next()?, t.next()?, number::<u64>(t.next()?)?, number::<u64>(t.next()?)?);
    let is_one = page == slot / crate::limits::SLOTS_PER_PAGE && t.next().is_none();
    is_one.then_some(LogSubject { key: key(tenant, session)?, slot })
}

/// Reads a model or tool item's subject; `None` when it is neither.
pub fn parse_item(subject: &str) -> Option<ItemSubject> {
    let attempt =
        |call: &str, attempt: &str| Some(CallAttempt { call: CallId::new(call).ok()?, attempt: number(attempt)? });
    if let Some(rest) = subject.strip_prefix("ai_loop.model.call.") {
        let mut t = rest.split('.');
        let key = key(t.next()?, t.next()?)?;
        let call = attempt(t.next()?, t.next()?)?;
        return t.next().is_none().then_some(ItemSubject { key, call, tool: None });
    }
    let mut t = subject.strip_prefix("ai_loop.tool.call.")?.split('.');
    let (tenant, tool, session) = (t.next()?, t.next()?, t.next()?);
    let call = attempt(t.next()?, t.next()?)?;
    let tool = Some(ToolName::new(tool).ok()?);
    t.next().is_none().then_some(ItemSubject { key: key(tenant, session)?, call, tool })
}

/// Reads a due timer's subject; `None` when it is not one.
pub fn parse_timer(subject: &str) -> Option<SessionKey> {
    let mut t = subject.strip_prefix("ai_timer.due.")?.split('.');
    let key = key(t.next()?, t.next()?)?;
    (t.next()? == "wake" && t.next().is_none()).then_some(key)
}

/// Reads a mail's subject; `None` when it is not one.
pub fn parse_mail(subject: &str) -> Option<(MailboxKey, MailId)> {
    let mut t = subject.strip_prefix("ai_mail.")?.split('.');
    let (tenant, agent, mail) = (t.next()?, t.next()?, t.next()?);
    let at = MailboxKey { tenant: TenantId::new(tenant).ok()?, agent: AgentId::new(agent).ok()? };
    t.next().is_none().then_some((at, MailId::new(mail).ok()?))
}

/// Reads the session of a cancel, holder or view request.
pub fn parse_session_rpc(subject: &str) -> Option<SessionKey> {
    let mut t = subject.strip_prefix("ai_rpc.")?.split('.').skip(1);
    key(t.next()?, t.next()?)
}

/// Reads the topic and the session of a public event.
pub fn parse_event(subject: &str) -> Option<(Topic, SessionKey)> {
    let rest = subject.strip_prefix("ai_loop.")?;
    let (rest, session) = rest.rsplit_once('.')?;
    let (topic, tenant) = rest.rsplit_once('.')?;
    Some((Topic::parse(topic)?, key(tenant, session)?))
}

/// Whether a NATS filter matches a subject.
pub fn matches(filter: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for token in filter.split('.') {
        match (token, subject.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (token, Some(other)) if token == other => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SessionKey {
        key("acme", "s1").unwrap()
    }

    fn mailbox_of(key: &SessionKey) -> MailboxKey {
        MailboxKey { tenant: key.tenant.clone(), agent: AgentId::new("e").unwrap() }
    }

    #[test]
    fn subject_built_is_parsed_back() {
        let key = sample();
        let id = CommandId::new("c-1").unwrap();
        let call = CallAttempt { call: CallId::tool(1, 2, 3), attempt: 4 };
        let tool = ToolName::new("read_file").unwrap();
        for verb in Verb::ALL {
            let parsed = parse_control(control(&key, *verb, &id).as_str()).unwrap();
            assert_eq!(parsed, ControlSubject { key: key.clone(), verb: *verb, id: id.clone() });
        }
        assert_eq!(parse_log(log_slot(&key, 130).as_str()).unwrap(), LogSubject { key: key.clone(), slot: 130 });
        assert_eq!(log_slot(&key, 130).as_str(), "ai_loop.log.acme.s1.2.130");
        let item = parse_item(tool_item(&key, &tool, &call).as_str()).unwrap();
        assert_eq!(item, ItemSubject { key: key.clone(), call: call.clone(), tool: Some(tool) });
        let item = parse_item(model_item(&key, &call).as_str()).unwrap();
        assert_eq!(item, ItemSubject { key: key.clone(), call, tool: None });
        assert_eq!(parse_timer(timer_due(&key).as_str()).unwrap(), key);
        let (at, id) = (mailbox_of(&key), MailId::sent_by("s1-c1-1-1"));
        assert_eq!(parse_mail(mail(&at, &id).as_str()).unwrap(), (at.clone(), id.clone()));
        assert!(matches(mailbox(&at).as_str(), mail(&at, &id).as_str()));
        for topic in Topic::ALL {
            assert_eq!(parse_event(event(&key, *topic).as_str()).unwrap(), (*topic, key.clone()));
        }
    }

    #[test]
    fn i6_subject_not_built_here_is_refused() {
        for odd in [
            "ai_loop.log.acme.s1.2.+130",
            "ai_loop.log.acme.s1.2.0130",
            "ai_loop.log.acme.s1.1.130",
            "ai_loop.log.acme.s1.x.130",
            "ai_loop.log.acme.s1.*.130",
            "ai_loop.log.acme.s1.2.18446744073709551616",
            "ai_loop.model.call.acme.s1.m1-1.+1",
            "ai_loop.model.call.acme.s1.m1-1.01",
            "ai_loop.tool.call.acme.read_file.s1.c1-1-1.+1",
        ] {
            assert!(parse_log(odd).is_none() && parse_item(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn i6_no_viewer_matches_a_private_subject() {
        let key = sample();
        let id = CommandId::new("x").unwrap();
        let call = CallAttempt { call: CallId::model(1, 1), attempt: 1 };
        let tool_name = ToolName::new("t").unwrap();
        let private = [
            control(&key, Verb::Start, &id),
            log_slot(&key, 0),
            model_item(&key, &call),
            tool_item(&key, &tool_name, &call),
            timer_set(&key),
            timer_due(&key),
            done(&id, &id),
            cancel(&key),
            call_holder(&key, &call.call),
            view(&key),
            compose(),
            agents(),
            repair(),
            mail_request(&key.tenant),
            mail(&mailbox_of(&key), &MailId::sent_by("s1-c1-1-1")),
            tool_announce(),
            tool_request(),
            tool(&key.tenant, &tool_name),
            tool_cancel(&key.tenant, &tool_name),
            tool_probe(&key.tenant, &tool_name),
            dead(&key, DeadKind::Control, &id),
        ];
        for filter in viewer(&key).into_iter().chain(Topic::ALL.iter().map(|t| tenant_topic(&key.tenant, *t))) {
            for subject in &private {
                assert!(!matches(filter.as_str(), subject.as_str()), "{filter} matches {subject}");
            }
        }
    }

    #[test]
    fn viewer_filter_matches_every_topic_of_its_session_only() {
        let key = sample();
        let other = SessionKey { session: SessionId::new("s2").unwrap(), ..key.clone() };
        for topic in Topic::ALL {
            let seen = |key: &SessionKey| {
                viewer(&sample()).iter().any(|filter| matches(filter.as_str(), event(key, *topic).as_str()))
            };
            assert!(seen(&key));
            assert!(!seen(&other));
        }
    }
}
