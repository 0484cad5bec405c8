//! Webhooks over real sockets: the requests, and the results of answers and silence.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::ToolError;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{any, post};
use contract::ToolName;
use serde_json::{Value, json};
use service::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tool_host::webhook::{Endpoint, WebhookConfig, WebhookRequest};

const LONG: Duration = Duration::from_secs(30);

async fn serve(router: Router) -> (SocketAddr, Tasks) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (at, tasks) = (listener.local_addr().unwrap(), Tasks::new());
    tasks.spawn("server", async move { axum::serve(listener, router).await.unwrap() });
    (at, tasks)
}

/// A server that reads a request, writes `answer`, and closes the connection.
async fn raw(answer: &'static [u8]) -> (SocketAddr, Tasks) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (at, tasks) = (listener.local_addr().unwrap(), Tasks::new());
    tasks.spawn("server", async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            while !received.ends_with(b"{\"n\":1}") {
                let mut buffer = [0; 1_024];
                let read = socket.read(&mut buffer).await.unwrap();
                received.extend_from_slice(&buffer[..read]);
            }
            socket.write_all(answer).await.unwrap();
        }
    });
    (at, tasks)
}

fn config(url: &str, more: &Value) -> WebhookConfig {
    let mut config = json!({"url": url, "description": "Acts.", "timeout": 20});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(config).unwrap()
}

fn endpoint(url: &str, more: &Value) -> Endpoint {
    Endpoint::new(&ToolName::new("act").unwrap(), &config(url, more)).unwrap()
}

fn request() -> WebhookRequest {
    WebhookRequest {
        call: "s1-c1-1-1".to_owned(),
        session: "s1".to_owned(),
        agent: "e".to_owned(),
        attempt: "1.2".to_owned(),
        deadline: "2026-01-15T10:30:45.123Z".to_owned(),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        body: br#"{"n":1}"#.to_vec(),
    }
}

fn unknown(text: &str) -> ToolError {
    ToolError::unknown(format!("{text}; nobody knows whether it took effect. Find out before calling again."))
}

