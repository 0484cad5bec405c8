//! Chat completions: a request is a turn, a repeated request is the same turn, and errors have their form.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use edge::Edge;
use serde_json::{Value, json};

use crate::support::http::{Http, SseReader, post, read};
use crate::support::{Fixture, config, lose_answer, noted_requests, wait_until};

const PATH: &str = "/openai/v1/chat/completions";

async fn fixture(reply: &str) -> (Fixture, Http) {
    let fixture = Fixture::new().await;
    fixture.fake_loop.reply_with(reply).await;
    let http = Http::new(fixture.edge.addresses().ws, None);
    (fixture, http)
}

fn request(text: &str) -> Value {
    json!({"model": "e", "messages": [{"role": "user", "content": text}]})
}

async fn send(http: &Http, body: &Value, headers: &[(&'static str, &str)]) -> (u16, Value) {
    read(post(http, PATH, body, headers).send().await.unwrap()).await
}

async fn count_sessions(http: &Http) -> usize {
    http.get("/v1/sessions").await.1["sessions"].as_array().unwrap().len()
}

#[tokio::test]
async fn models_are_the_agents() {
    let (_fixture, http) = fixture("x").await;
    let (status, listed) = http.get("/openai/v1/models").await;
    assert_eq!((status, &listed["data"][0]["id"], &listed["object"]), (200, &json!("e"), &json!("list")));
    assert_eq!(http.get("/openai/v1/models/eamonn").await.1["id"], "e");
    let (status, error) = http.get("/openai/v1/models/nobody").await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("model_not_found")), "{error}");
}

#[tokio::test]
async fn completion_is_the_answer_of_a_new_session() {
    let (_fixture, http) = fixture("Good day.").await;
    let (status, answer) = send(&http, &request("Hi"), &[]).await;
    assert_eq!(status, 200, "{answer}");
    let choice = &answer["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("Good day."), &json!("stop")));
    assert_eq!(answer["usage"]["total_tokens"], 10);
    send(&http, &request("Hi"), &[]).await;
    assert_eq!(count_sessions(&http).await, 2, "an equal request is another conversation");
}

/// Counts reads of logs, and loses the events with the replies if told so.
#[derive(Default)]
struct LogReads {
    count: AtomicUsize,
    loses_replies: AtomicBool,
}

impl Faults for LogReads {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_read = matches!(op.action, Action::Last(_) | Action::LastMany);
        if is_read && op.subject.starts_with("ai_loop.log.") {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        let is_reply = op.action == Action::Publish && op.subject.contains("ai_full_received");
        if is_reply && self.loses_replies.load(Ordering::SeqCst) { Fault::NotDone } else { Fault::None }
    }
}

#[tokio::test]
async fn turn_of_a_new_session_is_followed_without_its_log_and_with_it_where_an_event_is_lost() {
    let reads = Arc::new(LogReads::default());
    let fixture = Fixture::on(MemoryServer::with_faults(reads.clone()), config()).await;
    fixture.fake_loop.reply_with("Good day.").await;
    let http = Http::new(fixture.edge.addresses().ws, None);
    let complete = async |text: &str| {
        let before = reads.count.load(Ordering::SeqCst);
        let (status, answer) = send(&http, &request(text), &[]).await;
        assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("Good day.")), "{answer}");
        reads.count.load(Ordering::SeqCst) - before
    };
    complete("The agent is not known yet.").await;
    assert_eq!(complete("Hi").await, 0);
    reads.loses_replies.store(true, Ordering::SeqCst);
    assert!(complete("Hello").await > 1);
}

#[tokio::test]
async fn streamed_completion_has_one_role_then_text_then_usage_and_the_end() {
    let (_fixture, http) = fixture("Good day.").await;
    let mut body = request("Hi");
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let response = http.request("POST", PATH).header("content-type", "application/json").body(body.to_string());
    let mut stream = SseReader::new(response.send().await.unwrap());
    let mut frames = Vec::new();
    while let Some(event) = stream.next().await {
        frames.push(event.data);
    }
    assert_eq!(frames.pop().as_deref(), Some("[DONE]"));
    let frames: Vec<Value> = frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect();
    let deltas: Vec<&Value> = frames.iter().map(|frame| &frame["choices"][0]["delta"]).collect();
    assert_eq!(
        deltas[..3],
        [&json!({"role": "assistant", "content": ""}), &json!({"content": "Good day."}), &json!({})]
    );
    assert_eq!(frames[2]["choices"][0]["finish_reason"], "stop");
    assert_eq!((&frames[3]["choices"], &frames[3]["usage"]["prompt_tokens"]), (&json!([]), &json!(7)));
    assert_eq!(frames[0]["usage"], Value::Null);
    assert!(frames.iter().all(|frame| frame["id"] == frames[0]["id"]));
}

