//! Checks of what a session left: its log, the requests to its model, and the events that a viewer received.

use anyhow::{Context, ensure};
use bus::Bus;
use contract::Json;
use contract::commit::Commit;
use contract::subject::SessionKey;
use simulation::oracle::{Oracle, check_request};

use crate::client::ReceivedEvent;
use crate::model::RecordedRequest;

/// Checks a log whose turns may have `max_iterations` steps; returns its commits.
pub async fn log(bus: &Bus, key: &SessionKey, max_iterations: u32) -> anyhow::Result<Vec<Commit>> {
    let commits = bus.history(key, 0).await?;
    ensure!(!commits.is_empty(), "{key} has no log");
    let (mut oracle, mut next_seq) = (Oracle::new(max_iterations), 1);
    for (expected, (slot, commit)) in (0_u64..).zip(&commits) {
        ensure!(*slot == expected, "slot {slot} follows slot {}", expected.wrapping_sub(1));
        oracle.commit(&commit.events).map_err(anyhow::Error::msg).with_context(|| format!("{key}, slot {slot}"))?;
        ensure!(commit.meta.seq == next_seq, "slot {slot} begins with seq {}, not {next_seq}", commit.meta.seq);
        next_seq += commit.events.iter().filter(|event| event.topic().is_some()).count() as u64;
    }
    let differs = session::audit::audit(key.clone(), &commits, None).differs;
    ensure!(differs.is_empty(), "{key}: the fold comes to something else than was written: {differs:?}");
    Ok(commits.into_iter().map(|(_, commit)| commit).collect())
}

/// Checks the requests to a model: in each one, each call has exactly one result, in order.
pub fn requests(requests: &[RecordedRequest]) -> anyhow::Result<()> {
    for request in requests {
        let messages: Vec<Json> = request.messages().iter().map(Json::of).collect();
        let judged = check_request(&messages).map_err(anyhow::Error::msg);
        judged.with_context(|| format!("request {}: {}", request.number, request.body["messages"]))?;
    }
    Ok(())
}

/// Checks the events of a viewer that watched from the beginning: `seq` counts from 1 without a gap.
pub fn seqs(events: &[ReceivedEvent]) -> anyhow::Result<()> {
    let seqs: Vec<u64> = events.iter().filter_map(|event| event.seq).collect();
    let expected: Vec<u64> = (1..=seqs.len() as u64).collect();
    ensure!(seqs == expected, "`seq` is not 1, 2, 3, …: {seqs:?}");
    Ok(())
}
