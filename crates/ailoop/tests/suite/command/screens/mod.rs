//! Screens of `chat`, `run`, `top` and `doctor` at terminals of three widths, with and without colours.
//! `UPDATE_GOLDEN=1` writes the screens in `tests/golden`.

use std::fmt::Write as _;
use std::path::Path;

use proto::{Agent, AgentList, FleetTool, FleetToolList, Model, ModelList, Notification};
use serde_json::{Value, json};

use crate::command::scripted_edge::{Script, ScriptedEdge, SessionScript};
use crate::command::terminal::{Terminal, TerminalSettings};
use crate::command::world::{World, wait_until};

/// Rows of the terminal: all of a screen is visible.
const ROWS: u16 = 70;
const REPLY: &str = "\
# Report

The crate has **three** parts; `lib.rs` holds the public types, and everything else is private to the crate.

| file | lines | what it does |
|---|---|---|
| src/lib.rs | 332 | the public types, and the entry of the command |
| src/table.rs | 71 | tables that fit the terminal |

```rust
fn main() -> ExitCode { ailoop::run(Cli::parse(), &Terminal::new()) }
```
";

/// A turn with everything that a session shows, up to its last reply.
fn working_session() -> SessionScript {
    let mut session = SessionScript::begin("survey this directory");
    session.reply(1, "First I look at which files there are, and then I read the most telling of them.\n");
    session.plan(&["List the files"], &["Read the sources", "Write the report"]);
    session.call("c1-1-1", "list_files", &json!({"path": "."}));
    session.result("c1-1-1", "list_files", "ok", &json!({"files": [], "total": 12}).to_string());
    session.call("c1-1-2", "read_file", &json!({"path": "crates/ailoop/src/commands/conversation.rs"}));
    session.result("c1-1-2", "read_file", "ok", &json!({"lines": 490, "content": ""}).to_string());
    session.call("c1-1-3", "read_file", &json!({"path": "missing.rs"}));
    session.result("c1-1-3", "read_file", "error", "missing.rs: there is no such file below the root directory");
    session.plan(&["List the files", "Read the sources"], &["Write the report"]);
    session
}

fn finished_session(ends_session: bool) -> SessionScript {
    let mut session = working_session();
    session.reply(2, REPLY);
    session.end_turn(2, ends_session);
    session
}

fn edge(notifications: SessionScript) -> ScriptedEdge {
    edge_with_children(notifications, Vec::new())
}

fn edge_with_children(notifications: SessionScript, children: Vec<(Vec<String>, Vec<Notification>)>) -> ScriptedEdge {
    ScriptedEdge::start(Script {
        notifications: notifications.notifications(),
        children,
        status: fleet_status(),
        agents: AgentList { agents: vec![Agent { id: "e".to_owned(), ..Agent::default() }] },
        models: ModelList { models: vec![Model { id: "qwen3:8b".to_owned(), ..Model::default() }] },
        tools: FleetToolList {
            tools: vec![FleetTool {
                name: "read_file".to_owned(),
                parameters_json: "{}".to_owned(),
                effect: "pure".to_owned(),
                approval: "never".to_owned(),
                ..FleetTool::default()
            }],
        },
        ..Script::default()
    })
}

