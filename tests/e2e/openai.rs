//! The API of OpenAI with a whole fleet.

use ailoop_tests::fleet::TestFleet;
use ailoop_tests::http::Http;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tests::wait::eventually;
use ailoop_tool::{Approval, Effect, Tool};
use anyhow::Context as _;
use serde_json::{Value, json};

const CHAT: &str = "/openai/v1/chat/completions";

fn chat(text: &str) -> Value {
    json!({"model": "e", "messages": [{"role": "user", "content": text}], "metadata": {"session": "shared"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_to_a_busy_session_gets_the_answer_of_its_own_turn() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |request| {
        let reply = ScriptedReply::signal(&format!("re: {}", request.last_user()), "TERMINATE");
        if request.number == 0 { reply.before(&held) } else { reply }
    })
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    let first = tokio::task::JoinSet::from_iter([{
        let http = http.clone();
        async move { http.post(CHAT, &chat("one")).await }
    }]);
    model.wait_for_requests(1).await;
    let mut streamed = chat("two");
    streamed["stream"] = json!(true);
    let later = async {
        let events = http.events(CHAT, &streamed).await?;
        anyhow::Ok(
            events.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect::<String>(),
        )
    };
    let opened = async {
        let (_, sessions) = http.get("/v1/sessions").await?;
        let session = sessions["sessions"][0]["session_id"].as_str().context("a session")?.to_owned();
        // The second message waits for the end of the first turn.
        eventually("the second message is accepted", async || {
            let found = http.get(&format!("/v1/sessions/{session}")).await;
            found.is_ok_and(|(_, found)| found["seq"].as_u64() >= Some(3))
        })
        .await?;
        gate.open();
        anyhow::Ok(())
    };
    let (later, opened) = tokio::join!(later, opened);
    opened?;
    let first = first.join_all().await.remove(0)?;
    assert_eq!((first.0, first.1["choices"][0]["message"]["content"].as_str()), (200, Some("re: one")));
    assert_eq!(later?, "re: two");
    fleet.end().await
}

const RESPONSES: &str = "/openai/v1/responses";

/// Asks for a response again and again, until it is no longer in progress.
async fn wait_for_response(http: &Http, id: &str) -> anyhow::Result<Value> {
    let mut found = Value::Null;
    eventually("the response has ended", async || {
        let answer = http.get(&format!("{RESPONSES}/{id}")).await;
        found = answer.map(|(_, answer)| answer).unwrap_or_default();
        found["status"].is_string() && found["status"] != "in_progress"
    })
    .await?;
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_in_the_background_survives_the_end_of_every_process() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |_| {
        ScriptedReply::text("Half of ").and_gate(&held).and_text("it.").and_calls(&[done()])
    })
    .await?;
    let mut fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let before = fleet.spawn_all(&["orchestrator", "gateway", "executor"]).await?;
    let edge = fleet.edge().await?;
    let http = Http::new(edge.addresses()?.0)?;
    let request = json!({"model": "e", "input": "go", "background": true});
    let (status, begun) = http.post(RESPONSES, &request).await?;
    assert_eq!((status, &begun["status"]), (200, &json!("in_progress")), "{begun}");
    let id = begun["id"].as_str().context("an id")?;
    model.wait_for_requests(1).await;
    let _after = fleet.replace_all(before, edge).await?;
    gate.open();
    let other = fleet.edge().await?;
    let http = Http::new(other.addresses()?.0)?;
    let found = wait_for_response(&http, id).await?;
    assert_eq!((&found["status"], text_of(&found).as_str()), (&json!("completed"), "Half of it."), "{found}");
    let events = http.events_of_get(&format!("{RESPONSES}/{id}?stream=true&starting_after=5")).await?;
    let delta = events.iter().find(|event| event["type"] == "response.output_text.delta").context("a delta")?;
    assert_eq!(delta["delta"], "alf of it.", "four numbers are for events, and the fifth for a character");
    Ok(())
}

fn done() -> (&'static str, Value) {
    ("continuation", json!({"status": "TERMINATE", "reason": "done"}))
}

/// The text of all messages of a response.
fn text_of(response: &Value) -> String {
    let items = response["output"].as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_that_waits_for_a_person_is_continued_by_the_answer() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(vec![
        ScriptedReply::calls(&[("launch", json!({"to": "the moon"})), ("launch", json!({"to": "mars"}))]),
        ScriptedReply::calls(&[("ask_user", json!({"question": "Which?"}))]),
        ScriptedReply::signal("Green it is.", "TERMINATE"),
    ])
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tool = Tool::new("launch").effect(Effect::AtMostOnce).approval(Approval::Always);
    let builder = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let launched = builder.with(tool, |call| ToolAnswer::Json(call.arguments.clone())).open().await?;
    fleet.wait_for_tools(&["launch"]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    let (_, asked) = http.post(RESPONSES, &json!({"model": "e", "input": "go"})).await?;
    let requests: Vec<&Value> = asked["output"].as_array().context("items")?.iter().collect();
    assert_eq!(requests.len(), 2, "{asked}");
    assert!(requests.iter().all(|item| item["type"] == "mcp_approval_request" && item["name"] == "launch"));
    let answer = |item: &Value, approve: bool| json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve});
    let send =
        |input: Value, previous: &Value| json!({"model": "e", "input": input, "previous_response_id": previous["id"]});
    let (status, refused) = http.post(RESPONSES, &send(json!([answer(requests[0], true)]), &asked)).await?;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("bad_request")), "half of the answers: {refused}");
    let both = json!([answer(requests[0], true), answer(requests[1], false)]);
    let (_, question) = http.post(RESPONSES, &send(both.clone(), &asked)).await?;
    assert_eq!((&question["status"], text_of(&question).as_str()), (&json!("completed"), "Which?"), "{question}");
    let (_, repeated) = http.post(RESPONSES, &send(both, &asked)).await?;
    assert_eq!(repeated["id"], question["id"], "a repeated answer changes nothing");
    let (_, last) = http.post(RESPONSES, &send(json!("Green"), &question)).await?;
    assert_eq!(text_of(&last), "Green it is.", "{last}");
    let retry = [("x-stainless-retry-count", "1")];
    let repeated: Value = serde_json::from_str(
        &http.post_with(RESPONSES, &retry, &send(json!("Green"), &question)).await?.text().await?,
    )?;
    assert_eq!(repeated["id"], last["id"], "a repeated answer to a question begins no turn: {repeated}");
    assert_eq!(model.requests()[2].last_results(), ["Green"]);
    assert_eq!(launched.calls().len(), 1, "one call was allowed");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_answer_to_a_question_answers_no_later_one() -> anyhow::Result<()> {
    let ask = |question: &str| ScriptedReply::calls(&[("ask_user", json!({"question": question}))]);
    let done = ScriptedReply::signal("Done.", "TERMINATE");
    let model = ModelServer::with_replies(vec![ask("Which?"), ask("And then?"), done]).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    let (_, conversation) = http.post("/openai/v1/conversations", &json!({})).await?;
    let say = |text: &str| json!({"model": "e", "input": text, "conversation": conversation["id"]});
    let (_, first) = http.post(RESPONSES, &say("go")).await?;
    assert_eq!(text_of(&first), "Which?");
    let (_, second) = http.post(RESPONSES, &say("Green")).await?;
    assert_eq!(text_of(&second), "And then?");
    let repeated = http.post_with(RESPONSES, &[("x-stainless-retry-count", "1")], &say("Green")).await?;
    let repeated: Value = serde_json::from_str(&repeated.text().await?)?;
    assert_eq!((&repeated["id"], text_of(&repeated)), (&second["id"], "And then?".to_owned()), "{repeated}");
    let (_, last) = http.post(RESPONSES, &say("Red")).await?;
    assert_eq!(text_of(&last), "Done.", "{last}");
    assert_eq!(model.requests()[2].last_results(), ["Red"]);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_to_a_response_that_waits_is_refused_and_names_what_is_missing() -> anyhow::Result<()> {
    let calls = [("launch", json!({"to": "the moon"})), ("price", json!({"of": "fuel"}))];
    let model = ModelServer::with_replies(vec![
        ScriptedReply::calls(&calls),
        ScriptedReply::calls(&calls[1..]),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ])
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tool = Tool::new("launch").effect(Effect::AtMostOnce).approval(Approval::Always);
    let builder = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let _server = builder.with(tool, |call| ToolAnswer::Json(call.arguments.clone())).open().await?;
    fleet.wait_for_tools(&["launch"]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    let tools = json!([{"type": "function", "name": "price", "parameters": {"type": "object"}}]);
    let send = async |input: Value, previous: &Value| {
        let body = json!({"model": "e", "input": input, "tools": tools, "previous_response_id": previous["id"]});
        http.post(RESPONSES, &body).await
    };
    let (_, asked) = send(json!("go"), &json!({})).await?;
    let item = |response: &Value, kind: &str, field: &str| -> anyhow::Result<String> {
        let items = response["output"].as_array().context("items")?;
        let item = items.iter().find(|item| item["type"] == kind).with_context(|| format!("{kind} in {response}"))?;
        Ok(item[field].as_str().context("an id")?.to_owned())
    };
    let approval = item(&asked, "mcp_approval_request", "id")?;
    let price = item(&asked, "function_call", "call_id")?;
    let (status, refused) = send(json!("Hurry up."), &asked).await?;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("approval_required")), "{refused}");
    let message = refused["error"]["message"].as_str().context("a message")?;
    assert!(message.contains(&approval) && message.contains(&price), "{message}");

    let answers = json!([
        {"type": "mcp_approval_response", "approval_request_id": approval, "approve": true},
        {"type": "function_call_output", "call_id": price, "output": "1"},
    ]);
    let (_, asked) = send(answers, &asked).await?;
    let price = item(&asked, "function_call", "call_id")?;
    let (status, refused) = send(json!("Hurry up."), &asked).await?;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("bad_request")), "{refused}");
    assert!(refused["error"]["message"].as_str().is_some_and(|message| message.contains(&price)), "{refused}");
    let output = json!([{"type": "function_call_output", "call_id": price, "output": "2"}]);
    let (_, last) = send(output, &asked).await?;
    assert_eq!(text_of(&last), "Done.", "{last}");
    assert_eq!(model.requests()[2].last_results().len(), 1, "no message of the user came in between");
    fleet.end().await
}
