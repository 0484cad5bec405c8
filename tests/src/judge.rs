//! The judge: reads a session's log afterwards, and what its model was asked, and says what is wrong.

use anyhow::{Context, ensure};
use bus::Bus;
use contract::Json;
use contract::commit::Commit;
use contract::subject::SessionKey;
use simulation::oracle::{Oracle, valid_request};

use crate::client::Seen;
use crate::model::Asked;

/// Judges a log whose turns may have so many steps; returns its commits.
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
    Ok(commits.into_iter().map(|(_, commit)| commit).collect())
}

/// Judges what a model was asked: in each request each call has exactly one result, in order.
pub fn requests(asked: &[Asked]) -> anyhow::Result<()> {
    for asked in asked {
        let messages: Vec<Json> = asked.messages().iter().map(Json::of).collect();
        let judged = valid_request(&messages).map_err(anyhow::Error::msg);
        judged.with_context(|| format!("request {}: {}", asked.number, asked.body["messages"]))?;
    }
    Ok(())
}

/// Judges what a viewer saw from the beginning: `seq` counts from 1 without a hole.
pub fn seqs(seen: &[Seen]) -> anyhow::Result<()> {
    let seqs: Vec<u64> = seen.iter().filter_map(|seen| seen.seq).collect();
    let expected: Vec<u64> = (1..=seqs.len() as u64).collect();
    ensure!(seqs == expected, "seqs with holes, repeated or out of order: {seqs:?}");
    Ok(())
}
