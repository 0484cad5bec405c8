//! Roles outside our services: tools, viewers, and people who try tools. A tool publishes only answers, unless it reads
//! or writes mailboxes, long results or sessions, which NATS stores.

use std::time::Duration;

use contract::TenantId;
use contract::event::Topic;
use contract::limits::{TOOL_CALL_GRACE, TOOL_TIMEOUT_DEFAULT, TOOL_TIMEOUT_MAX};
use contract::streams::{Bucket, Objects, Stream};
use contract::subject::{self, TOOL_QUEUE, every};

use super::jetstream::{info, keys_list, objects_get, read_any, read_leader};
use super::role::{Account, Answers, Permissions, Role, inbox};

/// Duration of the longest call of a tool whose user names none.
pub const TOOL_CALL_DEFAULT: Duration = TOOL_TIMEOUT_DEFAULT;
/// Maximum number of messages to one call: its progress and its result.
const TOOL_ANSWERS_MAX: u32 = 1_000;

/// The tools that one role of the tool-host serves.
struct ToolKind {
    role: &'static str,
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
    /// Returns the subjects of the requests, which the role may publish to.
    fn requests(&self, tenant: &TenantId) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Mail => vec![
                format!("ai_mail.{tenant}.*.*"),
                read_any(Stream::Mail),
                read_leader(Stream::Mail),
                subject::agents().to_string(),
            ],
            Self::Results => vec![objects_get(Objects::Results)],
            Self::Sessions => [
                vec![keys_list(Bucket::Sessions)],
                [Stream::Log, Stream::Archive].into_iter().flat_map(|of| [read_any(of), read_leader(of)]).collect(),
                [Objects::Blobs, Objects::Archive].map(objects_get).to_vec(),
            ]
            .concat(),
        }
    }
}

