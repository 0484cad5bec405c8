//! The in-memory server against the real one: the same operations, the same answers.
//!
//! `AILOOP_CONFORMANCE_OPERATIONS` makes it longer: `make conformance` compares 100,000. `AILOOP_CONFORMANCE_SEED` says
//! where its seeds begin.

mod acts;
mod rows;
mod side;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ailoop_tests::nats::NatsServer;
use anyhow::{Context, bail, ensure};
use bus_memory::MemoryServer;
use contract::limits::ACK_WAIT;
use contract::streams::Queue;
use futures::TryStreamExt;
use tokio::time::Instant;

use self::acts::{Act, sequence};
use self::side::Side;

/// Sequences of a short run, each on new servers, and operations of each.
const SEQUENCES: u64 = 32;
const OPERATIONS: usize = 60;
/// Operations of a sequence in a long run.
const LONG_OPERATIONS: usize = 250;
/// Sequences at the same time.
const AT_ONCE: usize = 4;
/// Operations between two reports of a long run.
const REPORT_EVERY: usize = 5_000;
/// How often it is said of what is held that it is: well within the ack wait, which would not end on both servers in
/// the same instant.
const TOUCH_EVERY: Duration = Duration::from_secs(1);
/// Where it was not said for so long, nobody knows whether the ack wait is over.
const TOUCH_LATE: Duration = Duration::from_secs(4);
/// How often a sequence is begun again on a machine that is too slow.
const TRIES: usize = 5;

/// What is told of an operation that was not played.
const LEFT_OUT: &str = "left out";

/// Both servers.
struct Pair {
    real: Side,
    twin: Side,
    /// Whether the sequence was drawn at random; rows go where nothing is left to chance.
    drawn: bool,
    touched: Instant,
    told: Vec<String>,
    /// Kept, since it ends with the value.
    _server: NatsServer,
}

/// How a sequence came out, where the servers did not part.
#[derive(PartialEq, Eq)]
enum Compared {
    Alike,
    TooSlow,
}

impl Pair {
    async fn start(drawn: bool) -> anyhow::Result<Self> {
        let server = NatsServer::start().await?;
        let raw = async_nats::connect(server.url()).await?;
        let real = Side::real(server.ready().await?, raw);
        let twin = Side::twin(MemoryServer::new().bus());
        Ok(Self { real, twin, drawn, touched: Instant::now(), told: Vec::new(), _server: server })
    }

    /// Plays a sequence on both; the error tells where they part.
    async fn play(&mut self, acts: &[Act]) -> anyhow::Result<Compared> {
        // In the end everything that can be had comes out.
        let rest = Queue::ALL.iter().flat_map(|queue| {
            let (queue, max) = (*queue, 64);
            [Act::Depth { queue }, Act::Pull { queue, max }, Act::Depth { queue }]
        });
        for act in acts.iter().cloned().chain(rest) {
            if self.touched.elapsed() > TOUCH_EVERY {
                tokio::try_join!(self.real.touch(), self.twin.touch())?;
                if self.touched.elapsed() > TOUCH_LATE {
                    return Ok(Compared::TooSlow);
                }
                self.touched = Instant::now();
            }
            let (one, other) = self.act(&act).await?;
            self.told.push(format!("{act:?} -> {one}"));
            if one != other && self.touched.elapsed() > TOUCH_LATE {
                return Ok(Compared::TooSlow);
            }
            ensure!(one == other, "{}\nnats-server: {one}\ntwin: {other}", self.told.join("\n"));
        }
        Ok(Compared::Alike)
    }

    /// What both say.
    async fn act(&mut self, act: &Act) -> anyhow::Result<(String, String)> {
        if let Act::Pull { queue, max } = act {
            let (other, there) = self.twin.pull(*queue, *max, Duration::ZERO).await?;
            return Ok((self.real.pull_like(*queue, *max, there).await?, other));
        }
        if let Act::Depth { queue } = act {
            let other = self.twin.act(act).await?;
            return Ok((self.real.depth_like(*queue, &other).await?, other));
        }
        if let Act::Await { .. } = act {
            let both = tokio::try_join!(self.real.act(act), self.twin.act(act))?;
            self.touched = Instant::now();
            return Ok(both);
        }
        // nats-server takes it for purged and for acknowledged, in an order left to chance, and its floor follows.
        if let Act::Purge { at } = act
            && self.drawn
            && self.twin.holds_alone(*at).await?
        {
            return Ok((LEFT_OUT.to_owned(), LEFT_OUT.to_owned()));
        }
        Ok((self.real.act(act).await?, self.twin.act(act).await?))
    }
}

