//! Clients of OpenAI that keep the history themselves: what it says of tools reaches the model.

use ailoop_tests::fleet::TestFleet;
use ailoop_tests::http::Http;
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tool::Tool;
use anyhow::Context as _;
use serde_json::{Value, json};

const CHAT: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";
/// Text that only a result of a tool contains.
const MARKER: &str = "SECRET-42";

/// A fleet whose model sends these replies.
async fn fleet(replies: Vec<ScriptedReply>) -> anyhow::Result<(ModelServer, TestFleet, Http)> {
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    Ok((model, fleet, http))
}

fn done(text: &str) -> ScriptedReply {
    ScriptedReply::signal(text, "TERMINATE")
}

/// Role and text of each message behind the system prompt; of a reply also the names of its calls.
fn shown(request: &RecordedRequest) -> Vec<String> {
    let show = |message: &Value| {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let names = calls.map(|call| call["function"]["name"].as_str().unwrap_or("?"));
        let head: Vec<&str> = message["role"].as_str().into_iter().chain(names).collect();
        format!("{}: {}", head.join(" "), message["content"].as_str().unwrap_or(""))
    };
    request.messages().iter().skip(1).map(show).collect()
}

fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{\"path\":\"a\"}"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_results_in_a_history_reach_the_model() -> anyhow::Result<()> {
    let (model, fleet, http) = fleet(vec![done("As I said."), done("As I said.")]).await?;
    let chat = json!({"model": "e", "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("call_1", "look"), call("call_2", "smell")]},
        {"role": "tool", "tool_call_id": "call_1", "content": MARKER},
        {"role": "assistant", "content": "It is there."},
        {"role": "user", "content": "What was it?"},
    ]});
    let (status, answer) = http.post(CHAT, &chat).await?;
    assert_eq!((status, answer["choices"][0]["message"]["content"].as_str()), (200, Some("As I said.")), "{answer}");
    let response = json!({"model": "e", "input": [
        {"role": "user", "content": "Look."},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{\"path\":\"a\"}"},
        {"type": "function_call", "call_id": "call_2", "name": "smell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": MARKER},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is there."}]},
        {"role": "user", "content": "What was it?"},
    ]});
    let (status, answer) = http.post(RESPONSES, &response).await?;
    assert_eq!((status, &answer["status"]), (200, &json!("completed")), "{answer}");
    let expected = [
        "user: Look.".to_owned(),
        "assistant look smell: I look.".to_owned(),
        format!("tool: {MARKER}"),
        "tool: no result".to_owned(),
        "assistant: It is there.".to_owned(),
        "user: What was it?".to_owned(),
    ];
    for request in model.requests() {
        assert_eq!(shown(&request), expected);
    }
    judge::requests(&model.requests())?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_end_with_results_of_another_server_go_on_from_there() -> anyhow::Result<()> {
    let (model, fleet, http) = fleet(vec![done("It is 42."), done("It is 42.")]).await?;
    let chat = json!({"model": "e", "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": null, "tool_calls": [call("call_abc", "look")]},
        {"role": "tool", "tool_call_id": "call_abc", "content": MARKER},
    ]});
    let (status, answer) = http.post(CHAT, &chat).await?;
    assert_eq!((status, answer["choices"][0]["message"]["content"].as_str()), (200, Some("It is 42.")), "{answer}");
    let response = json!({"model": "e", "input": [
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "call_abc", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_abc", "output": MARKER},
    ]});
    let (status, answer) = http.post(RESPONSES, &response).await?;
    assert_eq!((status, &answer["status"]), (200, &json!("completed")), "{answer}");
    for request in model.requests() {
        let messages = shown(&request);
        assert_eq!(messages[1..3], ["assistant look: ".to_owned(), format!("tool: {MARKER}")], "{messages:?}");
    }
    let lost = json!({"model": "e", "messages": [
        {"role": "user", "content": "Look."}, {"role": "tool", "tool_call_id": "call_abc", "content": MARKER},
    ]});
    let (status, refused) = http.post(CHAT, &lost).await?;
    let message = refused["error"]["message"].as_str().context("a message")?;
    assert!(status == 400 && message.contains("messages[1]") && message.contains("call_abc"), "{refused}");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_that_a_request_refers_to_reach_the_model() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::text("Let me see.").and_calls(&[("price", json!({"of": "tea"}))]),
        done("It costs 42."),
        done("As I said, 42."),
    ];
    let (model, fleet, http) = fleet(replies).await?;
    let tools = json!([{"type": "function", "name": "price", "parameters": {"type": "object"}}]);
    let user = |text: &str| json!({"role": "user", "content": text});
    let refer = |item: &Value| json!({"type": "item_reference", "id": item["id"]});
    let ask = async |input: &[Value]| {
        let (status, answer) = http.post(RESPONSES, &json!({"model": "e", "tools": tools, "input": input})).await?;
        anyhow::ensure!(status == 200, "{answer}");
        Ok(answer["output"].as_array().context("items")?.clone())
    };
    let mut input = vec![user("How much is tea?")];
    let first = ask(&input).await?;
    assert_eq!((&first[0]["type"], &first[1]["type"]), (&json!("message"), &json!("function_call")), "{first:?}");
    input.extend(first.iter().map(refer));
    input.push(json!({"type": "function_call_output", "call_id": first[1]["call_id"], "output": MARKER}));
    let second = ask(&input).await?;
    input.extend(second.iter().map(refer));
    input.push(user("How much?"));
    ask(&input).await?;
    let expected = [
        "user: How much is tea?".to_owned(),
        "assistant price: Let me see.".to_owned(),
        format!("tool: {MARKER}"),
        "assistant: It costs 42.".to_owned(),
        "user: How much?".to_owned(),
    ];
    let requests = model.requests();
    assert_eq!(shown(requests.last().context("a request")?), expected);
    judge::requests(&requests)?;

    for id in ["msg_nobody_0_0", "fc_nobody_c1-1-1", "msg_67ccd3acc8d48190a77525dc6de64b4104becb25c45c1d41", ""] {
        let input = json!([user("Hi"), {"type": "item_reference", "id": id}, user("And?")]);
        let (status, refused) = http.post(RESPONSES, &json!({"model": "e", "input": input})).await?;
        let message = refused["error"]["message"].as_str().context("a message")?;
        assert!(status == 400 && message.contains("input[1]") && message.contains(id), "{refused}");
    }
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_do_not_multiply_what_a_request_weighs() -> anyhow::Result<()> {
    let replies = vec![done(&"x".repeat(1 << 20)), done("Small."), done("Small, too.")];
    let (model, fleet, http) = fleet(replies).await?;
    let mut references = Vec::new();
    for prompt in ["Write much.", "Write little.", "And again."] {
        let (status, answer) = http.post(RESPONSES, &json!({"model": "e", "input": prompt})).await?;
        anyhow::ensure!(status == 200, "{answer}");
        references.push(json!({"type": "item_reference", "id": answer["output"][0]["id"]}));
    }
    let eight_times: Vec<_> = vec![&references[0]; 8];
    let in_turn: Vec<_> = references[1..].iter().cycle().take(65).collect();
    for (referred, why) in [(eight_times, "input[7]: the items"), (in_turn, "input[64]: references")] {
        let (status, refused) = http.post(RESPONSES, &json!({"model": "e", "input": referred})).await?;
        let message = refused["error"]["message"].as_str().context("a message")?;
        assert!(status == 413 && message.starts_with(why), "{status} {message}");
    }
    assert_eq!(model.requests().len(), 3);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_of_a_client_may_have_names_that_are_taken() -> anyhow::Result<()> {
    let calls = [("client_ask_user", json!({"question": "Tea?"})), ("client_read_file", json!({"path": "a"}))];
    let replies =
        vec![ScriptedReply::calls(&calls), done("Tea it is."), done("As I said."), ScriptedReply::calls(&calls)];
    let (model, fleet, http) = fleet(replies).await?;
    let builder = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let _server = builder.with(Tool::new("read_file"), |call| ToolAnswer::Json(call.arguments.clone())).open().await?;
    fleet.wait_for_tools(&["read_file"]).await?;
    let names = ["ask_user", "delegate", "continuation", "read_file", "weather"];
    let tools =
        names.map(|name| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}));
    let mut messages = vec![json!({"role": "user", "content": "Ask me."})];
    let ask = async |messages: &[Value]| {
        let (status, answer) = http.post(CHAT, &json!({"model": "e", "tools": tools, "messages": messages})).await?;
        anyhow::ensure!(status == 200, "{answer}");
        Ok(answer["choices"][0]["message"].clone())
    };
    let asked = ask(&messages).await?;
    let called = asked["tool_calls"].as_array().context("calls")?.clone();
    let found: Vec<&Value> = called.iter().map(|call| &call["function"]["name"]).collect();
    assert_eq!(found, ["ask_user", "read_file"], "the client sees the names that it gave");
    messages.push(asked);
    messages.extend(called.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": "Yes"})));
    assert_eq!(ask(&messages).await?["content"], "Tea it is.");
    messages
        .extend([json!({"role": "assistant", "content": "Tea it is."}), json!({"role": "user", "content": "What?"})]);
    ask(&messages).await?;
    let requests = model.requests();
    let offered = requests[0].tools();
    let given =
        ["client_ask_user", "client_continuation", "client_delegate", "client_read_file", "weather", "read_file"];
    assert!(given.iter().all(|name| offered.contains(name)), "{offered:?}");
    assert_eq!(shown(&requests[2])[1], "assistant client_ask_user client_read_file: ");

    // A front end over AG-UI, too.
    let tools = names.map(|name| json!({"name": name, "description": "", "parameters": {"type": "object"}}));
    let input = json!({
        "threadId": "t", "runId": "r", "tools": tools, "messages": [{"id": "1", "role": "user", "content": "Ask me."}],
    });
    let events = http.events("/ag-ui/e", &input).await?;
    let started: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "TOOL_CALL_START").map(|event| &event["toolCallName"]).collect();
    assert_eq!(started, ["ask_user", "read_file"]);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_results_in_a_new_thread_of_ag_ui_reach_the_model() -> anyhow::Result<()> {
    let (model, fleet, http) = fleet(vec![done("As I said.")]).await?;
    let messages = json!([
        {"id": "1", "role": "user", "content": "Look."},
        {"id": "2", "role": "assistant", "content": "I look.", "toolCalls": [call("call_1", "look")]},
        {"id": "3", "role": "tool", "toolCallId": "call_1", "content": MARKER},
        {"id": "4", "role": "tool", "toolCallId": "call_0", "content": "of a reply that was dropped"},
        {"id": "5", "role": "user", "content": "What was it?"},
    ]);
    http.events("/ag-ui/e", &json!({"threadId": "t", "runId": "r", "messages": messages})).await?;
    let expected = [
        "user: Look.".to_owned(),
        "assistant look: I look.".to_owned(),
        format!("tool: {MARKER}"),
        "user: What was it?".to_owned(),
    ];
    assert_eq!(shown(&model.requests()[0]), expected);
    fleet.end().await
}
