//! A2A over both bindings: a task is a turn, its states are those of the turn, and nothing of others is seen.

use contract::event::GateKind;
use contract::subject::SessionKey;
use contract::tool::sha256_hex;
use contract::{SessionId, TenantId};
use edge::EdgeConfig;
use serde_json::{Value, json};

use crate::support::http::{Http, SseReader, read};
use crate::support::{Fixture, config, events, wait_until};

const JSON_RPC: &str = "/a2a";
const HTTP_JSON: &str = "/a2a/v1";

async fn fixture(reply: &str) -> (Fixture, Http) {
    let fixture = Fixture::new().await;
    fixture.fake_loop.reply_with(reply).await;
    let http = Http::new(fixture.edge.addresses().ws, None);
    (fixture, http)
}

/// A message of the user, with further fields.
fn message(id: &str, text: &str, more: &Value) -> Value {
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"message": message})
}

/// Calls a method of JSON-RPC; returns the response.
async fn call(http: &Http, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (status, answer) = rest(http, "POST", JSON_RPC, Some(&body)).await;
    assert!(status == 200 && answer["id"] == 1 && answer["jsonrpc"] == "2.0", "{status} {answer}");
    answer
}

async fn send(http: &Http, params: Value) -> Value {
    let answer = call(http, "SendMessage", params).await;
    assert!(answer["result"]["task"].is_object(), "{answer}");
    answer["result"]["task"].clone()
}

async fn rest(http: &Http, verb: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let mut request = http.request(verb, path).header("a2a-version", "1.0");
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    read(request.send().await.unwrap()).await
}

/// Reads a stream to its end.
async fn stream(http: &Http, verb: &str, path: &str, body: Option<&Value>) -> Vec<Value> {
    let mut request = http.request(verb, path).header("a2a-version", "1.0");
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let mut reader = SseReader::new(request.send().await.unwrap());
    let mut events = Vec::new();
    while let Some(event) = reader.next().await {
        events.push(serde_json::from_str(&event.data).unwrap());
    }
    events
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default().trim_start_matches("TASK_STATE_")
}

fn reason(error: &Value) -> &str {
    error["data"][0]["reason"].as_str().or(error["details"][0]["reason"].as_str()).unwrap_or_default()
}

async fn count_sessions(http: &Http) -> usize {
    http.get("/v1/sessions").await.1["sessions"].as_array().unwrap().len()
}

#[tokio::test]
async fn message_is_a_task_with_the_answer_as_artifact_and_can_be_got_later() {
    let (_fixture, http) = fixture("Good day.").await;
    let task = send(&http, message("m1", "Hi", &json!({}))).await;
    assert_eq!((state(&task), &task["artifacts"][0]["parts"][0]["text"]), ("COMPLETED", &json!("Good day.")));
    assert_eq!(
        (&task["artifacts"][0]["artifactId"], &task["metadata"]["stop_reason"]),
        (&json!("step-1"), &json!("completed"))
    );
    assert_eq!(
        (&task["history"][0]["role"], &task["history"][0]["parts"][0]["text"]),
        (&json!("ROLE_USER"), &json!("Hi"))
    );
    let got = call(&http, "GetTask", json!({"id": task["id"]})).await["result"].clone();
    assert_eq!(got, task, "the log says the same");
    let (id, context) = (task["id"].as_str().unwrap(), task["contextId"].as_str().unwrap());
    assert_eq!(rest(&http, "GET", &format!("{HTTP_JSON}/tasks/{id}"), None).await, (200, task.clone()));
    let short = rest(&http, "GET", &format!("{HTTP_JSON}/e/tasks/{id}?historyLength=0"), None).await.1;
    assert_eq!((state(&short), short.get("history")), ("COMPLETED", None));

    let next = rest(
        &http,
        "POST",
        &format!("{HTTP_JSON}/message:send"),
        Some(&message("m2", "And now?", &json!({"contextId": context}))),
    )
    .await;
    assert_eq!((next.0, &next.1["task"]["contextId"]), (200, &json!(context)), "{}", next.1);
    assert_ne!(next.1["task"]["id"], task["id"]);
    assert_eq!(count_sessions(&http).await, 1);
}

