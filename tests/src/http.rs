//! A client of what the edge serves over HTTP.

use std::net::SocketAddr;

use anyhow::Context as _;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;

/// A client of one edge.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    base: String,
}

impl Http {
    /// Makes a client of the listener at this address.
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        Self::with_headers(address, HeaderMap::new())
    }

    /// As [`Http::new`], with a token or an API key in each request.
    pub fn with_key(address: SocketAddr, key: &str) -> anyhow::Result<Self> {
        Self::with_headers(address, HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {key}").parse()?)]))
    }

    fn with_headers(address: SocketAddr, headers: HeaderMap) -> anyhow::Result<Self> {
        // An earlier provider stays.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(crate::wait::PATIENCE).default_headers(headers).build()?;
        Ok(Self { client, base: format!("http://{address}") })
    }

    /// Sends a request with a JSON body, and returns the response.
    pub async fn request(&self, verb: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Response> {
        let verb = reqwest::Method::from_bytes(verb.as_bytes())?;
        let mut request = self.client.request(verb, format!("{}{path}", self.base));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        Ok(request.send().await?)
    }

    /// Posts JSON with headers, and returns the response.
    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> anyhow::Result<Response> {
        let request = self.client.post(format!("{}{path}", self.base)).header("content-type", "application/json");
        Ok(with(request, headers).body(body.to_string()).send().await?)
    }

    /// Gets a document with headers, and returns status and body.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<(u16, Value)> {
        read(with(self.client.get(format!("{}{path}", self.base)), headers).send().await?).await
    }

    /// Posts JSON, and returns status and body.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        read(self.request("POST", path, Some(body)).await?).await
    }

    /// Gets a document, and returns status and body.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        read(self.request("GET", path, None).await?).await
    }

    /// Posts JSON for a stream, and returns the data of each server-sent event until its end.
    pub async fn events(&self, path: &str, body: &Value) -> anyhow::Result<Vec<Value>> {
        Self::read_events(self.request("POST", path, Some(body)).await?).await
    }

    /// Gets a stream, and returns the data of each server-sent event until its end.
    pub async fn events_of_get(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        Self::read_events(self.request("GET", path, None).await?).await
    }

    async fn read_events(response: Response) -> anyhow::Result<Vec<Value>> {
        anyhow::ensure!(response.status().is_success(), "{}", response.text().await?);
        let text = response.text().await?;
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).context("an event")).collect()
    }
}

fn with(request: RequestBuilder, headers: &[(&str, &str)]) -> RequestBuilder {
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

/// Status and body of a response: JSON, else a text.
pub async fn read(response: Response) -> anyhow::Result<(u16, Value)> {
    let status = response.status().as_u16();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}
