//! Composes the prompts of sessions.

use prompt_composer::{Composer, ComposerConfig};
use service::process::{Running, run};

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run("prompt-composer", prompt_composer::SECTION, async |config: ComposerConfig, bus| {
        let composer = Composer::start(config.watch_config_file()?, bus).await?;
        Ok(Running::new(composer.readiness(), |timeout| composer.drain(timeout)))
    })
    .await
}
