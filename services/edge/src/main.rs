//! Runs the edge: the client API over WebSocket JSON-RPC and gRPC.

use edge::{Config, Edge};
use service::process::{Running, run};

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run("edge", "edge", async |config: Config, bus| {
        let edge = Edge::start(config, bus).await?;
        Ok(Running::new(edge.readiness(), |timeout| edge.drain(timeout)))
    })
    .await
}
