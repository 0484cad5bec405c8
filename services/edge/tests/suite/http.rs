//! The HTTP API: requests, server-sent events, errors in their form, and bad input.

use contract::event::Topic;
use serde_json::{Value, json};

use crate::support::http::{Http, SseReader, read};
use crate::support::{Fixture, config, events, key};

fn http(fixture: &Fixture) -> Http {
    Http::new(fixture.edge.addresses().ws, None)
}

#[tokio::test]
async fn session_is_started_steered_and_read_over_http() {
    let fixture = Fixture::new().await;
    let http = http(&fixture);
    let body = json!({"session_id": "s1", "prompt": "Hello", "interactive": true});
    let request = http.request("POST", "/v1/sessions").header("content-type", "application/json");
    let response = request.body(body.to_string()).send().await.unwrap();
    assert_eq!(response.headers()["location"], "/v1/sessions/s1");
    let (status, started) = read(response).await;
    assert_eq!((status, &started["session_id"], &started["done"]), (201, &json!("s1"), &json!(true)), "{started}");
    let (status, reply) = http.post("/v1/sessions/s1/messages", json!({"content": "More"})).await;
    assert_eq!((status, &reply["done"]), (200, &json!(true)), "{reply}");
    let (status, reply) = http.post("/v1/sessions/s1/pause", json!({"reason": "lunch", "wait": false})).await;
    assert_eq!((status, &reply["done"]), (202, &json!(false)), "{reply}");

    let (status, listed) = http.get("/v1/sessions?limit=5").await;
    assert_eq!((status, &listed["sessions"][0]["session_id"]), (200, &json!("s1")), "{listed}");
    let (status, session) = http.get("/v1/sessions/s1").await;
    assert_eq!((status, &session["session_id"]), (200, &json!("s1")));
    let (status, history) = http.get("/v1/sessions/s1/history").await;
    assert_eq!((status, &history["seq"]), (200, &json!(5)), "{history}");
    assert_eq!(http.get("/v1/sessions/s1/transcript?after=0&limit=1").await.0, 200);
    for path in ["/v1/agents", "/v1/models", "/v1/tools", "/v1/gates", "/v1/stats", "/v1/openapi.json"] {
        assert_eq!(http.get(path).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn command_repeated_with_its_idempotency_key_changes_nothing() {
    let fixture = Fixture::new().await;
    let http = http(&fixture);
    http.post("/v1/sessions", json!({"session_id": "s", "interactive": true})).await;
    let mut replies = Vec::new();
    for _ in 0..2 {
        let request = http.request("POST", "/v1/sessions/s/messages").header("idempotency-key", "once");
        let request = request.header("content-type", "application/json").body(json!({"content": "x"}).to_string());
        replies.push(read(request.send().await.unwrap()).await);
    }
    assert_eq!(replies[0], replies[1]);
    assert_eq!(replies[0].1["command_id"], "once");
    let (_, history) = http.get("/v1/sessions/s/history").await;
    assert_eq!(history["seq"], replies[0].1["seq"], "{history}");
}

#[tokio::test]
async fn start_repeated_with_its_idempotency_key_starts_one_session() {
    let fixture = Fixture::new().await;
    let http = http(&fixture);
    let mut replies = Vec::new();
    for _ in 0..2 {
        let request = http.request("POST", "/v1/sessions").header("idempotency-key", "once");
        let body = json!({"prompt": "x", "interactive": true}).to_string();
        let (_, reply) =
            read(request.header("content-type", "application/json").body(body).send().await.unwrap()).await;
        replies.push((reply["session_id"].clone(), reply["seq"].clone()));
    }
    assert_eq!(replies[0], replies[1]);
    let (_, sessions) = http.get("/v1/sessions").await;
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
}

#[tokio::test]
async fn event_stream_goes_on_after_the_last_event_that_the_client_has() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 3).await;
    let http = http(&fixture);
    let open = async |path: &str, last: Option<&str>| {
        let mut request = http.request("GET", path);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        SseReader::new(request.send().await.unwrap())
    };
    let mut stream = open("/v1/sessions/s/events", None).await;
    let first = stream.next().await.unwrap();
    assert_eq!((first.id.as_str(), first.event.as_str()), ("1", "session_started"));
    let data: Value = serde_json::from_str(&first.data).unwrap();
    assert_eq!((&data["seq"], &data["session_id"]), (&json!(1), &json!("s")));
    drop(stream);

    let mut stream = open("/v1/sessions/s/events", Some("2")).await;
    assert_eq!(stream.next().await.unwrap().id, "3");
    assert_eq!(stream.next().await.unwrap().id, "4");
    fixture.fake_loop.commit(&key("s"), vec![events::session_ended()]).await;
    assert_eq!(stream.next().await.unwrap().event, "session_ended");
    assert_eq!(stream.next().await, None, "the stream ends with its session");
    let mut stream = open("/v1/sessions/s/events?from_seq=4", Some("1")).await;
    assert_eq!(stream.next().await.unwrap().id, "4", "the query counts before the header");

    let (status, problem) = http.get("/v1/sessions/s/events?from_seq=99").await;
    assert_eq!((status, &problem["code"], &problem["seq"]), (410, &json!("resync"), &json!(5)), "{problem}");
}

#[tokio::test]
async fn draining_edge_ends_a_stream_with_an_event_that_no_topic_has() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 0).await;
    // A turn that failed: the log has the event `error`, which ends no stream.
    fixture.fake_loop.commit(&key("s"), events::turn_with_reply(1, "")).await;
    let http = http(&fixture);
    let mut stream = SseReader::new(http.request("GET", "/v1/sessions/s/events").send().await.unwrap());
    assert_eq!(stream.next().await.unwrap().id, "1");
    for (id, topic) in [("2", "error"), ("3", "turn.completed")] {
        let event = stream.next().await.unwrap();
        assert_eq!((event.id.as_str(), event.event.as_str()), (id, topic));
    }
    let read_end = async {
        let last = stream.next().await.unwrap();
        let problem: Value = serde_json::from_str(&last.data).unwrap();
        assert_eq!((last.event.as_str(), &problem["code"]), ("watch.failed", &json!("draining")));
        assert!(Topic::ALL.iter().all(|topic| topic.as_str() != last.event), "{last:?}");
        assert_eq!(stream.next().await, None);
    };
    tokio::join!(fixture.edge.drain(std::time::Duration::from_secs(5)), read_end);
}

