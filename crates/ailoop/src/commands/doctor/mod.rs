//! `ailoop doctor`: checks a fleet from the outside, and says what to do about what is wrong.

mod check;
mod local;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::Timestamp;
use contract::fleet::WorkerService;
use contract::tool::{ASK_USER, DELEGATE, ToolSpec};
use fleet_connection::client::{EdgeClient, SessionsApi};
use proto::{FleetStatus, ListAgentsRequest, ListModelsRequest, QueueStatus};
use serde_json::json;
use terminal::columns::wrap_words;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::printable::one_line;
use terminal::{Style, StyledLine, StyledSpan, Terminal};
use tokio::time::Instant;

use self::check::{Check, Outcome};
use self::local::{check_directory, check_keys, check_programs};
use super::fleet_location::find_fleet;
use super::lists::{fetch_gates, fetch_tools};
use crate::args::DoctorArgs;
use crate::fleet_status::{build_of, cells, fetch_status, name_of, replicas_of};
use crate::output::json_lines;

/// The services of a fleet, with what is missing without them. A tool-host shows by its tools.
const SERVICES: [(&str, &str); 5] = [
    ("loop-orchestrator", "no session moves"),
    ("model-gateway", "no model is asked"),
    ("tool-executor", "no tool is called"),
    ("prompt-composer", "no session starts"),
    ("edge", "no client is served"),
];
/// Time in which the composers of a fleet may have different configurations: a rollout replaces them one by one.
const ROLLOUT_MAX: Duration = Duration::from_mins(2);
/// A clock that is wrong by more than this is reported.
const CLOCK_MAX: Duration = Duration::from_secs(1);
/// An item that is older than this is reported.
const ITEM_AGE_MAX: Duration = Duration::from_mins(5);
/// An answer of the edge that takes longer is reported. It includes the 0.7 s in which the fleet answers.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Indentation of the text of a check, and of the advice below it.
const FOUND_INDENT: &str = "        ";

/// Checks the fleet; fails if a check fails.
pub(super) async fn check_fleet(args: &DoctorArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let checks = match find_fleet(&args.target)? {
        Some(fleet) => {
            let mut checks = check_running(&fleet.connect().await?).await?;
            checks.extend(fleet.is_of_directory().then(check_programs).flatten());
            checks
        }
        None => check_directory().await,
    };
    let worst = checks.iter().map(|check| check.outcome).max().unwrap_or(Outcome::Ok);
    let printed = if args.output.is_json() {
        terminal.print_data(&json_lines(checks.iter().map(|check| json!(check))))
    } else {
        terminal.print_lines(&draw(&checks, terminal.layout().columns))
    };
    if printed.is_err() {
        return Ok(Exit::Done);
    }
    let count = |outcome| checks.iter().filter(|check| check.outcome == outcome).count() as u64;
    let (failed, warnings) = (count(Outcome::Failed), count(Outcome::Warning));
    let style = match worst {
        Outcome::Ok => Style::Good,
        Outcome::Warning => Style::Warn,
        Outcome::Failed => Style::Bad,
    };
    let total = format::plural(checks.len() as u64, "check");
    terminal.note(style, &format!("{total}: {failed} failed, {}", format::plural(warnings, "warning")));
    let is_bad = worst == Outcome::Failed || args.strict && worst == Outcome::Warning;
    Ok(if is_bad { Exit::Failed } else { Exit::Done })
}

async fn check_running(client: &EdgeClient) -> Result<Vec<Check>, CommandFailure> {
    let began = Instant::now();
    let status = fetch_status(client).await?;
    let mut checks = vec![check_answer(&client.url(), began.elapsed())];
    checks.extend(check_processes(&status));
    checks.extend(check_composers(&status));
    checks.extend(check_queues(&status));
    checks.extend(check_parts(client).await);
    checks.extend(check_sessions(&status));
    checks.extend(check_keys());
    Ok(checks)
}

fn check_answer(url: &str, took: Duration) -> Check {
    let found = format!("the edge at {url} answered in {}", format::duration(took));
    if took > ANSWER_MAX {
        return Check::warn("edge", found, "see whether NATS, the edge or this connection is slow");
    }
    Check::ok("edge", found)
}