fn answers() -> Router {
    Router::new()
        .route(
            "/echo",
            post(|headers: HeaderMap, body: Bytes| async move {
                let mut lines: Vec<String> =
                    headers.iter().map(|(k, v)| format!("{k}: {}", v.to_str().unwrap())).collect();
                lines.sort();
                format!("{}\n{}", lines.join("\n"), String::from_utf8_lossy(&body))
            }),
        )
        .route(
            "/status/{code}",
            any(|Path(code): Path<u16>| async move { (StatusCode::from_u16(code).unwrap(), "because") }),
        )
        .route("/empty", post(|| async { StatusCode::NO_CONTENT }))
        .route("/away", post(|| async { (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/echo")]) }))
        .route("/done", post(|| async { (StatusCode::SEE_OTHER, [(header::LOCATION, "/echo")]) }))
        .route("/large", post(|| async { "x".repeat(1 << 20) }))
        .route("/large-error", post(|| async { (StatusCode::BAD_REQUEST, "x".repeat(1 << 20)) }))
        .route(
            "/leak",
            post(|headers: HeaderMap| async move {
                (StatusCode::FORBIDDEN, format!("wrong key: {:?}", headers[header::AUTHORIZATION].to_str().unwrap()))
                    .into_response()
            }),
        )
        .route(
            "/endless",
            post(|| async {
                Body::from_stream(futures::stream::repeat_with(|| {
                    Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 64 << 10]))
                }))
            }),
        )
}

#[tokio::test]
async fn webhook_called_endpoint_gets_the_call_and_its_response_is_the_result() {
    let (at, _tasks) = serve(answers()).await;
    let url = |path: &str| format!("http://{at}{path}");
    let headers = json!({"headers": {"Authorization": "Bearer sk-0123456789", "X-Short": "abc"}});
    let text = endpoint(&url("/echo"), &headers).send(request()).await.unwrap();
    let expected = format!(
        "accept-encoding: gzip\naccept: */*\nailoop-agent: e\nailoop-attempt: 1.2\nailoop-call: s1-c1-1-1\n\
         ailoop-deadline: 2026-01-15T10:30:45.123Z\nailoop-session: s1\nauthorization: Bearer [secret]\ncontent-length: 7\n\
         content-type: application/json\nhost: {at}\nidempotency-key: s1-c1-1-1\n\
         traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nuser-agent: ailoop/{}\nx-short: abc\n{{\"n\":1}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text, expected);
    assert_eq!(
        endpoint(&url("/empty"), &json!({})).send(request()).await,
        Ok("done (HTTP 204, no content)".to_owned())
    );
    for path in ["/large", "/endless"] {
        let large = endpoint(&url(path), &json!({})).send(request()).await.unwrap();
        assert!(large.contains("left out") && large.len() < contract::limits::TOOL_OUTPUT_BYTES_MAX + 100, "{path}");
    }
    // A request without any header.
    let bare = WebhookRequest { body: b"{}".to_vec(), ..WebhookRequest::default() };
    let text = endpoint(&url("/echo"), &json!({})).send(bare).await.unwrap();
    assert!(!text.contains("ailoop-") && !text.contains("idempotency"), "{text}");
}

#[tokio::test]
async fn webhook_refused_is_an_error_and_failed_or_proxied_is_unknown() {
    let (at, _tasks) = serve(answers()).await;
    let url = |path: &str| format!("http://{at}{path}");
    let send = async |path: &str, more: Value| endpoint(&url(path), &more).send(request()).await.unwrap_err();
    for code in [400, 401, 404, 409, 422, 429] {
        let refused = ToolError::new(format!("the endpoint refused the call with HTTP {code}: because"));
        assert_eq!(send(&format!("/status/{code}"), json!({})).await, refused);
    }
    for code in [408, 499, 500, 502, 503, 504] {
        let path = format!("/status/{code}");
        let text = format!("the endpoint, or a proxy before it, answered HTTP {code}: because");
        for effect in ["idempotent", "at_most_once"] {
            assert_eq!(send(&path, json!({"effect": effect})).await, unknown(&text));
        }
        let again = ToolError::new(format!("{text}; the call may be made again"));
        assert_eq!(send(&path, json!({"effect": "pure"})).await, again);
    }
    let away = send("/away", json!({})).await;
    assert!(away.message().contains("redirects to \"/echo\" (HTTP 307), which is not followed"), "{away}");
    assert_ne!(away, ToolError::unknown(away.message()));
    // Many servers answer so after they created something.
    let done = send("/done", json!({})).await;
    assert_eq!(done, unknown("the endpoint redirects to \"/echo\" (HTTP 303), which is not followed"));
    let large = send("/large-error", json!({})).await;
    assert!(large.message().len() < 5_000 && large.message().contains("left out"));
    let leak = send("/leak", json!({"headers": {"Authorization": "Bearer sk-0123456789"}})).await;
    assert_eq!(leak, ToolError::new("the endpoint refused the call with HTTP 403: wrong key: \"Bearer [secret]\""));
}

#[tokio::test]
async fn webhook_request_sent_without_response_is_unknown_and_unsent_is_an_error() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = endpoint(&format!("http://{gone}/"), &json!({})).send(request()).await.unwrap_err();
    assert_eq!(refused, ToolError::new(refused.message()));
    assert!(refused.message().contains("nothing was sent to it"), "{refused}");

    for (answer, expected) in [
        (&b""[..], "the connection to the endpoint was lost before it answered"),
        (b"HTTP/1.1 200 OK\r\n", "the connection to the endpoint was lost before it answered"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "the endpoint said HTTP 200, and its answer broke off"),
    ] {
        let (at, _tasks) = raw(answer).await;
        let lost = endpoint(&format!("http://{at}/"), &json!({})).send(request()).await.unwrap_err();
        assert_eq!(lost, ToolError::unknown(lost.message()));
        assert!(lost.message().starts_with(expected) && lost.message().contains("nobody knows"), "{lost}");
        let lost = endpoint(&format!("http://{at}/"), &json!({"effect": "pure"})).send(request()).await.unwrap_err();
        assert_eq!(lost, ToolError::new(lost.message()));
        assert!(lost.message().ends_with("the call may be made again"), "{lost}");
    }
    let silent = Router::new().fallback(|| async { std::future::pending::<()>().await });
    let (at, _tasks) = serve(silent).await;
    let late = endpoint(&format!("http://{at}/"), &json!({"timeout": 1})).send(request()).await.unwrap_err();
    assert_eq!(late, unknown("the endpoint did not answer within 1 seconds"));
}

#[tokio::test]
async fn webhook_call_dropped_closes_its_connection() {
    struct NotifyOnDrop(Arc<Notify>);
    impl Drop for NotifyOnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let (began, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, ends) = (began.clone(), ended.clone());
    let (at, _tasks) = serve(Router::new().fallback(move || {
        let (begins, notifier) = (begins.clone(), NotifyOnDrop(ends.clone()));
        async move {
            let _notifier = notifier;
            begins.notify_one();
            std::future::pending::<()>().await;
        }
    }))
    .await;
    let endpoint = endpoint(&format!("http://{at}/"), &json!({}));
    tokio::select! {
        answer = endpoint.send(request()) => panic!("{answer:?}"),
        () = began.notified() => {}
    }
    tokio::time::timeout(LONG, ended.notified()).await.expect("the endpoint is told");
}

#[test]
fn configuration_invalid_error_names_the_field() {
    for (url, more, part) in [
        ("ftp://x/", json!({}), "webhooks.act.url "),
        ("nowhere", json!({}), "webhooks.act.url "),
        ("http://u:p@x/", json!({}), "put credentials into headers"),
        ("http://x/", json!({"headers": {"a b": "x"}}), "webhooks.act.headers.a b "),
        ("http://x/", json!({"headers": {"X-A": "a\nb"}}), "control characters"),
        ("http://x/", json!({"headers": {"ailoop-call": "x"}}), "sets this header itself"),
        ("http://x/", json!({"headers": {"Content-Length": "1"}}), "sets this header itself"),
        ("http://x/", json!({"headers_from": {"X-A": "NO_SUCH_VARIABLE_HERE"}}), "webhooks.act.headers_from.X-A "),
    ] {
        let Err(error) = Endpoint::new(&ToolName::new("act").unwrap(), &config(url, &more)) else {
            panic!("{url} {more}")
        };
        let text = error.to_string();
        assert!(text.contains(part) && !text.contains("a\nb"), "{text}");
    }
}
