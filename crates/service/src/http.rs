//! Serves HTTP to anybody: bounded connections, time limits before credentials, a pace for the requests of each
//! connection, and a pause when accepting fails.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use contract::backoff::Backoff;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::connections::{Connection, Connections};
pub use crate::http_version::HttpVersion;
use crate::tasks::Tasks;
use crate::tls::Tls;

/// The pauses after accepting failed.
const ACCEPT: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
/// Time in which a connection that must close may finish its answer.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Bytes that hyper buffers for the head of an HTTP/1 request.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Bytes of the headers of one HTTP/2 request.
const HEADERS_BYTES_MAX: u32 = 32 << 10;
/// Pause between HTTP/2 pings, and how long their answer may take.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Bytes of one HTTP/2 stream, and of all streams of a connection, that a client may send ahead.
const WINDOW_BYTES: u32 = 256 << 10;
/// Bytes that one HTTP/2 stream buffers for a client that does not read.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Bytes that TLS takes of an idle connection, as measured by `tests/suite/idle_memory.rs` of the edge, with a margin.
pub const TLS_BYTES: usize = 16 << 10;

/// Source of incoming connections.
pub trait Accept: Send + 'static {
    /// Waits for the next connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }
}

/// A listener's service and limits.
#[derive(Debug, Clone)]
pub struct Server {
    /// `ws`, `grpc` or `health`: the label of metrics, and the name of tasks.
    pub name: &'static str,
    /// Version of HTTP that it serves.
    pub protocol: HttpVersion,
    /// Router of its requests, which carry their [`Arc<Connection>`] as an extension.
    pub router: Router,
    /// Its certificate; none for a listener without TLS.
    pub tls: Option<Tls>,
    /// The registry of its connections.
    pub connections: Connections,
    /// The owner of the tasks of its connections.
    pub tasks: Tasks,
    /// Cancelled when nothing more may come in and open connections must end.
    pub ending: CancellationToken,
}

impl Server {
    /// Accepts and serves connections until it must end.
    pub async fn run(self, mut listener: impl Accept) {
        let mut tries = 0;
        loop {
            let accepted = async {
                self.connections.room().await;
                listener.accept().await
            };
            let Some(accepted) = self.ending.run_until_cancelled(accepted).await else { return };
            match accepted {
                Ok((stream, peer)) => {
                    tries = 0;
                    self.open(stream, peer);
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    let pause = ACCEPT.pause(tries);
                    // Accepting would fail again at once: EMFILE leaves the connection in the queue.
                    tracing::warn!(listener = self.name, %error, ?pause, "no connection can be accepted now");
                    telemetry::metric::connection_closed(self.name, "accept_failed");
                    self.connections.evict_one();
                    if self.ending.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return;
                    }
                    tries += 1;
                }
            }
        }
    }

    fn open(&self, stream: TcpStream, peer: SocketAddr) {
        // Without it small frames wait for each other; a refusal costs only that.
        let _ = stream.set_nodelay(true);
        let limits = self.connections.limits();
        let tls = self.tls.as_ref().map(|tls| tls.acceptor(self.protocol));
        let transport_bytes = if tls.is_some() { TLS_BYTES } else { 0 };
        let session = Session {
            router: self.router.clone(),
            connection: self.connections.open_with(self.name, peer.ip(), transport_bytes),
            keep_alive: limits.keep_alive(),
            deadline: Instant::now() + limits.handshake(),
            ending: self.ending.clone(),
        };
        let protocol = self.protocol;
        match tls {
            None => self.tasks.spawn(self.name, session.serve(stream, protocol)),
            Some(acceptor) => self.tasks.spawn(self.name, async move {
                if let Some(stream) = session.accept_tls(&acceptor, stream).await {
                    session.serve(stream, protocol).await;
                }
            }),
        }
    }
}

/// Router and limits of one served connection.
struct Session {
    router: Router,
    connection: Arc<Connection>,
    /// Time without a request, and for the head of one.
    keep_alive: Duration,
    /// Time by which the connection must have shown valid credentials.
    deadline: Instant,
    ending: CancellationToken,
}

impl Session {
    /// Waits for the handshake of TLS, as long as the connection may be without credentials.
    async fn accept_tls(&self, acceptor: &TlsAcceptor, stream: TcpStream) -> Option<Box<TlsStream<TcpStream>>> {
        let accepted = acceptor.accept(stream);
        let reason = tokio::select! {
            accepted = accepted => match accepted {
                Ok(stream) => return Some(Box::new(stream)),
                // A client that does not trust the certificate, or that speaks no TLS.
                Err(error) => {
                    tracing::debug!(listener = self.connection.protocol(), %error, "TLS handshake failed");
                    "tls"
                }
            },
            () = self.connection.evicted().cancelled() => "evicted",
            () = tokio::time::sleep_until(self.deadline) => "timeout",
            () = self.ending.cancelled() => return None,
        };
        telemetry::metric::connection_closed(self.connection.protocol(), reason);
        None
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, protocol: HttpVersion) {
        let io = TokioIo::new(stream);
        match protocol {
            HttpVersion::Http1 => self.serve_http1(io).await,
            HttpVersion::Http2 { streams_max } => self.serve_http2(io, streams_max).await,
        }
    }

    async fn serve_http1(self, io: impl Read + Write + Unpin + Send + 'static) {
        let Self { router, connection, keep_alive, deadline, ending } = self;
        let service = service_fn(|request| call(&router, &connection, request));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            // hyper counts the time between two requests too. The first one must be there before the deadline.
            .header_read_timeout(keep_alive)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(io, service)
            .with_upgrades();
        drive(served, http1::UpgradeableConnection::graceful_shutdown, &connection, deadline, ending).await;
    }

