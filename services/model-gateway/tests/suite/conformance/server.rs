//! A provider that sends exactly the bytes and chunks of a test.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A part of a response.
#[derive(Debug, Clone)]
pub(crate) enum BodyPart {
    /// Bytes of the body, sent as one HTTP chunk.
    Bytes(Vec<u8>),
    Pause(Duration),
    /// Silence until the client closes the connection.
    Hang,
    /// A reset of the connection.
    Reset,
}

#[derive(Debug, Clone)]
pub(crate) struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    parts: Vec<BodyPart>,
}

impl Response {
    /// A response with status 200 and this body.
    pub(crate) fn body(body: impl Into<Vec<u8>>) -> Self {
        Self::parts(vec![BodyPart::Bytes(body.into())])
    }

    /// A response with status 200 and a body in parts.
    pub(crate) fn parts(parts: Vec<BodyPart>) -> Self {
        Self { status: 200, headers: Vec::new(), parts }
    }

    /// A response whose body is split into parts of so many bytes.
    pub(crate) fn cut(body: &str, bytes: usize) -> Self {
        Self::parts(body.as_bytes().chunks(bytes).map(|part| BodyPart::Bytes(part.to_vec())).collect())
    }

    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self { status, ..Self::body(body) }
    }

    /// Sets the status of the response.
    pub(crate) fn and_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a part to the body.
    pub(crate) fn then(mut self, part: BodyPart) -> Self {
        self.parts.push(part);
        self
    }
}

/// A running server, which stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Server {
    /// Sends each connection the next response, and repeats the last one.
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
                    // Some tests close the connection early.
                    let _ = serve(connection, response, &requests).await;
                });
            }
        });
        Ok(Self { address, requests, _task: task })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Heads of the requests that arrived.
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
                // Wait until the client closes the connection.
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
