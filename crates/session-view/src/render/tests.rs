use proto::Notification;
use terminal::ReplyFormat;

use super::*;

fn notification(topic: &str, ms: u64, data: &str) -> ParsedNotification {
    ParsedNotification::parse(&Notification {
        topic: topic.into(),
        id: "s-1".into(),
        seq: Some(1),
        time: Timestamp::from_millis(ms).to_string(),
        trace_id: String::new(),
        data_json: data.into(),
    })
}

fn chunk(step: u32, attempt: &str, delta: &str) -> ParsedNotification {
    let data = serde_json::json!({"turn": 1, "step": step, "attempt": attempt, "index": 0, "channel": "text",
        "delta": delta, "final": false});
    notification("message.ai_chunk_received", 0, &data.to_string())
}

fn full(step: u32, text: &str) -> ParsedNotification {
    let data = serde_json::json!({"call": "m1-1", "turn": 1, "step": step, "text": text, "finish_reason": "stop",
        "spent": {"usage": {"input": 1_000, "output": 234}}, "model": "gpt-x", "latency_ms": 320});
    notification("message.ai_full_received", 0, &data.to_string())
}

/// Compares the screen: stdout unchanged, each note in brackets.
fn check(live: bool, rows: &[ParsedNotification], expect: &str) {
    let reply = if live { ReplyFormat::Markdown { has_styles: false } } else { ReplyFormat::Raw };
    let mut renderer = SessionRenderer::new("s", Layout { columns: 80, reply }).with_user_messages();
    let mut screen = String::new();
    let last = notification("moon.risen", 0, "{}");
    for output in rows.iter().chain([&last]).flat_map(|row| renderer.render(row)) {
        match output {
            Output::Data(text) => screen += &text,
            Output::Note(_, text) => screen.extend(["[", &text, "]\n"]),
            Output::Line(spans) => screen.extend(spans.iter().map(|span| span.text.as_str()).chain(["\n"])),
        }
    }
    assert_eq!(screen, expect);
}

const STEP: &str = "[  step 1  gpt-x  1,234 tokens  320 ms]\n";

#[test]
fn chunks_and_complete_reply_show_each_character_once() {
    let shown = format!("Hello\n{STEP}");
    check(true, &[chunk(1, "1.1", "Hel"), chunk(1, "1.1", "lo"), full(1, "Hello")], &shown);
    check(true, &[chunk(1, "1.1", "Hel"), full(1, "Hello"), chunk(1, "1.1", "lo")], &shown);
    check(true, &[full(1, "Hello"), chunk(1, "1.1", "Hello")], &shown);
    check(false, &[chunk(1, "1.1", "Hel"), chunk(1, "1.1", "lo"), full(1, "Hello")], &shown);
    check(true, &[chunk(1, "1.1", "Hello\n"), full(1, "Hello\n")], &shown);
    check(true, &[full(1, "")], STEP);
}

#[test]
fn reply_that_starts_again_is_announced() {
    check(
        true,
        &[chunk(1, "1.1", "Hel"), chunk(1, "1.2", "Good "), chunk(1, "1.2", "day"), full(1, "Good day")],
        &format!("Hel\n[  the reply was interrupted and starts again]\nGood day\n{STEP}"),
    );
    // No chunk of the second attempt arrived, so the shown text is not the beginning of the reply.
    check(true, &[chunk(1, "1.1", "Hel"), full(1, "Good day")], &format!("Hel\nGood day\n{STEP}"));
}

#[test]
fn note_during_reply_comes_before_the_held_back_text() {
    check(
        true,
        &[chunk(1, "1.1", "Hel"), notification("status.paused", 0, "{}"), chunk(1, "1.1", "lo"), full(1, "Hello")],
        &format!("[paused: no new call starts until it is resumed]\nHello\n{STEP}"),
    );
}

#[test]
fn failures_of_a_call_that_is_tried_again_are_counted_over_all_its_attempts() {
    let notice = |message: &str, call: &str| {
        let data =
            serde_json::json!({"code": "model_unreachable", "message": message, "retryable": true, "during": call});
        ParsedNotification { seq: None, ..notification("error", 0, &data.to_string()) }
    };
    let notices = [
        notice("refused, next try in 0.5 s", "model call m1-1"),
        notice("refused", "model call m1-1"),
        notice("gets no requests now", "model call m1-1"),
        notice("refused", "model call m1-2"),
    ];
    let lines = "[  failure 1: refused, next try in 0.5 s]\n[  failure 2: refused]\n\
                 [  failure 3: gets no requests now]\n[  failure 1: refused]\n";
    check(true, &notices, lines);
    let mut renderer = SessionRenderer::new("s", Layout { columns: 80, reply: ReplyFormat::Raw }).without_retries();
    let shown: Vec<Output> = notices.iter().flat_map(|notice| renderer.render(notice)).collect();
    assert!(shown.is_empty(), "{shown:?}");
}