#[tokio::test]
async fn repeated_message_begins_no_second_turn() {
    let (_fixture, http) = fixture("Good day.").await;
    let first = send(&http, message("m1", "Hi", &json!({}))).await;
    assert_eq!(send(&http, message("m1", "Hi", &json!({}))).await, first);
    assert_eq!(count_sessions(&http).await, 1);
    let context = json!({"contextId": first["contextId"]});
    let second = send(&http, message("m2", "Hi", &context)).await;
    assert_eq!(send(&http, message("m2", "Hi", &context)).await, second);
    let listed = call(&http, "ListTasks", context).await["result"].clone();
    assert_eq!((&listed["totalSize"], listed["tasks"].as_array().unwrap().len()), (&json!(2), 2), "{listed}");
}

#[tokio::test]
async fn first_message_of_a_chosen_context_repeated_is_the_same_task() {
    let (_fixture, http) = fixture("Good day.").await;
    let first = message("r1", "Hi", &json!({"contextId": "ctx-r1"}));
    let task = send(&http, first.clone()).await;
    for _ in 0..2 {
        assert_eq!(send(&http, first.clone()).await, task);
    }
    assert_eq!(http.get("/v1/sessions/ctx-r1").await.1["turn"], 1);
}

#[tokio::test]
async fn other_text_under_a_known_message_id_is_another_task() {
    let (_fixture, http) = fixture("Good day.").await;
    let first = send(&http, message("msg-1", "Capital of France?", &json!({}))).await;
    let other = send(&http, message("msg-1", "Capital of Spain?", &json!({}))).await;
    assert_ne!(other["contextId"], first["contextId"]);
    assert_eq!(other["history"][0]["parts"][0]["text"], "Capital of Spain?", "{other}");
    let context = json!({"contextId": first["contextId"]});
    let next = send(&http, message("msg-1", "And of Italy?", &context)).await;
    assert_ne!((&next["id"], &next["contextId"]), (&first["id"], &other["contextId"]), "{next}");
    assert_eq!(count_sessions(&http).await, 2);
}

#[tokio::test]
async fn context_that_the_client_chose_is_kept() {
    let (_fixture, http) = fixture("Good day.").await;
    let chosen = json!({"contextId": "0198-my_Context"});
    for (id, turns) in [("m1", 1), ("m2", 2)] {
        let task = send(&http, message(id, "Hi", &chosen)).await;
        assert_eq!((&task["contextId"], state(&task)), (&chosen["contextId"], "COMPLETED"));
        let session = http.get("/v1/sessions/0198-my_Context").await.1;
        assert_eq!(session["turn"], turns);
    }
    let refused = call(&http, "SendMessage", message("m3", "Hi", &json!({"contextId": "not a context"}))).await;
    assert_eq!((&refused["error"]["code"], count_sessions(&http).await), (&json!(-32602), 1), "{refused}");
}

#[tokio::test]
async fn stream_begins_with_the_task_and_ends_with_its_final_state() {
    let (_fixture, http) = fixture("Good day.").await;
    let bare =
        stream(&http, "POST", &format!("{HTTP_JSON}/e/message:stream"), Some(&message("m1", "Hi", &json!({})))).await;
    let body = json!({"jsonrpc": "2.0", "id": "x", "method": "SendStreamingMessage", "params": message("m2", "Hi", &json!({}))});
    let framed = stream(&http, "POST", JSON_RPC, Some(&body)).await;
    assert!(framed.iter().all(|frame| frame["id"] == "x" && frame["jsonrpc"] == "2.0"), "{framed:?}");
    let framed: Vec<Value> = framed.into_iter().map(|frame| frame["result"].clone()).collect();
    for events in [bare, framed] {
        let task = &events[0]["task"];
        // The fake loop has done the turn before it acknowledges the message.
        let last = events.last().unwrap();
        let end = if events.len() == 1 { task } else { &last["statusUpdate"] };
        assert_eq!(state(end), "COMPLETED", "{events:?}");
        assert!(task["id"].is_string() && task["contextId"].is_string());
    }
}

