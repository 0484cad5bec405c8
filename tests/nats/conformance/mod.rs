//! The in-memory server against the real one: the same operations, the same answers.
//!
//! `AILOOP_CONFORMANCE_OPERATIONS` makes it longer: `make lab NAME=conformance` compares 100,000.
//! `AILOOP_CONFORMANCE_SEED` says where its seeds begin.

mod operations;
mod rows;
mod server;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ailoop_tests::nats::NatsServer;
use ailoop_tests::wait::PATIENCE;
use anyhow::{Context, bail, ensure};
use bus_memory::MemoryServer;
use contract::limits::ACK_WAIT;
use contract::streams::Queue;
use futures::TryStreamExt;
use tokio::time::Instant;

use self::operations::{Operation, sequence};
use self::server::Server;

/// Sequences of a short run, each on new servers, and operations of each.
const SEQUENCES: u64 = 32;
const OPERATIONS: usize = 60;
/// Operations of a sequence in a long run.
const LONG_OPERATIONS: usize = 250;
/// Sequences at the same time.
const AT_ONCE: usize = 4;
/// Operations between two reports of a long run.
const REPORT_EVERY: usize = 5_000;
/// Time between two in-progress acks of held items: well within the ack wait, which would not end on both servers at
/// the same time.
const TOUCH_EVERY: Duration = Duration::from_secs(1);
/// Longest time without in-progress acks; after it an ack wait may be over.
const TOUCH_LATE: Duration = Duration::from_secs(4);

/// The answer that stands for an operation that was not compared.
const LEFT_OUT: &str = "left out";

/// The real server and the in-memory one.
struct ServerPair {
    real: Server,
    memory: Server,
    /// The sequence is random; rows avoid everything that nats-server leaves to chance.
    drawn: bool,
    touched: Instant,
    played_lines: Vec<String>,
    /// Ends when it is dropped.
    _server: NatsServer,
}

/// The result of a sequence without a difference.
#[derive(PartialEq, Eq)]
enum Comparison {
    Alike,
    TooSlow,
}

impl ServerPair {
    async fn start(drawn: bool) -> anyhow::Result<Self> {
        let server = NatsServer::start().await?;
        let raw = async_nats::connect(server.url()).await?;
        let real = Server::real(server.ready().await?, raw);
        let memory = Server::memory(MemoryServer::new().bus());
        Ok(Self { real, memory, drawn, touched: Instant::now(), played_lines: Vec::new(), _server: server })
    }

    /// Plays a sequence on both servers; the error names the first difference.
    async fn play(&mut self, operations: &[Operation]) -> anyhow::Result<Comparison> {
        // At the end every queue is emptied, so that what is left is compared too.
        let rest = Queue::ALL.iter().flat_map(|queue| {
            let (queue, max) = (*queue, 64);
            [Operation::Depth { queue }, Operation::Pull { queue, max }, Operation::Depth { queue }]
        });
        for operation in operations.iter().cloned().chain(rest) {
            if self.touched.elapsed() > TOUCH_EVERY {
                tokio::try_join!(self.real.touch(), self.memory.touch())?;
                if self.touched.elapsed() > TOUCH_LATE {
                    return Ok(Comparison::TooSlow);
                }
                self.touched = Instant::now();
            }
            let (one, other) = self.operation(&operation).await?;
            self.played_lines.push(format!("{operation:?} -> {one}"));
            if one != other && self.touched.elapsed() > TOUCH_LATE {
                return Ok(Comparison::TooSlow);
            }
            ensure!(one == other, "{}\nnats-server: {one}\nin-memory server: {other}", self.played_lines.join("\n"));
        }
        Ok(Comparison::Alike)
    }