#[test]
fn turn_end_shows_summary() {
    let user = r#"{"message_id":"u","content":"hi","mode":"steer"}"#;
    let result = r#"{"call":"c1-1-1","tool":"list_files","outcome":"ok","content":"","duration_ms":12}"#;
    let failed = r#"{"call":"c1-1-2","tool":"x","outcome":"error","code":"unknown_tool","content":"no\n x"}"#;
    let done = r#"{"turn":1,"stop_reason":"completed","iterations":2,"final_response":"Done.",
        "spent":{"usage":{"input":1900,"output":12},"cost_usd":0.0}}"#;
    check(
        false,
        &[
            notification("message.user_processed", 1_000, user),
            notification("tool_call.result_processed", 1_100, result),
            notification("tool_call.result_processed", 1_100, failed),
            notification("turn.completed", 9_400, done),
        ],
        "[> hi]\n[  list_files  ok  12 ms]\n[  x  error[unknown_tool]  0 ms  no x]\nDone.\n\
         [✓ done  2 steps · 2 tools · 1,912 tokens · 8.4 s]\n",
    );
    let limit = r#"{"turn":1,"stop_reason":"max_iterations","iterations":1,"final_response":"",
        "spent":{"usage":{},"cost_usd":0.25}}"#;
    check(
        false,
        &[notification("turn.completed", 5, limit)],
        "[‼ stopped at the limit of iterations  1 step · 0 tools · 0 tokens · $0.2500 · 0 ms]\n",
    );
}

#[test]
fn error_shows_message_place_and_help() {
    let error = r#"{"code":"model_auth","message":"401","retryable":false,"during":"model call m1-1"}"#;
    check(
        false,
        &[notification("error", 0, error), notification("moon.risen", 0, "{}")],
        "[error[model_auth]: 401\n  where: model call m1-1\n  help: see that the provider's key in the environment is right]\n",
    );
}

#[test]
fn gate_shows_how_to_answer() {
    let gate = r#"{"gate":"c1-1-1","kind":"approval","arguments_sha256":"ab","expires":"2024-01-15T10:30:45.123Z",
        "tool":"rm","arguments":{"path":"x\\ny"}}"#;
    check(
        false,
        &[notification("gate.opened", 0, gate)],
        "[  tool rm {\"path\":\"x\\\\ny\"} waits for approval until 2024-01-15T10:30:45.123Z; to answer:\n    \
         ailoop approvals approve|deny s c1-1-1]\n",
    );
    let closed = r#"{"gate":"c1-1-1","decision":"deny"}"#;
    check(false, &[notification("gate.closed", 0, closed)], "[  c1-1-1  denied  nobody answered]\n");
    let changed =
        r#"{"gate":"c1-1-1","decision":"approve","by":"ann","arguments":{"path":"y"},"arguments_sha256":"cd"}"#;
    let expected = "[  c1-1-1  approved  by ann, with {\"path\":\"y\"}]\n";
    check(false, &[notification("gate.closed", 0, changed)], expected);
    let gate = r#"{"gate":"c1-1-2","kind":"question","arguments_sha256":"ab","expires":"2024-01-15T10:30:45.123Z",
        "tool":"ask_user","arguments":{"question":"Why?"}}"#;
    check(
        false,
        &[notification("gate.opened", 0, gate)],
        "[  the model asks: {\"question\":\"Why?\"}\n    ailoop approvals answer s c1-1-2 --text \"…\"]\n",
    );
}

#[test]
fn call_of_a_client_tool_shows_what_the_session_waits_for() {
    let data = r#"{"call":"c1-1-1","tool":"click","arguments":{},"effect":"pure","max_output":1,
        "deadline":"2026-01-15T10:30:45.123Z"}"#;
    let expected = "[waits for the client: call c1-1-1 of tool click until 2026-01-15T10:30:45.123Z]\n";
    check(true, &[notification("tool_call.waiting", 0, data)], expected);
}

#[test]
fn progress_of_several_lines_shows_first() {
    let progress = r#"{"call":"c1-1-1","tool":"scan","text":"half\nway"}"#;
    check(false, &[notification("tool_call.progress", 0, progress)], "[  scan  … half]\n");
}

