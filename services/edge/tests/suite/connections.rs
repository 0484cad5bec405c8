//! Connections before and after authentication: deadlines, limits, and the effect on other clients.

use std::net::SocketAddr;
use std::time::Duration;

use edge::EdgeConfig;
use futures::future::join_all;
use futures::stream;
use serde_json::json;
use service::connections::ConnectionLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tonic::{Code, Request};
use tonic_reflection::pb;

use crate::support::http::open;
use crate::support::{Fixture, TEST_TIMEOUT, config, read_code, wait_until};

/// The preface of HTTP/2 with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn limited(connections: ConnectionLimits) -> EdgeConfig {
    EdgeConfig { token: Some(configuration::Secret::new("s3cret")), connections, ..config() }
}

/// Whether the server closes the connection in time, whatever it sends before.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(TEST_TIMEOUT / 4, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn connection_without_credentials_in_time_is_closed() {
    let fixture = Fixture::with(limited(ConnectionLimits { handshake_ms: 200, ..ConnectionLimits::default() })).await;
    let (ws, grpc) = (fixture.edge.addresses().ws, fixture.edge.addresses().grpc);
    let half_handshake = b"GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
    let rows: [(&str, SocketAddr, &[u8]); 7] = [
        ("silent HTTP", ws, b""),
        ("half a request line", ws, b"GET /w"),
        ("half a WebSocket handshake", ws, half_handshake),
        ("an answered request, then silence", ws, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("silent gRPC", grpc, b""),
        ("half an HTTP/2 preface", grpc, &PREFACE[..7]),
        ("an HTTP/2 preface, then silence", grpc, PREFACE),
    ];
    let closed = join_all(rows.map(async |(what, address, bytes)| {
        let mut stream = open(address, bytes).await;
        (what, is_closed(&mut stream).await)
    }));
    // A client that sends its headers one byte at a time.
    let trickle = async {
        let (mut reader, mut writer) = open(ws, b"GET /ws HTTP/1.1\r\nx-slow: ").await.into_split();
        let feed = async {
            while writer.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut rest = Vec::new();
        tokio::select! {
            () = feed => true,
            // A reset is a close too.
            _ = reader.read_to_end(&mut rest) => true,
            () = tokio::time::sleep(TEST_TIMEOUT / 4) => false,
        }
    };
    let (closed, trickle) = tokio::join!(closed, trickle);
    let open: Vec<_> = closed.into_iter().filter(|(_, closed)| !closed).map(|(what, _)| what).collect();
    assert_eq!((open, trickle), (vec![], true), "these are still open");
}

#[tokio::test]
async fn connection_with_credentials_stays_open_past_the_handshake_limit() {
    let fixture = Fixture::with(EdgeConfig {
        token: None,
        ..limited(ConnectionLimits { handshake_ms: 100, ..ConnectionLimits::default() })
    })
    .await;
    let (mut ws, mut grpc) = (fixture.ws().await, fixture.grpc().await);
    ws.expect_ok("session.list", json!({})).await;
    grpc.0.list_sessions(proto::ListSessionsRequest::default()).await.unwrap();
    let mut silent = open(fixture.edge.addresses().ws, b"").await;
    // The silent one connected last, so the handshake limit of the others has passed when it is closed.
    assert!(is_closed(&mut silent).await);
    ws.expect_ok("session.list", json!({})).await;
    grpc.0.list_sessions(proto::ListSessionsRequest::default()).await.unwrap();
}

#[tokio::test]
async fn flood_of_silent_connections_leaves_room_for_clients() {
    let limits = ConnectionLimits { pending_max: 32, pending_per_address_max: 16, ..ConnectionLimits::default() };
    let fixture = Fixture::with(EdgeConfig { token: None, ..limited(limits) }).await;
    let (ws, grpc) = (fixture.edge.addresses().ws, fixture.edge.addresses().grpc);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(open(ws, b"").await);
        silent.push(open(grpc, PREFACE).await);
    }
    fixture.ws().await.expect_ok("session.list", json!({})).await;
    fixture.grpc().await.0.list_sessions(proto::ListSessionsRequest::default()).await.unwrap();
    let closed = join_all(silent.iter_mut().take(300).map(is_closed)).await;
    assert_eq!(closed.iter().filter(|closed| !**closed).count(), 0, "the oldest connections are closed");
}