/// A fleet in which a version differs, a service is not ready, a configuration is wrong, and a queue has no workers.
fn fleet_status() -> Value {
    let replica = |service: &str, version: &str, more: Value| {
        let mut replica = json!({
            "service": service, "replica": format!("{service}-5d8f7c-x2v:1"), "version": version, "commit": "unknown",
            "fold": 8, "started": "2026-01-15T08:30:00.000Z", "now": "2026-01-15T10:30:00.000Z", "clock_ahead_ms": 3,
            "work": {},
        });
        for (field, value) in more.as_object().unwrap() {
            replica[field] = value.clone();
        }
        replica
    };
    let queue = |name: &str, waiting: u64, held: u64, pullers: u64, oldest_ms: Option<u64>| json!({"queue": name, "waiting": waiting, "held": held, "pullers": pullers, "oldest_ms": oldest_ms});
    json!({
        "now": "2026-01-15T10:30:00.000Z",
        "replicas": [
            replica("edge", "1.1.0", json!({})),
            replica("loop-orchestrator", "1.1.0",
                json!({"work": {"drive": {"running": 3, "max": 512}, "due": {"running": 0, "max": 512}}})),
            replica("model-gateway", "1.0.0", json!({"work": {"model": {"running": 64, "max": 64}}})),
            replica("prompt-composer", "1.1.0",
                json!({"warnings": ["agents.yaml:3:5: there is no tool `read_fil`; did you mean `read_file`?"]})),
            replica("tool-executor", "1.1.0",
                json!({"waiting_for": ["nats"], "clock_ahead_ms": -5_000, "work": {"tool": {"running": 0, "max": 64}}})),
        ],
        "queues": [queue("drive", 0, 3, 1, None), queue("due", 0, 0, 1, Some(2_900)),
            queue("model", 1_912, 64, 0, Some(400_000)), queue("tool", 0, 0, 1, None)],
        "sessions": {"idle": 12, "running": 67, "paused": 1, "ended": 40_312, "with_gates": 2},
        "dead_letters": 1,
        "storage": [{"name": "AI_LOOP_LOG", "messages": 1_204_331, "bytes": 4_512_000_000_u64},
            {"name": "AI_LOOP_TIMER", "messages": 79, "bytes": 31_000}],
    })
}

