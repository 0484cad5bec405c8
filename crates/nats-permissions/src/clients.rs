//! Users outside our services: tools, viewers, and people who try tools. A tool publishes only answers, unless it reads
//! or writes mailboxes, long results or sessions, which NATS stores.

use std::time::Duration;

use contract::TenantId;
use contract::event::Topic;
use contract::limits::{TOOL_CALL_GRACE, TOOL_TIMEOUT_DEFAULT, TOOL_TIMEOUT_MAX};
use contract::streams::{Bucket, Objects, Stream};
use contract::subject::{self, TOOL_QUEUE, every};

use super::jetstream::{info, keys_list, objects_get, objects_info, read_any, read_leader};
use super::user::{Answers, User, inbox};

/// Maximum number of messages to one call: its progress and its result.
const TOOL_ANSWERS_MAX: u32 = 1_000;

/// The tools that one user serves.
struct ToolKind {
    user: &'static str,
    about: &'static str,
    tools: &'static [&'static str],
    /// Longest timeout that one of them declares.
    timeout: Duration,
    /// Data that they read and write in NATS.
    store: ToolStore,
}

/// Data that tools read and write in NATS.
enum ToolStore {
    /// No data: they only answer calls.
    None,
    /// Mailboxes, for calls and for clients. No message is purged: a mark replaces a deleted mail.
    Mail,
    /// Long results that the executor stored. The call names the session, so that no tool reads those of another
    /// session.
    Results,
    /// All sessions of all tenants: only for agents that examine sessions, and only if it is configured.
    Sessions,
}

impl ToolStore {
    /// Returns the subjects of the requests, which the user may publish to.
    fn requests(&self, tenant: &TenantId) -> Vec<String> {
        let read_objects = |store| [vec![objects_info(store)], objects_get(store).to_vec()].concat();
        match self {
            Self::None => Vec::new(),
            Self::Mail => vec![
                format!("ai_mail.{tenant}.*.*"),
                read_any(Stream::Mail),
                read_leader(Stream::Mail),
                subject::agents().to_string(),
            ],
            Self::Results => read_objects(Objects::Results),
            Self::Sessions => [
                vec![keys_list(Bucket::Sessions)],
                [Stream::Log, Stream::Archive].into_iter().flat_map(|of| [read_any(of), read_leader(of)]).collect(),
                read_objects(Objects::Blobs),
                read_objects(Objects::Archive),
            ]
            .concat(),
        }
    }
}

