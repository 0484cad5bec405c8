//! Serves the built-in tools, and those of MCP servers and HTTP endpoints.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tool_host::run().await
}