#[tokio::test]
async fn task_in_progress_is_followed_to_its_end_by_each_subscriber() {
    let (fixture, http) = fixture("").await;
    let session = contract_key("default", "busy");
    let commit = async |events| fixture.fake_loop.commit(&session, events).await;
    commit(vec![events::session_started("e")]).await;
    commit(vec![events::user_message("m1", "Hi"), events::turn_started(1, "m1")]).await;
    let id = "busy.1";
    let got = call(&http, "GetTask", json!({"id": id})).await["result"].clone();
    assert_eq!(state(&got), "WORKING", "{got}");
    let path = format!("{HTTP_JSON}/tasks/{id}:subscribe");
    let late = call(&http, "GetTask", json!({"id": "busy.0"})).await;
    assert_eq!(late["error"]["code"], -32001, "a commit without a message is no task: {late}");
    let mut readers = Vec::new();
    for verb in ["POST", "GET"] {
        let request = http.request(verb, &path).header("a2a-version", "1.0");
        let mut reader = SseReader::new(request.send().await.unwrap());
        let first = reader.next().await.unwrap();
        readers.push((reader, vec![first]));
    }
    for event in events::turn_with_reply(1, "Good day.") {
        commit(vec![event]).await;
    }
    let mut streams: Vec<Vec<Value>> = Vec::new();
    for (mut reader, mut frames) in readers {
        while let Some(frame) = reader.next().await {
            frames.push(frame);
        }
        streams.push(frames.iter().map(|frame| serde_json::from_str(&frame.data).unwrap()).collect());
    }
    assert_eq!(streams[0], streams[1]);
    let events = streams.remove(0);
    let text =
        |event: &Value| event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert_eq!(events.iter().map(text).collect::<String>(), "Good day.", "{events:?}");
    assert_eq!((state(&events[0]["task"]), state(&events.last().unwrap()["statusUpdate"])), ("WORKING", "COMPLETED"));
    let ended = rest(&http, "POST", &path, None).await;
    assert_eq!((ended.0, reason(&ended.1["error"])), (400, "UNSUPPORTED_OPERATION"), "{}", ended.1);
}

#[tokio::test]
async fn gate_is_answered_by_a_message_to_the_task_and_the_same_message_answers_once() {
    let (fixture, http) = fixture("Done.").await;
    fixture.fake_loop.ask_first(GateKind::Approval).await;
    let task = send(&http, message("m1", "Go", &json!({}))).await;
    let asked = &task["status"]["message"];
    assert_eq!((state(&task), &asked["parts"][1]["data"]["kind"]), ("INPUT_REQUIRED", &json!("approval")));
    let data = &asked["parts"][1]["data"];
    assert_eq!((&data["tool"], &data["gate"]), (&json!("command"), &json!("c1-1-1")));
    assert!(data["arguments_sha256"].as_str().is_some_and(|sha| sha.len() == 64) && data["arguments"].is_object());

    let to = json!({"taskId": task["id"], "contextId": task["contextId"]});
    for (text, more, code) in [
        ("perhaps", to.clone(), -32602),
        ("approve", json!({"taskId": task["id"], "contextId": "another"}), -32602),
        ("approve", json!({"taskId": "s.99"}), -32001),
        ("approve", json!({"taskId": "nothing"}), -32001),
    ] {
        let refused = call(&http, "SendMessage", message("m2", text, &more)).await;
        assert_eq!(refused["error"]["code"], code, "{text} {more}: {refused}");
    }
    let done = send(&http, message("m3", "approve", &to)).await;
    assert_eq!((state(&done), &done["id"]), ("COMPLETED", &task["id"]));
    let kinds: Vec<&Value> = done["history"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(kinds, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]);
    assert_eq!(send(&http, message("m3", "approve", &to)).await, done, "the same message is the same answer");
    let refused = call(&http, "SendMessage", message("m4", "approve", &to)).await;
    assert_eq!((reason(&refused["error"]), &refused["error"]["code"]), ("UNSUPPORTED_OPERATION", &json!(-32004)));
}