#[tokio::test]
async fn connection_over_the_limit_is_refused_as_overloaded_by_both_protocols() {
    let limits = ConnectionLimits { max: 1, ..ConnectionLimits::default() };
    let fixture = Fixture::with(EdgeConfig { token: None, ..limited(limits) }).await;
    let first = fixture.ws().await;
    let url = format!("ws://{}/ws", fixture.edge.addresses().ws);
    let Err(tungstenite::Error::Http(refused)) = tokio_tungstenite::connect_async(&url).await else {
        panic!("a second connection is accepted")
    };
    let body = String::from_utf8(refused.body().clone().unwrap()).unwrap();
    assert_eq!(refused.status(), 503);
    assert!(body.contains("\"overloaded\"") && body.contains("edge.connections.max"), "{body}");
    let refused = fixture.grpc().await.0.list_sessions(proto::ListSessionsRequest::default()).await.unwrap_err();
    assert_eq!((refused.code(), read_code(&refused)), (Code::ResourceExhausted, "overloaded".to_owned()));
    drop(first);
    wait_until("there is room again", async || {
        fixture.grpc().await.0.list_sessions(proto::ListSessionsRequest::default()).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn grpc_connection_counts_as_much_as_a_websocket() {
    let limits = ConnectionLimits { max: 1, ..ConnectionLimits::default() };
    let fixture = Fixture::with(EdgeConfig { token: None, ..limited(limits) }).await;
    let mut grpc = fixture.grpc().await;
    grpc.0.list_sessions(proto::ListSessionsRequest::default()).await.unwrap();
    let url = format!("ws://{}/ws", fixture.edge.addresses().ws);
    let refused = tokio_tungstenite::connect_async(&url).await;
    assert!(matches!(refused, Err(tungstenite::Error::Http(refused)) if refused.status() == 503));
}

#[tokio::test]
async fn connection_over_request_rate_is_slowed_and_no_other() {
    // A burst of 10 requests, then one every 50 ms.
    let limits = ConnectionLimits { requests_per_s: 20, ..ConnectionLimits::default() };
    let fixture = Fixture::with(EdgeConfig { token: None, ..limited(limits) }).await;
    let (mut ws, grpc) = (fixture.ws().await, fixture.grpc().await.0);
    let (mut other_ws, mut other_grpc) = (fixture.ws().await, fixture.grpc().await.0);
    let burst_is_used = Notify::new();
    let over_ws = async {
        let mut ids = Vec::new();
        for _ in 0..40 {
            ids.push(ws.send_request("session.list", json!({})).await);
        }
        for (n, id) in ids.into_iter().enumerate() {
            assert!(ws.receive_answer(id).await.get("result").is_some(), "the limit delays requests and refuses none");
            if n == 12 {
                burst_is_used.notify_one();
            }
        }
        Instant::now()
    };
    let over_grpc = async {
        let answers = join_all((0..40).map(|_| {
            let mut grpc = grpc.clone();
            async move { grpc.list_sessions(proto::ListSessionsRequest::default()).await }
        }));
        assert!(answers.await.iter().all(Result::is_ok), "the limit delays requests and refuses none");
        Instant::now()
    };
    let others = async {
        burst_is_used.notified().await;
        for _ in 0..3 {
            other_ws.expect_ok("session.list", json!({})).await;
            other_grpc.list_sessions(proto::ListSessionsRequest::default()).await.unwrap();
        }
        Instant::now()
    };
    let from = Instant::now();
    let (by_ws, by_grpc, others) = tokio::join!(over_ws, over_grpc, others);
    let (least, took) = (Duration::from_millis(1_400), (by_ws - from, by_grpc - from));
    assert!(took.0 >= least && took.1 >= least, "30 requests beyond the burst take 1.5 s: {took:?}");
    assert!(others < by_ws.min(by_grpc), "another connection waited for them");
}

#[tokio::test]
async fn origin_or_host_outside_ascii_or_repeated_is_refused() {
    let fixture = Fixture::new().await;
    let upgrade = async |headers: &[(&'static str, &'static [u8])]| {
        let mut request = format!("ws://{}/ws", fixture.edge.addresses().ws).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        match tokio_tungstenite::connect_async(request).await {
            Ok((_, response)) => response.status().as_u16(),
            Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(upgrade(&[]).await, 101);
    assert_eq!(upgrade(&[("origin", b"https://ev\xffil.example.org")]).await, 401);
    let own: &[u8] = b"http://localhost:1";
    assert_eq!(upgrade(&[("origin", b"https://evil.example.org"), ("origin", own)]).await, 401);

    let raw = async |host: &[u8]| {
        let head = [b"GET /ws HTTP/1.1\r\nconnection: close\r\nhost: ", host, b"\r\n\r\n"].concat();
        let mut stream = open(fixture.edge.addresses().ws, &head).await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert!(raw(b"localhost").await.starts_with("HTTP/1.1 426"));
    let refused = raw(b"ev\xffil").await;
    assert!(refused.starts_with("HTTP/1.1 401") && refused.contains("`Host`"), "{refused}");
    assert!(raw(b"localhost\r\nhost: localhost").await.starts_with("HTTP/1.1 401"));

    let mut request = Request::new(proto::ListSessionsRequest::default());
    let value = tonic::metadata::MetadataValue::try_from(&b"https://ev\xffil"[..]).unwrap();
    request.metadata_mut().insert("origin", value);
    let refused = fixture.grpc().await.0.list_sessions(request).await.unwrap_err();
    assert_eq!((refused.code(), read_code(&refused)), (Code::Unauthenticated, "unauthorized".to_owned()));
}

#[tokio::test]
async fn reflection_of_both_versions_lists_the_service() {
    let fixture = Fixture::new().await;
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", fixture.edge.addresses().grpc)).unwrap();
    let channel = channel.connect().await.unwrap();
    let ask = pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(pb::v1::server_reflection_request::MessageRequest::ListServices(String::new())),
    };
    let mut client = pb::v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let answer = client.server_reflection_info(stream::iter([ask])).await.unwrap();
    let answer = answer.into_inner().message().await.unwrap().unwrap();
    assert!(format!("{answer:?}").contains("ailoop.v2.Sessions"), "{answer:?}");

    let ask = pb::v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(pb::v1alpha::server_reflection_request::MessageRequest::ListServices(String::new())),
    };
    let mut client = pb::v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let answer = client.server_reflection_info(stream::iter([ask])).await.unwrap();
    let answer = answer.into_inner().message().await.unwrap().unwrap();
    assert!(format!("{answer:?}").contains("ailoop.v2.Sessions"), "{answer:?}");
}
