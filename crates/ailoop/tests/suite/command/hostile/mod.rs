//! Texts of models, tools and other users that try to control the terminal, or to fill it.

use proto::{Agent, AgentList, FleetTool, FleetToolList, Model, ModelList, SessionSummary};
use serde_json::json;

use crate::command::scripted_edge::{Script, ScriptedEdge, SessionScript};
use crate::command::terminal::{Terminal, TerminalSettings};
use crate::command::world::World;

/// Clears the screen, moves the cursor, sets title and clipboard, switches to the other screen, asks for an answer that
/// the shell would read, in C0 and in C1, with directions of writing.
const HOSTILE: &str = "evil\u{1b}[2J\u{1b}[3A\u{1b}]0;owned\u{7}\u{1b}]52;c;ZXZpbA==\u{1b}\\\u{1b}[?1049h\u{1b}[6n\u{1b}c\
                       \u{9b}2J\u{9d}0;owned\u{9c}\u{8}\u{7f}\r\u{202e}txt.exe\u{2066}<script>alert(1)</script>";
/// Final bytes and modes of the sequences that this command itself writes.
const SEQUENCES: &str = "ABCHJKmhl";
const MODES: [&str; 3] = ["?25", "?2004", "?2026"];

/// Fails on everything that moves a terminal, except what this command itself writes.
fn assert_harmless(raw: &str) {
    let mut rest = raw;
    while let Some(at) = rest.find(|c: char| c.is_control() && !matches!(c, '\r' | '\n')) {
        let found: String = rest[at..].chars().take(40).collect();
        let sequence = rest[at..].strip_prefix("\u{1b}[").unwrap_or_else(|| panic!("a control character: {found:?}"));
        let length = sequence.find(|c: char| !matches!(c, '0'..='9' | ';' | '?')).unwrap();
        let (parameters, after) = sequence.split_at(length);
        let last = after.chars().next().unwrap();
        assert!(SEQUENCES.contains(last), "a foreign sequence: {found:?}");
        let is_mode = matches!(last, 'h' | 'l');
        assert!(!is_mode || MODES.contains(&parameters), "a foreign mode: {found:?}");
        assert!(is_mode || !parameters.contains('?'), "a foreign sequence: {found:?}");
        rest = &after[1..];
    }
    let directions = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}'];
    assert!(!raw.contains(directions), "a direction of writing");
}

/// A session with a hostile text in every place that a model, a tool or another user can fill.
fn hostile_session() -> SessionScript {
    let mut session = SessionScript::begin(HOSTILE);
    for piece in HOSTILE.split_inclusive('[') {
        session.chunk(1, 0, piece);
    }
    session.reply(1, &format!("# {HOSTILE}\n\n|{HOSTILE}|\n|---|\n|[x](http://{HOSTILE})|\n\n```\n{HOSTILE}\n```\n"));
    session.plan(&[HOSTILE], &[HOSTILE]);
    session.call("c1-1-1", "read_file", &json!({"path": HOSTILE, HOSTILE: HOSTILE}));
    session.push("tool_call.progress", None, &json!({"call": "c1-1-1", "tool": "read_file", "text": HOSTILE}));
    session.result("c1-1-1", HOSTILE, "error", HOSTILE);
    session.result("c1-1-2", "read_file", "ok", &json!({"text": HOSTILE}).to_string());
    session.event("error", &json!({"code": HOSTILE, "message": HOSTILE, "retryable": false, "during": HOSTILE}));
    session.event("status.paused", &json!({"by": HOSTILE, "reason": HOSTILE}));
    session.event("status.resumed", &json!({"by": HOSTILE, "reason": HOSTILE}));
    let question = json!({"question": HOSTILE, "choices": [HOSTILE, "no"]});
    let gate = |gate: &str, kind: &str, arguments: &serde_json::Value| {
        json!({"gate": gate, "kind": kind, "tool": "write_file", "arguments": arguments, "arguments_sha256": "00",
            "expires": "2026-01-15T11:30:00.000Z", "on_expiry": "deny"})
    };
    session.event("gate.opened", &gate("c1-1-3", "approval", &json!({"path": HOSTILE, "content": HOSTILE})));
    session.event("gate.closed", &json!({"gate": "c1-1-3", "decision": "deny", "by": HOSTILE}));
    session.event("gate.opened", &gate("c1-1-4", "question", &question));
    session.event("gate.closed", &json!({"gate": "c1-1-4", "decision": "deny", "by": HOSTILE}));
    session.call("c1-1-5", "delegate", &json!({"agent": HOSTILE, "task": HOSTILE}));
    session.result("c1-1-5", "delegate", "ok", &json!({"response": HOSTILE, "session": HOSTILE}).to_string());
    session.reply(2, "the end of the hostile session\n");
    session
}

