//! Runs tool calls, and keeps the catalogue of tools.

use service::process::{Running, run};
use tool_executor::{Executor, ExecutorConfig};

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let process = run("tool-executor", "executor", async |config: ExecutorConfig, bus| {
        let executor = Executor::start(config, bus);
        Ok(Running::new(executor.readiness(), |timeout| executor.drain(timeout)))
    });
    // The future of the process is large.
    Box::pin(process).await
}
