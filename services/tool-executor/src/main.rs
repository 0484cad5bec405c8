//! Runs tool calls, and keeps the catalogue of tools.

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tool_executor::run().await
}
