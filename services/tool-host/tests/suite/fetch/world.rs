//! Servers on loopback, and a resolver with the answers of the test.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use service::tasks::Tasks;
use tool_host::fetch::{FetchArguments, FetchConfig, Fetcher, HostResolver};

/// A server of one test, which counts its requests.
pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    request_count: Arc<AtomicUsize>,
    _tasks: Tasks,
}

impl Server {
    pub(crate) async fn start(ip: &str, router: Router) -> Self {
        Self::on(SocketAddr::new(ip.parse().unwrap(), 0), router).await
    }

    pub(crate) async fn on(at: SocketAddr, router: Router) -> Self {
        let listener = tokio::net::TcpListener::bind(at).await.unwrap();
        let (at, request_count, tasks) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)), Tasks::new());
        let count = request_count.clone();
        let router = router.layer(axum::middleware::map_request(move |request: axum::extract::Request| {
            count.fetch_add(1, Ordering::SeqCst);
            async { request }
        }));
        tasks.spawn("server", async move { axum::serve(listener, router).await.unwrap() });
        Self { at, request_count, _tasks: tasks }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub(crate) fn count_requests(&self) -> usize {
        self.request_count.load(Ordering::SeqCst)
    }
}

/// Answers each query with the next answer, and repeats the last one.
#[derive(Clone)]
pub(crate) struct FakeResolver {
    answers: Arc<Mutex<VecDeque<Vec<IpAddr>>>>,
    request_count: Arc<AtomicUsize>,
}

impl FakeResolver {
    pub(crate) fn new(answers: &[&[&str]]) -> Self {
        let parse = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Self { answers: Arc::new(Mutex::new(answers.iter().map(parse).collect())), request_count: Arc::default() }
    }

    pub(crate) fn count_requests(&self) -> usize {
        self.request_count.load(Ordering::SeqCst)
    }
}

impl HostResolver for FakeResolver {
    fn resolve_host(&self, _name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.request_count.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        async move { Ok(answer.unwrap_or_default()) }.boxed()
    }
}

/// A configuration that permits some private networks, at the ports of these servers.
pub(crate) fn open(nets: &[&str], servers: &[&Server]) -> FetchConfig {
    FetchConfig {
        allow_private: nets.iter().map(|net| (*net).to_owned()).collect(),
        ports: servers.iter().map(|server| server.at.port()).collect(),
        timeout: 20,
        ..FetchConfig::default()
    }
}

pub(crate) fn fetcher(config: &FetchConfig, resolver: &FakeResolver) -> Fetcher {
    Fetcher::new(config, Arc::new(resolver.clone())).unwrap()
}

pub(crate) fn arguments(value: Value) -> FetchArguments {
    serde_json::from_value(value).unwrap()
}

pub(crate) async fn fetch(fetcher: &Fetcher, value: Value) -> Result<Value, String> {
    fetcher.fetch(&arguments(value)).await.map_err(|error| error.message().to_owned())
}
