//! Memory of an idle connection, measured in a separate process, so that nothing else allocates meanwhile.

use std::net::SocketAddr;

use bus_memory::MemoryServer;
use edge::{Edge, EdgeConfig};
use service::http::TLS_BYTES;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::tls::{connect, files, write_certificate};

/// Number of connections of one measurement.
const CONNECTIONS: usize = 500;
/// Bytes that an idle WebSocket and an idle gRPC connection may take: what the edge books for them. 24 KiB of the
/// latter are buffers of HTTP/2 that cannot be smaller.
const IDLE_BYTES_MAX: [usize; 2] = [32 << 10, 40 << 10];

/// Resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Sends a request that authenticates the connection, and reads until the server has answered.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, request: &[u8], answered: &[u8]) -> S {
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(answered.len()).any(|window| window == answered) {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
    }
    stream
}

/// Measures the bytes of one of many connections; the first ones fill pools and are not counted.
async fn measure<S>(open: impl AsyncFn() -> S) -> usize {
    let mut streams = Vec::with_capacity(CONNECTIONS * 2);
    for _ in 0..CONNECTIONS {
        streams.push(open().await);
    }
    let before = resident();
    for _ in 0..CONNECTIONS {
        streams.push(open().await);
    }
    (resident() - before) / CONNECTIONS
}

async fn measure_plain(address: SocketAddr, request: &[u8], answered: &[u8]) -> usize {
    measure(async || ask(TcpStream::connect(address).await.unwrap(), request, answered).await).await
}

/// A frame of a client, masked with zeros.
fn frame(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat()
}

/// An upgrade to WebSocket with a call right after it.
fn upgrade_and_call() -> Vec<u8> {
    let handshake = b"GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    [handshake, &frame(r#"{"jsonrpc":"2.0","id":1,"method":"session.list"}"#)[..]].concat()
}

#[tokio::test]
async fn idle_connection_takes_at_most_what_is_booked_for_it() {
    if !crate::own_process::is_alone("idle_memory::idle_connection_takes_at_most_what_is_booked_for_it") {
        return;
    }
    service::process::raise_open_files();
    let listen = edge::config::ListenConfig { listen: "127.0.0.1:0".parse().unwrap() };
    let edge = Edge::start(EdgeConfig { ws: listen, grpc: listen, ..EdgeConfig::default() }, MemoryServer::new().bus())
        .await
        .unwrap();

    let (handshake, answered) = (upgrade_and_call(), br#""sessions":[]"#);
    let ws = measure_plain(edge.addresses().ws, &handshake, answered).await;

    // The preface, empty settings, and `ListSessions` without fields. Indexed are POST, http and the name of
    // `:authority`; the other headers are literals without Huffman coding.
    let mut block = [&[0x83, 0x86, 1, 9][..], b"localhost"].concat();
    for (name, value) in
        [(":path", "/ailoop.v2.Sessions/ListSessions"), ("te", "trailers"), ("content-type", "application/grpc")]
    {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    let length = u8::try_from(block.len()).unwrap();
    let request = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..],
        &[0, 0, length, 1, 4, 0, 0, 0, 1],
        &block,
        &[0, 0, 5, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
    ]
    .concat();
    // Trailers come as a frame of type 1 that ends the stream.
    let grpc = measure_plain(edge.addresses().grpc, &request, &[1, 5, 0, 0, 0, 1]).await;

    assert!(ws <= IDLE_BYTES_MAX[0] && grpc <= IDLE_BYTES_MAX[1], "WebSocket {ws}, gRPC {grpc} bytes");
    // To print the figures: AILOOP_TEST_ALONE=1 cargo test -p edge idle_memory -- --nocapture
    std::io::Write::write_all(&mut std::io::stdout(), format!("idle: WebSocket {ws}, gRPC {grpc} bytes\n").as_bytes())
        .unwrap();
}

#[tokio::test]
async fn idle_connection_with_tls_takes_at_most_what_is_booked_for_it() {
    let name = "idle_memory::idle_connection_with_tls_takes_at_most_what_is_booked_for_it";
    if !crate::own_process::is_alone(name) {
        return;
    }
    service::process::raise_open_files();
    let directory = tempfile::tempdir().unwrap();
    let authority = write_certificate(directory.path());
    let listen = edge::config::ListenConfig { listen: "127.0.0.1:0".parse().unwrap() };
    let config = EdgeConfig { ws: listen, grpc: listen, tls: Some(files(directory.path())), ..EdgeConfig::default() };
    let edge = Edge::start(config, MemoryServer::new().bus()).await.unwrap();
    let (handshake, answered) = (upgrade_and_call(), br#""sessions":[]"#);
    let address = edge.addresses().ws;
    let open = async || ask(connect(address, &authority, &[]).await.unwrap(), &handshake, answered).await;
    let both = measure(open).await;
    // The client of each connection is in this process too, and holds no less.
    let text = format!("idle: WebSocket over TLS {both} bytes with its client\n");
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()).unwrap();
    assert!(both <= IDLE_BYTES_MAX[0] + 2 * TLS_BYTES, "{text}");
}
