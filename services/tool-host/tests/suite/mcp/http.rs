//! Servers over streamable HTTP, in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use service::tasks::Tasks;
use tokio::net::{TcpListener, TcpSocket};

use crate::mcp::toy::{self, Toy};
use crate::mcp::world::{LONG, World, wait_for};

/// A server that listens.
struct Server {
    address: SocketAddr,
    tasks: Tasks,
}

impl Server {
    async fn start(world: &World, legacy: bool, address: &str) -> Self {
        let listener = wait_for(async || listen(address).ok()).await;
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        let toy = Toy::new(world.diary.clone(), legacy, {
            let tasks = tasks.clone();
            move || tasks.token().cancel()
        });
        let config = StreamableHttpServerConfig::default().with_cancellation_token(tasks.token());
        let service =
            StreamableHttpService::new(move || Ok(toy.clone()), Arc::new(LocalSessionManager::default()), config);
        let guarded =
            axum::middleware::from_fn(async |request: axum::extract::Request, next: axum::middleware::Next| {
                let headers = request.headers();
                let may = headers.get("authorization").is_some_and(|value| value == "Bearer hush")
                    && headers.get("x-package") == headers.get("x-package-again")
                    && headers.get("x-package").is_some_and(|value| value == env!("CARGO_PKG_NAME"));
                if may {
                    next.run(request).await
                } else {
                    axum::response::Response::builder().status(401).body("".into()).unwrap()
                }
            });
        let router = axum::Router::new().nest_service("/mcp", service).layer(guarded);
        let ending = tasks.token();
        tasks.spawn("http", async move {
            ending.run_until_cancelled(async { axum::serve(listener, router).await.unwrap() }).await;
        });
        Self { address, tasks }
    }

    fn config(&self) -> Value {
        json!({"url": format!("http://{}/mcp", self.address), "headers": {"Authorization": "Bearer hush",
            "X-Package": env!("CARGO_PKG_NAME")}, "headers_from": {"x-package-again": "CARGO_PKG_NAME"}})
    }

    async fn end(&self) {
        self.tasks.end(Duration::from_secs(1)).await;
    }
}

fn listen(address: &str) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address.parse().unwrap())?;
    socket.listen(64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_over_http_behaves_like_one_over_stdio() {
    for legacy in [false, true] {
        let world = World::new().await;
        let server = Server::start(&world, legacy, "127.0.0.1:0").await;
        let host = world.serve(json!({"toy": server.config()})).await;
        assert_eq!(world.call_when_up("mcp__toy__echo", &json!({"text": "hello"})).await.into_result(), "hello");
        assert_eq!(world.call("mcp__toy__fail", json!({})).await.into_error(), "no such city");
        let huge = world.call("mcp__toy__huge", json!({"bytes": 20_000_000})).await;
        // The library ends the stream of the answer, so the outcome is unknown.
        assert!(huge.unknown, "{huge:?}");
        let mut call = world.begin("mcp__toy__work", json!({})).await;
        assert_eq!(call.progress().await, "half of it");
        call.cancel().await;
        assert_eq!(call.answer().await.into_unknown(), "cancelled");
        world.wait_for_note("cancelled", 1).await;
        world.call_when_up("mcp__toy__change", &json!({})).await.into_result();
        wait_for(async || world.spec("mcp__toy__echo").await.filter(|spec| spec.description == toy::AFTER)).await;
        assert_eq!(world.call_when_up("mcp__toy__new", &json!({"text": "b"})).await.into_result(), "b");
        host.drain(LONG).await;
        server.end().await;
    }
}

/// A server that answers every request with 401, and says which login it wants.
fn start_locked(challenge: Option<&'static str>) -> (SocketAddr, Tasks) {
    let listener = listen("127.0.0.1:0").unwrap();
    let (address, tasks) = (listener.local_addr().unwrap(), Tasks::new());
    let refuse = async move || {
        let response = axum::response::Response::builder().status(401);
        let response =
            challenge.into_iter().fold(response, |response, value| response.header("www-authenticate", value));
        response.body(axum::body::Body::empty()).unwrap()
    };
    let (router, ending) = (axum::Router::new().fallback(refuse), tasks.token());
    tasks.spawn("http", async move {
        ending.run_until_cancelled(async { axum::serve(listener, router).await.unwrap() }).await;
    });
    (address, tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_wants_a_login_says_so_without_its_url() {
    let challenge = r#"Bearer resource_metadata="http://127.0.0.1/.well-known/oauth-protected-resource""#;
    for challenge in [Some(challenge), None] {
        let world = World::new().await;
        let (address, tasks) = start_locked(challenge);
        let config = json!({"url": format!("http://{address}/mcp?key=hush")});
        let host = world.serve(json!({"locked": config})).await;
        let warning = wait_for(async || host.warnings().into_iter().next()).await;
        assert_eq!(warning, "MCP server locked is not served: HTTP 401: it wants a login: set headers_from");
        host.drain(LONG).await;
        tasks.end(Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_server_that_dies_is_reconnected() {
    for legacy in [false, true] {
        let world = World::new().await;
        let server = Server::start(&world, legacy, "127.0.0.1:0").await;
        let host = world.serve(json!({"toy": server.config()})).await;
        world.call_when_up("mcp__toy__echo", &json!({"text": ""})).await.into_result();
        let mut killer = world.begin("mcp__toy__die", json!({})).await;
        world.wait_for_note("dies", 1).await;
        server.end().await;
        // Without a listener this call did not run, and says so as long as the tool is host.
        if let Some(refused) = world.call_if_served("mcp__toy__echo", &json!({"text": "?"})).await {
            assert!(refused.into_error().ends_with("the tool was not called"));
        }
        let killer = killer.answer().await;
        assert!(killer.unknown, "{killer:?}");
        assert!(wait_for(async || host.warnings().pop()).await.starts_with("MCP server toy is "));
        let again = Server::start(&world, legacy, &server.address.to_string()).await;
        assert_eq!(world.call_when_up("mcp__toy__echo", &json!({"text": "again"})).await.into_result(), "again");
        assert_eq!(host.warnings(), Vec::<String>::new());
        host.drain(LONG).await;
        again.end().await;
    }
}