#[tokio::test]
async fn question_and_call_are_answered_by_text() {
    let (fixture, http) = fixture("Bonn it is.").await;
    fixture.fake_loop.ask_first(GateKind::Question).await;
    let task = send(&http, message("m1", "Go", &json!({}))).await;
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "Which city?");
    let done = send(&http, message("m2", "Bonn", &json!({"taskId": task["id"]}))).await;
    assert_eq!((state(&done), &done["artifacts"][0]["parts"][0]["text"]), ("COMPLETED", &json!("Bonn it is.")));

    let (fixture, http) = fixture_of_calls().await;
    let task = send(&http, message("m1", "Weather?", &json!({}))).await;
    let data = &task["status"]["message"]["parts"][1]["data"];
    assert_eq!(
        (state(&task), &data["tool"], &data["arguments"]),
        ("INPUT_REQUIRED", &json!("weather"), &json!({"city": "Bonn"}))
    );
    let done = send(&http, message("m2", "rain", &json!({"taskId": task["id"]}))).await;
    assert_eq!(state(&done), "COMPLETED", "{done}");
    drop(fixture);
}

async fn fixture_of_calls() -> (Fixture, Http) {
    let (fixture, http) = fixture("It rains.").await;
    fixture.fake_loop.call_client_first();
    (fixture, http)
}

#[tokio::test]
async fn failed_and_cancelled_tasks_say_why() {
    let (fixture, http) = fixture("").await;
    let failed = send(&http, message("m1", "Hi", &json!({}))).await;
    let why = &failed["status"]["message"];
    assert_eq!((state(&failed), &why["metadata"]["code"]), ("FAILED", &json!("model_overloaded")), "{failed}");
    assert_eq!(why["parts"][0]["text"], "the model is overloaded");

    fixture.fake_loop.ask_first(GateKind::Approval).await;
    let mut later = message("m2", "Hi", &json!({}));
    later["configuration"] = json!({"returnImmediately": true});
    let task = send(&http, later).await;
    let cancelled = call(&http, "CancelTask", json!({"id": task["id"]})).await["result"].clone();
    assert_eq!((state(&cancelled), &cancelled["id"]), ("CANCELED", &task["id"]), "{cancelled}");
    let again = call(&http, "CancelTask", json!({"id": task["id"]})).await;
    assert_eq!((reason(&again["error"]), &again["error"]["code"]), ("TASK_NOT_CANCELABLE", &json!(-32002)));
    let context = json!({"contextId": task["contextId"]});
    let next = send(&http, message("m3", "Hi", &context)).await;
    assert_eq!((state(&next), &next["contextId"]), ("INPUT_REQUIRED", &task["contextId"]), "the context goes on");
    let session = task["contextId"].as_str().unwrap();
    http.post(&format!("/v1/sessions/{session}/stop"), json!({})).await;
    let after = call(&http, "SendMessage", message("m4", "Hi", &context)).await;
    assert_eq!(after["error"]["data"][0]["metadata"]["code"], "session_ended", "{after}");
}