/// The services are there, ready, of one version, and have the right time.
fn check_processes(status: &FleetStatus) -> Vec<Check> {
    const GROUP: &str = "processes";
    let mut checks = Vec::new();
    for (cell, (service, without)) in cells(status).into_iter().flat_map(|cell| SERVICES.map(|row| (cell, row))) {
        let place = cell.map_or_else(String::new, |cell| format!(" in cell {cell}"));
        let count = replicas_of(status, service).filter(|replica| replica.cell.as_deref() == cell).count() as u64;
        checks.push(if count == 0 {
            let advice = format!("start one with `ailoop {}`; without it {without}", command_of(service));
            Check::fail(GROUP, format!("no {service} answers{place}"), advice)
        } else {
            Check::ok(GROUP, format!("{service}{place}: {}", format::plural(count, "replica")))
        });
    }
    for cell in &status.missing_cells {
        let advice = "see whether its nats-server runs, and whether the edge reaches it; the other cells go on";
        checks.push(Check::fail(GROUP, format!("cell {cell} does not answer"), advice));
    }
    for replica in &status.replicas {
        let name = name_of(replica);
        if !replica.waiting_for.is_empty() {
            let found = format!("{name} waits for {}", replica.waiting_for.join(", "));
            checks.push(Check::fail(GROUP, found, "see its log, and whether NATS answers it"));
        }
        for warning in &replica.warnings {
            let advice = "correct what it names; until then the process works on as it can";
            checks.push(Check::warn(GROUP, format!("{name}: {warning}"), advice));
        }
        let ahead = replica.clock_ahead_ms;
        if Duration::from_millis(ahead.unsigned_abs()) > CLOCK_MAX {
            let side = if ahead > 0 { "ahead of" } else { "behind" };
            let off = format::duration(Duration::from_millis(ahead.unsigned_abs()));
            let found = format!("the clock of {name} is {off} {side} that of nats-server");
            checks.push(Check::warn(GROUP, found, "set the clocks of both hosts by NTP"));
        }
    }
    let builds: BTreeSet<String> = status.replicas.iter().map(build_of).collect();
    let builds: Vec<String> = builds.into_iter().collect();
    checks.push(match builds.as_slice() {
        [one] => Check::ok(GROUP, format!("all run version {one}")),
        [] => Check::fail(GROUP, "no process answers", "see that the services run, and the permissions of their users"),
        _ => Check::warn(
            GROUP,
            format!("there are {} versions: {}", builds.len(), builds.join(", ")),
            "let the rollout end, or replace the old ones: sessions of a newer version wait for its replicas",
        ),
    });
    checks
}

/// All composers have the same agents, models and prompts. Else each request gets those of any of them.
fn check_composers(status: &FleetStatus) -> Vec<Check> {
    const GROUP: &str = "composer";
    let mut by_fingerprint: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut changed = None;
    for replica in &status.replicas {
        let Some(mark) = &replica.configuration else { continue };
        by_fingerprint.entry(&mark.fingerprint).or_default().push(name_of(replica));
        changed = changed.max(Timestamp::parse(&mark.since));
    }
    let (Some(changed), 2..) = (changed, by_fingerprint.len()) else { return Vec::new() };
    let groups: Vec<String> = by_fingerprint.values().map(|names| names.join(", ")).collect();
    let age = Timestamp::parse(&status.now).map(|now| now.since(changed)).unwrap_or_default();
    let found = format!(
        "the composers have {} different configurations, for {} now: {}",
        groups.len(),
        format::duration(age),
        groups.join("; ")
    );
    if age <= ROLLOUT_MAX {
        return vec![Check::warn(GROUP, found, "let the rollout end")];
    }
    let advice = "give all the same agents.yaml, models.yaml and prompts, or end the one that does not belong to this fleet: \
                  requests get the agents of any of them";
    vec![Check::fail(GROUP, found, advice)]
}

/// The command that runs a service.
fn command_of(service: &str) -> &str {
    service.rsplit_once('-').map_or(service, |(_, last)| last)
}

/// Somebody takes from each queue, and nothing waits for long.
fn check_queues(status: &FleetStatus) -> Vec<Check> {
    const GROUP: &str = "queues";
    let check = |queue: &QueueStatus| {
        let QueueStatus { queue: name, waiting, held, pullers, oldest_ms } = queue;
        let oldest = Duration::from_millis(oldest_ms.unwrap_or_default());
        let found = format!(
            "{name}: {} waiting, {} held, {} of workers",
            format::count(*waiting),
            format::count(*held),
            format::plural(*pullers, "request")
        );
        // A worker that is killed leaves its items held. One that lives asks for items unless all its places are taken.
        let known = contract::streams::Queue::ALL.iter().find(|known| known.durable() == name);
        if let Some(worker) = known.map(|known| WorkerService::of(*known))
            && *pullers == 0
            && replicas_of(status, worker.service).next().is_none()
        {
            return Check::fail(GROUP, found, format!("nobody takes its items: start {}", worker.one));
        }
        if *pullers == 0 && *waiting > 0 {
            return Check::warn(GROUP, found, "every place is taken: see `ailoop status`, and add replicas");
        }
        if oldest > ITEM_AGE_MAX && *waiting > 0 {
            let found = format!("{found}; the oldest is {} old", format::age(oldest));
            return Check::warn(GROUP, found, "see which sessions wait with `ailoop describe`");
        }
        Check::ok(GROUP, found)
    };
    status.queues.iter().map(check).collect()
}