    /// Applies an operation to both servers and returns both answers.
    async fn operation(&mut self, operation: &Operation) -> anyhow::Result<(String, String)> {
        if let Operation::Pull { queue, max } = operation {
            let (other, there) = self.memory.pull(*queue, *max, Duration::ZERO).await?;
            return Ok((self.real.pull_like(*queue, *max, there).await?, other));
        }
        if let Operation::Depth { queue } = operation {
            let other = self.memory.operation(operation).await?;
            return Ok((self.real.depth_like(*queue, &other).await?, other));
        }
        if let Operation::Await { .. } = operation {
            let both = tokio::try_join!(self.real.operation(operation), self.memory.operation(operation))?;
            self.touched = Instant::now();
            return Ok(both);
        }
        // nats-server counts it as purged and as acknowledged, in a random order, and its ack floor follows.
        if let Operation::Purge { at } = operation
            && self.drawn
            && self.memory.holds_alone(*at).await?
        {
            return Ok((LEFT_OUT.to_owned(), LEFT_OUT.to_owned()));
        }
        Ok((self.real.operation(operation).await?, self.memory.operation(operation).await?))
    }
}

/// The result of the sequence of a seed.
struct SequenceResult {
    /// Kinds of the compared operations.
    kinds: Vec<&'static str>,
    /// A difference that did not occur again when the sequence was repeated.
    chance: Option<String>,
}

/// Plays a sequence on new servers, again and again while the machine is too slow; returns what was played.
async fn play(operations: &[Operation], drawn: bool) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut pair = ServerPair::start(drawn).await?;
        if pair.play(operations).await? == Comparison::Alike {
            return Ok(pair.played_lines);
        }
    }
    bail!("this machine is too slow: more than {TOUCH_LATE:?} of {ACK_WAIT:?} went by between two operations")
}

/// Plays the sequence of a seed. The in-memory server is deterministic; a difference that nats-server does not repeat
/// is reported, and is no error.
async fn compare(seed: u64, length: usize) -> anyhow::Result<SequenceResult> {
    let operations = sequence(seed, length)?;
    let mut chance: Option<String> = None;
    loop {
        match play(&operations, true).await {
            Ok(played_lines) => {
                let played =
                    operations.iter().zip(&played_lines).filter(|(_, played_lines)| !played_lines.ends_with(LEFT_OUT));
                return Ok(SequenceResult { kinds: played.map(|(operation, _)| operation.kind()).collect(), chance });
            }
            Err(parted) if chance.is_none() => chance = Some(format!("seed {seed}:\n{parted:#}")),
            Err(parted) => return Err(parted.context(format!("seed {seed}, twice"))),
        }
    }
}

/// Totals of the comparisons so far.
#[derive(Default)]
struct Totals {
    operations: usize,
    sequences: u64,
    chances: usize,
    kinds: BTreeMap<&'static str, usize>,
}

impl Totals {
    fn add(&mut self, played: &SequenceResult) {
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
async fn in_memory_server_answers_as_the_real_one() -> anyhow::Result<()> {
    // Each sequence has a seed of its own; what fails prints it.
    let (first, begun) = (setting("AILOOP_CONFORMANCE_SEED").unwrap_or(0), Instant::now());
    let wanted = setting("AILOOP_CONFORMANCE_OPERATIONS");
    let (sequences, length) = match wanted {
        Some(operations) => ((operations + operations / 50).div_ceil(LONG_OPERATIONS as u64), LONG_OPERATIONS),
        None => (SEQUENCES, OPERATIONS),
    };
    let tally = Mutex::new(Totals::default());
    let seeds = futures::stream::iter((first..first + sequences).map(anyhow::Ok));
    let played = seeds.try_for_each_concurrent(AT_ONCE, async |seed| {
        let played = compare(seed, length).await?;
        if let Some(chance) = &played.chance {
            report(&format!("the difference did not occur again: {chance}"));
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
        let Totals { operations, sequences, chances, .. } = tally;
        let (last, took) = (first + sequences - 1, begun.elapsed());
        report(&format!("{operations} operations compared, none differed twice, {chances} once"));
        report(&format!("{sequences} sequences of {length}, seeds {first} to {last}, {took:.1?}"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_earlier_differences_give_equal_answers() -> anyhow::Result<()> {
    let rows = futures::stream::iter(rows::rows().into_iter().map(anyhow::Ok));
    let played = rows.try_for_each_concurrent(AT_ONCE, async |(name, operations)| {
        play(&operations, false).await.with_context(|| name)?;
        Ok(())
    });
    played.await
}

#[allow(clippy::print_stderr, reason = "the figures of a long run")]
fn report(line: &str) {
    eprintln!("{line}");
}
