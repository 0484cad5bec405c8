//! A provider that sends exactly the bytes that a test wants, cut as it wants.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What happens next on a connection.
#[derive(Debug, Clone)]
pub(crate) enum BodyPart {
    /// Bytes of the body, written by themselves.
    Bytes(Vec<u8>),
    /// Silence.
    Pause(Duration),
    /// Silence for good.
    Hang,
    /// The connection is reset.
    Reset,
}

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    parts: Vec<BodyPart>,
}

impl Response {
    /// Status 200 with this body, whole.
    pub(crate) fn body(body: impl Into<Vec<u8>>) -> Self {
        Self::parts(vec![BodyPart::Bytes(body.into())])
    }

    /// Status 200 with a body in pieces.
    pub(crate) fn parts(parts: Vec<BodyPart>) -> Self {
        Self { status: 200, headers: Vec::new(), parts }
    }

    /// A body that is cut after each of so many bytes.
    pub(crate) fn cut(body: &str, bytes: usize) -> Self {
        Self::parts(body.as_bytes().chunks(bytes).map(|part| BodyPart::Bytes(part.to_vec())).collect())
    }

    /// Another status.
    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self { status, ..Self::body(body) }
    }

    /// The same with another status.
    pub(crate) fn and_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Goes on after the body.
    pub(crate) fn then(mut self, part: BodyPart) -> Self {
        self.parts.push(part);
        self
    }
}

/// A running server; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Server {
    /// Gives each connection the next answer, the last one again and again.
    pub(crate) async fn start(responses: Vec<Response>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (address, requests) = (listener.local_addr()?, Arc::<Mutex<Vec<String>>>::default());
        let seen_requests = requests.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            let mut number = 0;
            while let Ok((connection, _)) = listener.accept().await {
                let Some(response) = responses.get(number).or(responses.last()).cloned() else { return };
                number += 1;
                let requests = seen_requests.clone();
                connections.spawn(async move {
                    // A client that goes away early is what some tests are about.
                    let _ = serve(connection, response, &requests).await;
                });
            }
        });
        Ok(Self { address, requests, _task: task })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The heads of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(mut connection: TcpStream, response: Response, requests: &Mutex<Vec<String>>) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let request = read_request(&mut connection).await?;
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    let mut text = format!("HTTP/1.1 {} As\r\ntransfer-encoding: chunked\r\nconnection: close\r\n", response.status);
    for (name, value) in &response.headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    connection.write_all(format!("{text}\r\n").as_bytes()).await?;
    for part in response.parts {
        match part {
            BodyPart::Bytes(bytes) if bytes.is_empty() => {}
            BodyPart::Bytes(bytes) => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend(bytes);
                chunk.extend(b"\r\n");
                connection.write_all(&chunk).await?;
            }
            BodyPart::Pause(pause) => tokio::time::sleep(pause).await,
            BodyPart::Hang => {
                // Until the client has had enough.
                while connection.read(&mut [0; 64]).await? > 0 {}
                return Ok(());
            }
            BodyPart::Reset => return connection.set_zero_linger(),
        }
    }
    connection.write_all(b"0\r\n\r\n").await?;
    connection.shutdown().await
}

/// Reads a request and returns its head.
async fn read_request(connection: &mut TcpStream) -> io::Result<String> {
    let mut read = Vec::new();
    loop {
        if connection.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if read.len() >= end + 4 + length.unwrap_or(0) {
            return Ok(head);
        }
    }
}
