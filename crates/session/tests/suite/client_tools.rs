//! Tools that a client brings: what the model sees, who may answer, and what becomes of a call without an answer.

use std::time::Duration;

use contract::client_tool::{AnswerToolCall, ClientOutcome, ClientTool, OpenClientCall, Performer};
use contract::command::{AnswerDecision, Configure, MessageMode, SendUserMessage, Start, Verb};
use contract::event::{ClientCallOpened, Event, ToolCallResult};
use contract::ids::CallAttempt;
use contract::limits::{
    CLIENT_CALL_SHOWN_BYTES, CLIENT_RESULT_BYTES_MAX, CLIENT_TOOL_TIMEOUT_DEFAULT, CLIENT_TOOL_TIMEOUT_MAX,
    CLIENT_TOOLS_BYTES_MAX, CLIENT_TOOLS_MAX, TOOL_OUTPUT_BYTES_MAX, TOOL_SCHEMA_BYTES_MAX,
};
use contract::model::Content;
use contract::settings::{ContinuationSettings, LimitAction};
use contract::tool::{ApprovalPolicy, EffectClass, Outcome};
use contract::{CallId, Json, Timestamp, ToolName};
use serde_json::{Value, json};
use session::{Body, SessionEffect, Wait};

use crate::talk::{Cast, Talk, rule};

const CLICK: &str = r#"{"click":"ok"}"#;
const LOOK: &str = r#"{"path":"a"}"#;

fn tool(name: &str) -> ClientTool {
    ClientTool {
        name: ToolName::new(name).unwrap(),
        description: "Clicks.".to_owned(),
        parameters: Json::of(&json!({"type": "object"})),
        effect: EffectClass::default(),
        timeout_ms: None,
        max_output: None,
    }
}

/// A session whose client brings these tools, asked for something.
fn with(tools: Vec<ClientTool>, cast: Cast) -> Talk {
    let start = Start {
        prompt: Some(Content::Text("Do it.".to_owned())),
        interactive: true,
        client_tools: tools,
        ..Start::default()
    };
    let mut talk = Talk::not_started("s");
    talk.start("start", start, Ok(cast));
    talk
}

fn begin() -> Talk {
    with(vec![tool("click")], Cast::default())
}

/// The calls that wait for a client.
fn waiting(talk: &Talk) -> Vec<OpenClientCall> {
    talk.session.summary().client_calls
}

fn answer_call(talk: &mut Talk, call: &str, outcome: ClientOutcome, content: &str) {
    let call = CallId::new(call).unwrap();
    let answer = AnswerToolCall { call, outcome, content: content.to_owned() };
    talk.command(Verb::AnswerToolCall, Body::AnswerToolCall(answer));
}

fn answer_ok(talk: &mut Talk, call: &str) {
    answer_call(talk, call, ClientOutcome::Ok, "done");
}

/// Code and text of the refusal of the last input.
fn refusal(talk: &Talk) -> (String, String) {
    let (_, commit) = talk.log.last().unwrap();
    let found = commit.events.iter().find_map(|event| match event {
        Event::InputIgnored(ignored) => Some(ignored.refusal.clone()),
        _ => None,
    });
    found.map(|refusal| (refusal.code.to_string(), refusal.message)).unwrap_or_default()
}

fn last_result(talk: &Talk) -> ToolCallResult {
    let found = talk.events.iter().rev().find_map(|event| match event {
        Event::ToolCallResult(result) => Some(result.clone()),
        _ => None,
    });
    found.unwrap()
}

fn opened(talk: &Talk) -> ClientCallOpened {
    let found = talk.events.iter().rev().find_map(|event| match event {
        Event::ClientCallOpened(opened) => Some(opened.clone()),
        _ => None,
    });
    found.unwrap()
}

/// Names of the tools that the open model call offers.
fn offered(talk: &Talk) -> Vec<String> {
    let name = |tool: &Json| {
        let value: Value = serde_json::from_str(tool.get()).unwrap();
        value["function"]["name"].as_str().or(value["name"].as_str()).unwrap().to_owned()
    };
    talk.item().tools.iter().map(name).collect()
}