    async fn serve_http2(self, io: impl Read + Write + Unpin + Send + 'static, streams_max: u32) {
        let Self { router, connection, keep_alive: _, deadline, ending } = self;
        // hyper gives each stream a task of its own, so the service owns what it needs.
        let own = connection.clone();
        let service = service_fn(move |request| call(&router, &own, request));
        let served = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .max_concurrent_streams(streams_max)
            .max_header_list_size(HEADERS_BYTES_MAX)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_send_buf_size(SEND_BYTES_MAX)
            .serve_connection(io, service);
        drive(served, http2::Connection::graceful_shutdown, &connection, deadline, ending).await;
    }
}

/// Whether an error of accepting concerns one connection only, so that the next one may be fine.
fn is_of_one_connection(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset];
    kinds.contains(&error.kind())
}

fn call(
    router: &Router,
    connection: &Arc<Connection>,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<axum::response::Response, std::convert::Infallible>> + Send + use<> {
    request.extensions_mut().insert(connection.clone());
    let (mut router, connection) = (router.clone(), connection.clone());
    async move {
        // Who sent credentials is held to a pace when they are known: a proxy sends for many on one connection.
        if connection.is_pending() {
            connection.pace().turn().await;
        }
        router.call(request.map(Body::new)).await
    }
}

/// Serves a connection to its end, which comes by itself, or for a reason of ours.
async fn drive<C: Future<Output = Result<(), hyper::Error>>>(
    served: C,
    shut_down: fn(Pin<&mut C>),
    connection: &Arc<Connection>,
    deadline: Instant,
    ending: CancellationToken,
) {
    let mut served = pin!(served);
    let mut deadline = pin!(tokio::time::sleep_until(deadline));
    let mut watches = true;
    loop {
        let reason = tokio::select! {
            // An error here is the peer's: a broken connection, or bytes that are no HTTP.
            _ = served.as_mut() => return,
            () = connection.evicted().cancelled() => {
                telemetry::metric::connection_closed(connection.protocol(), "evicted");
                return;
            }
            () = deadline.as_mut(), if watches => "timeout",
            () = ending.cancelled() => "",
        };
        if reason.is_empty() {
            // Requests under way are answered; whoever owns the tasks cuts off what takes too long.
            shut_down(served.as_mut());
            let _ = served.await;
            return;
        }
        watches = false;
        if connection.is_pending() {
            telemetry::metric::connection_closed(connection.protocol(), reason);
            shut_down(served.as_mut());
            // An answer under way may still go out.
            let _ = tokio::time::timeout(CLOSE_MAX, served).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::connections::ConnectionLimits;

    /// A listener of a process that has no descriptor left.
    struct Exhausted(Arc<AtomicUsize>);

    impl Accept for Exhausted {
        async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
            self.0.fetch_add(1, Ordering::SeqCst);
            // EMFILE.
            Err(io::Error::from_raw_os_error(24))
        }
    }

    /// Serves one HTTP/1 connection, whose every request shows valid credentials; returns the client's end.
    fn serve_connection(connections: &Connections) -> tokio::io::DuplexStream {
        let (client, stream) = tokio::io::duplex(1 << 10);
        let connection = connections.open("test", std::net::Ipv4Addr::LOCALHOST.into());
        let accept = async |axum::Extension(connection): axum::Extension<Arc<Connection>>| {
            connection.accept(1).map_err(|error| error.to_string())
        };
        let limits = connections.limits();
        let session = Session {
            router: Router::new().route("/", axum::routing::get(accept)),
            connection,
            keep_alive: limits.keep_alive(),
            deadline: Instant::now() + limits.handshake(),
            ending: CancellationToken::new(),
        };
        Tasks::new().spawn("test", session.serve(stream, HttpVersion::Http1));
        client
    }

    /// Sends a request; returns whether it was answered.
    async fn ask(client: &mut tokio::io::DuplexStream) -> bool {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut answer = [0; 1 << 10];
        let sent = client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        sent.is_ok() && client.read(&mut answer).await.is_ok_and(|read| answer[..read].starts_with(b"HTTP/1.1 200"))
    }

    #[tokio::test(start_paused = true)]
    async fn accepted_connection_stays_open_between_requests_for_its_time() {
        let connections = Connections::new(ConnectionLimits::default());
        let mut client = serve_connection(&connections);
        for idle in [0, 60, 74] {
            tokio::time::sleep(Duration::from_secs(idle)).await;
            assert!(ask(&mut client).await, "after {idle} s");
        }
        tokio::time::sleep(Duration::from_secs(76)).await;
        assert!(!ask(&mut client).await, "after its time");
        assert_eq!(connections.count(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_a_whole_request_is_closed_at_its_deadline() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let connections = Connections::new(ConnectionLimits::default());
        let mut client = serve_connection(&connections);
        client.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
        tokio::time::sleep(Duration::from_secs(12)).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!((answer, connections.count()), (Vec::new(), (0, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn accept_without_descriptors_backs_off() {
        let (tries, ending) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let server = Server {
            name: "test",
            protocol: HttpVersion::Http1,
            router: Router::new(),
            tls: None,
            connections: Connections::new(ConnectionLimits::default()),
            tasks: Tasks::new(),
            ending: ending.clone(),
        };
        let minute = async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            ending.cancel();
        };
        tokio::join!(server.run(Exhausted(tries.clone())), minute);
        let tries = tries.load(Ordering::SeqCst);
        assert!((55..=70).contains(&tries), "{tries} tries in a minute");
    }
}
