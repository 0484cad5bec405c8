//! Runs tool calls, and keeps the catalogue of tools.

use service::process::{Running, run};
use tool_executor::{Config, Executor};

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run("tool-executor", "executor", async |config: Config, bus| {
        let executor = Executor::start(config, bus);
        Ok(Running::new(executor.readiness(), |timeout| executor.drain(timeout)))
    })
    .await
}