/// The header by which an SDK counts its tries.
fn tries(count: &str) -> (&'static str, &str) {
    ("x-stainless-retry-count", count)
}

#[tokio::test]
async fn request_repeated_after_its_answer_was_lost_is_the_same_turn_at_any_edge() {
    let (fixture, http) = fixture("Good day.").await;
    let other = Edge::start(config(), fixture.server.bus()).await.unwrap();
    let other = Http::new(other.addresses().ws, None);
    for (names, sessions) in [(&[][..], 1), (&[("x-ailoop-session", "chat")][..], 2)] {
        let headers = |count| names.iter().copied().chain([tries(count)]).collect::<Vec<_>>();
        lose_answer(&fixture, post(&http, PATH, &request("Hi"), &headers("0"))).await;
        let (status, answer) = send(&other, &request("Hi"), &headers("1")).await;
        assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("Good day.")), "{answer}");
        let listed = http.get("/v1/sessions").await.1;
        let turns: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|session| &session["turn"]).collect();
        assert_eq!(turns, vec![&json!(1); sessions], "{listed}");
    }
}

#[tokio::test]
async fn repeated_request_does_not_meet_the_session_of_another_client() {
    let (fixture, http) = fixture("Good day.").await;
    let (_, other) = send(&http, &request("Hi"), &[tries("0")]).await;
    wait_until("the note of the answered request", async || noted_requests(&fixture).await == 0).await;
    let (status, own) = send(&http, &request("Hi"), &[tries("1")]).await;
    assert_eq!((status, count_sessions(&http).await), (200, 2), "{own}");
    assert_ne!(own["id"], other["id"], "the first try of this client has never arrived");
}

#[tokio::test]
async fn repeated_request_that_may_be_one_of_two_is_a_new_one() {
    let (fixture, http) = fixture("Good day.").await;
    for _ in 0..2 {
        lose_answer(&fixture, post(&http, PATH, &request("Hi"), &[tries("0")])).await;
    }
    let (status, answer) = send(&http, &request("Hi"), &[tries("1")]).await;
    assert_eq!((status, count_sessions(&http).await), (200, 3), "{answer}");
}

#[tokio::test]
async fn two_clients_that_repeat_an_equal_request_do_not_meet() {
    let (fixture, http) = fixture("Good day.").await;
    lose_answer(&fixture, post(&http, PATH, &request("Hi"), &[tries("0")])).await;
    let (body, headers) = (request("Hi"), [tries("1")]);
    let (one, two) = tokio::join!(send(&http, &body, &headers), send(&http, &body, &headers));
    assert_eq!((one.0, two.0, count_sessions(&http).await), (200, 200, 2), "{one:?} {two:?}");
    assert_ne!(one.1["id"], two.1["id"]);
}

#[tokio::test]
async fn equal_requests_are_sessions_of_their_own_however_many_there_are() {
    let (_fixture, http) = fixture("Good day.").await;
    for number in 1..=40 {
        let (status, answer) = send(&http, &request("ping"), &[tries("0")]).await;
        assert_eq!(status, 200, "{number}: {answer}");
    }
    assert_eq!(count_sessions(&http).await, 40);
}

#[tokio::test]
async fn requests_that_name_a_session_are_turns_of_it() {
    let (_fixture, http) = fixture("Good day.").await;
    let mut ids = Vec::new();
    for text in ["One", "Two", "Two"] {
        let (status, answer) = send(&http, &request(text), &[("x-ailoop-session", "c-1")]).await;
        assert_eq!(status, 200, "{answer}");
        ids.push(answer["id"].as_str().unwrap().to_owned());
    }
    ids.dedup();
    assert_eq!((ids.len(), count_sessions(&http).await), (3, 1), "an equal message is another message");
    let session = ids[0].trim_start_matches("chatcmpl-").rsplit_once('-').unwrap().0.to_owned();
    http.post(&format!("/v1/sessions/{session}/stop"), json!({})).await;
    let (status, answer) = send(&http, &request("Three"), &[("x-ailoop-session", "c-1")]).await;
    assert_eq!(
        (status, count_sessions(&http).await),
        (200, 2),
        "a session that ended is followed by another: {answer}"
    );
}

#[tokio::test]
async fn chat_of_open_webui_is_its_messages_whatever_comes_first() {
    let (_fixture, http) = fixture("Good day.").await;
    let chat = [("x-openwebui-chat-id", "c-1")];
    let next = json!({"model": "e", "messages": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Good day."}, {"role": "user", "content": "More"},
    ]});
    for body in [request("### Task: Generate a concise title. <chat>Hi</chat>"), request("Hi"), next] {
        let (status, answer) = send(&http, &body, &chat).await;
        assert_eq!(status, 200, "{answer}");
    }
    assert_eq!(count_sessions(&http).await, 3, "a title is no turn of the chat");
}

