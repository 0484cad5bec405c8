//! Runs agent sessions: reads inputs, commits events, performs effects.

use loop_orchestrator::{Orchestrator, OrchestratorConfig};
use service::process::{Running, run};

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run("loop-orchestrator", "orchestrator", async |config: OrchestratorConfig, bus| {
        let orchestrator = Orchestrator::start(config, bus).await?;
        Ok(Running::new(orchestrator.readiness(), |timeout| orchestrator.drain(timeout)))
    })
    .await
}