#[test]
fn client_tool_is_offered_beside_the_tools_of_the_agent_however_they_are_narrowed() {
    for (tools, expected) in [
        (None, vec!["act", "ask_user", "delegate", "look", "click"]),
        (Some(vec!["look".to_owned()]), vec!["look", "click"]),
        (Some(vec![]), vec!["click"]),
    ] {
        let start = Start {
            prompt: Some(Content::Text("Do it.".to_owned())),
            interactive: true,
            client_tools: vec![tool("click")],
            tools,
            ..Start::default()
        };
        let mut talk = Talk::not_started("s");
        talk.start("start", start, Ok(Cast::default()));
        let mut names = offered(&talk);
        let asked = names.iter().any(|name| name == contract::model::SIGNAL_TOOL);
        names.retain(|name| name != contract::model::SIGNAL_TOOL);
        // The prompt is composed for the tools of the agent: without them it asks for a signal in prose.
        assert_eq!((asked, names), (expected.len() > 1, expected.iter().map(ToString::to_string).collect()));
    }
}

#[test]
fn call_of_a_client_tool_waits_for_its_client_and_no_worker_is_asked() {
    let mut talk = begin();
    talk.reply("", &[CLICK]);
    let expected = ClientCallOpened {
        call: CallId::tool(1, 1, 1),
        tool: ToolName::new("click").unwrap(),
        arguments: Json::parse(CLICK).unwrap(),
        effect: EffectClass::AtMostOnce,
        max_output: TOOL_OUTPUT_BYTES_MAX,
        deadline: Timestamp::from_millis(talk.now).after(CLIENT_TOOL_TIMEOUT_DEFAULT),
    };
    assert_eq!(opened(&talk), expected);
    let asks = |effect: &SessionEffect| matches!(effect, SessionEffect::CallTool(_) | SessionEffect::StartChild(_));
    assert!(!talk.effects.iter().chain(&talk.session.outstanding()).any(asks), "{:?}", talk.effects);
    assert!(talk.effects.contains(&SessionEffect::Index), "lists show it");
    assert!(talk.session.open_calls().is_empty(), "no worker may run it");
    assert_eq!(talk.session.tool_item(&CallAttempt { call: expected.call.clone(), attempt: 1 }), None);
    let call = OpenClientCall {
        call: expected.call,
        tool: expected.tool,
        arguments: CLICK.to_owned(),
        shortened: false,
        since: Timestamp::from_millis(talk.now),
        deadline: expected.deadline,
    };
    assert_eq!(waiting(&talk), std::slice::from_ref(&call));
    assert_eq!(talk.session.waits(), [Wait::ClientCall(call)]);

    talk.now += 1_500;
    talk.by = Some("browser".to_owned());
    answer_call(&mut talk, "c1-1-1", ClientOutcome::Ok, "clicked");
    let result = last_result(&talk);
    assert_eq!((result.outcome, result.content.as_str(), result.duration_ms), (Outcome::Ok, "clicked", 1_500));
    assert_eq!((result.performer, result.by.as_deref()), (Performer::Client, Some("browser")));
    assert_eq!(talk.model_call().call.as_str(), "m1-2");
    assert!(waiting(&talk).is_empty() && talk.effects.contains(&SessionEffect::Index));
}

#[test]
fn client_that_cannot_perform_a_call_reports_an_error() {
    let mut talk = begin();
    talk.reply("", &[CLICK]);
    answer_call(&mut talk, "c1-1-1", ClientOutcome::Error, "no such button");
    let result = last_result(&talk);
    assert_eq!((result.outcome, result.content.as_str()), (Outcome::Error, "no such button"));
    assert_eq!(result.code, Some(contract::ErrorCode::ToolError));
}

