//! Responses and conversations: a response is a turn, found again in the log by its id.

use std::collections::BTreeSet;
use std::sync::Arc;

use bus_memory::{Action, MemoryServer};
use serde_json::{Value, json};

use crate::support::http::{Http, SseReader, post, read};
use crate::support::{CountedReads, Fixture, config, lose_answer, wait_until};

const PATH: &str = "/openai/v1/responses";

async fn fixture(reply: &str) -> (Fixture, Http) {
    let fixture = Fixture::new().await;
    fixture.fake_loop.reply_with(reply).await;
    let http = Http::new(fixture.edge.addresses().ws, None);
    (fixture, http)
}

/// Reads the events of a stream to its end.
async fn read_events(http: &Http, verb: &str, path: &str, body: Option<Value>) -> Vec<Value> {
    let mut request = http.request(verb, path);
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let mut stream = SseReader::new(request.send().await.unwrap());
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event.data);
    }
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[tokio::test]
async fn response_is_found_again_by_its_id() {
    let (_fixture, http) = fixture("Good day.").await;
    let (status, made) = http.post(PATH, json!({"model": "e", "input": "Hi", "metadata": {"a": "b"}})).await;
    assert_eq!((status, &made["status"], &made["object"]), (200, &json!("completed"), &json!("response")), "{made}");
    assert_eq!((&made["metadata"], &made["usage"]["total_tokens"]), (&json!({"a": "b"}), &json!(10)));
    let path = format!("{PATH}/{}", made["id"].as_str().unwrap());
    let (status, found) = http.get(&path).await;
    assert_eq!((status, &found["output"], &found["id"]), (200, &made["output"], &made["id"]));
    assert_eq!(found["output"][0]["content"][0]["text"], "Good day.");
    let (_, input) = http.get(&format!("{path}/input_items")).await;
    assert_eq!(input["data"][0]["content"], json!([{"type": "input_text", "text": "Hi"}]));
    let (status, _) = http.send("DELETE", &path, None).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn repeated_request_that_continues_a_response_is_the_same_turn() {
    let (fixture, http) = fixture("Good day.").await;
    let (_, first) = http.post(PATH, json!({"model": "e", "input": "One"})).await;
    let next = json!({"model": "e", "input": "Two", "previous_response_id": first["id"]});
    let next = |count| post(&http, PATH, &next, &[("x-stainless-retry-count", count)]);
    lose_answer(&fixture, next("0")).await;
    let (_, repeated) = read(next("1").send().await.unwrap()).await;
    assert_eq!(repeated["output"][0]["content"][0]["text"], "Good day.", "{repeated}");
    let (_, sessions) = http.get("/v1/sessions").await;
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
    assert_eq!(sessions["sessions"][0]["turn"], 2, "{sessions}");
}

#[tokio::test]
async fn stream_is_taken_up_after_any_event() {
    let (_fixture, http) = fixture("Good day.").await;
    let body = json!({"model": "e", "input": "Hi", "stream": true});
    let events = read_events(&http, "POST", PATH, Some(body)).await;
    let id = events[0]["response"]["id"].as_str().unwrap().to_owned();
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    for position in 0..events.len() {
        let after = events[position]["sequence_number"].as_u64().unwrap();
        let path = format!("{PATH}/{id}?stream=true&starting_after={after}");
        let rest = read_events(&http, "GET", &path, None).await;
        let kinds = |events: &[Value]| events.iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
        assert_eq!(kinds(&rest), kinds(&events[position + 1..]), "after {after}");
    }
}

#[tokio::test]
async fn failed_turn_is_a_failed_response_with_the_stable_code() {
    let (_fixture, http) = fixture("").await;
    let (status, made) = http.post(PATH, json!({"model": "e", "input": "Hi"})).await;
    assert_eq!((status, &made["status"], &made["error"]["code"]), (200, &json!("failed"), &json!("model_overloaded")));
}

#[tokio::test]
async fn failed_response_has_an_error_with_all_fields() {
    let (_fixture, http) = fixture("").await;
    let (status, failed) = http.post(PATH, json!({"model": "e", "input": "Hi"})).await;
    assert_eq!((status, &failed["status"]), (200, &json!("failed")), "{failed}");
    let expected = json!({"type": "server_error", "param": null, "code": "model_overloaded"});
    let mut found = failed["error"].clone();
    assert!(found["message"].is_string(), "{failed}");
    found.as_object_mut().unwrap().remove("message");
    assert_eq!(found, expected);
}

#[tokio::test]
async fn conversation_has_its_items_and_goes_on_after_its_end() {
    let (fixture, http) = fixture("Good day.").await;
    let items = json!([{"role": "user", "content": "Before"}]);
    let (status, made) = http.post("/openai/v1/conversations", json!({"items": items})).await;
    assert_eq!((status, &made["object"]), (200, &json!("conversation")), "{made}");
    let id = made["id"].as_str().unwrap();
    let (_, response) = http.post(PATH, json!({"model": "e", "input": "Hi", "conversation": id})).await;
    assert_eq!(response["conversation"]["id"], id, "{response}");
    let path = format!("/openai/v1/conversations/{id}");
    let (_, listed) = http.get(&format!("{path}/items?order=asc")).await;
    let texts: Vec<&Value> =
        listed["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts[texts.len() - 2..], [&json!("Hi"), &json!("Good day.")], "{listed}");
    let (_, ended) = http.send("DELETE", &path, None).await;
    assert_eq!(ended["deleted"], true);
    let (_, response) = http.post(PATH, json!({"model": "e", "input": 5, "conversation": {"id": id}})).await;
    assert_eq!(response["error"]["code"], "bad_request");
    let again = json!({"model": "e", "input": "Again", "conversation": {"id": id}});
    let again = |count| post(&http, PATH, &again, &[("x-stainless-retry-count", count)]);
    lose_answer(&fixture, again("0")).await;
    let next = format!("/v1/sessions/conv-{}-1", id.trim_start_matches("conv_"));
    wait_until("the session that follows", async || http.get(&next).await.0 == 200).await;
    let (_, response) = read(again("1").send().await.unwrap()).await;
    assert_eq!((&response["status"], &response["conversation"]["id"]), (&json!("completed"), &json!(id)), "{response}");
    let (_, sessions) = http.get("/v1/sessions").await;
    let turns: Vec<_> = sessions["sessions"].as_array().unwrap().iter().map(|session| &session["turn"]).collect();
    assert_eq!(turns, [&json!(1), &json!(1)], "a repeated request that started a session begins no second turn");
}

#[tokio::test]
async fn request_that_no_agent_can_take_is_refused_with_a_code() {
    let (_fixture, http) = fixture("x").await;
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    let deep: Value = serde_json::from_str(&deep).unwrap_or(json!([[[[[[]]]]]]));
    let rows = [
        (json!({}), 400),
        (json!({"model": "e"}), 400),
        (json!({"model": "e", "input": []}), 400),
        (json!({"model": "e", "input": [{"type": "compaction"}, {"role": "user", "content": "x"}]}), 400),
        (json!({"model": "e", "input": [{"x": 1}]}), 400),
        (json!({"model": "e", "input": deep}), 400),
        (json!({"model": "e", "input": "x", "tools": [{"type": "web_search"}]}), 400),
        (json!({"model": "e", "input": "x", "background": true, "store": false}), 400),
        (json!({"model": "e", "input": "x", "conversation": "conv_1", "previous_response_id": "resp_s_1"}), 400),
        (json!({"model": "e", "input": "x", "conversation": "conv_../s"}), 404),
        (json!({"model": "e", "input": "x", "previous_response_id": "resp_a.b_1"}), 404),
        (json!({"model": "e", "input": "x", "previous_response_id": "resp_s_99999999999999999999"}), 404),
        (json!({"model": "e", "input": [{"type": "function_call_output", "call_id": "call_1", "output": "x"}]}), 400),
        (json!({"model": "nobody", "input": "x"}), 404),
    ];
    for (body, wanted) in rows {
        let (status, answer) = http.post(PATH, body.clone()).await;
        assert_eq!(status, wanted, "{body}: {answer}");
        assert!(answer["error"]["code"].is_string() && answer["error"]["message"].is_string(), "{answer}");
    }
    let (status, answer) = http.get(&format!("{PATH}/resp_s_1?stream=true&starting_after=x")).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("bad_request")));
}

