//! `http_fetch` over real sockets: its results, and the servers that it never requests.

mod world;

use std::io::Write;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use serde_json::json;
use tool_host::fetch::FetchConfig;

use world::{FakeResolver, Server, fetch, fetcher, open};

const NO_ANSWERS: &[&[&str]] = &[];

fn respond(content_type: &'static str, body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, content_type)], body.into()).into_response()
}

fn redirect(to: &str) -> Response {
    (StatusCode::FOUND, [(header::LOCATION, to.to_owned())]).into_response()
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn pages() -> Router {
    let page = "<html><head><title>Tea &amp; more</title></head><body><h1>Tea</h1><p>Black or <a href='/green'>green</a>.\
        <script>no()</script></body></html>";
    let gzip = |content_type, bytes: Vec<u8>| {
        ([(header::CONTENT_TYPE, content_type), (header::CONTENT_ENCODING, "gzip")], bytes).into_response()
    };
    Router::new()
        .route("/page", get(move || async move { respond("text/html; charset=utf-8", page) }))
        .route("/latin", get(|| async { respond("text/plain; charset=iso-8859-1", &b"caf\xe9"[..]) }))
        .route("/json", get(|| async { respond("application/json", r#"{"a": 1}"#) }))
        .route("/png", get(|| async { respond("image/png", &b"\x89PNG\0"[..]) }))
        .route("/untyped", get(|| async { Body::from(&b"\0\x01\x02"[..]).into_response() }))
        .route("/gone", get(|| async { (StatusCode::GONE, "it is gone") }))
        .route("/long", get(|| async { respond("text/plain", "0123456789ä".repeat(10_000)) }))
        .route("/gzip", get(move || async move { gzip("text/html", compress(page.as_bytes())) }))
        .route("/bomb", get(move || async move { gzip("text/plain", compress(&vec![b'a'; 8 << 20])) }))
        .route("/broken", get(move || async move { gzip("text/plain", b"no gzip".to_vec()) }))
        .route(
            "/brotli",
            get(|| async { ([(header::CONTENT_ENCODING, "br"), (header::CONTENT_TYPE, "text/plain")], "x") }),
        )
        .route(
            "/endless",
            get(|| async {
                let piece = Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 64 << 10]));
                respond(
                    "text/plain",
                    Body::from_stream(stream::repeat_with(move || {
                        Ok::<_, std::io::Error>(piece.as_ref().unwrap().clone())
                    })),
                )
            }),
        )
        .route("/silent", get(|| async { std::future::pending::<()>().await }))
        .route(
            "/cookie",
            get(|| async { (StatusCode::FOUND, [(header::SET_COOKIE, "a=b; Path=/"), (header::LOCATION, "/told")]) }),
        )
        .route("/told", any(|headers: HeaderMap| async move { format!("{headers:?}") }))
        .route(
            "/hop/{left}",
            get(|Path(left): Path<u32>| async move {
                if left == 0 { respond("text/plain", "there") } else { redirect(&format!("{}?x", left - 1)) }
            }),
        )
}

#[tokio::test]
async fn page_fetched_becomes_text() {
    let server = Server::start("127.0.0.1", pages()).await;
    let config = open(&["127.0.0.0/8"], &[&server]);
    let fetcher = fetcher(&config, &FakeResolver::new(NO_ANSWERS));
    let got = async |path: &str| fetch(&fetcher, json!({"url": server.url(path)})).await;

    let page = json!({"url": server.url("/page"), "status": 200, "content_type": "text/html", "title": "Tea & more",
        "text": format!("# Tea\n\nBlack or [green]({}).", server.url("/green")), "truncated": false});
    assert_eq!(got("/page#part").await, Ok(page));
    let plain = |path: &str, content_type: &str, text: &str| json!({"url": server.url(path), "status": 200, "content_type": content_type, "text": text, "truncated": false});
    assert_eq!(got("/latin").await, Ok(plain("/latin", "text/plain", "café")));
    assert_eq!(got("/json").await, Ok(plain("/json", "application/json", r#"{"a": 1}"#)));
    assert_eq!(got("/gzip").await.unwrap()["title"], "Tea & more");
    assert_eq!(got("/hop/5").await, Ok(plain("/hop/0?x", "text/plain", "there")));
    let png = got("/png").await.unwrap();
    assert_eq!((&png["text"], &png["binary"], &png["bytes"]), (&json!(""), &json!(true), &json!(5)));
    let untyped = got("/untyped").await.unwrap();
    assert_eq!((&untyped["text"], &untyped["binary"], &untyped["bytes"]), (&json!(""), &json!(true), &json!(3)));
    assert_eq!(got("/brotli").await.unwrap()["binary"], true);
    let gone = got("/gone").await.unwrap();
    assert_eq!((&gone["status"], &gone["text"]), (&json!(410), &json!("it is gone")));
    let head = fetch(&fetcher, json!({"url": server.url("/png"), "method": "HEAD"})).await.unwrap();
    assert_eq!((&head["status"], &head["bytes"], &head["text"]), (&json!(200), &json!(5), &json!("")));
    assert!(got("/broken").await.unwrap_err().contains("broke off"));
    assert!(got("/hop/6").await.unwrap_err().contains("redirects over 5 times"));
    let text = got("/cookie").await.unwrap()["text"].as_str().unwrap().to_owned();
    assert!(text.contains("ailoop/") && !text.contains("cookie") && !text.contains("referer"), "{text}");
}

#[tokio::test]
async fn page_too_long_is_continued_at_next_offset() {
    let server = Server::start("127.0.0.1", pages()).await;
    let config = FetchConfig { max_bytes: 110_000, ..open(&["127.0.0.1"], &[&server]) };
    let fetcher = fetcher(&config, &FakeResolver::new(NO_ANSWERS));
    let (mut all, mut offset) = (String::new(), 0);
    loop {
        let piece =
            fetch(&fetcher, json!({"url": server.url("/long"), "offset": offset, "max_chars": 30_001})).await.unwrap();
        assert!(piece.to_string().len() <= contract::limits::TOOL_OUTPUT_BYTES_MAX);
        assert_eq!(piece["truncated"], true, "the end is never seen");
        all += piece["text"].as_str().unwrap();
        let Some(next) = piece["next_offset"].as_u64() else {
            assert!(piece["note"].as_str().unwrap().contains("only the first 110000 bytes"));
            break;
        };
        offset = next;
    }
    assert_eq!(all, "0123456789ä".repeat(10_000).get(..110_000).map_or_else(String::new, ToOwned::to_owned));
    let beyond = fetch(&fetcher, json!({"url": server.url("/long"), "offset": 1_000_000})).await.unwrap();
    assert_eq!(beyond["text"], "");
}

#[tokio::test]
async fn body_too_large_is_cut_and_server_too_slow_is_an_error() {
    let server = Server::start("127.0.0.1", pages()).await;
    let config = FetchConfig { max_bytes: 50_000, timeout: 1, ..open(&["127.0.0.1"], &[&server]) };
    let quick = fetcher(&config, &FakeResolver::new(NO_ANSWERS));
    let late = fetch(&quick, json!({"url": server.url("/silent")})).await.unwrap_err();
    assert!(late.contains("did not answer whole within 1 seconds"), "{late}");
    let patient = fetcher(&FetchConfig { timeout: 60, ..config }, &FakeResolver::new(NO_ANSWERS));
    for path in ["/bomb", "/endless"] {
        let cut = fetch(&patient, json!({"url": server.url(path), "max_chars": 10})).await.unwrap();
        assert_eq!((&cut["truncated"], &cut["next_offset"]), (&json!(true), &json!(10)), "{path}");
        assert!(cut["note"].as_str().unwrap().contains("only the first 50000 bytes"), "{path}");
    }
}

#[tokio::test]
async fn private_address_in_any_spelling_is_never_requested() {
    let secret = Server::start("127.0.0.1", Router::new().fallback(|| async { "secret" })).await;
    let port = secret.at.port();
    let to = move |host: &str| redirect(&format!("http://{host}:{port}/"));
    let lures = Router::new().route("/{host}", get(move |Path(host): Path<String>| async move { to(&host) }));
    let lure = Server::start("127.0.0.2", lures).await;
    let fetcher = fetcher(&open(&["127.0.0.2"], &[&secret, &lure]), &FakeResolver::new(&[&["127.0.0.1"]]));
    let written = [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::1]",
        "0.0.0.0",
        "named.example",
        "localhost",
        "127.0.0.1.",
    ];
    for host in written {
        let direct = fetch(&fetcher, json!({"url": format!("http://{host}:{port}/")})).await.unwrap_err();
        assert!(direct.contains("private network"), "{host}: {direct}");
        let led = fetch(&fetcher, json!({"url": lure.url(&format!("/{host}"))})).await.unwrap_err();
        assert!(led.contains("private network"), "{host}: {led}");
    }
    assert_eq!((secret.count_requests(), lure.count_requests()), (0, written.len()));
}

#[tokio::test]
async fn host_name_connects_to_the_checked_address() {
    let secret = Server::start("127.0.0.1", Router::new().fallback(|| async { "secret" })).await;
    let again = Router::new().route("/again", get(|| async { redirect("/secret") })).fallback(|| async { "open" });
    // The same port, so that only the address differs.
    let open_server = Server::on(([127, 0, 0, 2], secret.at.port()).into(), again).await;
    let config = open(&["127.0.0.2"], &[&secret]);
    let url = |path: &str| json!({"url": format!("http://rebind.example:{}{path}", secret.at.port())});

    // The name turns private after the first query, which served both the check and the connection.
    let resolver = FakeResolver::new(&[&["127.0.0.2"], &["127.0.0.1"]]);
    assert_eq!(fetch(&fetcher(&config, &resolver), url("/")).await.unwrap()["text"], "open");
    assert_eq!(resolver.count_requests(), 1);
    // A second hop is resolved and checked again.
    let resolver = FakeResolver::new(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let refused = fetch(&fetcher(&config, &resolver), url("/again")).await.unwrap_err();
    assert!(refused.contains("rebind.example is 127.0.0.1, an address of a private network"), "{refused}");
    // Private addresses are skipped, in any order.
    for answer in [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["::1", "127.0.0.2"]] {
        assert_eq!(fetch(&fetcher(&config, &FakeResolver::new(&[&answer])), url("/")).await.unwrap()["text"], "open");
    }
    let nowhere = fetch(&fetcher(&config, &FakeResolver::new(&[&[]])), url("/")).await.unwrap_err();
    assert!(nowhere.contains("has no address"), "{nowhere}");
    assert_eq!(secret.count_requests(), 0);
    assert_eq!(open_server.count_requests(), 5);
}

#[tokio::test]
async fn private_host_permitted_by_name_is_fetched() {
    let server = Server::start("127.0.0.1", Router::new().fallback(|| async { "inside" })).await;
    let fetcher = fetcher(&open(&["wiki.intern"], &[&server]), &FakeResolver::new(&[&["127.0.0.1"]]));
    let port = server.at.port();
    assert_eq!(
        fetch(&fetcher, json!({"url": format!("http://WIKI.intern.:{port}/")})).await.unwrap()["text"],
        "inside"
    );
    let other = fetch(&fetcher, json!({"url": format!("http://other.intern:{port}/")})).await.unwrap_err();
    assert!(other.contains("tool_host.fetch.allow_private"), "{other}");
}

#[tokio::test]
async fn server_unreachable_is_an_error_that_names_it() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = FetchConfig { ports: vec![gone.port()], ..open(&["127.0.0.1"], &[]) };
    let error = fetch(&fetcher(&config, &FakeResolver::new(NO_ANSWERS)), json!({"url": format!("http://{gone}/")}))
        .await
        .unwrap_err();
    assert!(error.starts_with("127.0.0.1 could not be fetched: "), "{error}");
}

/// Runs this program again, in an environment that names a proxy without a listener.
#[tokio::test]
async fn proxy_in_environment_is_not_used() {
    let mut again = tokio::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "fetch::page_fetched_becomes_text"]).kill_on_drop(true);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        again.env(name, "http://127.0.0.1:9");
    }
    again.env_remove("no_proxy").env_remove("NO_PROXY");
    let output = tokio::time::timeout(Duration::from_mins(2), again.output()).await.unwrap().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
}

#[tokio::test]
async fn configuration_invalid_error_names_the_field() {
    let refused = |config: FetchConfig| {
        let Err(error) = tool_host::fetch::Fetcher::new(&config, std::sync::Arc::new(FakeResolver::new(NO_ANSWERS)))
        else {
            panic!("taken: {config:?}");
        };
        assert_eq!(contract::Coded::code(&error), contract::ErrorCode::BadConfig);
        error.to_string()
    };
    for (config, part) in [
        (FetchConfig { timeout: 0, ..FetchConfig::default() }, "tool_host.fetch.timeout "),
        (FetchConfig { timeout: 61, ..FetchConfig::default() }, "1 to 60 seconds"),
        (FetchConfig { max_bytes: 0, ..FetchConfig::default() }, "tool_host.fetch.max_bytes "),
        (FetchConfig { max_bytes: 1 << 40, ..FetchConfig::default() }, "tool_host.fetch.max_bytes "),
        (FetchConfig { allow_hosts: Some(vec!["a/b".to_owned()]), ..FetchConfig::default() }, "fetch.allow_hosts "),
        (
            FetchConfig { allow_private: vec!["10.0.0.0/33".to_owned()], ..FetchConfig::default() },
            "fetch.allow_private ",
        ),
        (FetchConfig { user_agent: Some("a\nb".to_owned()), ..FetchConfig::default() }, "fetch.user_agent "),
    ] {
        let error = refused(config);
        assert!(error.contains(part), "{error}");
    }
}
