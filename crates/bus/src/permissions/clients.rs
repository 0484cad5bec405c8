//! Users outside our services: tools and viewers, which publish nothing but answers, and whoever tries tools.

use std::time::Duration;

use contract::TenantId;
use contract::event::Topic;
use contract::limits::{TOOL_CALL_GRACE, TOOL_TIMEOUT_DEFAULT, TOOL_TIMEOUT_MAX};
use contract::streams::Bucket;
use contract::subject::{self, TOOL_QUEUE, every};

use super::jetstream::{info, keys_list};
use super::{Answers, User, inbox};

/// Messages to one call: its progress, and its result.
const TOOL_ANSWERS_MAX: u32 = 1_000;

/// Tools that one user serves.
struct Kind {
    user: &'static str,
    about: &'static str,
    tools: &'static [&'static str],
    /// The longest time-out that one of them declares.
    timeout: Duration,
}

/// The kinds of tools that ship with ailoop. Copy an entry for a tool of yours.
const KINDS: &[Kind] = &[
    Kind {
        user: "files",
        about: "Serves the built-in file tools of the tool-executor.",
        tools: &["list_files", "read_file", "search_text", "write_file"],
        timeout: TOOL_TIMEOUT_DEFAULT,
    },
    Kind {
        user: "plans",
        about: "Serves the plan tools of the tool-executor, over the directories of its file tools.",
        tools: &["analyze_dependencies", "decompose_plan", "list_plans", "mark_step_done", "read_plan"],
        timeout: TOOL_TIMEOUT_DEFAULT,
    },
    Kind {
        user: "mail",
        about: "Serves the mail tools of the tool-executor, which keeps the mailboxes itself.",
        tools: &["check_mail", "reply_mail", "send_mail"],
        timeout: TOOL_TIMEOUT_DEFAULT,
    },
    Kind {
        user: "results",
        about: "Serves `read_result` of the tool-executor, which keeps the results itself.",
        tools: &["read_result"],
        timeout: TOOL_TIMEOUT_DEFAULT,
    },
    Kind {
        user: "sessions",
        about: "Serves the tools of the tool-executor that read sessions, which it reads itself.",
        tools: &["list_sessions", "read_decisions", "read_session"],
        timeout: TOOL_TIMEOUT_DEFAULT,
    },
    Kind {
        user: "fetch",
        about: "Serves http_fetch of the tool-executor.",
        tools: &["http_fetch"],
        timeout: TOOL_TIMEOUT_DEFAULT,
    },
    Kind {
        user: "command",
        about: "Serves run_command of the tool-executor, whose time-out is configured.",
        tools: &["run_command"],
        timeout: TOOL_TIMEOUT_MAX,
    },
    Kind {
        user: "word_count",
        about: "Serves examples/tools/python/word_count.py: the pattern for a tool of yours.",
        tools: &["word_count"],
        timeout: TOOL_TIMEOUT_DEFAULT,
    },
];

/// The users of tools, for the default tenant.
pub(super) fn tools() -> impl Iterator<Item = User> {
    KINDS.iter().map(|kind| tool_user(&TenantId::default(), kind))
}

/// Whoever serves tools that no list here can name: they are found where the executor runs.
///
/// It may take the calls of any tool, so it is a user of the tool-executor alone, and its password stays with it.
pub(super) fn bridge() -> User {
    let services = ["PING", "INFO", "STATS"].map(|verb| format!("$SRV.{verb}"));
    let theirs = [format!("ai_tool.*.* {TOOL_QUEUE}"), "ai_tool_cancel.*.*".to_owned()];
    let names = ["$SRV.*.*", "$SRV.*.*.*"].map(str::to_owned);
    User {
        name: "bridge",
        about: "Serves MCP servers and webhooks for the tool-executor: names that only the configuration knows.",
        publish: Vec::new(),
        subscribe: services.into_iter().chain(theirs).chain(names).collect(),
        answers: Some(Answers { max: TOOL_ANSWERS_MAX, within: TOOL_TIMEOUT_MAX + TOOL_CALL_GRACE }),
    }
}

/// Whoever looks at one tenant's sessions over NATS itself. Not for browsers: they come to the edge.
///
/// Topic by topic: nats-server takes the `>` of a subscription for one token when it compares it with what is allowed,
/// so that with `ai_loop.*.<tenant>.*` one could subscribe `ai_loop.log.<tenant>.>`.
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

/// Whoever builds tools: calls any tool of any tenant, past the loop and past its approvals, so this is for people.
pub(super) fn toolsmith() -> User {
    let calls = [every::tool(), every::tool_cancel(), every::tool_probe()];
    let questions = [subject::services_info(), subject::services_ping(), subject::services_stats()];
    let asked = calls.into_iter().chain(questions).chain([every::service_info()]).map(|subject| subject.to_string());
    User {
        name: "toolsmith",
        about: "Tries and verifies tools: `ailoop tools try`, `verify`, `watch`.",
        publish: [info(), inbox("toolsmith"), keys_list(Bucket::Tools)].into_iter().chain(asked).collect(),
        subscribe: vec![inbox("toolsmith"), every::tool_calls().to_string()],
        answers: None,
    }
}

/// May take calls of its own tools, within their queue group, hear of their cancels, and say what they are.
fn tool_user(tenant: &TenantId, kind: &Kind) -> User {
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
    let within = kind.timeout + TOOL_CALL_GRACE;
    let answers = Some(Answers { max: TOOL_ANSWERS_MAX, within });
    User { name: kind.user, about: kind.about, publish: Vec::new(), subscribe, answers }
}