#[tokio::test]
async fn tasks_are_listed_by_page_and_filter() {
    let (_fixture, http) = fixture("Good day.").await;
    for index in 0..5 {
        send(&http, message(&format!("m{index}"), "Hi", &json!({}))).await;
    }
    wait_until("all are in the index", async || count_sessions(&http).await == 5).await;
    let (mut token, mut seen) = (String::new(), Vec::new());
    for count in [2, 2, 1] {
        let page = rest(&http, "GET", &format!("{HTTP_JSON}/tasks?pageSize=2&pageToken={token}"), None).await.1;
        let tasks = page["tasks"].as_array().unwrap();
        assert_eq!((tasks.len(), &page["totalSize"], &page["pageSize"]), (count, &json!(5), &json!(2)), "{page}");
        assert!(tasks.iter().all(|task| task.get("artifacts").is_none() && task.get("history").is_none()));
        seen.extend(tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        page["nextPageToken"].as_str().unwrap().clone_into(&mut token);
    }
    assert_eq!(token, "");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5);
    let list = async |params: Value| call(&http, "ListTasks", params).await;
    let full = list(json!({"includeArtifacts": true, "historyLength": 1, "status": "TASK_STATE_COMPLETED"})).await;
    assert_eq!(full["result"]["tasks"][0]["artifacts"][0]["parts"][0]["text"], "Good day.");
    assert!(full["result"]["tasks"][0]["history"].is_array());
    for params in [
        json!({"status": "TASK_STATE_WORKING"}),
        json!({"contextId": "nobody"}),
        json!({"statusTimestampAfter": "2100-01-01T00:00:00Z"}),
    ] {
        let listed = list(params.clone()).await["result"].clone();
        let nothing = json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0});
        assert_eq!(listed, nothing, "{params}");
    }
    for params in
        [json!({"status": "DONE"}), json!({"pageSize": 0}), json!({"pageToken": "x"}), json!({"historyLength": -1})]
    {
        assert_eq!(list(params.clone()).await["error"]["code"], -32602, "{params}");
    }
}

#[tokio::test]
async fn card_of_an_agent_is_public_and_has_an_entity_tag() {
    let (_fixture, http) = fixture("x").await;
    let path = "/.well-known/agent-card.json";
    let (status, card) = http.get(path).await;
    assert_eq!((status, &card["name"]), (200, &json!("Eamonn the Executioner")));
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let bindings: Vec<&Value> = interfaces.iter().map(|interface| &interface["protocolBinding"]).collect();
    assert_eq!(bindings, ["JSONRPC", "HTTP+JSON"]);
    assert!(interfaces.iter().all(|interface| interface["tenant"] == "e" && interface["protocolVersion"] == "1.0"));
    assert_eq!(card["capabilities"]["pushNotifications"], false);
    assert_eq!(http.get("/a2a/agents/eamonn/.well-known/agent-card.json").await.1, card);
    assert_eq!(http.get("/a2a/agents/nobody/.well-known/agent-card.json").await.0, 404);

    let response = http.request("GET", path).send().await.unwrap();
    let tag = response.headers()["etag"].clone();
    assert!(response.headers()["cache-control"].to_str().unwrap().contains("max-age"));
    let again = http.request("GET", path).header("if-none-match", tag).send().await.unwrap();
    assert_eq!(again.status(), 304);
    let extended = call(&http, "GetExtendedAgentCard", json!({"tenant": "e"})).await;
    assert_eq!(extended["result"]["skills"][0]["tags"], json!(["conversation", "eamonn"]));
}