fn progress(step: u32, max: u32) -> ParsedNotification {
    let data = serde_json::json!({"agent_id": "e", "turn": 1, "iteration": step, "max_iterations": max, "progress": {},
        "current_tools": [], "continues": false, "source": "explicit", "reason": "", "status": "UNKNOWN", "excerpt": "",
        "call_ids": []});
    notification("continuation.progress", 0, &data.to_string())
}

#[test]
fn step_followed_from_middle_of_session_shows_limit() {
    let step = STEP.replace("step 1", "step 1/5");
    check(false, &[full(1, "Hello"), progress(1, 5)], &format!("Hello\n{step}"));
}

#[test]
fn pause_with_reason_shows_reason() {
    check(
        false,
        &[
            notification("status.paused", 0, r#"{"reason":"lunch"}"#),
            notification("status.resumed", 0, r#"{"reason":"back"}"#),
        ],
        "[paused (lunch): no new call starts until it is resumed]\n[resumed (back)]\n",
    );
}

#[test]
fn gate_shows_invisible_characters_of_its_arguments() {
    let gate = serde_json::json!({"gate": "c1", "kind": "approval", "arguments_sha256": "ab",
        "expires": "2024-01-15T10:30:45.123Z", "tool": "rm", "arguments": {"path": "a\u{202e}b\u{200b}"}});
    let mut renderer = SessionRenderer::new("s", Layout { columns: 80, reply: ReplyFormat::Raw });
    let shown = format!("{:?}", renderer.render(&notification("gate.opened", 0, &gate.to_string())));
    assert!(shown.contains("a<U+202E>b<U+200B>"), "{shown}");
}

fn call(tool: &str, arguments: &str) -> ParsedNotification {
    let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap();
    let data = serde_json::json!({"call": "c1-1-1", "tool": tool, "arguments": arguments, "effect": "pure",
        "approval": "never", "timeout_ms": 1, "max_output": 1});
    notification("tool_call.identified", 0, &data.to_string())
}

fn result(tool: &str, outcome: &str, content: &str) -> ParsedNotification {
    let data = serde_json::json!({"call": "c1-1-1", "tool": tool, "outcome": outcome, "content": content,
        "duration_ms": 5});
    notification("tool_call.result_processed", 0, &data.to_string())
}

#[test]
fn result_shows_arguments_and_summary_in_the_width() {
    let check_call = |arguments: &str, outcome: &str, content: &str, expect: &str| {
        let rows = [call("read_file", arguments), result("read_file", outcome, content)];
        check(false, &rows, &format!("[{expect}]\n"));
    };
    let lines = r#"{"path":"src/main.rs","lines":332,"bytes":9,"content":""}"#;
    check_call(r#"{"path":"src/main.rs"}"#, "ok", lines, "  read_file src/main.rs  332 lines  5 ms");
    let long = format!(r#"{{"path":"{}"}}"#, "d/".repeat(60));
    let cut = format!("{}…", "d/".repeat(25));
    check_call(&long, "ok", lines, &format!("  read_file {cut}  332 lines  5 ms"));
    check_call("{}", "ok", &"y".repeat(200), &format!("  read_file  {}…  5 ms", "y".repeat(59)));
    let failure = "no such file: it is not there, and was never there, so look for it elsewhere";
    check_call(r#"{"path":"x"}"#, "error", failure, &format!("  read_file x  error  5 ms  {failure}"));
}

#[test]
fn tool_line_has_no_control_characters() {
    let rows = [call("scan", r#"{"path":"a\u001b[2J\u202eb"}"#), result("scan\u{1b}]0;t\u{7}", "ok", "\u{1b}[31mred")];
    check(false, &rows, "[  scan<U+001B>]0;t<U+0007> a<U+001B>[2J<U+202E>b  <U+001B>[31mred  5 ms]\n");
}

#[test]
fn tool_call_as_text_is_recognized() {
    for text in [
        r#"{"name": "read_file", "arguments": {"path": "x"}}"#,
        "```json\n{\"name\": \"read_file\", \"parameters\": {}}\n```",
        r#"<tool_call>{"function": {"name": "a", "arguments": "{}"}}</tool_call>"#,
    ] {
        assert!(super::is_written_call(text), "{text}");
    }
    for text in ["", "read_file", r#"{"name": "Anna"}"#, r#"["name", "arguments"]"#, "I call {\"name\": 1}"] {
        assert!(!super::is_written_call(text), "{text}");
    }
}
