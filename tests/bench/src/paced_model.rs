//! A model server that keeps to a timetable: each chunk is one write of its own, and says when it was written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::process::announce;

/// Nanoseconds since the epoch; all processes of a machine agree about them.
pub(crate) fn now_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the stamp of a chunk: the time at which it was to be written, and the time at which it was.
fn stamp(meant: u64) -> String {
    format!("t={meant},{};", now_ns())
}

/// The stamps in a text, and what is left of it that may be the beginning of another one.
pub(crate) fn stamps(text: &str) -> (Vec<(u64, u64)>, usize) {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(begin) = text[at..].find("t=").map(|begin| begin + at) {
        let Some(end) = text[begin..].find(';').map(|end| end + begin) else { return (found, begin) };
        let pair = text[begin + 2..end].split_once(',');
        found.extend(pair.and_then(|(meant, written)| Some((meant.parse().ok()?, written.parse().ok()?))));
        at = end + 1;
    }
    (found, text.len().saturating_sub(1).max(at))
}

/// Serves until the process is ended.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(&format!("http://{}/v1", listener.local_addr()?));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (connection, _) = listener.accept().await.context("the paced server ended")?;
        connection.set_nodelay(true)?;
        // A client that goes away ends its connection and nothing else.
        connections.spawn(async move { drop(answer_all(connection).await) });
    }
}

async fn answer_all(mut connection: TcpStream) -> std::io::Result<()> {
    let mut read = Vec::new();
    while let Some(body) = request(&mut connection, &mut read).await? {
        let Plan { chunks, pause, padding } = plan(&body);
        let padding = " ".repeat(padding);
        connection
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await?;
        let began = (Instant::now(), now_ns());
        for n in 0..chunks {
            let due = pause * n;
            if !pause.is_zero() {
                sleep_until(began.0 + due).await;
            }
            let meant = began.1 + u64::try_from(due.as_nanos()).unwrap_or(0);
            let stamp = stamp(if pause.is_zero() { now_ns() } else { meant });
            event(&mut connection, &delta(&format!("{stamp}{padding}"))).await?;
        }
        let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
                   data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9}}\n\ndata: [DONE]\n\n";
        event(&mut connection, end).await?;
        connection.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}

fn delta(text: &str) -> String {
    format!(
        "data: {{\"id\":\"reply\",\"object\":\"chat.completion.chunk\",\"model\":\"paced\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

async fn event(connection: &mut TcpStream, text: &str) -> std::io::Result<()> {
    connection.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await
}

/// The next request's body; none where the client has gone.
async fn request(connection: &mut TcpStream, read: &mut Vec<u8>) -> std::io::Result<Option<String>> {
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            let whole = end + 4 + length.unwrap_or(0);
            if read.len() >= whole {
                let body = String::from_utf8_lossy(&read[end + 4..whole]).into_owned();
                read.drain(..whole);
                return Ok(Some(body));
            }
        }
        if connection.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
}

/// Number, pause and size of the chunks of a reply.
struct Plan {
    chunks: u32,
    pause: Duration,
    /// Bytes of each chunk after its stamp.
    padding: usize,
}

/// Reads the last plan in a request: the user says `pace <chunks> <milliseconds> <bytes>`.
fn plan(body: &str) -> Plan {
    let words = body.rsplit_once("pace ").map_or("", |(_, rest)| rest);
    let words = words.split_once('"').map_or(words, |(words, _)| words);
    let mut numbers = words.split(' ').map_while(|word| word.parse::<u32>().ok());
    Plan {
        chunks: numbers.next().unwrap_or(1),
        pause: Duration::from_millis(numbers.next().unwrap_or(0).into()),
        padding: numbers.next().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0),
    }
}
