//! `ailoop acp`: serves an editor over stdin and stdout.

use acp::{EdgeLink, serve};
use terminal::failure::{CommandFailure, Exit};

use super::fleet_location::connect;
use crate::args::AcpArgs;
use crate::signals::Interrupts;

pub(super) async fn serve_editor(args: &AcpArgs) -> Result<Exit, CommandFailure> {
    let mut interrupts = Interrupts::listen()?;
    let target = args.target.clone();
    let link = EdgeLink::new(Box::new(move || {
        let target = target.clone();
        Box::pin(async move { connect(&target).await })
    }));
    let agent = args.agent.clone().unwrap_or_default();
    let served = serve(tokio::io::stdin(), tokio::io::stdout(), link, agent);
    match interrupts.run_until_interrupted(served).await {
        Some(served) => served.map(|()| Exit::Done),
        None => Ok(Exit::Interrupted),
    }
}