/// Checks the parts behind the edge: the composer with its agents and models, the tools, and the open gates.
async fn check_parts(client: &EdgeClient) -> Vec<Check> {
    let agents = client.call(ListAgentsRequest {}, SessionsApi::list_agents).await.map(|reply| reply.agents.len());
    let models = client.call(ListModelsRequest {}, SessionsApi::list_models).await.map(|reply| reply.models.len());
    let mut checks = vec![
        counted("composer", "agent", agents, "see the prompt-composer's log"),
        counted("composer", "model", models, "see models.yaml"),
    ];
    checks.extend(check_tools(fetch_tools(client).await));
    checks.push(match fetch_gates(client, None).await.map(|gates| gates.len() as u64) {
        Ok(0) => Check::ok("people", "nothing waits for a person"),
        Ok(count) => Check::ok("people", format!("{} for a person: `ailoop approvals`", plural_wait(count))),
        Err(failure) => Check::fail("people", failure.message(), "see the log of the edge"),
    });
    checks
}

/// There are tools, and each MCP server that is served has some. The process of one that is not served warns of it.
fn check_tools(found: Result<Vec<ToolSpec>, CommandFailure>) -> Vec<Check> {
    const GROUP: &str = "tools";
    let of_the_loop = |tool: &ToolSpec| [ASK_USER, DELEGATE].contains(&tool.name.as_str());
    let mut servers = BTreeMap::<String, u64>::new();
    for tool in found.iter().flatten() {
        if let Some((server, _)) = tool.name.as_str().strip_prefix("mcp__").and_then(|name| name.split_once("__")) {
            *servers.entry(server.to_owned()).or_default() += 1;
        }
    }
    let count = found.map(|tools| tools.iter().filter(|tool| !of_the_loop(tool)).count());
    let mut check = counted(GROUP, "tool", count, "start a tool-host or a tool; agents can only talk without tools");
    if check.outcome == Outcome::Failed {
        check.outcome = Outcome::Warning;
    }
    let served = |(server, tools): (String, u64)| {
        Check::ok(GROUP, format!("MCP server {server}: {}", format::plural(tools, "tool")))
    };
    std::iter::once(check).chain(servers.into_iter().map(served)).collect()
}

fn plural_wait(count: u64) -> String {
    if count == 1 { "1 gate waits".to_owned() } else { format!("{} gates wait", format::count(count)) }
}

fn counted(group: &'static str, noun: &str, found: Result<usize, CommandFailure>, advice: &'static str) -> Check {
    match found {
        Ok(0) => Check::fail(group, format!("there is no {noun}"), advice),
        Ok(count) => Check::ok(group, format::plural(count as u64, noun)),
        Err(failure) => Check::fail(group, failure.message(), advice),
    }
}

fn check_sessions(status: &FleetStatus) -> Vec<Check> {
    const GROUP: &str = "sessions";
    let letters = format::plural(status.dead_letters, "dead letter");
    let mut checks = vec![if status.dead_letters == 0 {
        Check::ok(GROUP, letters)
    } else {
        Check::warn(GROUP, letters, "look at them with `ailoop dead list`, and retry or drop each")
    }];
    if let Some(sessions) = status.sessions {
        let (running, idle) = (format::count(sessions.running), format::count(sessions.idle));
        checks.push(Check::ok(GROUP, format!("{running} running, {idle} idle")));
    }
    checks
}