#[tokio::test]
async fn request_that_no_agent_can_do_is_refused_in_both_bindings() {
    let (_fixture, http) = fixture("x").await;
    let with = |field: &str, value: Value| {
        let mut params = message("m", "Hi", &json!({}));
        if field.starts_with('/') {
            *params.pointer_mut(field).unwrap() = value;
        } else {
            params[field] = value;
        }
        params
    };
    for (params, code, status) in [
        (json!({}), -32602, 400),
        (with("/message/messageId", json!("")), -32602, 400),
        (with("/message/role", json!("ROLE_AGENT")), -32602, 400),
        (with("/message/parts", json!([])), -32602, 400),
        (with("/message/parts", json!([{"text": ""}])), -32602, 400),
        (with("/message/parts", json!([{"raw": "AA", "mediaType": "audio/wav"}])), -32005, 400),
        (with("/message/parts", json!("Hi")), -32602, 400),
        (with("configuration", json!({"acceptedOutputModes": ["image/png"]})), -32005, 400),
        (with("configuration", json!({"taskPushNotificationConfig": {"url": "https://h/"}})), -32003, 400),
        (with("configuration", json!({"historyLength": -1})), -32602, 400),
    ] {
        let refused = call(&http, "SendMessage", params.clone()).await;
        assert_eq!(refused["error"]["code"], code, "{params}: {refused}");
        let refused = rest(&http, "POST", &format!("{HTTP_JSON}/message:send"), Some(&params)).await;
        assert_eq!((refused.0, &refused.1["error"]["code"]), (status, &json!(status)), "{params}: {}", refused.1);
        assert!(refused.1["error"]["details"][0]["@type"].as_str().unwrap().ends_with("google.rpc.ErrorInfo"));
    }
    assert_eq!(count_sessions(&http).await, 0);
    for (method, params, code) in [
        ("SendMessage", with("tenant", json!("nobody")), -32602),
        ("SendMessage", with("tenant", json!(7)), -32602),
        ("GetTask", json!({}), -32602),
        ("GetTask", json!({"id": "s.1"}), -32001),
        ("CancelTask", json!({"id": "x"}), -32001),
        ("CreateTaskPushNotificationConfig", json!({"taskId": "s.1", "url": "https://h/"}), -32003),
        ("message/send", json!({}), -32601),
    ] {
        let refused = call(&http, method, params.clone()).await;
        assert_eq!(refused["error"]["code"], code, "{method} {params}: {refused}");
    }
    for (verb, path, status) in [
        ("GET", "tasks/s.1", 404),
        ("POST", "tasks/s.1:cancel", 404),
        ("GET", "nobody/tasks", 404),
        ("POST", "tasks/s.1:dance", 404),
        ("GET", "tasks?pageSize=many", 400),
        ("POST", "tasks/s.1/pushNotificationConfigs", 400),
    ] {
        let (found, body) = rest(&http, verb, &format!("{HTTP_JSON}/{path}"), None).await;
        assert_eq!((found, &body["error"]["code"]), (status, &json!(status)), "{verb} {path}: {body}");
    }
}

#[tokio::test]
async fn version_and_envelope_are_checked() {
    let (_fixture, http) = fixture("x").await;
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "s.1"}});
    let post = async |body: String, version: &str| {
        let request = http.request("POST", JSON_RPC).header("a2a-version", version).body(body);
        read(request.send().await.unwrap()).await
    };
    let (status, answer) = http.post(JSON_RPC, request.clone()).await;
    assert_eq!((status, &answer["error"]["code"], &answer["id"]), (200, &json!(-32009), &json!(7)), "{answer}");
    assert_eq!(post(request.to_string(), "0.3").await.1["error"]["code"], -32009);
    assert_eq!(http.get("/a2a/v1/tasks").await.1["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED");
    assert_eq!(http.get("/a2a/v1/tasks?A2A-Version=1.0").await.0, 200);
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("[{}]", -32600),
        ("7", -32600),
        (r#"{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}"#, -32600),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}"#, -32602),
    ] {
        let error = post(body.to_owned(), "1.0").await.1["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"][0]["metadata"]["code"]),
            (&json!(code), &json!("bad_request")),
            "{body}"
        );
    }
}