#[test]
fn answer_to_a_call_that_takes_none_is_refused_with_the_reason() {
    let mut talk = with(vec![tool("click")], Cast { approvals: vec![], ..Cast::default() });
    talk.reply("", &[CLICK, LOOK, CLICK]);
    for (call, code, part) in [
        ("c1-1-2", "bad_request", "performed by the fleet"),
        ("c1-1-9", "unknown_call", "no such call"),
        ("c2-1-1", "unknown_call", "no such call"),
    ] {
        answer_ok(&mut talk, call);
        let (found, message) = refusal(&talk);
        assert_eq!(found, code, "{call}: {message}");
        assert!(message.contains(call) && message.contains(part), "{message}");
    }
    answer_ok(&mut talk, "c1-1-1");
    for outcome in [ClientOutcome::Ok, ClientOutcome::Error] {
        answer_call(&mut talk, "c1-1-1", outcome, "again");
        let (code, message) = refusal(&talk);
        assert!(code == "not_now" && message.contains("has its result already, with the outcome ok"), "{message}");
    }
    answer_ok(&mut talk, "c1-1-3");
    talk.results("found");
    assert_eq!(talk.model_call().call.as_str(), "m1-2");
    answer_ok(&mut talk, "c1-1-1");
    let (code, message) = refusal(&talk);
    assert!(code == "not_now" && message.contains("no answer changes it"), "{message}");
}

#[test]
fn result_or_extension_of_an_executor_for_a_call_of_a_client_is_ignored() {
    let mut talk = with(vec![ClientTool { timeout_ms: Some(60_000), ..tool("click") }], Cast::default());
    talk.reply("", &[CLICK]);
    let call = CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 };
    talk.result_of("c1-1-1-1", call.clone(), Outcome::Ok, "forged");
    assert_eq!(talk.refused(), Some("not_now"));
    let deadline = waiting(&talk)[0].deadline;
    talk.extend(&call, deadline.after(Duration::from_mins(1)));
    assert_eq!((talk.refused(), waiting(&talk)[0].deadline), (Some("not_now"), deadline));
}

#[test]
fn call_without_an_answer_times_out_and_a_late_true_answer_replaces_that() {
    for (effect, unknown) in [(EffectClass::Pure, false), (EffectClass::AtMostOnce, true)] {
        let click = ClientTool { effect, timeout_ms: Some(60_000), ..tool("click") };
        let mut talk = with(vec![click, tool("other")], Cast::default());
        talk.reply("", &[CLICK, LOOK]);
        talk.wait(Duration::from_millis(59_999));
        assert_eq!(waiting(&talk).len(), 1);
        talk.wait(Duration::from_millis(1));
        let result = last_result(&talk);
        assert_eq!((result.outcome, result.performer, result.by), (Outcome::Timeout, Performer::Client, None));
        assert!(result.content.starts_with("the client did not answer in time"), "{}", result.content);
        assert_eq!(result.content.contains("may or may not have taken effect"), unknown, "{}", result.content);
        let cancels = talk.events.iter().any(|event| matches!(event, Event::CallCancelled(_)));
        assert!(waiting(&talk).is_empty() && !cancels, "no worker has anything to cancel");

        answer_call(&mut talk, "c1-1-1", ClientOutcome::Error, "too late");
        assert_eq!(talk.refused(), Some("not_now"), "only the truth counts late");
        answer_ok(&mut talk, "c1-1-1");
        let late = last_result(&talk);
        assert!(late.replaces && late.outcome == Outcome::Ok && late.content == "done", "{late:?}");
        talk.results("found");
        let read = talk.session.messages().iter().filter(|m| m.get().contains("did not answer")).count();
        assert_eq!(read, 0, "the model reads the late answer alone");
    }
}