#[tokio::test]
async fn items_of_a_long_conversation_take_one_read_of_each_part_of_its_log() {
    let reads = Arc::new(CountedReads::default());
    let fixture = Fixture::on(MemoryServer::with_faults(reads.clone()), config()).await;
    fixture.fake_loop.reply_with("Good day.").await;
    let http = Http::new(fixture.edge.addresses().ws, None);
    let (_, conversation) = http.post("/openai/v1/conversations", json!({})).await;
    for _ in 0..110 {
        let next = json!({"model": "e", "input": "Hi", "conversation": conversation["id"]});
        let (status, answer) = http.post(PATH, next).await;
        assert_eq!(status, 200, "{answer}");
    }
    reads.take();
    let id = conversation["id"].as_str().unwrap();
    let (status, page) = http.get(&format!("/openai/v1/conversations/{id}/items?limit=100")).await;
    assert_eq!((status, &page["has_more"]), (200, &json!(true)), "{page}");
    let parts = reads.take().into_iter().filter(|(action, _)| *action == Action::LastMany);
    let parts: Vec<String> = parts.map(|(_, first)| first).collect();
    let distinct: BTreeSet<&String> = parts.iter().collect();
    assert!(parts.len() > 1 && distinct.len() == parts.len(), "{parts:?}");
}
