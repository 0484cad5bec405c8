//! A load balancer for tests: one address in front of changing servers, which loses replies and connections on demand.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Passes bytes on to a server; dropping it ends every connection.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: watch::Sender<RelayState>,
    _task: JoinSet<()>,
}

#[derive(Debug, Clone, Copy)]
struct RelayState {
    server: SocketAddr,
    /// Connections of an earlier epoch end.
    epoch: u64,
    loses_replies: bool,
}

impl Relay {
    /// Starts it in front of a server.
    pub async fn before(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("a port for the relay")?;
        let address = listener.local_addr()?;
        let state = watch::Sender::new(RelayState { server, epoch: 0, loses_replies: false });
        let mut task = JoinSet::new();
        let changes = state.subscribe();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass_on(client, changes.clone()));
            }
        });
        Ok(Self { address, state, _task: task })
    }

    /// Its gRPC address for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Passes what the client sends, and drops what the server answers, until the connections are cut.
    pub fn lose_replies(&self) {
        self.state.send_modify(|state| state.loses_replies = true);
    }

    /// Cuts all connections; later ones work, and lead to this server.
    pub fn cut(&self, server: SocketAddr) {
        self.state.send_modify(|state| *state = RelayState { server, epoch: state.epoch + 1, loses_replies: false });
    }
}

async fn pass_on(client: TcpStream, mut changes: watch::Receiver<RelayState>) {
    let RelayState { server, epoch, .. } = *changes.borrow_and_update();
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let replies = changes.clone();
    tokio::select! {
        // The relay is dropped, or the connection is cut.
        _ = changes.wait_for(|state| state.epoch != epoch) => {}
        () = copy(from_client, to_server, || false) => {}
        () = copy(from_server, to_client, || replies.borrow().loses_replies) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, loses: impl Fn() -> bool) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if !loses() && to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
