//! A2A with a whole fleet: streams, gates and cancelled tasks, also after the processes that began them are gone.

use ailoop_tests::fleet::TestFleet;
use ailoop_tests::http::Http;
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tool::{Approval, Effect, Tool};
use anyhow::Context as _;
use contract::subject::SessionKey;
use contract::{SessionId, TenantId};
use reqwest::Response;
use serde_json::{Value, json};

/// Path of an operation of HTTP+JSON; the version may stand in the query.
fn path(operation: &str) -> String {
    format!("/a2a/v1/{operation}?A2A-Version=1.0")
}

fn message(id: &str, text: &str, more: &Value) -> Value {
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
    if let (Some(message), Some(more)) = (message.as_object_mut(), more.as_object()) {
        message.extend(more.clone());
    }
    json!({"message": message})
}

fn now(mut request: Value) -> Value {
    request["configuration"] = json!({"returnImmediately": true});
    request
}

async fn send(http: &Http, request: &Value) -> anyhow::Result<Value> {
    let (status, answer) = http.post(&path("message:send"), request).await?;
    anyhow::ensure!(status == 200, "{answer}");
    Ok(answer["task"].clone())
}

async fn get(http: &Http, task: &str) -> anyhow::Result<Value> {
    let (status, answer) = http.get(&path(&format!("tasks/{task}"))).await?;
    anyhow::ensure!(status == 200, "{answer}");
    Ok(answer)
}

/// Reads a stream to its end.
async fn read_events(stream: Response) -> anyhow::Result<Vec<Value>> {
    let text = stream.text().await?;
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).context("an event")).collect()
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

