//! Time that the edge and the loop add to a chat completion: the same prompt to the same model server, by the gateway
//! alone and by `POST /openai/v1/chat/completions`, in turns.

use std::time::Duration;

use anyhow::{Context, ensure};
use bus::SubscriptionEvent;
use contract::TenantId;
use contract::event::Topic;
use contract::model::Streaming;
use futures::StreamExt;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::options::EdgeOptions;
use super::sse::SseConnection;
use crate::fixture::Fixture;
use crate::gateway::{GatewayBench, is_last};
use crate::load::{percentile, sorted_ms};
use crate::report::{self, Figure};

/// Completions by each path that are not measured.
const WARM: usize = 100;
/// The longest that a completion may take.
const COMPLETION_MAX: Duration = Duration::from_secs(10);

/// Milliseconds of completions, whole and up to their first text.
pub(super) async fn figures(fixture: &Fixture, options: &EdgeOptions) -> anyhow::Result<Vec<Figure>> {
    report::note("edge: chat completions by the gateway alone and by the edge");
    let gateway = GatewayBench::start("model").await?;
    let mut chunks = gateway.bus.topic(&TenantId::default(), Topic::AiChunkReceived).await?;
    let edge = &fixture.http_edges[0];
    let mut connection = SseConnection::connect(edge).await?;
    let (mut by_gateway, mut by_edge, mut first) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..WARM + options.completions {
        // The model server answers it with one text. An equal request would be taken for a repeated one.
        let prompt = format!("Say 1 thing, for the {n}th time.");
        let began = Instant::now();
        gateway.open_call(&format!("chat-{n}"), &prompt, &Streaming::default()).await?;
        loop {
            let next = timeout(COMPLETION_MAX, chunks.next()).await.context("the gateway does not answer")?;
            let Some(SubscriptionEvent::Message(message)) = next else {
                anyhow::bail!("the chunks end: {next:?}");
            };
            if is_last(&message.payload) {
                break;
            }
        }
        let gateway_took = began.elapsed();
        let completed = timeout(COMPLETION_MAX, complete(&mut connection, edge, &prompt));
        let (first_after, edge_took) = completed.await.context("the edge does not answer")??;
        if n >= WARM {
            by_gateway.push(gateway_took);
            first.push(first_after);
            by_edge.push(edge_took);
        }
    }
    let [by_gateway, by_edge, first] = [by_gateway, by_edge, first].map(|times| sorted_ms(times.into_iter()));
    let mut figures = Vec::new();
    for p in [50, 99] {
        let name = |what: &str| format!("edge.chat.{what}_ms_p{p}");
        figures.push(Figure::new(name("completion"), percentile(&by_edge, p), "ms"));
        figures.push(Figure::new(name("first_text"), percentile(&first, p), "ms"));
        figures.push(Figure::new(name("gateway"), percentile(&by_gateway, p), "ms"));
        figures.push(Figure::new(name("added"), percentile(&by_edge, p) - percentile(&by_gateway, p), "ms"));
    }
    Ok(figures)
}

/// One completion: when its first text came, and when it was whole.
async fn complete(connection: &mut SseConnection, edge: &str, prompt: &str) -> anyhow::Result<(Duration, Duration)> {
    let body = json!({"model": "talk", "stream": true, "messages": [{"role": "user", "content": prompt}]}).to_string();
    let request = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: {edge}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let began = Instant::now();
    connection.send(&request).await?;
    let mut first = None;
    loop {
        let frame = connection.next().await?;
        if frame.data == "[DONE]" {
            let first = first.context("a completion without text")?;
            connection.end_body().await?;
            return Ok((first, began.elapsed()));
        }
        ensure!(!frame.data.contains("\"error\""), "the edge answers: {}", frame.data);
        if first.is_none() && frame.data.contains("All parts are done.") {
            first = Some(began.elapsed());
        }
    }
}
