//! Streams that are corrupted at random: none may yield a tool call that the model did not make.
//!
//! `AILOOP_GARBAGE_STREAMS` is the number of streams; a million take a few minutes.

use contract::model::ToolCall;
use model_gateway::adapter::ProviderProtocol;
use model_gateway::reply::ModelReply;

use super::dialect::{PROTOCOLS, Script};

/// Pseudo-random numbers of a seed, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap_or(0)
    }
}

/// Kind of corruption of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Corruption {
    /// The end is missing.
    Cut,
    /// Some bytes are replaced.
    Flip,
    /// Random bytes are inserted.
    Insert,
    /// An event is repeated or moved.
    Shuffle,
    /// A JSON value has another type.
    Retype,
    /// The stream is random fragments.
    Noise,
}

const CORRUPTIONS: [Corruption; 6] =
    [Corruption::Cut, Corruption::Flip, Corruption::Insert, Corruption::Shuffle, Corruption::Retype, Corruption::Noise];

fn corrupt(random: &mut Random, events: &[String], corruption: Corruption) -> Vec<u8> {
    let mut stream = events.concat().into_bytes();
    match corruption {
        Corruption::Cut => stream.truncate(random.below(stream.len())),
        Corruption::Flip => {
            for _ in 0..=random.below(4) {
                let at = random.below(stream.len());
                stream[at] = random.next().to_le_bytes()[0];
            }
        }
        Corruption::Insert => {
            for _ in 0..=random.below(3) {
                let at = random.below(stream.len());
                let more = (0..random.below(12)).map(|_| random.next().to_le_bytes()[0]).collect::<Vec<u8>>();
                stream.splice(at..at, more);
            }
        }
        Corruption::Shuffle => {
            let mut events = events.to_vec();
            let (from, to) = (random.below(events.len()), random.below(events.len()));
            let event = events[from].clone();
            if random.below(2) == 0 {
                events.remove(from);
            }
            events.insert(to.min(events.len()), event);
            stream = events.concat().into_bytes();
        }
        Corruption::Retype => {
            let wrong = ["null", "7", "-1e99", "\"\"", "[]", "{}", "true", "[null]", "99999999999999999999"];
            let text = String::from_utf8_lossy(&stream).into_owned();
            let colons: Vec<usize> = text.match_indices("\":").map(|(at, _)| at + 2).collect();
            let at = colons[random.below(colons.len())];
            let rest = &text[at..];
            let end = rest.find([',', '}', ']']).unwrap_or(0);
            stream = format!("{}{}{}", &text[..at], wrong[random.below(wrong.len())], &rest[end..]).into_bytes();
        }
        Corruption::Noise => {
            const WORDS: [&str; 16] = [
                "data: ",
                "\n",
                "\n\n",
                "{",
                "}",
                "[",
                "]",
                "\"",
                ":",
                ",",
                "event: x",
                "[DONE]",
                "\"choices\"",
                "\\u00",
                "\u{feff}",
                "null",
            ];
            stream = (0..random.below(60)).flat_map(|_| WORDS[random.below(16)].bytes()).collect();
        }
    }
    stream
}

/// Reads a stream in chunks of random length.
fn read(random: &mut Random, protocol: ProviderProtocol, mut stream: &[u8]) -> Option<ModelReply> {
    let (mut reader, mut reply) = (protocol.response_reader(), ModelReply::default());
    while !stream.is_empty() {
        let (piece, rest) = stream.split_at((1 + random.below(400)).min(stream.len()));
        for delta in reader.push(piece).ok()? {
            reply.add(&delta).ok()?;
        }
        stream = rest;
    }
    for delta in reader.finish().ok()? {
        reply.add(&delta).ok()?;
    }
    Some(reply)
}

/// Whether a call would run although a part of its arguments is missing.
fn is_half(call: &ToolCall, meant: &[String]) -> bool {
    let given = call.function.arguments.as_str();
    let would_be_made = !call.function.name.is_empty() && serde_json::from_str::<serde_json::Map<_, _>>(given).is_ok();
    would_be_made
        && meant.iter().all(|whole| whole != given)
        && meant.iter().any(|whole| whole.starts_with(given) || (given != "{}" && whole.ends_with(given)))
}

#[test]
fn garbage_streams_yield_no_partial_call() {
    let count = configuration::env("AILOOP_GARBAGE_STREAMS").and_then(|count| count.parse().ok()).unwrap_or(20_000_u64);
    let script = Script::full();
    let meant: Vec<String> = script.calls.iter().map(|(_, arguments)| arguments.to_string()).collect();
    let (mut replies, mut refused) = (0_u64, 0_u64);
    for seed in 0..count {
        let mut random = Random(seed);
        let protocol = PROTOCOLS[random.below(4)];
        let corruption = CORRUPTIONS[random.below(6)];
        let script = Script { chunk_chars: 1 + random.below(8), ..script.clone() };
        let stream = corrupt(&mut random, &script.events(protocol), corruption);
        let Some(reply) = read(&mut random, protocol, &stream) else {
            refused += 1;
            continue;
        };
        replies += 1;
        let calls = reply.calls();
        let describe =
            || format!("seed {seed}, {protocol:?}, {corruption:?}: {calls:?} of {}", String::from_utf8_lossy(&stream));
        assert!(calls.iter().all(|call| !is_half(call, &meant)), "half a call: {}", describe());
        match corruption {
            // Only a stream that was complete before the cut is a reply.
            Corruption::Cut => {
                assert_eq!(
                    calls.iter().map(|c| c.function.arguments.clone()).collect::<Vec<_>>(),
                    meant,
                    "{}",
                    describe()
                );
            }
            Corruption::Noise => assert!(calls.is_empty(), "{}", describe()),
            Corruption::Flip | Corruption::Insert | Corruption::Shuffle | Corruption::Retype => {}
        }
    }
    super::figures(&format!(
        "{count} garbage streams: {refused} refused, {replies} taken for replies, none with half a call"
    ));
}