/// Builds the text of the artifacts of a task from the updates of its stream.
fn text_of(events: &[Value]) -> String {
    let mut texts: Vec<(String, String)> = Vec::new();
    for update in events.iter().map(|event| &event["artifactUpdate"]).filter(|update| update.is_object()) {
        let id = update["artifact"]["artifactId"].as_str().unwrap_or_default();
        let text = update["artifact"]["parts"][0]["text"].as_str().unwrap_or_default();
        match texts.iter_mut().find(|(known, _)| known == id) {
            Some((_, known)) if update["append"] == true => known.push_str(text),
            Some((_, known)) => text.clone_into(known),
            None => texts.push((id.to_owned(), text.to_owned())),
        }
    }
    texts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_to_a_busy_context_waits_for_its_turn_and_streams_its_own_answer() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |request| {
        let reply = ScriptedReply::signal(&format!("re: {}", request.last_user()), "TERMINATE");
        if request.number == 0 { reply.before(&held) } else { reply }
    })
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    let context = json!({"contextId": "shared"});
    let first = send(&http, &now(message("m1", "one", &context))).await?;
    model.wait_for_requests(1).await;
    let second = send(&http, &now(message("m2", "two", &context))).await?;
    assert_eq!((state(&first), state(&second)), ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"));
    let id = second["id"].as_str().context("an id")?.to_owned();
    let subscribed = path(&format!("tasks/{id}:subscribe"));
    let following = http.request("POST", &path("message:stream"), Some(&message("m2", "two", &context))).await?;
    gate.open();
    let repeated = read_events(following).await?;
    assert_eq!(repeated[0]["task"]["id"].as_str(), Some(id.as_str()), "the same message is the same task");
    assert_eq!(text_of(&repeated), "re: two", "{repeated:?}");
    let last = repeated.last().context("an event")?;
    assert_eq!(state(&last["statusUpdate"]), "TASK_STATE_COMPLETED");
    let done = get(&http, &id).await?;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "re: two", "{done}");
    let (status, ended) = http.post(&subscribed, &json!({})).await?;
    assert_eq!((status, ended["error"]["details"][0]["reason"].as_str()), (400, Some("UNSUPPORTED_OPERATION")));
    let (_, listed) = http.get("/a2a/v1/tasks?A2A-Version=1.0&contextId=shared").await?;
    assert_eq!((&listed["totalSize"], &listed["tasks"][0]["id"]), (&json!(2), &second["id"]), "{listed}");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_is_followed_after_its_edge_was_killed_and_a_cancelled_one_ends() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |request| {
        let reply = ScriptedReply::signal("Here it is.", "TERMINATE");
        if request.number == 0 { reply.before(&held) } else { reply.before(&Gate::new()) }
    })
    .await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let _services = process_fleet.spawn_all(&["orchestrator", "gateway", "executor"]).await?;
    let mut edge = process_fleet.edge().await?;
    let first = Http::new(edge.addresses()?.0)?;
    let task = send(&first, &now(message("m1", "Hi", &json!({})))).await?;
    let id = task["id"].as_str().context("an id")?.to_owned();
    model.wait_for_requests(1).await;
    edge.replica.kill()?;

    let second_edge = process_fleet.edge().await?;
    let other = Http::new(second_edge.addresses()?.0)?;
    assert_eq!(state(&get(&other, &id).await?), "TASK_STATE_WORKING");
    let following = other.request("GET", &path(&format!("tasks/{id}:subscribe")), None).await?;
    gate.open();
    let events = read_events(following).await?;
    assert_eq!(text_of(&events), "Here it is.", "{events:?}");
    let done = get(&other, &id).await?;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED");
    assert_eq!(send(&other, &message("m1", "Hi", &json!({}))).await?, done, "a repeated message is the same task");

    let context = json!({"contextId": task["contextId"]});
    let running = send(&other, &now(message("m2", "Go on", &context))).await?;
    model.wait_for_requests(2).await;
    let cancel = path(&format!("tasks/{}:cancel", running["id"].as_str().context("an id")?));
    let (status, cancelled) = other.post(&cancel, &json!({})).await?;
    assert_eq!((status, state(&cancelled)), (200, "TASK_STATE_CANCELED"), "{cancelled}");
    let next = send(&other, &now(message("m3", "And now?", &context))).await?;
    assert_eq!((state(&next), &next["contextId"]), ("TASK_STATE_WORKING", &task["contextId"]), "the context goes on");
    let waiting = send(&other, &now(message("m4", "Later", &context))).await?;
    let early = path(&format!("tasks/{}:cancel", waiting["id"].as_str().context("an id")?));
    assert_eq!(other.post(&early, &json!({})).await?.1["error"]["details"][0]["reason"], "TASK_NOT_CANCELABLE");
    let session = task["contextId"].as_str().context("a context")?;
    other.post(&format!("/v1/sessions/{session}/stop"), &json!({})).await?;
    assert_eq!(state(&get(&other, waiting["id"].as_str().context("an id")?).await?), "TASK_STATE_CANCELED");
    let (status, after) = other.post(&path("message:send"), &message("m5", "And now?", &context)).await?;
    let code = &after["error"]["details"][0]["metadata"]["code"];
    assert_eq!((status, code.as_str()), (400, Some("session_ended")), "{after}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_is_answered_over_json_rpc_after_a_restart_of_the_fleet() -> anyhow::Result<()> {
    let call = ScriptedReply::calls(&[("launch", json!({"to": "the moon"}))]);
    let model = ModelServer::with_replies(vec![call, ScriptedReply::signal("Done.", "TERMINATE")]).await?;
    let mut process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let tool = Tool::new("launch").effect(Effect::AtMostOnce).approval(Approval::Always);
    let tools = ToolServerBuilder::at(&process_fleet.nats.url()).await?;
    let tools = tools.with(tool, |call| ToolAnswer::Json(call.arguments.clone())).open().await?;
    let before = process_fleet.spawn_all(&["orchestrator", "gateway", "executor"]).await?;
    process_fleet.wait_for_tools(&["launch"]).await?;
    let edge = process_fleet.edge().await?;
    let http = Http::new(edge.addresses()?.0)?;
    let asked = send(&http, &message("m1", "go", &json!({}))).await?;
    assert_eq!(state(&asked), "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let data = &asked["status"]["message"]["parts"][1]["data"];
    assert_eq!((&data["tool"], &data["arguments"]), (&json!("launch"), &json!({"to": "the moon"})));

    // All processes are killed and started again.
    let _after = process_fleet.replace_all(before, edge).await?;
    let edge = process_fleet.edge().await?;
    let http = Http::new(edge.addresses()?.0)?;
    let id = asked["id"].as_str().context("an id")?;
    assert_eq!(get(&http, id).await?["status"], asked["status"]);
    assert!(tools.calls().is_empty(), "the call runs without an approval");
    let wrong = json!({"approved": true, "gate": data["gate"], "arguments_sha256": "0".repeat(64)});
    let answer = |id: &str, data: &Value| {
        let message = json!({"messageId": id, "role": "ROLE_USER", "taskId": asked["id"], "parts": [{"data": data}]});
        json!({"jsonrpc": "2.0", "id": id, "method": "SendMessage", "params": {"message": message}})
    };
    let call = async |request: Value| http.post("/a2a?A2A-Version=1.0", &request).await;
    let (_, refused) = call(answer("m2", &wrong)).await?;
    assert_eq!(refused["error"]["code"], -32_602, "{refused}");
    assert!(tools.calls().is_empty(), "the arguments that were shown are others");
    let right = json!({"approved": true, "gate": data["gate"], "arguments_sha256": data["arguments_sha256"]});
    let (_, done) = call(answer("m3", &right)).await?;
    assert_eq!(state(&done["result"]["task"]), "TASK_STATE_COMPLETED", "{done}");
    let (_, again) = call(answer("m3", &right)).await?;
    assert_eq!((&again["result"], tools.calls().len()), (&done["result"], 1), "the same message answers once");
    let session = asked["contextId"].as_str().context("a context")?;
    let key = SessionKey { tenant: TenantId::default(), session: SessionId::new(session)? };
    judge::requests(&model.requests())?;
    judge::log(&process_fleet.bus, &key, 10).await?;
    Ok(())
}