/// The kinds of tools that ship with ailoop. A tool of yours needs no entry: [`tool`] makes its permissions.
const KINDS: &[ToolKind] = &[
    ToolKind {
        role: "files",
        about: "Serves the built-in file tools of the tool-host.",
        tools: &["list_files", "read_file", "search_text", "write_file"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::None,
    },
    ToolKind {
        role: "plans",
        about: "Serves the plan tools of the tool-host, over the directories of its file tools.",
        tools: &["analyze_dependencies", "decompose_plan", "list_plans", "mark_step_done", "read_plan"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::None,
    },
    ToolKind {
        role: "mail",
        about: "Keeps the mailboxes: serves the mail tools of the tool-host, and the mail of clients.",
        tools: &["check_mail", "reply_mail", "send_mail"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::Mail,
    },
    ToolKind {
        role: "results",
        about: "Serves `read_result` of the tool-host: reads the long results that executors stored.",
        tools: &["read_result"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::Results,
    },
    ToolKind {
        role: "sessions",
        about: "Serves the tools of the tool-host that read sessions: it may read every session.",
        tools: &["list_sessions", "read_decisions", "read_session"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::Sessions,
    },
    ToolKind {
        role: "fetch",
        about: "Serves http_fetch of the tool-host.",
        tools: &["http_fetch"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::None,
    },
    ToolKind {
        role: "command",
        about: "Serves run_command of the tool-host, whose time-out is configured.",
        tools: &["run_command"],
        timeout: TOOL_TIMEOUT_MAX,
        store: ToolStore::None,
    },
    ToolKind {
        role: "word_count",
        about: "Serves examples/tools/python/word_count.py: an example of a tool outside the tool-host.",
        tools: &["word_count"],
        timeout: TOOL_TIMEOUT_DEFAULT,
        store: ToolStore::None,
    },
];

/// Returns the names of the tools that ship with ailoop, examples included.
pub fn shipped_tools() -> impl Iterator<Item = &'static str> {
    KINDS.iter().flat_map(|kind| kind.tools.iter().copied())
}

/// Returns the roles of the shipped tools, for the default tenant.
pub(super) fn tools() -> impl Iterator<Item = Role> {
    KINDS.iter().map(kind_role)
}

/// The role that serves tools whose names only the configuration of the tool-host knows.
///
/// It may receive the calls of any tool, so only the tool-host may have its credential.
pub(super) fn bridge() -> Role {
    let services = ["PING", "INFO", "STATS"].map(|verb| format!("$SRV.{verb}"));
    let calls = [format!("ai_tool.*.* {TOOL_QUEUE}"), "ai_tool_cancel.*.*".to_owned()];
    let names = ["$SRV.*.*", "$SRV.*.*.*"].map(str::to_owned);
    Role {
        name: "bridge",
        about: "Serves MCP servers and webhooks for the tool-host: names that only the configuration knows.",
        account: Account::Ailoop,
        permissions: Permissions {
            publish: Vec::new(),
            subscribe: services.into_iter().chain(calls).chain(names).collect(),
            answers: Some(Answers { max: TOOL_ANSWERS_MAX, within: TOOL_TIMEOUT_MAX + TOOL_CALL_GRACE }),
        },
    }
}

/// The role that watches one tenant's sessions over NATS itself. Browsers use the edge.
///
/// It lists each topic. When nats-server compares a subscription with what is allowed, it takes `>` for one token, so
/// that `ai_loop.*.<tenant>.*` would also allow `ai_loop.log.<tenant>.>`.
pub(super) fn viewer() -> Role {
    let topics = Topic::ALL.iter().map(|topic| subject::tenant_topic(&TenantId::default(), *topic).to_string());
    Role {
        name: "viewer",
        about: "Watches the public events of tenant `default`, over NATS itself.",
        account: Account::Ailoop,
        permissions: Permissions {
            publish: Vec::new(),
            subscribe: topics.chain([inbox("viewer")]).collect(),
            answers: None,
        },
    }
}

/// The role of people who build tools. It calls any tool of any tenant without the loop and without approvals.
pub(super) fn toolsmith() -> Role {
    let calls = [every::tool(), every::tool_cancel(), every::tool_probe()];
    let requests = [subject::services_info(), subject::services_ping(), subject::services_stats()];
    let subjects = calls.into_iter().chain(requests).chain([every::service_info()]).map(|subject| subject.to_string());
    Role {
        name: "toolsmith",
        about: "Tries and verifies tools: `ailoop tools try`, `verify`, `watch`.",
        account: Account::Ailoop,
        permissions: Permissions {
            publish: [info(), inbox("toolsmith"), keys_list(Bucket::Tools)].into_iter().chain(subjects).collect(),
            subscribe: vec![inbox("toolsmith"), every::tool_calls().to_string()],
            answers: None,
        },
    }
}

/// The role of a kind of tools of the tool-host.
fn kind_role(kind: &ToolKind) -> Role {
    let tenant = TenantId::default();
    let mut permissions = tool(&tenant, kind.tools, kind.timeout);
    permissions.publish = kind.store.requests(&tenant);
    if !permissions.publish.is_empty() {
        permissions.publish.extend([info(), inbox(kind.role)]);
        permissions.subscribe.push(inbox(kind.role));
    }
    if matches!(kind.store, ToolStore::Mail) {
        permissions.subscribe.push(format!("{} {}", subject::mail_request(&tenant), subject::MAIL_QUEUE));
    }
    Role { name: kind.role, about: kind.about, account: Account::Ailoop, permissions }
}

/// Returns what a user may do that serves tools and stores nothing in NATS. It may receive their calls within their
/// queue group, and their cancels, and it answers requests for their descriptions. `call_max` is the duration of the
/// longest call.
pub fn tool(tenant: &TenantId, tools: &[impl AsRef<str>], call_max: Duration) -> Permissions {
    let mut subscribe: Vec<String> = ["PING", "INFO", "STATS"].map(|verb| format!("$SRV.{verb}")).into();
    for tool in tools.iter().map(AsRef::as_ref) {
        subscribe.extend([
            format!("ai_tool.{tenant}.{tool} {TOOL_QUEUE}"),
            format!("ai_tool_cancel.{tenant}.{tool}"),
            format!("ai_tool_probe.{tenant}.{tool} {TOOL_QUEUE}"),
            format!("$SRV.*.{tool}"),
            format!("$SRV.*.{tool}.*"),
        ]);
    }
    let answers = Some(Answers { max: TOOL_ANSWERS_MAX, within: call_max + TOOL_CALL_GRACE });
    Permissions { publish: Vec::new(), subscribe, answers }
}
