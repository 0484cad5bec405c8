//! Figures of the edge: what it adds to a chat completion, and what many watchers of streaming sessions cost.

mod chat;
mod drops;
mod fan_out;
mod options;
mod sse;

pub(crate) use options::EdgeOptions;

use crate::fixture::{Fixture, FleetShape};
use crate::process::Process;
use crate::report::{self, Figure};

/// Measures, prints and writes `edge.json`.
pub(crate) async fn run(options: &EdgeOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let figures = figures(options).await?;
    report::write("edge.json", &figures)?;
    report::print(&report::table(&figures));
    Ok(())
}

/// Every figure of the edge. Each service is a process of its own, so that memory and CPU are those of the edge alone.
pub(crate) async fn figures(options: &EdgeOptions) -> anyhow::Result<Vec<Figure>> {
    let dir = tempfile::TempDir::with_prefix("ailoop-bench-")?;
    let mut paced = Process::start("pace", Process::part(&["pace"])?, dir.path())?;
    let url = paced.says(|log| Some(log.lines().next()?.to_owned())).await?;
    let shape = FleetShape { apart: Some(1), ..FleetShape::PLAIN };
    let fixture = Fixture::start_with(shape, &[("slow", &url)]).await?;
    let mut figures = Vec::new();
    let measured = async {
        figures.extend(chat::figures(&fixture, options).await?);
        figures.extend(fan_out::figures(&fixture, options).await?);
        figures.extend(drops::figures(&fixture, options).await?);
        anyhow::Ok(())
    };
    if let Err(error) = measured.await {
        // What was measured before is not lost.
        report::print(&report::table(&figures));
        return Err(error.context(fixture.warnings()));
    }
    Ok(figures)
}