/// Compares the screens of a scene at three widths, with and without colours. No row is wider than its terminal.
fn check(name: &str, scene: impl Fn(&TerminalSettings<'_>) -> String) {
    check_widths(name, &[60, 80, 200], scene);
}

/// As [`check`], at these widths.
fn check_widths(name: &str, widths: &[u16], scene: impl Fn(&TerminalSettings<'_>) -> String) {
    let mut text = String::new();
    for &columns in widths {
        for has_colours in [true, false] {
            let variables: &[(&str, &str)] = if has_colours { &[] } else { &[("NO_COLOR", "1")] };
            let settings = TerminalSettings { columns, rows: ROWS, variables };
            let screen = scene(&settings);
            assert_eq!(
                screen.contains("{faint ") || screen.contains("{green "),
                has_colours,
                "{name}, {columns} columns:\n{screen}"
            );
            let colours = if has_colours { "" } else { ", NO_COLOR" };
            writeln!(text, "==== {columns} columns{colours}\n{screen}").unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name} differs; UPDATE_GOLDEN=1 writes it");
}

/// Replaces ids, ports and measured times by fixed ones of the same width.
fn mask(text: &str, edge: &ScriptedEdge) -> String {
    let (host, port) = edge.url().rsplit_once(':').unwrap();
    let mut masked = text.replace(edge.url(), &format!("{host}:{}", "1".repeat(port.len())));
    let id_length = "01234567-89ab-7cde-8f01-23456789abcd".len();
    let mut at = 0;
    while at + id_length <= masked.len() {
        if masked.get(at..at + id_length).is_some_and(|text| uuid::Uuid::try_parse(text).is_ok()) {
            masked.replace_range(at..at + id_length, "01234567-89ab-7cde-8f01-23456789abcd");
        }
        at += 1;
    }
    let lines = masked.lines().map(|line| match line.split_once("answered in ") {
        Some((before, after)) => {
            let end = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}answered in 5{end}\n")
        }
        None => mask_seconds(line) + "\n",
    });
    lines.collect()
}

/// Replaces the seconds of a status, such as `5 s ·`.
fn mask_seconds(line: &str) -> String {
    let Some((before, after)) = line.split_once(" s · ") else { return line.to_owned() };
    let text = before.trim_end_matches(|c: char| c.is_ascii_digit());
    if text.len() == before.len() { line.to_owned() } else { format!("{text}0 s · {after}") }
}

fn open_chat(edge: &ScriptedEdge, world: &World, settings: &TerminalSettings<'_>) -> Terminal {
    let chat = Terminal::spawn(world, &["chat", "--url", edge.url()], settings);
    chat.wait_for("ready");
    chat.press("survey this directory\r");
    chat
}

#[test]
fn chat_after_a_turn() {
    check("chat.txt", |settings| {
        let (world, edge) = (World::new(), edge(finished_session(false)));
        let chat = open_chat(&edge, &world, settings);
        chat.wait_for("\u{2713} done");
        chat.wait_for("ready \u{b7} ");
        mask(&chat.snapshot(), &edge)
    });
}

#[test]
fn chat_while_the_agent_works() {
    check("chat_working.txt", |settings| {
        let mut session = working_session();
        session.call("c1-1-4", "search_text", &json!({"pattern": "TODO|FIXME", "path": "crates"}));
        let (world, edge) = (World::new(), edge(session));
        let chat = open_chat(&edge, &world, settings);
        chat.wait_for("running search_text");
        chat.press("count the open points, too\r");
        wait_until("the message is sent", || edge.calls().iter().any(|call| call.starts_with("Send ")));
        assert_eq!(edge.calls().last().unwrap(), "Send steer count the open points, too");
        chat.press("and");
        chat.wait_for("\u{203a} and");
        mask(&chat.snapshot(), &edge)
    });
}

#[test]
fn chat_at_an_approval() {
    check("chat_approval.txt", |settings| {
        let mut session = working_session();
        session.call("c1-1-4", "write_file", &json!({"path": "report.md"}));
        let arguments = json!({"path": "report.md", "content": "# Report\n\nThree parts.\n"});
        session.event(
            "gate.opened",
            &json!({"gate": "c1-1-4", "kind": "approval", "tool": "write_file", "arguments": arguments,
                "arguments_sha256": "00", "expires": "2026-01-15T11:30:00.000Z", "on_expiry": "deny"}),
        );
        let (world, edge) = (World::new(), edge(session));
        let chat = open_chat(&edge, &world, settings);
        chat.wait_for("waits for your answer");
        mask(&chat.snapshot(), &edge)
    });
}

#[test]
fn run_of_one_prompt() {
    check("run.txt", |settings| {
        let (world, edge) = (World::new(), edge(finished_session(true)));
        let line = ["run", "--url", edge.url(), "survey this directory"];
        let mut run = Terminal::spawn(&world, &line, settings);
        assert_eq!(run.wait(), Some(0), "{}", run.shown());
        mask(&run.snapshot(), &edge)
    });
}

#[test]
fn run_while_the_agent_works() {
    check("run_working.txt", |settings| {
        let mut session = working_session();
        session.call("c1-1-4", "search_text", &json!({"pattern": "TODO|FIXME", "path": "crates"}));
        let (world, edge) = (World::new(), edge(session));
        let run = Terminal::spawn(&world, &["run", "--url", edge.url(), "survey this directory"], settings);
        run.wait_for("running search_text");
        mask(&run.snapshot(), &edge)
    });
}

/// A session that does one thing, and delegates another one.
fn delegating_session(text: &str, agent: &str, task: &str, answer: &str, ends_session: bool) -> SessionScript {
    let mut session = SessionScript::begin("x");
    session.reply(1, text);
    session.call("c1-1-1", "read_file", &json!({"path": "src/lib.rs"}));
    session.result("c1-1-1", "read_file", "ok", &json!({"lines": 332, "content": ""}).to_string());
    session.call("c1-1-2", "delegate", &json!({"agent": agent, "task": task}));
    session.result("c1-1-2", "delegate", "ok", &json!({"response": answer, "session": "child-1"}).to_string());
    session.reply(2, "That was the answer.\n");
    session.end_turn(2, ends_session);
    session
}

#[test]
fn run_with_delegations() {
    let calls = |depth: usize| vec!["c1-1-2".to_owned(); depth];
    check_widths("run_delegation.txt", &[80], |settings| {
        let task = "Read plans/list-duplicates.md and do all of its tasks in the order in which they can be done.\nThen answer.";
        let mut session = SessionScript::begin("x");
        session.reply(1, "The plan is written. I hand it over to Eamonn.\n");
        session.call("c1-1-2", "delegate", &json!({"agent": "eamonn", "task": task}));
        session.result("c1-1-2", "delegate", "ok", &json!({"response": "a\nb", "session": "child-1"}).to_string());
        session.call("c1-1-3", "delegate", &json!({"agent": "bert", "task": "Count the lines."}));
        session.result("c1-1-3", "delegate", "error", "the agent bert is unknown");
        session.reply(2, "The plan is complete.\n");
        session.end_turn(2, true);
        let long = "I read the **plan** first, and then I ask Paula for the tests, since she knows them best.\n\n- one\n- two\n";
        let children = vec![
            (calls(1), delegating_session(long, "paula", "Write the tests.", "done", true).notifications()),
            (calls(2), delegating_session("Nested once.\n", "tom", "Run the tests.", "done", true).notifications()),
            (calls(3), delegating_session("Nested twice.\n", "zoe", "Too deep.", "done", true).notifications()),
        ];
        let (world, edge) = (World::new(), edge_with_children(session, children));
        let mut run = Terminal::spawn(&world, &["run", "--url", edge.url(), "plan it"], settings);
        assert_eq!(run.wait(), Some(0), "{}", run.shown());
        mask(&run.snapshot(), &edge)
    });
}

#[test]
fn run_with_too_many_delegations_at_once_names_the_rest() {
    const FOLLOWED_MAX: usize = 16;
    let mut session = SessionScript::begin("x");
    session.reply(1, "All at once.\n");
    let mut children = Vec::new();
    for number in 1..=FOLLOWED_MAX + 1 {
        let call = format!("c1-1-{number}");
        session.call(&call, "delegate", &json!({"agent": format!("agent{number}"), "task": "Count the lines."}));
        let mut child = SessionScript::begin("x");
        child.reply(1, &format!("Text of child {number}.\n"));
        children.push((vec![call], child.notifications()));
    }
    let (world, edge) = (World::new(), edge_with_children(session, children));
    let settings = TerminalSettings { columns: 80, rows: ROWS, variables: &[] };
    let run = Terminal::spawn(&world, &["run", "--url", edge.url(), "x"], &settings);
    for number in 1..=FOLLOWED_MAX {
        run.wait_for(&format!("    Text of child {number}."));
    }
    run.wait_for(&format!("  → agent{}  Count the lines.", FOLLOWED_MAX + 1));
    assert_eq!(edge.watched_child_count(), FOLLOWED_MAX);
    assert!(!run.shown().contains(&format!("Text of child {}.", FOLLOWED_MAX + 1)), "{}", run.shown());
}

#[test]
fn top_of_a_fleet() {
    check("top.txt", |settings| {
        let (world, edge) = (World::new(), edge(SessionScript::default()));
        let top = Terminal::spawn(&world, &["top", "--url", edge.url(), "--every", "1"], settings);
        top.wait_for("STORED");
        top.wait_for("AI_LOOP_TIMER");
        mask(&top.snapshot(), &edge)
    });
}

#[test]
fn doctor_of_a_fleet() {
    check("doctor.txt", |settings| {
        let (world, edge) = (World::new(), edge(SessionScript::default()));
        let mut doctor = Terminal::spawn(&world, &["doctor", "--url", edge.url()], settings);
        assert_eq!(doctor.wait(), Some(1), "{}", doctor.shown());
        mask(&doctor.snapshot(), &edge)
    });
}