#[tokio::test]
async fn interface_of_one_agent_does_not_show_the_tasks_of_another() {
    let (fixture, http) = fixture("Good day.").await;
    let key = contract_key("default", "theirs");
    fixture.fake_loop.commit(&key, vec![events::session_started("a")]).await;
    fixture.fake_loop.commit(&key, vec![events::user_message("m1", "Hi"), events::turn_started(1, "m1")]).await;
    assert_eq!(state(&call(&http, "GetTask", json!({"id": "theirs.1"})).await["result"]), "WORKING");
    for named in ["e", "eamonn"] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let refused = call(&http, method, json!({"id": "theirs.1", "tenant": named})).await;
            assert_eq!(refused["error"]["code"], -32001, "{method} {named}: {refused}");
        }
        let mut params = message("m2", "Hi", &json!({"contextId": "theirs"}));
        params["tenant"] = json!(named);
        let refused = call(&http, "SendMessage", params).await;
        assert_eq!(refused["error"]["data"][0]["metadata"]["code"], "unknown_session", "{refused}");
        let listed = call(&http, "ListTasks", json!({"contextId": "theirs", "tenant": named})).await;
        assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
    }
    let own = rest(&http, "GET", &format!("{HTTP_JSON}/a/tasks/theirs.1"), None).await;
    assert_eq!((own.0, state(&own.1)), (200, "WORKING"), "{}", own.1);
}

fn contract_key(tenant: &str, session: &str) -> SessionKey {
    SessionKey { tenant: TenantId::new(tenant).unwrap(), session: SessionId::new(session).unwrap() }
}

#[tokio::test]
async fn tasks_of_other_tenants_and_agents_are_unknown_and_an_observer_sends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.yaml");
    let rows = [
        "scopes: [run, observe, approve], tenant: one",
        "scopes: [run, observe, approve], tenant: two",
        "scopes: [observe], tenant: one",
        "scopes: [run, observe], tenant: one, agents: [a]",
    ];
    let keys: Vec<String> = rows.iter().map(|_| configuration::api_key::generate_key()).collect();
    let entries = rows.iter().zip(&keys).enumerate();
    let entries = entries
        .map(|(index, (row, key))| format!("  - {{id: k{index}, sha256: {}, {row}}}\n", sha256_hex(key.as_bytes())));
    std::fs::write(&file, format!("keys:\n{}", entries.collect::<String>())).unwrap();
    let fixture = Fixture::with(EdgeConfig { keys_file: Some(file), ..config() }).await;
    fixture.fake_loop.reply_with("Good day.").await;
    let http = |index: usize| Http::new(fixture.edge.addresses().ws, Some(&keys[index]));
    let (one, two, observer, other_agent) = (http(0), http(1), http(2), http(3));

    let task = send(&one, message("m1", "Hi", &json!({"contextId": "mine"}))).await;
    let (id, own) = (task["id"].clone(), json!({"taskId": task["id"]}));
    assert_eq!(state(&call(&observer, "GetTask", json!({"id": id})).await["result"]), "COMPLETED");
    for stranger in [&two, &other_agent] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let refused = call(stranger, method, json!({"id": id})).await;
            assert_eq!(refused["error"]["code"], -32001, "{method}: {refused}");
        }
        let refused = call(stranger, "SendMessage", message("m2", "yes", &own)).await;
        assert_eq!(refused["error"]["code"], -32001, "{refused}");
        let listed = call(stranger, "ListTasks", json!({"contextId": "mine"})).await;
        assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
    }
    let listed = call(&two, "ListTasks", json!({})).await;
    assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
    let refused = call(&other_agent, "SendMessage", message("m2", "Hi", &json!({"contextId": "mine"}))).await;
    assert!(refused["error"].is_object(), "{refused}");
    // The context of the same name is another conversation of another tenant.
    send(&two, message("m1", "Hi", &json!({"contextId": "mine"}))).await;
    assert_eq!(one.get("/v1/sessions/mine").await.1["turn"], 1);

    let refused = call(&observer, "SendMessage", message("m3", "Hi", &json!({}))).await;
    assert_eq!((reason(&refused["error"]), &refused["error"]["code"]), ("FORBIDDEN", &json!(-32000)));
    let refused =
        rest(&observer, "POST", &format!("{HTTP_JSON}/message:stream"), Some(&message("m3", "Hi", &json!({})))).await;
    assert_eq!((refused.0, &refused.1["error"]["status"]), (403, &json!("PERMISSION_DENIED")));
    let nobody = Http::new(fixture.edge.addresses().ws, None);
    let (status, answer) = rest(&nobody, "POST", JSON_RPC, Some(&json!({}))).await;
    assert_eq!((status, reason(&answer["error"])), (401, "UNAUTHORIZED"), "{answer}");
    assert_eq!(rest(&nobody, "GET", "/a2a/v1/tasks", None).await.0, 401);
    let card = nobody.get("/.well-known/agent-card.json").await.1;
    assert!(card["securityRequirements"][0]["schemes"]["bearer"].is_object(), "{card}");
}

