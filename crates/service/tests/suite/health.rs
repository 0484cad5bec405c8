//! Answers of the health server to an operator.

use std::net::SocketAddr;
use std::time::Duration;

use service::health::{HealthConfig, Readiness, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Deadline of every wait: a way for a test to end, and no statement.
const PATIENCE: Duration = Duration::from_mins(3);

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Waits until nobody listens there. A process that another test starts holds a copy of each socket until its `exec`.
async fn refused(address: SocketAddr) {
    let refused = async { while tokio::net::TcpStream::connect(address).await.is_ok() {} };
    assert!(tokio::time::timeout(PATIENCE, refused).await.is_ok(), "somebody still listens");
}

#[tokio::test]
async fn silent_connections_over_the_limit_make_room_for_a_probe() {
    let config = HealthConfig { listen: Some("127.0.0.1:0".parse().unwrap()) };
    let health = serve(config, Readiness::new("composer")).await.unwrap();
    let address = health.address().unwrap();
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(get(address, "/healthz").await.0, 200);
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, silent[0].read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the oldest one is still open");
    health.end().await;
}

#[tokio::test]
async fn lives_ready_and_counted() {
    let (bus, work) = (Readiness::new("nats"), Readiness::new("composer"));
    let config = HealthConfig { listen: Some("127.0.0.1:0".parse().unwrap()) };
    let health = serve(config, Readiness::all([bus.clone(), work.clone()])).await.unwrap();
    let address = health.address().unwrap();

    assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/readyz").await, (503, "waiting for nats, composer\n".to_owned()));
    bus.set(true);
    assert_eq!(get(address, "/readyz").await, (503, "waiting for composer\n".to_owned()));
    work.set(true);
    assert_eq!(get(address, "/readyz").await, (200, "ready\n".to_owned()));
    bus.warn(Some("it is slow"));
    assert_eq!(get(address, "/readyz").await, (200, "ready\nwarning: nats: it is slow\n".to_owned()));
    bus.warn(None);
    assert_eq!(get(address, "/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(get(address, "/metrics").await.0, 200);
    assert_eq!(get(address, "/other").await.0, 404);

    let taken = serve(HealthConfig { listen: Some(address) }, work.clone()).await.unwrap_err();
    assert_eq!(contract::Coded::code(&taken), contract::ErrorCode::PortInUse);
    health.end().await;
    refused(address).await;
    assert_eq!(serve(HealthConfig::default(), work).await.unwrap().address(), None);
}