#[test]
fn turn_alone_with_a_client_uses_none_of_its_time() {
    let settings = ContinuationSettings { timeout: 100, on_limit: LimitAction::End, ..ContinuationSettings::default() };
    let mut talk = with(vec![tool("click")], Cast { continuation: settings.clone(), ..Cast::default() });
    talk.wait(Duration::from_secs(50));
    talk.reply("", &[CLICK]);
    talk.wait(Duration::from_mins(50));
    answer_ok(&mut talk, "c1-1-1");
    assert_eq!(talk.stop_reason(), None);
    talk.wait(Duration::from_secs(49));
    assert_eq!(talk.stop_reason(), None);
    talk.wait(Duration::from_secs(1));
    assert_eq!(talk.stop_reason(), Some("timeout"), "half of its time was left");

    // Beside a call of the fleet time goes on, and both end with the turn.
    let mut talk = with(vec![tool("click")], Cast { continuation: settings, ..Cast::default() });
    talk.reply("", &[CLICK, r#"{"agent":"p","task":"plan"}"#]);
    talk.wait(Duration::from_secs(100));
    assert_eq!(talk.stop_reason(), Some("timeout"));
    let clients = talk.events.iter().find_map(|event| match event {
        Event::ToolCallResult(result) if result.performer == Performer::Client => Some(result.outcome),
        _ => None,
    });
    assert_eq!(clients, Some(Outcome::Unknown));
}

#[test]
fn stop_cancels_a_call_that_waits_and_its_result_says_so() {
    let mut talk = begin();
    talk.reply("", &[CLICK]);
    talk.stop();
    let result = last_result(&talk);
    assert_eq!((result.outcome, result.performer), (Outcome::Cancelled, Performer::Client));
    assert!(!talk.events.iter().any(|event| matches!(event, Event::CallCancelled(_))));
    answer_ok(&mut talk, "c1-1-1");
    assert_eq!(talk.refused(), Some("session_ended"));
    assert!(waiting(&talk).is_empty());
}

#[test]
fn deadline_of_a_client_call_stands_still_in_a_pause() {
    let mut talk = begin();
    talk.reply("", &[CLICK]);
    let deadline = waiting(&talk)[0].deadline;
    talk.wait(Duration::from_mins(30));
    talk.pause();
    talk.wait(Duration::from_hours(5));
    assert_eq!(waiting(&talk).len(), 1);
    talk.resume();
    assert_eq!(waiting(&talk)[0].deadline, deadline.after(Duration::from_hours(5)));
    talk.wait(Duration::from_mins(30));
    assert_eq!(talk.result().0, Outcome::Timeout);

    let mut talk = begin();
    talk.reply("", &[CLICK]);
    talk.pause();
    answer_ok(&mut talk, "c1-1-1");
    assert_eq!((talk.result().0, talk.open().len()), (Outcome::Ok, 0), "it may answer in a pause");
    answer_ok(&mut talk, "c1-1-1");
    assert_eq!(talk.refused(), Some("not_now"), "all calls have their results, and no step has read them");
    talk.resume();
    assert_eq!(talk.model_call().call.as_str(), "m1-2");
}

#[test]
fn approval_rule_of_the_agent_holds_for_a_client_tool() {
    let approvals = vec![rule("click", ApprovalPolicy::Always)];
    let mut talk = with(vec![tool("click")], Cast { approvals, ..Cast::default() });
    talk.reply("", &[CLICK]);
    assert!(waiting(&talk).is_empty());
    answer_ok(&mut talk, "c1-1-1");
    let (code, message) = refusal(&talk);
    assert!(code == "not_now" && message.contains("approval"), "{message}");
    talk.answer_with(AnswerDecision::Approve, |answer| {
        answer.arguments = Some(Json::parse(r#"{"click":"cancel"}"#).unwrap());
    });
    assert_eq!(opened(&talk).arguments.get(), r#"{"click":"cancel"}"#);
    answer_ok(&mut talk, "c1-1-1");
    assert!(talk.result().1.starts_with("(A person changed the arguments to"), "{}", talk.result().1);
}

#[test]
fn tools_of_a_message_hold_from_the_step_that_reads_it() {
    let message = |text: &str, mode, name: &str| SendUserMessage {
        client_tools: Some(vec![tool(name)]),
        ..SendUserMessage::new(Content::Text(text.to_owned()), mode)
    };
    let clients = |talk: &Talk| offered(talk).last().cloned().unwrap();
    let mut talk = with(vec![tool("click")], Cast { model: plain_model(), ..Cast::default() });
    talk.command(Verb::SendUserMessage, Body::Send(message("next", MessageMode::Queue, "later")));
    talk.command(Verb::SendUserMessage, Body::Send(message("also", MessageMode::Steer, "now")));
    assert_eq!(clients(&talk), "click");
    // The call that is open keeps its client, whatever the tools are by then.
    talk.reply("", &[CLICK]);
    answer_ok(&mut talk, "c1-1-1");
    assert_eq!(clients(&talk), "now", "the step that reads the steering message");
    talk.reply("All done.", &[]);
    assert_eq!((talk.session.turns(), clients(&talk)), (2, "later".to_owned()));
    talk.configure(Configure { client_tools: Some(Vec::new()), ..Configure::default() }, None);
    talk.reply("", &[CLICK]);
    assert!(talk.result().1.contains("there is no tool \"click\""), "{}", talk.result().1);
    assert_eq!(clients(&talk), "look");
}

/// A model that signals by words, so that its last tool is that of the client.
fn plain_model() -> contract::settings::ModelSettings {
    contract::settings::ModelSettings { multi_tool: false, max_parallel_tools: 1, ..Default::default() }
}

#[test]
fn client_tool_with_the_name_of_an_agents_tool_is_refused_wherever_it_comes() {
    let taken = || vec![tool("click"), tool("look")];
    let mut talk = with(taken(), Cast::default());
    let (code, message) = refusal(&talk);
    assert!(code == "bad_request" && message.contains("\"look\"") && message.contains("agent"), "{message}");
    talk.start("other", Start { interactive: true, ..Start::default() }, Ok(Cast::default()));
    let sent = SendUserMessage {
        client_tools: Some(taken()),
        ..SendUserMessage::new(Content::Text("Hi".to_owned()), MessageMode::Queue)
    };
    talk.command(Verb::SendUserMessage, Body::Send(sent));
    assert_eq!(talk.refused(), Some("bad_request"));
    talk.configure(Configure { client_tools: Some(taken()), ..Configure::default() }, None);
    assert_eq!(talk.refused(), Some("bad_request"));

    // A tool of that name that comes later stays behind the client's.
    let mut talk = begin();
    talk.more_tools.push(tool("click").spec());
    talk.reply("All done.", &[]);
    talk.send_message("More.", MessageMode::Queue);
    assert_eq!(offered(&talk).iter().filter(|name| *name == "click").count(), 1);
    talk.reply("", &[CLICK]);
    assert_eq!(waiting(&talk).len(), 1);
}

#[test]
fn client_tools_over_a_limit_or_malformed_are_refused_with_the_reason() {
    let schema = |value: Value| ClientTool { parameters: Json::of(&value), ..tool("click") };
    let mut deep = json!({"type": "object"});
    for _ in 0..40 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    let long = "x".repeat(TOOL_SCHEMA_BYTES_MAX);
    let numbered = |count: usize| (0..count).map(|n| tool(&format!("t{n}"))).collect::<Vec<_>>();
    let large = |tool: ClientTool| ClientTool { description: "d".repeat(CLIENT_TOOLS_BYTES_MAX / 8), ..tool };
    let day = u64::try_from(CLIENT_TOOL_TIMEOUT_MAX.as_millis()).unwrap();
    for (tools, code, part) in [
        (vec![tool("ask_user")], "bad_request", "client_tools[0].name: the loop itself performs ask_user"),
        (vec![tool("delegate")], "bad_request", "delegate"),
        (vec![tool("continuation")], "bad_request", "continuation"),
        (vec![tool("a"), tool("b"), tool("a")], "bad_request", "client_tools[2].name"),
        (vec![schema(json!([1]))], "bad_request", "client_tools[0].parameters"),
        (vec![schema(json!({"type": "array"}))], "bad_request", "\"type\": \"object\""),
        (vec![schema(json!({}))], "bad_request", "\"type\": \"object\""),
        (vec![schema(deep)], "bad_request", "levels deep"),
        (vec![schema(json!({"type": "object", "description": long}))], "too_large", "client_tools[0].parameters"),
        (numbered(CLIENT_TOOLS_MAX + 1), "too_large", "at most 128"),
        (numbered(9).into_iter().map(large).collect(), "too_large", "at most 262144"),
        (vec![ClientTool { timeout_ms: Some(0), ..tool("a") }], "bad_request", "timeout_ms"),
        (vec![ClientTool { timeout_ms: Some(day + 1), ..tool("a") }], "bad_request", "1 to 86400000"),
        (vec![ClientTool { max_output: Some(TOOL_OUTPUT_BYTES_MAX + 1), ..tool("a") }], "bad_request", "max_output"),
    ] {
        let mut talk = with(tools.clone(), Cast::default());
        let (found, message) = refusal(&talk);
        assert!(found == code && message.contains(part), "{found}: {message}, not {code}: {part}");
        talk.start("other", Start { interactive: true, ..Start::default() }, Ok(Cast::default()));
        let sent = SendUserMessage {
            client_tools: Some(tools.clone()),
            ..SendUserMessage::new(Content::Text("Hi".to_owned()), MessageMode::Queue)
        };
        talk.command(Verb::SendUserMessage, Body::Send(sent));
        assert_eq!(refusal(&talk), (found.clone(), message.clone()));
        talk.configure(Configure { client_tools: Some(tools), ..Configure::default() }, None);
        assert_eq!(refusal(&talk), (found, message));
    }
    let all = with(numbered(CLIENT_TOOLS_MAX), Cast::default());
    assert_eq!(all.refused(), None);
    assert_eq!(all.item().tools.len(), 4 + CLIENT_TOOLS_MAX + 1);
}

#[test]
fn long_answer_is_cut_to_what_the_model_reads_and_a_longer_one_is_refused() {
    let click = || ClientTool { max_output: Some(1_000), ..tool("click") };
    let mut talk = with(vec![click()], Cast::default());
    talk.reply("", &[CLICK]);
    answer_call(&mut talk, "c1-1-1", ClientOutcome::Ok, &"x".repeat(CLIENT_RESULT_BYTES_MAX + 1));
    let (code, message) = refusal(&talk);
    assert!(code == "too_large" && message.contains("`content`"), "{message}");
    answer_call(&mut talk, "c1-1-1", ClientOutcome::Ok, &"x".repeat(CLIENT_RESULT_BYTES_MAX));
    let read = talk.result().1;
    assert!(read.len() <= 1_000 && read.contains("bytes left out"), "{} bytes", read.len());
}

#[test]
fn long_arguments_are_shortened_in_lists_and_whole_where_one_session_is_asked() {
    let mut talk = begin();
    let long = format!(r#"{{"click":"{}"}}"#, "y".repeat(CLIENT_CALL_SHOWN_BYTES));
    talk.reply("", &[&long]);
    let shown = &waiting(&talk)[0];
    assert!(shown.shortened && shown.arguments.len() == CLIENT_CALL_SHOWN_BYTES);
    assert_eq!(talk.session.client_calls()[0].arguments, long);
    assert_eq!(opened(&talk).arguments.get(), long);
}

#[test]
fn calls_of_clients_and_of_the_fleet_run_at_the_same_time() {
    let mut talk = begin();
    talk.reply("", &[CLICK, LOOK, CLICK, CLICK, CLICK, CLICK]);
    assert_eq!((waiting(&talk).len(), talk.open().len()), (3, 1), "four at once, of either kind");
    answer_ok(&mut talk, "c1-1-3");
    assert_eq!(waiting(&talk).len(), 3, "the next one takes the free place");
    for call in ["c1-1-1", "c1-1-4", "c1-1-5", "c1-1-6"] {
        answer_ok(&mut talk, call);
    }
    talk.results("found");
    assert_eq!(talk.model_call().call.as_str(), "m1-2");
}