#[tokio::test]
async fn path_with_a_slash_at_its_end_is_the_same() {
    let (_fixture, http) = fixture("Good day.").await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("m1", "Hi", &json!({}))});
    let (status, answer) = rest(&http, "POST", "/a2a/", Some(&body)).await;
    assert_eq!((status, state(&answer["result"]["task"])), (200, "COMPLETED"), "{answer}");
    let id = answer["result"]["task"]["id"].as_str().unwrap();
    for path in [format!("{HTTP_JSON}/tasks/{id}/"), format!("{HTTP_JSON}/e/tasks/{id}/")] {
        let (status, task) = rest(&http, "GET", &path, None).await;
        assert_eq!((status, &task["id"]), (200, &json!(id)), "{path}: {task}");
    }
    let (status, sent) =
        rest(&http, "POST", &format!("{HTTP_JSON}/message:send/"), Some(&message("m2", "Hi", &json!({})))).await;
    assert_eq!((status, state(&sent["task"])), (200, "COMPLETED"), "{sent}");
}

#[tokio::test]
async fn fields_may_have_the_names_of_the_proto_file() {
    let (_fixture, http) = fixture("Good day.").await;
    let mut params = json!({"message": {
        "message_id": "m1", "role": "ROLE_USER", "parts": [{"text": "Hi", "media_type": "text/plain"}],
    }});
    params["configuration"] =
        json!({"accepted_output_modes": ["text/plain"], "history_length": 0, "return_immediately": false});
    let task = send(&http, params).await;
    assert_eq!((state(&task), task.get("history")), ("COMPLETED", None), "{task}");
    let got = call(&http, "GetTask", json!({"id": task["id"], "history_length": 0})).await["result"].clone();
    assert_eq!((&got["id"], got.get("history")), (&task["id"], None), "{got}");
    let next = json!({"message": {
        "message_id": "m2", "context_id": task["contextId"], "role": "ROLE_USER", "parts": [{"text": "Hi"}],
    }});
    assert_eq!(send(&http, next).await["contextId"], task["contextId"]);
    let listed = call(&http, "ListTasks", json!({"context_id": "nope"})).await["result"].clone();
    assert_eq!(listed["totalSize"], 0, "{listed}");
    let listed = call(&http, "ListTasks", json!({"page_size": 1, "include_artifacts": true})).await["result"].clone();
    assert_eq!((listed["tasks"].as_array().unwrap().len(), &listed["pageSize"]), (1, &json!(1)), "{listed}");
    assert!(listed["tasks"][0]["artifacts"].is_array(), "{listed}");
    let id = task["id"].as_str().unwrap();
    let short = rest(&http, "GET", &format!("{HTTP_JSON}/tasks/{id}?history_length=0"), None).await.1;
    assert_eq!((&short["id"], short.get("history")), (&task["id"], None), "{short}");
    let page = rest(&http, "GET", &format!("{HTTP_JSON}/tasks?page_size=1&include_artifacts=true"), None).await.1;
    assert_eq!(page["tasks"].as_array().unwrap().len(), 1, "{page}");
}
