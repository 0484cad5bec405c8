//! Runs agent sessions: reads inputs, commits events, performs effects.

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    loop_orchestrator::run().await
}