/// What came of a seed's sequence.
struct Played {
    /// What was compared.
    kinds: Vec<&'static str>,
    /// Where they parted, but not when it was played again.
    chance: Option<String>,
}

/// Plays the sequence of a seed. The twin always does the same; where nats-server does once what it does not do again, that
/// is told, and no error.
async fn compare(seed: u64, length: usize) -> anyhow::Result<Played> {
    let acts = sequence(seed, length)?;
    let mut chance: Option<String> = None;
    for _ in 0..TRIES {
        let mut pair = Pair::start(true).await?;
        match pair.play(&acts).await {
            Ok(Compared::TooSlow) => {}
            Ok(Compared::Alike) => {
                let played = acts.iter().zip(&pair.told).filter(|(_, told)| !told.ends_with(LEFT_OUT));
                return Ok(Played { kinds: played.map(|(act, _)| act.kind()).collect(), chance });
            }
            Err(parted) if chance.is_none() => chance = Some(format!("seed {seed}:\n{parted:#}")),
            Err(parted) => return Err(parted.context(format!("seed {seed}, twice"))),
        }
    }
    bail!("this machine is too slow: more than {TOUCH_LATE:?} of {ACK_WAIT:?} went by between two operations")
}

/// What has been compared.
#[derive(Default)]
struct Tally {
    operations: usize,
    sequences: u64,
    chances: usize,
    kinds: BTreeMap<&'static str, usize>,
}

impl Tally {
    fn add(&mut self, played: &Played) {
        self.operations += played.kinds.len();
        self.sequences += 1;
        self.chances += usize::from(played.chance.is_some());
        for kind in &played.kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    fn kinds(&self) -> String {
        self.kinds.iter().map(|(kind, number)| format!("{kind} {number}")).collect::<Vec<_>>().join(", ")
    }
}

fn setting(name: &str) -> Option<u64> {
    configuration::env(name)?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_in_memory_server_does_what_the_real_one_does() -> anyhow::Result<()> {
    // Each sequence has a seed of its own; what fails prints it.
    let (first, begun) = (setting("AILOOP_CONFORMANCE_SEED").unwrap_or(0), Instant::now());
    let wanted = setting("AILOOP_CONFORMANCE_OPERATIONS");
    let (sequences, length) = match wanted {
        Some(operations) => ((operations + operations / 50).div_ceil(LONG_OPERATIONS as u64), LONG_OPERATIONS),
        None => (SEQUENCES, OPERATIONS),
    };
    let tally = Mutex::new(Tally::default());
    let seeds = futures::stream::iter((first..first + sequences).map(anyhow::Ok));
    let played = seeds.try_for_each_concurrent(AT_ONCE, async |seed| {
        let played = compare(seed, length).await?;
        if let Some(chance) = &played.chance {
            report(&format!("played again, they did not part: {chance}"));
        }
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        let before = tally.operations / REPORT_EVERY;
        tally.add(&played);
        if wanted.is_some() && tally.operations / REPORT_EVERY > before {
            report(&format!("{} operations alike, {:?}", tally.operations, begun.elapsed()));
        }
        Ok(())
    });
    played.await?;
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    if wanted.is_some() {
        report(&tally.kinds());
        let Tally { operations, sequences, chances, .. } = tally;
        let (last, took) = (first + sequences - 1, begun.elapsed());
        report(&format!("{operations} operations compared, none differed twice, {chances} once"));
        report(&format!("{sequences} sequences of {length}, seeds {first} to {last}, {took:.1?}"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_they_parted_once_they_agree() -> anyhow::Result<()> {
    let rows = futures::stream::iter(rows::rows().into_iter().map(anyhow::Ok));
    let played = rows.try_for_each_concurrent(AT_ONCE, async |(name, acts)| {
        let compared = Pair::start(false).await?.play(&acts).await.with_context(|| name)?;
        ensure!(compared == Compared::Alike, "too slow: {name}");
        Ok(())
    });
    played.await
}

#[allow(clippy::print_stderr, reason = "the figures of a long run")]
fn report(line: &str) {
    eprintln!("{line}");
}
