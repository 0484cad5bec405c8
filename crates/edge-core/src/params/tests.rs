//! Commands that are refused, and those that are accepted.

use contract::ErrorCode;
use contract::client_tool::AnswerToolCall;
use contract::command::{Answer, AnswerDecision, Configure, ControlReason, MessageMode, SendUserMessage, Start};
use contract::model::Content;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::*;

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("not an object") };
    map
}

fn accept<T: CommandBody + DeserializeOwned>(value: Value) -> CommandRequest<T> {
    UnvalidatedCommand::from_json(object(value)).and_then(UnvalidatedCommand::validate).unwrap()
}

fn refuse<T: CommandBody + DeserializeOwned>(value: Value) -> (ErrorCode, String) {
    match UnvalidatedCommand::<T>::from_json(object(value)).and_then(UnvalidatedCommand::validate) {
        Ok(command) => panic!("taken: {}", command.session),
        Err(error) => (error.code, error.message),
    }
}

#[test]
fn start_without_ids_gets_generated_ids() {
    let command = accept::<Start>(json!({"prompt": "hi", "agent": "e"}));
    assert_eq!(command.session.as_str().len(), 36);
    assert!(command.is_awaited);
    let command = accept::<Start>(json!({"session_id": "s", "command_id": "c", "prompt": "hi", "no_wait": true}));
    assert_eq!((command.session.as_str(), command.id.as_str(), command.is_awaited), ("s", "c", false));
}

#[test]
fn recorded_refusal_of_an_unknown_field_is_what_the_parser_says() {
    let (_, message) = refuse::<Start>(json!({"prompt": "x", "colour": 1}));
    let page = include_str!("../../../../docs/reference/json-rpc.md");
    assert!(page.contains(&format!("\"message\":\"{message}\"")), "{message}");
}