fn draw(checks: &[Check], columns: usize) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    let mut group = "";
    for check in checks {
        if group != check.group {
            if !group.is_empty() {
                lines.push(Vec::new());
            }
            group = check.group;
            lines.push(vec![StyledSpan::new(Style::Strong, group)]);
        }
        let (mark, style) = match check.outcome {
            Outcome::Ok => ("ok  ", Style::Good),
            Outcome::Warning => ("WARN", Style::Warn),
            Outcome::Failed => ("FAIL", Style::Bad),
        };
        let text_columns = columns.saturating_sub(FOUND_INDENT.len());
        for (index, part) in wrap_words(&one_line(&check.found), text_columns).into_iter().enumerate() {
            let head = if index == 0 {
                StyledSpan::new(style, format!("  {mark}"))
            } else {
                StyledSpan::new(Style::Plain, "      ")
            };
            lines.push(vec![head, StyledSpan::new(Style::Plain, format!("  {part}"))]);
        }
        for part in wrap_words(&one_line(&check.advice), text_columns) {
            lines.push(vec![StyledSpan::new(Style::Plain, format!("{FOUND_INDENT}{part}"))]);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn replica(service: &str, version: &str, more: &Value) -> Value {
        let mut replica = json!({
            "service": service, "replica": "host:1", "version": version, "commit": "unknown", "fold": 8,
            "started": "2026-01-15T10:00:00.000Z", "now": "2026-01-15T10:30:00.000Z", "clock_ahead_ms": 3,
        });
        for (field, value) in more.as_object().unwrap() {
            replica[field] = value.clone();
        }
        replica
    }

    fn status(replicas: &[Value], queue: &Value) -> FleetStatus {
        proto::json::from_value(json!({
            "now": "2026-01-15T10:30:00.000Z", "replicas": replicas, "queues": [queue], "dead_letters": 0, "storage": [],
        }))
        .unwrap()
    }

    fn bad(checks: Vec<Check>) -> Vec<String> {
        checks.into_iter().filter(|check| check.outcome > Outcome::Ok).map(|check| check.found).collect()
    }

    #[test]
    fn one_process_of_all_services_is_a_whole_fleet() {
        let queue = json!({"queue": "model", "waiting": 0, "held": 0, "pullers": 1});
        let status = status(&[replica("ailoop", "1.0.0", &json!({}))], &queue);
        assert_eq!(bad(check_processes(&status)), Vec::<String>::new());
        assert_eq!(bad(check_queues(&status)), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_with_processes_is_found() {
        let queue = json!({"queue": "model", "waiting": 0, "held": 0, "pullers": 1});
        let replicas = [
            replica("model-gateway", "1.0.0", &json!({"waiting_for": ["nats"]})),
            replica("edge", "1.0.0", &json!({"warnings": ["composer: agents.yaml:3:1: bad"]})),
            replica("tool-executor", "1.1.0", &json!({"clock_ahead_ms": -5_000})),
            replica("prompt-composer", "1.1.0", &json!({})),
        ];
        let found = [
            "no loop-orchestrator answers",
            "model-gateway host:1 waits for nats",
            "edge host:1: composer: agents.yaml:3:1: bad",
            "the clock of tool-executor host:1 is 5.0 s behind that of nats-server",
            "there are 2 versions: 1.0.0, 1.1.0",
        ];
        assert_eq!(bad(check_processes(&status(&replicas, &queue))), found);
    }

    #[test]
    fn each_served_mcp_server_has_a_line() {
        let names = ["ask_user", "read_file", "mcp__files__list", "mcp__files__read", "mcp__web__get"];
        let tools = names.map(|name| serde_json::from_value(json!({"name": name, "parameters": {}})).unwrap());
        let found: Vec<_> =
            check_tools(Ok(tools.into())).into_iter().map(|check| (check.outcome, check.found)).collect();
        let lines = ["4 tools", "MCP server files: 2 tools", "MCP server web: 1 tool"];
        assert_eq!(found, lines.map(|line| (Outcome::Ok, line.to_owned())));
    }

    #[test]
    fn composers_with_different_configurations_fail_after_a_rollout() {
        let queue = json!({"queue": "model", "waiting": 0, "held": 0, "pullers": 1});
        let composer = |fingerprint: &str, since: &str| {
            let since = format!("2026-01-15T{since}.000Z");
            replica("prompt-composer", "1.0.0", &json!({"configuration": {"fingerprint": fingerprint, "since": since}}))
        };
        let look = |replicas: &[Value]| check_composers(&status(replicas, &queue));
        let first = composer("a", "09:00:00");
        assert!(look(&[first.clone(), composer("a", "10:29:59"), replica("edge", "1.0.0", &json!({}))]).is_empty());
        let rollout = look(&[first.clone(), composer("b", "10:29:00")]);
        assert_eq!(rollout[0].outcome, Outcome::Warning);
        let foreign = look(&[first, composer("b", "10:27:00")]);
        assert_eq!(foreign[0].outcome, Outcome::Failed);
        assert!(foreign[0].found.contains("2 different configurations, for 3 min 00 s"), "{}", foreign[0].found);
    }

    #[test]
    fn queue_without_workers_fails_and_a_full_one_warns() {
        let look = |replicas: &[Value], waiting: u64, held: u64, pullers: u64, oldest_ms: u64| {
            let queue =
                json!({"queue": "model", "waiting": waiting, "held": held, "pullers": pullers, "oldest_ms": oldest_ms});
            check_queues(&status(replicas, &queue)).remove(0)
        };
        let gone = look(&[], 5, 1, 0, 0);
        assert_eq!((gone.outcome, gone.advice.contains("start a gateway")), (Outcome::Failed, true));
        let gateway = [replica("model-gateway", "1.0.0", &json!({}))];
        let of = |waiting, held, pullers, oldest_ms| look(&gateway, waiting, held, pullers, oldest_ms);
        assert_eq!(of(5, 64, 0, 0).outcome, Outcome::Warning);
        assert_eq!(of(5, 64, 1, 400_000).outcome, Outcome::Warning);
        assert_eq!(of(0, 64, 0, 0).outcome, Outcome::Ok);
    }
}