#[test]
fn hostile_session_controls_no_terminal() {
    let mut session = hostile_session();
    session.end_turn(2, false);
    let (world, edge) = (World::new(), edge(session));
    let chat = Terminal::spawn(&world, &["chat", "--url", edge.url()], &TerminalSettings::new(80));
    chat.wait_for("ready");
    chat.press("x\r");
    chat.wait_for("the end of the hostile session");
    chat.wait_for("ready \u{b7} ");
    for command in ["/sessions\r", "/tools\r", "/model\r", "/agent\r"] {
        chat.press(command);
    }
    chat.press("still here");
    chat.wait_for("\u{203a} still here");
    assert!(chat.shown().contains("  → evil<U+001B>[2J"), "{}", chat.shown());
    assert!(!chat.is_other_screen() && chat.shown().contains("Type a message"), "{}", chat.shown());
    assert_harmless(&chat.raw());
}

#[test]
fn hostile_texts_in_lists_control_no_terminal() {
    let mut session = hostile_session();
    session.end_turn(2, true);
    let (world, edge) = (World::new(), edge(session));
    for (line, exit) in [
        (&["sessions"][..], Some(0)),
        (&["sessions", "-o", "wide"], Some(0)),
        (&["tools"], Some(0)),
        (&["tools", "-o", "wide"], Some(0)),
        (&["status"], Some(0)),
        (&["doctor"], Some(1)),
        (&["run", "x"], Some(4)),
        (&["run", "--approve", "wait", "x"], Some(0)),
        (&["watch", "some-session"], Some(0)),
    ] {
        let line = [line, &["--url", edge.url()]].concat();
        let mut command = Terminal::spawn(&world, &line, &TerminalSettings::new(80));
        // The gate of the session is asked at the terminal.
        command.press("\u{4}");
        let code = command.wait();
        assert!(code == exit || line[0] == "run", "{line:?}: {code:?}\n{}", command.shown());
        assert!(command.shown().contains("evil"), "{line:?}:\n{}", command.shown());
        assert_harmless(&command.raw());
    }
}

#[test]
fn long_line_and_ten_thousand_calls_keep_the_chat_usable() {
    const CALLS: usize = 10_000;
    let mut session = SessionScript::begin("x");
    let line = "0123456789abcdef ".repeat(1 << 16);
    for part in line.as_bytes().chunks(1 << 14) {
        session.chunk(1, 0, std::str::from_utf8(part).unwrap());
    }
    session.reply(1, "\n");
    for call in 0..CALLS {
        session.call(&format!("c1-1-{call}"), "read_file", &json!({"path": format!("file-{call}.rs")}));
    }
    for call in 0..CALLS {
        session.result(&format!("c1-1-{call}"), "read_file", "ok", "{\"lines\": 3}");
    }
    session.end_turn(1, false);
    let (world, edge) = (World::new(), edge(session));
    let chat = Terminal::spawn(&world, &["chat", "--url", edge.url()], &TerminalSettings::new(80));
    chat.wait_for("ready");
    chat.press("x\r");
    chat.wait_for("\u{2713} done");
    chat.wait_for("ready \u{b7} ");
    let shown = chat.shown();
    assert!(shown.contains("read_file file-9999.rs  3 lines"), "{shown}");
    assert!(shown.lines().all(|row| row.chars().count() <= 80));
    chat.press("still here");
    chat.wait_for("\u{203a} still here");
    assert_harmless(&chat.raw());
}

fn edge(session: SessionScript) -> ScriptedEdge {
    let hostile = || HOSTILE.to_owned();
    let status = json!({
        "now": "2026-01-15T10:30:00.000Z",
        "replicas": [{"service": HOSTILE, "replica": HOSTILE, "version": HOSTILE, "commit": HOSTILE, "fold": 8,
            "started": "2026-01-15T08:30:00.000Z", "now": "2026-01-15T10:30:00.000Z", "clock_ahead_ms": 3,
            "waiting_for": [HOSTILE], "warnings": [HOSTILE], "work": {HOSTILE: {"running": 1, "max": 2}}}],
        "queues": [{"queue": HOSTILE, "waiting": 1, "held": 0, "pullers": 0}],
        "dead_letters": 1, "storage": [{"name": HOSTILE, "messages": 1, "bytes": 1}],
    });
    let mut child = hostile_session();
    child.end_turn(2, true);
    ScriptedEdge::start(Script {
        notifications: session.notifications(),
        children: vec![(vec!["c1-1-5".to_owned()], child.notifications())],
        status,
        sessions: vec![SessionSummary {
            session_id: "some-session".to_owned(),
            tenant: "default".to_owned(),
            phase: hostile(),
            agent: hostile(),
            model: hostile(),
            title: hostile(),
            updated: hostile(),
            ..SessionSummary::default()
        }],
        // A name of a tool that is none is refused.
        tools: FleetToolList {
            tools: vec![FleetTool {
                name: "hostile".to_owned(),
                description: hostile(),
                parameters_json: json!({"description": HOSTILE}).to_string(),
                effect: "pure".to_owned(),
                approval: "never".to_owned(),
                version: hostile(),
                ..FleetTool::default()
            }],
        },
        agents: AgentList { agents: vec![Agent { id: hostile(), ..Agent::default() }] },
        models: ModelList { models: vec![Model { id: hostile(), ..Model::default() }] },
    })
}
