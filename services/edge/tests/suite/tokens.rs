//! Access tokens of issuers, over every protocol.

use std::net::SocketAddr;
use std::time::Instant;

use edge::EdgeConfig;
use futures::{StreamExt, stream};
use ring::hmac;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use crate::support::http::{Http, SseReader};
use crate::support::issuer::{Issuer, Mode, SigningKey, encode, now};
use crate::support::{Fixture, Ws, config, key, read_code, wait_until};

/// An edge that accepts the tokens of an issuer.
async fn fixture(issuer: &Issuer, more: Value) -> Fixture {
    Fixture::with(EdgeConfig { issuers: vec![issuer.config(&more)], ..config() }).await
}

async fn get(fixture: &Fixture, token: &str) -> (u16, Value) {
    Http::new(fixture.edge.addresses().ws, Some(token)).get("/v1/sessions").await
}

/// Sends a request for each token, some of them at once; returns the statuses.
async fn get_all(fixture: &Fixture, tokens: &[String]) -> Vec<u16> {
    let http = Http::new(fixture.edge.addresses().ws, None);
    let send = async |token: &String| {
        let request = http.request("GET", "/v1/sessions").bearer_auth(token);
        request.send().await.unwrap().status().as_u16()
    };
    stream::iter(tokens).map(send).buffer_unordered(16).collect().await
}

/// Calls `ListSessions` over gRPC.
async fn list(fixture: &Fixture, token: &str) -> Result<(), Status> {
    let mut request = Request::new(proto::ListSessionsRequest::default());
    request.metadata_mut().insert("authorization", MetadataValue::try_from(format!("Bearer {token}")).unwrap());
    fixture.grpc().await.0.list_sessions(request).await.map(drop)
}

/// Returns the HTTP status of an upgrade to WebSocket.
async fn upgrade(address: SocketAddr, token: &str) -> u16 {
    let mut request = format!("ws://{address}/ws").into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    match tokio_tungstenite::connect_async(request).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
        Err(error) => panic!("{error}"),
    }
}

fn warnings(fixture: &Fixture) -> String {
    let warnings: Vec<String> =
        fixture.edge.readiness().warnings().map(|(part, warning)| format!("{part}: {warning}")).collect();
    warnings.join("\n")
}

#[tokio::test]
async fn token_of_each_algorithm_is_accepted_by_every_protocol() {
    let keys = [SigningKey::new("ES256", "a"), SigningKey::new("ES384", "b"), SigningKey::new("EdDSA", "c")];
    let issuer = Issuer::start(&keys.each_ref()).await;
    let fixture = fixture(&issuer, json!({})).await;
    let address = fixture.edge.addresses().ws;
    for key in &keys {
        let token = issuer.token(key, &json!({}));
        assert_eq!(get(&fixture, &token).await.0, 200, "{}", key.kid);
        list(&fixture, &token).await.unwrap();
        Ws::connect_with_key(address, &token).await.expect_ok("session.list", json!({})).await;
        let (mut page, chosen) =
            Ws::connect_with_protocols(address, &format!("ailoop.v1, ailoop.bearer.{token}")).await;
        assert_eq!(chosen.as_deref(), Some("ailoop.v1"));
        page.expect_ok("session.list", json!({})).await;
    }
    assert_eq!(issuer.counts(), (1, 1), "the keys were fetched once");
}

#[tokio::test]
async fn requests_of_a_holder_are_limited_over_all_of_its_tokens() {
    let key = SigningKey::new("ES256", "a");
    let issuer = Issuer::start(&[&key]).await;
    let fixture = fixture(&issuer, json!({"requests_per_minute": 3})).await;
    let token = |sub: &str, n: u64| issuer.token(&key, &json!({"sub": sub, "jti": n}));
    for n in 0..3 {
        assert_eq!(get(&fixture, &token("ann", n)).await.0, 200);
    }
    let (status, problem) = get(&fixture, &token("ann", 3)).await;
    assert_eq!((status, &problem["code"]), (429, &json!("overloaded")), "{problem}");
    assert_eq!(get(&fixture, &token("bob", 0)).await.0, 200);
}

