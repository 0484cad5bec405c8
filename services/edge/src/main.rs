//! Runs the edge: the client API over WebSocket JSON-RPC and gRPC.

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    edge::run().await
}
