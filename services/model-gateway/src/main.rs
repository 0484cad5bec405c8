//! Runs model calls.

use model_gateway::{Config, Gateway};
use service::process::{Running, run};

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run("model-gateway", "gateway", async |config: Config, bus| {
        let gateway = Gateway::start(config, bus).await?;
        Ok(Running::new(gateway.readiness(), |timeout| gateway.drain(timeout)))
    })
    .await
}