#[tokio::test]
async fn claims_of_a_token_are_its_tenant_subject_scopes_and_agents() {
    let key = SigningKey::new("ES256", "a");
    let issuer = Issuer::start(&[&key]).await;
    let fixture = fixture(&issuer, json!({"tenant_claim": "org", "agents_claim": "agents"})).await;
    let address = fixture.edge.addresses().ws;
    let good = json!({"org": "acme", "agents": ["a"]});
    let http = Http::new(address, Some(&issuer.token(&key, &good)));
    let (status, reply) =
        http.post("/v1/sessions", json!({"session_id": "s", "agent": "a", "interactive": true})).await;
    assert_eq!(status, 201, "{reply}");
    assert_eq!(fixture.fake_loop.senders().await, ["ann"]);
    let (status, problem) = http.post("/v1/sessions", json!({"agent": "e", "prompt": "x"})).await;
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    assert_eq!(http.get("/v1/dead-letters").await.0, 403, "needs ailoop:administer");
    let other = Http::new(address, Some(&issuer.token(&key, &json!({"org": "other", "agents": "a"}))));
    assert_eq!(other.get("/v1/sessions/s").await.0, 404, "another tenant");

    let rows = [json!({"agents": "a"}), json!({"org": "a.b", "agents": "a"}), json!({"org": "acme"})];
    for claims in rows.into_iter().chain([json!({"org": "acme", "agents": "a", "scope": "openid run"})]) {
        let token = issuer.token(&key, &claims);
        let (status, problem) = get(&fixture, &token).await;
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{claims}: {problem}");
        assert_eq!(list(&fixture, &token).await.unwrap_err().code(), Code::PermissionDenied, "{claims}");
        assert_eq!(upgrade(address, &token).await, 403, "{claims}");
    }
}

