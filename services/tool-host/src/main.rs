//! Serves the built-in tools, and those of MCP servers and HTTP endpoints.

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tool_host::run().await
}