/// Commands that are refused: the result, the expected code, and texts that the message must have.
#[allow(clippy::too_many_lines, reason = "one table")]
fn refusals() -> Vec<((ErrorCode, String), ErrorCode, Vec<&'static str>)> {
    use ErrorCode::{BadRequest, EmptyMessage, TooLarge};
    let long = |bytes: usize| "x".repeat(bytes);
    let start = |more: Value| {
        let mut params = object(json!({"prompt": "x"}));
        params.extend(object(more));
        refuse::<Start>(Value::Object(params))
    };
    let over = |settings: Value| start(json!({"continuation": settings}));
    let configure = |settings: Value| refuse::<Configure>(json!({"session_id": "s", "continuation": settings}));
    let send = |content: Value| refuse::<SendUserMessage>(json!({"session_id": "s", "content": content}));
    let control = |more: Value| {
        let mut params = object(json!({"session_id": "s"}));
        params.extend(object(more));
        refuse::<ControlReason>(Value::Object(params))
    };
    let answer = |more: Value| {
        let sha = "0".repeat(64);
        let mut params = json!({"session_id": "s", "gate": "c", "arguments_sha256": sha, "decision": "approve"});
        object(more).into_iter().for_each(|(field, value)| params[field] = value);
        refuse::<Answer>(params)
    };
    let answer_call = |more: Value| {
        let mut params = json!({"session_id": "s", "call": "c1-1-1", "outcome": "ok", "content": "x"});
        object(more).into_iter().for_each(|(field, value)| params[field] = value);
        refuse::<AnswerToolCall>(params)
    };
    let client_tools = |count: usize| (0..count).map(|n| json!({"name": format!("t{n}")})).collect::<Vec<_>>();
    let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
    let user = |text: &str| json!({"role": "user", "content": text});
    let part = json!({"type": "text", "text": "x"});
    let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>();
    vec![
        // start
        (refuse::<Start>(json!({})), EmptyMessage, vec!["`prompt`", "interactive"]),
        (start(json!({"prompt": " \n"})), EmptyMessage, vec!["`prompt`", "write something"]),
        (start(json!({"prompt": long(1_048_577)})), TooLarge, vec!["`prompt`", "1048577", "1048576", "file"]),
        (start(json!({"prompt": 7})), BadRequest, vec!["`prompt`", "text, or a list of parts"]),
        (start(json!({"prompt": []})), EmptyMessage, vec!["`prompt`"]),
        (start(json!({"prompt": vec![part.clone(); 65]})), TooLarge, vec!["`prompt`", "65 parts", "64"]),
        (start(json!({"colour": 1})), BadRequest, vec!["colour", "expected one of"]),
        (start(json!({"session_id": "a.b"})), BadRequest, vec!["a.b"]),
        (start(json!({"session_id": 7})), BadRequest, vec!["`session_id`", "string"]),
        (start(json!({"command_id": [1]})), BadRequest, vec!["`command_id`", "string"]),
        (start(json!({"wait": "yes"})), BadRequest, vec!["`wait`", "true or false"]),
        (start(json!({"agent": "E!"})), BadRequest, vec!["`agent`", "E!"]),
        (start(json!({"agent": 1})), BadRequest, vec!["`agent`"]),
        (start(json!({"model": " "})), BadRequest, vec!["`model`", "leave it out"]),
        (start(json!({"client_tools": [{"name": "a b"}]})), BadRequest, vec!["`client_tools[0].name`"]),
        (
            start(json!({"client_tools": [{"name": "a", "x": 1}]})),
            BadRequest,
            vec!["`client_tools[0].x`", "unknown field"],
        ),
        (start(json!({"client_tools": client_tools(129)})), TooLarge, vec!["`client_tools`", "129 tools", "128"]),
        (start(json!({"client_tools": [{"name": "delegate"}]})), BadRequest, vec!["client_tools[0].name", "delegate"]),
        // answer_call
        (answer_call(json!({"outcome": "denied"})), BadRequest, vec!["`outcome`", "denied"]),
        (answer_call(json!({"call": "a.b"})), BadRequest, vec!["`call`", "a.b"]),
        (answer_call(json!({"content": long(1_048_577)})), TooLarge, vec!["`content`", "1048577", "1048576"]),
        (start(json!({"model": long(1_025)})), TooLarge, vec!["`model`", "1025", "1024"]),
        (start(json!({"interactive": "yes"})), BadRequest, vec!["`interactive`", "boolean"]),
        (
            start(json!({"parent": {"session_id": "p", "call": "c", "slot": 1, "agents": []}})),
            BadRequest,
            vec!["`parent`", "`delegate`"],
        ),
        (start(json!({"messages": vec![user("x"); 1_001]})), TooLarge, vec!["`messages`", "1001", "1000", "latest"]),
        (start(json!({"messages": [user("x"), user(" ")]})), EmptyMessage, vec!["messages[1]"]),
        (start(json!({"messages": [{"role": "assistant", "content": ""}]})), EmptyMessage, vec!["messages[0]"]),
        (start(json!({"messages": [user(&long(1_048_577))]})), TooLarge, vec!["messages[0].content", "1048576"]),
        (
            start(json!({"messages": [{"role": "assistant", "content": long(1_048_577)}]})),
            TooLarge,
            vec!["messages[0]", "1048576"],
        ),
        (
            start(json!({"messages": [{"role": "system", "content": "obey"}]})),
            BadRequest,
            vec!["messages[0]", "system"],
        ),
        (
            start(json!({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]})),
            BadRequest,
            vec!["messages[0]"],
        ),
        (start(json!({"messages": [{"role": "robot", "content": "x"}]})), BadRequest, vec!["messages[0]", "robot"]),
        (
            start(json!({"messages": [{"role": "assistant", "content": "x", "tool_calls": [
                {"function": {"name": "f", "arguments": "{}"}},
            ]}]})),
            BadRequest,
            vec!["messages[0]", "`function`", "`name`, `arguments`, `result`"],
        ),
        (
            start(
                json!({"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "result": long(1_048_577)}]}]}),
            ),
            TooLarge,
            vec!["messages[0].tool_calls[0].result", "1048576"],
        ),
        (
            start(json!({"messages": [{"role": "assistant", "content": "x", "replay": {
                "family": "f", "model": "m", "parts": [nested(35)],
            }}]})),
            BadRequest,
            vec!["messages[0].replay", "32"],
        ),
        (
            start(json!({"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
            ]}]})),
            BadRequest,
            vec!["messages[0].content", "image_url", "https:"],
        ),
        (start(json!({"resume_from": {"session_id": "a b"}})), BadRequest, vec!["resume_from.session_id"]),
        (start(json!({"resume_from": {"session_id": "a", "at": -1}})), BadRequest, vec!["resume_from.at", "u64"]),
        (start(json!({"parameters": {"a": nested(34)}})), BadRequest, vec!["`parameters`", "34", "32", "flatten"]),
        (start(json!({"parameters": {"a": long(16 << 10)}})), TooLarge, vec!["`parameters`", "16384"]),
        (start(json!({"parameters": {"a": vec![1; 1_024]}})), TooLarge, vec!["`parameters`", "1024"]),
        (start(json!({"parameters": [1]})), BadRequest, vec!["`parameters`", "map"]),
        (start(json!({"features": {"enable": names(65)}})), TooLarge, vec!["features.enable", "65", "64"]),
        (start(json!({"features": {"disable": [""]}})), BadRequest, vec!["features.disable[0]"]),
        (start(json!({"features": {"enable": ["a"], "disable": ["a"]}})), BadRequest, vec!["features", "\"a\""]),
        (start(json!({"features": {"on": []}})), BadRequest, vec!["features", "`on`", "expected"]),
        (start(json!({"tools": names(257)})), TooLarge, vec!["`tools`", "257", "256", "leave"]),
        (start(json!({"tools": ["fine", "not fine"]})), BadRequest, vec!["tools[1]", "tools.list"]),
        (start(json!({"streaming": {"enabeld": false}})), BadRequest, vec!["streaming", "enabeld", "`enabled`"]),
        (
            start(json!({"ai_config": {"streaming": {"idle": 0}}})),
            BadRequest,
            vec!["ai_config.streaming.idle", "got 0"],
        ),
        (start(json!({"streaming": {"idle": 0}})), BadRequest, vec!["streaming.idle", "1 to 3600 seconds", "got 0"]),
        (start(json!({"streaming": {"connect": u64::MAX}})), BadRequest, vec!["streaming.connect", "3600"]),
        (start(json!({"streaming": {"first_byte": 3_601}})), BadRequest, vec!["streaming.first_byte", "3600"]),
        (start(json!({"streaming": {"chunk_ms": 10_001}})), BadRequest, vec!["streaming.chunk_ms", "10000"]),
        (start(json!({"streaming": {"chunk_bytes": 1_048_577}})), BadRequest, vec!["streaming.chunk_bytes"]),
        // continuation
        (over(json!({"max_iterations": 0})), BadRequest, vec!["continuation.max_iterations", "1 to 200", "got 0"]),
        (over(json!({"max_iterations": 201})), BadRequest, vec!["continuation.max_iterations", "got 201"]),
        (over(json!({"max_iterations": "5"})), BadRequest, vec!["continuation.max_iterations", "u32"]),
        (over(json!({"timeout": 0})), BadRequest, vec!["continuation.timeout", "1 to 604800 seconds"]),
        (
            over(json!({"timeout": 1_000_000_000_000_000_000_u64})),
            BadRequest,
            vec!["continuation.timeout", "got 1000000000000000000"],
        ),
        (over(json!({"timeout": -1})), BadRequest, vec!["continuation.timeout"]),
        (over(json!({"patience": 1})), BadRequest, vec!["continuation", "patience", "expected one of"]),
        (over(json!({"on_limit": "shout"})), BadRequest, vec!["continuation.on_limit", "shout", "expected"]),
        (over(json!({"limits": {"tokens": u64::MAX}})), BadRequest, vec!["continuation.limits.tokens", "got"]),
        (over(json!({"limits": {"cost_usd": -1.0}})), BadRequest, vec!["continuation.limits.cost_usd", "got -1"]),
        (over(json!({"limits": {"cost_usd": 1e300}})), BadRequest, vec!["continuation.limits.cost_usd"]),
        (over(json!({"limits": {"tool_calls": u32::MAX}})), BadRequest, vec!["continuation.limits.tool_calls"]),
        (over(json!({"limits": {"repetition": u32::MAX}})), BadRequest, vec!["continuation.limits.repetition"]),
        (over(json!({"limits": {"no_progress": u32::MAX}})), BadRequest, vec!["continuation.limits.no_progress"]),
        (over(json!({"patterns": vec!["a"; 33]})), BadRequest, vec!["continuation.continuation_patterns", "33", "32"]),
        (
            over(json!({"termination_patterns": ["a", "b ("]})),
            BadRequest,
            vec!["continuation.termination_patterns[1]", "unclosed group at its character 3"],
        ),
        (
            over(json!({"patterns": [r"(\w{1,1000}){1,1000}"]})),
            BadRequest,
            vec!["continuation.continuation_patterns[0]", "repeat less"],
        ),
        (over(json!({"patterns": [7]})), BadRequest, vec!["continuation", "string"]),
        // configure
        (refuse::<Configure>(json!({"session_id": "s"})), BadRequest, vec!["nothing to change", "`model`"]),
        (refuse::<Configure>(json!({"session_id": "s", "prompt": "e"})), BadRequest, vec!["prompt", "expected one of"]),
        (refuse::<Configure>(json!({"session_id": "s", "model": ""})), BadRequest, vec!["`model`"]),
        (refuse::<Configure>(json!({"model": "m"})), BadRequest, vec!["`session_id`"]),
        (configure(json!({"timeout": 604_801})), BadRequest, vec!["continuation.timeout", "604800"]),
        (configure(json!({"patterns": ["["]})), BadRequest, vec!["continuation.continuation_patterns[0]"]),
        // send
        (refuse::<SendUserMessage>(json!({"text": "x"})), BadRequest, vec!["session_id"]),
        (refuse::<SendUserMessage>(json!({"session_id": "s"})), EmptyMessage, vec!["`content`"]),
        (
            refuse::<SendUserMessage>(json!({"session_id": "s", "text": "a", "content": "b"})),
            BadRequest,
            vec!["`text`", "`content`"],
        ),
        (
            refuse::<SendUserMessage>(json!({"session_id": "s", "text": "x", "mode": "shout"})),
            BadRequest,
            vec!["`mode`", "shout", "expected"],
        ),
        (send(json!("")), EmptyMessage, vec!["`content`"]),
        (send(json!([{"type": "text", "text": ""}])), EmptyMessage, vec!["`content`"]),
        (send(json!([{"type": "sound"}])), BadRequest, vec!["`content`", "list of parts"]),
        (send(json!(vec![part; 65])), TooLarge, vec!["`content`", "64"]),
        (send(json!([{"type": "image_url", "image_url": {"url": "gopher://x"}}])), BadRequest, vec!["`content`[0]"]),
        // pause, resume, stop, clear
        (control(json!({"wait": 1})), BadRequest, vec!["`wait`"]),
        (control(json!({"no_wait": null})), BadRequest, vec!["`no_wait`"]),
        (control(json!({"reason": long(4_097)})), TooLarge, vec!["`reason`", "4097", "4096", "shorten"]),
        (control(json!({"reason": 7})), BadRequest, vec!["`reason`", "string"]),
        (control(json!({"why": "x"})), BadRequest, vec!["why"]),
        (refuse::<ControlReason>(json!({"session_id": 7})), BadRequest, vec!["session_id"]),
        (refuse::<ControlReason>(json!({"session_id": long(65)})), BadRequest, vec!["64"]),
        // answer
        (answer(json!({"decision": "maybe"})), BadRequest, vec!["`decision`", "maybe", "expected"]),
        (answer(json!({"arguments_sha256": "0"})), BadRequest, vec!["`arguments_sha256`", "64 hex digits"]),
        (answer(json!({"arguments_sha256": "A".repeat(64)})), BadRequest, vec!["`arguments_sha256`", "lower case"]),
        (answer(json!({"gate": "a b"})), BadRequest, vec!["`gate`"]),
        (answer(json!({"approved": true})), BadRequest, vec!["approved"]),
        (answer(json!({"arguments": {"a": nested(34)}})), BadRequest, vec!["`arguments`", "32"]),
        (answer(json!({"arguments": {"a": long(1 << 20)}})), TooLarge, vec!["`arguments`", "1048576"]),
        (answer(json!({"content": long(65_537)})), TooLarge, vec!["`content`", "65536"]),
        (answer(json!({"note": long(4_097)})), TooLarge, vec!["`note`", "4096"]),
    ]
}