#[tokio::test]
async fn token_that_is_wrong_is_refused_by_every_protocol() {
    let (ec, ed, stranger) =
        (SigningKey::new("ES256", "ec"), SigningKey::new("EdDSA", "ed"), SigningKey::new("ES256", "ec"));
    let issuer = Issuer::start(&[&ec, &ed]).await;
    let fixture = fixture(&issuer, json!({})).await;
    let good = issuer.token(&ec, &json!({}));
    assert_eq!(get(&fixture, &good).await.0, 200);
    let claims = issuer.claims(&json!({}));
    let hmac_of = |secret: &[u8]| {
        let message = format!("{}.{}", encode(r#"{"alg":"HS256","kid":"ec"}"#), encode(claims.to_string()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
        format!("{message}.{}", encode(tag))
    };
    let header = |changes: Value| {
        let mut header = ec.header();
        header.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        ec.sign(&header, &claims)
    };
    let (message, signature) = good.rsplit_once('.').unwrap();
    let (head, _) = message.split_once('.').unwrap();
    let other_claims = encode(issuer.claims(&json!({"sub": "root"})).to_string());
    let rows = [
        ("alg none", format!("{}.{}.", encode(r#"{"alg":"none"}"#), encode(claims.to_string())), "algorithm"),
        ("alg none with a signature", header(json!({"alg": "none"})), "algorithm"),
        ("HS256 with the public key", hmac_of(ec.public_bytes()), "algorithm"),
        ("HS256 with the key as it is published", hmac_of(ec.jwk().to_string().as_bytes()), "algorithm"),
        ("another issuer", issuer.token(&ec, &json!({"iss": "https://evil.example.org"})), "issuer"),
        ("no issuer", issuer.token(&ec, &json!({"iss": null})), "issuer"),
        ("another audience", issuer.token(&ec, &json!({"aud": "other"})), "`aud`"),
        ("two other audiences", issuer.token(&ec, &json!({"aud": ["other", "account"]})), "`aud`"),
        ("no audience", issuer.token(&ec, &json!({"aud": null})), "`aud`"),
        ("expired", issuer.token(&ec, &json!({"exp": now() - 61})), "expired"),
        ("no end", issuer.token(&ec, &json!({"exp": null})), "`exp`"),
        ("not yet valid", issuer.token(&ec, &json!({"nbf": now() + 120})), "`nbf`"),
        ("no subject", issuer.token(&ec, &json!({"sub": null})), "`sub`"),
        ("unknown kid", header(json!({"kid": "nobody"})), "`kid`"),
        ("kid of a key of another type", header(json!({"kid": "ed"})), "fits its algorithm"),
        ("another algorithm of another type", header(json!({"alg": "EdDSA"})), "fits its algorithm"),
        ("another key under the same kid", issuer.token(&stranger, &json!({})), "signature"),
        ("claims of another token", format!("{head}.{other_claims}.{signature}"), "signature"),
        ("an id token of another type", header(json!({"typ": "secevent+jwt"})), "`typ`"),
        ("a critical extension", header(json!({"crit": ["exp"]})), "`crit`"),
        ("damaged base64", format!("{message}.{}!", &signature[1..]), "damaged"),
        ("a padded signature", format!("{good}="), "damaged"),
        ("no signature", format!("{message}."), "signature"),
        ("four parts", format!("{good}.AAAA"), "damaged"),
    ];
    for (what, token, wanted) in rows {
        let (status, problem) = get(&fixture, &token).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")), "{what}: {problem}");
        assert!(detail.contains(wanted), "{what}: {detail}");
        assert!(!token.split('.').any(|part| part.len() > 8 && detail.contains(part)), "{what}: {detail}");
        let refused = list(&fixture, &token).await.expect_err(what);
        assert_eq!((refused.code(), &*read_code(&refused)), (Code::Unauthenticated, "unauthorized"), "{what}");
        assert_eq!(upgrade(fixture.edge.addresses().ws, &token).await, 401, "{what}");
    }
    let long = issuer.token(&ec, &json!({"x": "y".repeat(14_000)}));
    let (status, problem) = get(&fixture, &long).await;
    assert_eq!((status, problem["detail"].as_str().unwrap().contains("at most 16384")), (401, true), "{problem}");
    let huge = issuer.token(&ec, &json!({"x": "y".repeat(100_000)}));
    let response = Http::new(fixture.edge.addresses().ws, Some(&huge)).request("GET", "/v1/sessions").send().await;
    assert!(response.is_err() || response.is_ok_and(|response| response.status() == 431));
    assert!(list(&fixture, &huge).await.is_err());
    assert_eq!(get(&fixture, &good).await.0, 200, "the edge is well");
    let several = issuer.token(&ec, &json!({"aud": ["account", "ailoop"]}));
    assert_eq!(get(&fixture, &several).await.0, 200, "the edge is one of several audiences (RFC 7519, 4.1.3)");
}

#[tokio::test]
async fn configuration_limits_the_algorithms() {
    let (ec, ed) = (SigningKey::new("ES256", "ec"), SigningKey::new("EdDSA", "ed"));
    let issuer = Issuer::start(&[&ec, &ed]).await;
    let fixture = fixture(&issuer, json!({"algorithms": ["EdDSA"]})).await;
    assert_eq!(get(&fixture, &issuer.token(&ed, &json!({}))).await.0, 200);
    let (status, problem) = get(&fixture, &issuer.token(&ec, &json!({}))).await;
    assert!(status == 401 && problem["detail"].as_str().unwrap().contains("algorithms"), "{problem}");
}

#[tokio::test]
async fn rotation_of_keys_fails_no_request() {
    let (old, new) = (SigningKey::new("ES256", "old"), SigningKey::new("ES256", "new"));
    let issuer = Issuer::start(&[&old]).await;
    let fixture = fixture(&issuer, json!({})).await;
    let token = |key: &SigningKey, n: u32| issuer.token(key, &json!({ "n": n }));
    for n in 0..5 {
        assert_eq!(get(&fixture, &token(&old, n)).await.0, 200);
    }
    issuer.publish(&[&old, &new]);
    let tokens: Vec<String> = (5..25).flat_map(|n| [token(&old, n), token(&new, n)]).collect();
    let statuses = get_all(&fixture, &tokens).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(issuer.counts(), (1, 2), "one fetch for the new key");
}

#[tokio::test]
async fn key_that_the_issuer_withdraws_ends_the_tokens_of_it() {
    let (old, new) = (SigningKey::new("ES256", "old"), SigningKey::new("ES256", "new"));
    let issuer = Issuer::start(&[&old]).await;
    let fixture = fixture(&issuer, json!({})).await;
    let stolen = issuer.token(&old, &json!({}));
    let mut ws = Ws::connect_with_key(fixture.edge.addresses().ws, &stolen).await;
    ws.expect_ok("session.list", json!({})).await;
    issuer.publish(&[&new]);
    assert_eq!(get(&fixture, &issuer.token(&new, &json!({}))).await.0, 200);
    let close = ws.receive_frame().await.unwrap_err().unwrap();
    assert_eq!(u16::from(close.code), 1008, "{}", close.reason);
    assert_eq!(get(&fixture, &stolen).await.0, 401);
}

#[tokio::test]
async fn flood_of_unknown_kids_is_no_flood_at_the_issuer() {
    let (key, forger) = (SigningKey::new("ES256", "a"), SigningKey::new("ES256", "b"));
    let issuer = Issuer::start(&[&key]).await;
    let fixture = fixture(&issuer, json!({})).await;
    assert_eq!(get(&fixture, &issuer.token(&key, &json!({}))).await.0, 200);
    let (before, begun) = (issuer.counts(), Instant::now());
    let make_token = |n: u32| {
        let mut header = forger.header();
        header["kid"] = json!(format!("k{n}"));
        forger.sign(&header, &issuer.claims(&json!({})))
    };
    let tokens: Vec<String> = (0..200).map(make_token).collect();
    let statuses = get_all(&fixture, &tokens).await;
    assert!(statuses.iter().all(|status| *status == 401), "{statuses:?}");
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    let (discoveries, fetches) = issuer.counts();
    assert!(discoveries == before.0 && fetches > before.1 && fetches <= before.1 + 1 + seconds / 10, "{fetches}");
    assert_eq!(get(&fixture, &issuer.token(&key, &json!({"n": 1}))).await.0, 200, "known keys go on");
}

#[tokio::test]
async fn issuer_that_is_away_at_the_start_or_later_is_waited_for() {
    let key = SigningKey::new("ES256", "a");
    let issuer = Issuer::start(&[&key]).await;
    issuer.set_mode(Mode::Away);
    let fixture = fixture(&issuer, json!({})).await;
    let token = issuer.token(&key, &json!({}));
    let (status, problem) = get(&fixture, &token).await;
    assert_eq!((status, &problem["code"]), (503, &json!("unavailable")), "{problem}");
    assert_eq!(list(&fixture, &token).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(upgrade(fixture.edge.addresses().ws, &token).await, 503);
    assert!(fixture.edge.readiness().is_ready() && warnings(&fixture).contains("503"), "{}", warnings(&fixture));
    issuer.set_mode(Mode::Answers);
    wait_until("the keys come", async || get(&fixture, &token).await.0 == 200).await;
    wait_until("the warning ends", async || warnings(&fixture).is_empty()).await;

    issuer.set_mode(Mode::Away);
    let unknown = SigningKey::new("ES256", "b");
    // A request may cause one fetch in ten seconds.
    wait_until("a fetch fails", async || {
        assert_eq!(get(&fixture, &issuer.token(&unknown, &json!({}))).await.0, 401);
        !warnings(&fixture).is_empty()
    })
    .await;
    assert!(warnings(&fixture).starts_with("issuers: "), "{}", warnings(&fixture));
    assert_eq!(get(&fixture, &issuer.token(&key, &json!({"n": 2}))).await.0, 200, "the last keys stay");
}

#[tokio::test]
async fn documents_of_an_issuer_that_cannot_be_trusted_are_refused() {
    let key = SigningKey::new("ES256", "a");
    let rows = [
        (Mode::OtherIssuer, "set `issuer` to that"),
        (Mode::Redirects, "redirects are not followed"),
        (Mode::Huge, "more than 1048576 bytes"),
        (Mode::ClearKeys, "use https"),
    ];
    for (mode, wanted) in rows {
        let issuer = Issuer::start(&[&key]).await;
        issuer.set_mode(mode);
        let fixture = fixture(&issuer, json!({})).await;
        wait_until("there is a warning", async || warnings(&fixture).contains(wanted)).await;
        assert_eq!(get(&fixture, &issuer.token(&key, &json!({}))).await.0, 503, "{mode:?}");
    }
}

#[tokio::test]
async fn token_that_ends_closes_its_connections_and_streams() {
    let signer = SigningKey::new("EdDSA", "a");
    let issuer = Issuer::start(&[&signer]).await;
    let fixture = fixture(&issuer, json!({})).await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let address = fixture.edge.addresses().ws;
    // It ends in two seconds, with the leeway of a minute.
    let token = issuer.token(&signer, &json!({"exp": now() - 57}));
    let mut ws = Ws::connect_with_key(address, &token).await;
    ws.expect_ok("session.list", json!({})).await;
    let http = Http::new(address, Some(&token));
    let mut events = SseReader::new(http.request("GET", "/v1/sessions/s/events").send().await.unwrap());
    let mut request = Request::new(proto::WatchSessionRequest { session_id: "s".to_owned(), ..Default::default() });
    request.metadata_mut().insert("authorization", MetadataValue::try_from(format!("Bearer {token}")).unwrap());
    let mut stream = fixture.grpc().await.0.watch_session(request).await.unwrap().into_inner();

    let close = ws.receive_frame().await.unwrap_err().unwrap();
    assert_eq!(u16::from(close.code), 1008);
    assert!(close.reason.contains("unauthorized"), "{}", close.reason);
    let status = loop {
        match stream.message().await {
            Ok(message) => assert!(message.is_some(), "the stream ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    let last = last.unwrap();
    assert!(last.event == "watch.failed" && last.data.contains("expired"), "{last:?}");
    assert_eq!(http.get("/v1/sessions").await.0, 401);
}

#[tokio::test]
async fn keys_of_a_file_are_followed() {
    let (old, new) = (SigningKey::new("ES256", "old"), SigningKey::new("ES256", "new"));
    let issuer = Issuer::start(&[]).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    let write = |key: &SigningKey| std::fs::write(&file, json!({"keys": [key.jwk()]}).to_string()).unwrap();
    write(&old);
    let fixture = fixture(&issuer, json!({"jwks_file": file})).await;
    let (first, second) = (issuer.token(&old, &json!({})), issuer.token(&new, &json!({})));
    assert_eq!((get(&fixture, &first).await.0, get(&fixture, &second).await.0), (200, 401));
    std::fs::write(&file, "{").unwrap();
    wait_until("there is a warning", async || warnings(&fixture).contains("edge.issuers[0].jwks_file")).await;
    assert_eq!(get(&fixture, &first).await.0, 200);
    write(&new);
    wait_until("the new key is known", async || get(&fixture, &second).await.0 == 200).await;
    assert_eq!(get(&fixture, &first).await.0, 401);
    assert_eq!(issuer.counts(), (0, 0));

    std::fs::write(&file, "{}").unwrap();
    let config = EdgeConfig { issuers: vec![issuer.config(&json!({"jwks_file": file}))], ..config() };
    let refused = edge::Edge::start(config, fixture.server.bus()).await.unwrap_err().to_string();
    assert!(refused.contains("edge.issuers[0].jwks_file"), "{refused}");
}

#[tokio::test]
async fn metadata_names_the_issuers_to_clients_without_a_token() {
    let issuer = Issuer::start(&[&SigningKey::new("ES256", "a")]).await;
    let guarded = fixture(&issuer, json!({"scope_prefix": "x:"})).await;
    let address = guarded.edge.addresses().ws;
    let http = Http::new(address, None);
    let (status, document) = http.get("/.well-known/oauth-protected-resource").await;
    assert_eq!(status, 200);
    let wanted = json!({
        "resource": format!("http://{address}"),
        "authorization_servers": [issuer.config(&json!({})).issuer],
        "scopes_supported": ["x:run", "x:converse", "x:observe", "x:approve", "x:administer", "x:operate"],
        "bearer_methods_supported": ["header"],
    });
    assert_eq!(document, wanted);
    let challenge = async |path: &str, host: &str| {
        let response = http.request("GET", path).header("host", host).send().await.unwrap();
        assert_eq!(response.status(), 401, "{path}");
        response.headers()["www-authenticate"].to_str().unwrap().to_owned()
    };
    let mcp = http.request("POST", "/mcp").header("host", "localhost:7").send().await.unwrap();
    let wanted = "Bearer resource_metadata=\"http://localhost:7/.well-known/oauth-protected-resource\"";
    assert_eq!((mcp.status().as_u16(), mcp.headers()["www-authenticate"].to_str().unwrap()), (401, wanted));
    for path in ["/v1/sessions", "/ws"] {
        let local = challenge(path, "localhost:7").await;
        let url = "localhost:7/.well-known/oauth-protected-resource";
        assert_eq!(local, format!("Bearer resource_metadata=\"http://{url}\""));
    }
    assert!(challenge("/v1/sessions", "edge.example.org").await.contains("\"https://edge.example.org/.well-known/"));
    assert_eq!(challenge("/v1/sessions", "a\"b").await, "Bearer realm=\"ailoop\"", "a host that is none");

    let plain = Fixture::new().await;
    let http = Http::new(plain.edge.addresses().ws, None);
    assert_eq!(http.get("/.well-known/oauth-protected-resource").await.0, 404);
}