/// Verb, path and body of a request; status and code of the answer, and what its text names.
type BadRequestCase = (&'static str, &'static str, Option<Value>, u16, &'static str, &'static str);

#[tokio::test]
async fn bad_request_is_refused_with_a_problem_that_names_the_field() {
    let fixture = Fixture::new().await;
    let http = http(&fixture);
    http.post("/v1/sessions", json!({"session_id": "s", "interactive": true})).await;
    let rows: [BadRequestCase; 16] = [
        ("GET", "/v1/sessions/none", None, 404, "unknown_session", "none"),
        ("GET", "/v1/sessions/a.b", None, 400, "bad_request", "session_id"),
        ("GET", "/v1/sessions/%3E", None, 400, "bad_request", "session_id"),
        ("GET", "/v1/sessions/%00", None, 400, "bad_request", "session_id"),
        ("GET", "/v1/sessions/%ff", None, 400, "bad_request", ""),
        ("GET", "/v1/sessions?limit=x", None, 400, "bad_request", "limit"),
        ("GET", "/v1/sessions?limit=-1", None, 400, "bad_request", "limit"),
        ("GET", "/v1/sessions?limit=1&limit=2", None, 400, "bad_request", "limit"),
        ("GET", "/v1/sessions?unheard=1", None, 400, "bad_request", "unheard"),
        ("GET", "/v1/sessions?phase=gone", None, 400, "bad_request", "phase"),
        ("POST", "/v1/sessions", Some(json!({"unheard": 1})), 400, "bad_request", "unheard"),
        ("POST", "/v1/sessions", Some(json!([1])), 400, "bad_request", "object"),
        ("POST", "/v1/sessions/s/stop", Some(json!({"session_id": "t"})), 400, "bad_request", "session_id"),
        ("POST", "/v1/sessions/s/messages", Some(json!({"content": ""})), 400, "empty_message", ""),
        ("GET", "/v1/unheard", None, 404, "unknown_method", "/v1/openapi.json"),
        ("DELETE", "/v1/sessions", None, 405, "unknown_method", "DELETE"),
    ];
    for (verb, path, body, status, code, names) in rows {
        let (found, problem) = http.send(verb, path, body.as_ref()).await;
        assert_eq!((found, problem["code"].as_str()), (status, Some(code)), "{verb} {path}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(names), "{verb} {path}: {problem}");
        assert_eq!(problem["status"].as_u64(), (status != 405).then_some(u64::from(status)).or(Some(404)), "{problem}");
    }
}

#[tokio::test]
async fn body_that_is_no_json_is_refused() {
    let fixture = Fixture::new().await;
    let http = http(&fixture);
    let send = async |kind: &str, body: Vec<u8>| {
        let request = http.request("POST", "/v1/sessions").header("content-type", kind).body(body);
        read(request.send().await.unwrap()).await
    };
    let (status, problem) = send("text/plain", b"{}".to_vec()).await;
    assert_eq!((status, problem["detail"].as_str().unwrap().contains("text/plain")), (400, true), "{problem}");
    for body in [&b"{"[..], b"\xff\xfe", b"{\"prompt\": \"\\ud800\"}"] {
        assert_eq!(send("application/json", body.to_vec()).await.0, 400, "{body:?}");
    }
    let deep = format!("{{\"parameters\": {}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
    assert_eq!(send("application/json; charset=utf-8", deep.into_bytes()).await.0, 400);
    let (status, problem) = send("application/json", vec![b' '; contract::limits::FRAME_BYTES_MAX + 1]).await;
    assert_eq!((status, &problem["code"]), (413, &json!("too_large")), "{problem}");
}

#[tokio::test]
async fn document_for_everybody_is_refused_to_a_page_of_another_host() {
    let fixture = Fixture::new().await;
    let http = http(&fixture);
    let cards = ["/.well-known/agent-card.json", "/a2a/agents/e/.well-known/agent-card.json"];
    for path in ["/", "/v1/openapi.json"].into_iter().chain(cards) {
        for (name, value, status) in
            [("host", "evil.example.org", 401), ("origin", "https://evil.example.org", 401), ("host", "localhost", 200)]
        {
            let response = http.request("GET", path).header(name, value).send().await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{path} {name}: {value}");
        }
    }
}

#[tokio::test]
async fn page_of_another_origin_gets_nothing() {
    let fixture =
        Fixture::with(edge::EdgeConfig { allowed_origins: vec!["https://console.example.org".to_owned()], ..config() })
            .await;
    let http = http(&fixture);
    for (origin, status) in [("https://evil.example.org", 401), ("https://console.example.org", 200), ("null", 401)] {
        let response = http.request("GET", "/v1/sessions").header("origin", origin).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{origin}");
    }
}
