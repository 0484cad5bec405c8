//! Serves the tools that are shipped, and those of MCP servers and HTTP endpoints.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tool_host::run().await
}