#[test]
fn wrong_command_is_refused_with_code_field_and_remedy() {
    let wrong: Vec<String> = refusals()
        .into_iter()
        .filter(|((code, message), wanted, parts)| code != wanted || parts.iter().any(|part| !message.contains(part)))
        .map(|((code, message), wanted, parts)| format!("{code} {message:.300} is not {wanted} with {parts:?}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn largest_allowed_command_is_accepted() {
    let nested = (2..contract::limits::JSON_DEPTH_MAX).fold(json!([1]), |inner, _| json!([inner]));
    let names: Vec<String> = (0..contract::limits::FEATURES_MAX).map(|n| format!("n{n}")).collect();
    let params = json!({
        "prompt": "x".repeat(contract::limits::MESSAGE_BYTES_MAX),
        "messages": vec![
            json!({"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{}", "result": "x"}]});
            contract::limits::START_MESSAGES_MAX
        ],
        "parameters": {"a": nested},
        "features": {"enable": names},
        "tools": (0..contract::limits::SESSION_TOOLS_MAX).map(|n| format!("t{n}")).collect::<Vec<_>>(),
        "continuation": {
            "max_iterations": 200, "timeout": 604_800, "continuation_patterns": vec!["a"; 32],
            "limits": {"tokens": 1_000_000_000_000_u64, "cost_usd": 1_000_000, "tool_calls": null, "repetition": 0},
        },
        "streaming": {"enabled": true, "chunk_ms": 10_000, "chunk_bytes": 1 << 20, "connect": 1, "idle": 3_600},
    });
    check_size("the frame", &params.to_string()).unwrap();
    accept::<Start>(params);
}

#[test]
fn oversized_json_is_refused_before_parsing() {
    for (text, code, part) in [
        ("[".repeat(1 << 20), ErrorCode::BadRequest, "nested 1048576 levels deep, at most 40"),
        (format!("[{}0]", "0,".repeat(1 << 20)), ErrorCode::TooLarge, "at most 32768"),
        (format!("{{{}}}", r#""a":{},"#.repeat(90_000)), ErrorCode::TooLarge, "values and names"),
    ] {
        let error = check_size("the frame", &text).unwrap_err();
        assert_eq!(error.code, code);
        assert!(error.message.contains(part), "{}", error.message);
    }
}

#[test]
fn send_with_text_or_content_gives_same_field() {
    let command = accept::<SendUserMessage>(json!({"session_id": "s", "text": "hi", "mode": "queue"}));
    assert_eq!((command.body.content, command.body.mode), (Content::from("hi"), MessageMode::Queue));
    let parts = json!({"session_id": "s", "content": [{"type": "text", "text": "hi"}]});
    accept::<SendUserMessage>(parts);
    assert_eq!(parse_word::<AnswerDecision>("decision", "deny").unwrap(), AnswerDecision::Deny);
}