/// The kinds of tools that ship with ailoop. Copy an entry for a tool of yours.
const KINDS: &[ToolKind] = &[
    ToolKind {
        user: "files",
        about: "Serves the built-in file tools of the tool-host.",
        tools: &["list_files", "read_file", "search_text", "write_file"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::None,
    },
    ToolKind {
        user: "plans",
        about: "Serves the plan tools of the tool-host, over the directories of its file tools.",
        tools: &["analyze_dependencies", "decompose_plan", "list_plans", "mark_step_done", "read_plan"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::None,
    },
    ToolKind {
        user: "mail",
        about: "Keeps the mailboxes: serves the mail tools of the tool-host, and the mail of clients.",
        tools: &["check_mail", "reply_mail", "send_mail"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::Mail,
    },
    ToolKind {
        user: "results",
        about: "Serves `read_result` of the tool-host: reads the long results that executors stored.",
        tools: &["read_result"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::Results,
    },
    ToolKind {
        user: "sessions",
        about: "Serves the tools of the tool-host that read sessions: it may read every session.",
        tools: &["list_sessions", "read_decisions", "read_session"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::Sessions,
    },
    ToolKind {
        user: "fetch",
        about: "Serves http_fetch of the tool-host.",
        tools: &["http_fetch"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::None,
    },
    ToolKind {
        user: "command",
        about: "Serves run_command of the tool-host, whose time-out is configured.",
        tools: &["run_command"],
        timeout: TOOL_TIMEOUT_MAX,
        store: ToolStore::None,
    },
    ToolKind {
        user: "word_count",
        about: "Serves examples/tools/python/word_count.py: the pattern for a tool of yours.",
        tools: &["word_count"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::None,
    },
];

/// Returns the users of the shipped tools, for the default tenant.
pub(super) fn tools() -> impl Iterator<Item = User> {
    KINDS.iter().map(|kind| tool_user(&TenantId::default(), kind))
}

/// The user that serves tools whose names only the configuration of the tool-host knows.
///
/// It may receive the calls of any tool, so only the tool-host may have its password.
pub(super) fn bridge() -> User {
    let services = ["PING", "INFO", "STATS"].map(|verb| format!("$SRV.{verb}"));
    let calls = [format!("ai_tool.*.* {TOOL_QUEUE}"), "ai_tool_cancel.*.*".to_owned()];
    let names = ["$SRV.*.*", "$SRV.*.*.*"].map(str::to_owned);
    User {
        name: "bridge",
        about: "Serves MCP servers and webhooks for the tool-host: names that only the configuration knows.",
        publish: Vec::new(),
        subscribe: services.into_iter().chain(calls).chain(names).collect(),
        answers: Some(Answers { max: TOOL_ANSWERS_MAX, within: TOOL_TIMEOUT_MAX + TOOL_CALL_GRACE }),
    }
}

/// The user that watches one tenant's sessions over NATS itself. Browsers use the edge.
///
/// It lists each topic. When nats-server compares a subscription with what is allowed, it takes `>` for one token, so
/// that `ai_loop.*.<tenant>.*` would also allow `ai_loop.log.<tenant>.>`.
pub(super) fn viewer() -> User {
    let topics = Topic::ALL.iter().map(|topic| subject::tenant_topic(&TenantId::default(), *topic).to_string());
    User {
        name: "viewer",
        about: "Watches the public events of tenant `default`, over NATS itself.",
        publish: Vec::new(),
        subscribe: topics.chain([inbox("viewer")]).collect(),
        answers: None,
    }
}

/// The user of people who build tools. It calls any tool of any tenant without the loop and without approvals.
pub(super) fn toolsmith() -> User {
    let calls = [every::tool(), every::tool_cancel(), every::tool_probe()];
    let requests = [subject::services_info(), subject::services_ping(), subject::services_stats()];
    let subjects = calls.into_iter().chain(requests).chain([every::service_info()]).map(|subject| subject.to_string());
    User {
        name: "toolsmith",
        about: "Tries and verifies tools: `ailoop tools try`, `verify`, `watch`.",
        publish: [info(), inbox("toolsmith"), keys_list(Bucket::Tools)].into_iter().chain(subjects).collect(),
        subscribe: vec![inbox("toolsmith"), every::tool_calls().to_string()],
        answers: None,
    }
}

/// Returns the user of a kind of tools. It may receive their calls within their queue group, and their cancels, and it
/// answers requests for their descriptions.
fn tool_user(tenant: &TenantId, kind: &ToolKind) -> User {
    let mut subscribe: Vec<String> = ["PING", "INFO", "STATS"].map(|verb| format!("$SRV.{verb}")).into();
    for tool in kind.tools {
        subscribe.extend([
            format!("ai_tool.{tenant}.{tool} {TOOL_QUEUE}"),
            format!("ai_tool_cancel.{tenant}.{tool}"),
            format!("ai_tool_probe.{tenant}.{tool} {TOOL_QUEUE}"),
            format!("$SRV.*.{tool}"),
            format!("$SRV.*.{tool}.*"),
        ]);
    }
    let mut publish = kind.store.requests(tenant);
    if !publish.is_empty() {
        publish.extend([info(), inbox(kind.user)]);
        subscribe.push(inbox(kind.user));
    }
    if matches!(kind.store, ToolStore::Mail) {
        subscribe.push(format!("{} {}", subject::mail_request(tenant), subject::MAIL_QUEUE));
    }
    let within = kind.timeout + TOOL_CALL_GRACE;
    let answers = Some(Answers { max: TOOL_ANSWERS_MAX, within });
    User { name: kind.user, about: kind.about, publish, subscribe, answers }
}