#[tokio::test]
async fn messages_that_end_with_no_user_are_answered() {
    let (_fixture, http) = fixture("Good day.").await;
    let user = json!({"role": "user", "content": "Hi"});
    let reply = json!({"role": "assistant", "content": "I run it."});
    let system = json!({"role": "system", "content": "It prints 4."});
    for messages in [json!([user, reply, system]), json!([user, reply]), json!([user, system]), json!([system])] {
        let (status, answer) = send(&http, &json!({"model": "e", "messages": messages}), &[]).await;
        assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("Good day.")), "{answer}");
        let input: Vec<Value> = messages.as_array().unwrap().clone();
        let (status, answer) = http.post("/openai/v1/responses", json!({"model": "e", "input": input})).await;
        assert_eq!((status, &answer["status"]), (200, &json!("completed")), "{answer}");
    }
}

#[tokio::test]
async fn failure_is_an_error_in_the_form_of_openai() {
    let (_fixture, http) = fixture("").await;
    let (status, answer) = send(&http, &request("Hi"), &[]).await;
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("model_overloaded")), "{answer}");
    for (body, status, code) in [
        (json!({"model": "nobody", "messages": [{"role": "user", "content": "x"}]}), 404, "model_not_found"),
        (json!({"model": "e", "messages": []}), 400, "empty_message"),
        (json!({"model": "e"}), 400, "bad_request"),
        (json!({"model": "e", "messages": [{"role": "user", "content": "x"}], "n": 3}), 400, "bad_request"),
        (json!({"model": "a.b", "messages": [{"role": "user", "content": "x"}]}), 400, "bad_request"),
    ] {
        let (found, answer) = send(&http, &body, &[]).await;
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{body}: {answer}");
        assert!(["message", "type", "param", "code"].iter().all(|field| answer["error"].get(field).is_some()));
    }
    let (status, _) = send(&http, &request("Title?"), &[("x-ailoop-task", "title_generation")]).await;
    assert_eq!(status, 400);
    assert_eq!(http.get("/openai/v1/unheard").await.1["error"]["code"], "unknown_method");
}

#[tokio::test]
async fn call_of_a_tool_that_the_client_brings_is_given_to_it_and_its_result_goes_on() {
    let (fixture, http) = fixture("It rains in Bonn.").await;
    fixture.fake_loop.call_client_first();
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]);
    for stream in [false, true] {
        let mut body = request(&format!("Weather? {stream}"));
        body["tools"] = tools.clone();
        let call = if stream {
            body["stream"] = json!(true);
            let response = http.request("POST", PATH).header("content-type", "application/json").body(body.to_string());
            let mut frames = SseReader::new(response.send().await.unwrap());
            let (mut call, mut finish) = (Value::Null, Value::Null);
            while let Some(event) = frames.next().await {
                let frame: Value = serde_json::from_str(&event.data).unwrap_or_default();
                let choice = &frame["choices"][0];
                if choice["delta"]["tool_calls"].is_array() {
                    call = choice["delta"]["tool_calls"][0].clone();
                }
                finish = if choice["finish_reason"].is_null() { finish } else { choice["finish_reason"].clone() };
            }
            assert_eq!(finish, "tool_calls");
            call
        } else {
            let (status, answer) = send(&http, &body, &[]).await;
            assert_eq!((status, &answer["choices"][0]["finish_reason"]), (200, &json!("tool_calls")), "{answer}");
            assert_eq!(answer["choices"][0]["message"]["content"], "Let me look.");
            answer["choices"][0]["message"]["tool_calls"][0].clone()
        };
        let function = json!({"name": "weather", "arguments": "{\"city\":\"Bonn\"}"});
        assert_eq!((&call["type"], &call["function"]), (&json!("function"), &function), "{call}");

        let mut answer = json!({"model": "e", "tools": tools.clone(), "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": null, "tool_calls": [call.clone()]},
            {"role": "tool", "tool_call_id": call["id"], "content": "rain"},
        ]});
        let (status, answered) = send(&http, &answer, &[]).await;
        assert_eq!((status, &answered["choices"][0]["finish_reason"]), (200, &json!("stop")), "{answered}");
        assert_eq!(answered["choices"][0]["message"]["content"], "It rains in Bonn.");
        let again = send(&http, &answer, &[("x-stainless-retry-count", "1")]).await;
        assert_eq!((again.0, &again.1["choices"]), (200, &answered["choices"]), "a repeated result changes nothing");
        answer["messages"][2]["tool_call_id"] = json!("call_of_another_server");
        assert_eq!(send(&http, &answer, &[]).await.0, 404);
    }
}
