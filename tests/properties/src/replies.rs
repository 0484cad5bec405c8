//! Whatever a model writes.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use contract::model::ToolCall;
use contract::settings::ContinuationSettings;
use reply::{Found, Patterns, Reading, Splitter, Status, TEMPLATES, read, template};

/// Ways in which a text is cut, beside character by character.
const CUTS: u64 = 4;

/// Every template, and what it compiles to.
static PATTERNS: LazyLock<Vec<(ContinuationSettings, Arc<Patterns>)>> = LazyLock::new(|| {
    let settings = TEMPLATES.iter().filter_map(|known| template(known.name)).chain([ContinuationSettings::default()]);
    settings.filter_map(|settings| Some((settings.clone(), Patterns::compile(&settings).ok()?))).collect()
});

/// However a text is cut, the same is shown and the same envelope found; and next to nothing is shown that was not there.
pub fn splitter(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let whole = split([&*text]);
    assert!(whole.0.len() <= text.len() + 2, "{} bytes of {}", whole.0.len(), text.len());
    let mut buffer = [0; 4];
    let (mut shown, mut splitter) = (String::new(), Splitter::default());
    text.chars().for_each(|c| shown.push_str(&splitter.push(c.encode_utf8(&mut buffer))));
    let (rest, found) = splitter.finish();
    assert_eq!((shown + &rest, found), whole, "character by character");
    for seed in 1..=CUTS {
        let pieces = cut(&text, seed);
        assert_eq!(split(pieces.iter().copied()), whole, "{pieces:?}");
    }
    assert_eq!(read(&text, &[]).visible, whole.0);
}

/// Reading and hearing is total, and nothing that was broken off is ever run. What follows a zero is what the pseudo-call
/// has for arguments; without one, it is the text.
pub fn signal(data: &[u8]) {
    let both = String::from_utf8_lossy(data);
    let (text, arguments) = both.split_once('\0').unwrap_or((&both, &both));
    let (visible, found) = split([text]);
    let reading = read(text, &[]);
    check(&reading);
    assert_eq!(reading.visible, visible);
    if found.as_ref().is_none_or(|found| found.repaired) {
        assert!(reading.calls.is_empty(), "{:?}", reading.calls);
    }
    let pseudo = ToolCall::new("1", "continuation", arguments);
    assert!(reply::is_signal(&pseudo));
    let signalled = read("", std::slice::from_ref(&pseudo));
    check(&signalled);
    // Ends of lines within strings are taken as they are.
    let plain = arguments.replace(['\n', '\r', '\t'], " ");
    let broken = serde_json::from_str::<serde_json::Value>(&plain).is_err();
    assert!(!broken || signalled.calls.is_empty(), "{:?}", signalled.calls);
    let native = ToolCall::new("2", "look", arguments);
    let beside = read(text, &[pseudo, native]);
    check(&beside);
    assert!(beside.calls.is_empty(), "there is a native one");
    hear(text);
    hear(&visible);
}

fn check(reading: &Reading) {
    let Some(signal) = &reading.signal else { return };
    assert!(signal.is_known() || signal.status == Status::Terminate);
    assert!(signal.nudge().starts_with("Go on."));
}

/// What is heard is of the list that it is said to be of, and is heard again.
fn hear(text: &str) {
    for (settings, patterns) in PATTERNS.iter() {
        let Some(heard) = patterns.hear(text) else { continue };
        let list = if heard.continues { &settings.continuation_patterns } else { &settings.termination_patterns };
        assert!(list.iter().any(|pattern| pattern == heard.pattern), "{heard:?}");
        assert_eq!(patterns.hear(text), Some(heard));
    }
}

fn split<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, Option<Found>) {
    let mut splitter = Splitter::default();
    let mut shown: String = pieces.into_iter().map(|piece| splitter.push(piece)).collect();
    let (rest, found) = splitter.finish();
    shown.push_str(&rest);
    (shown, found)
}

/// Cuts a text in a few places, always the same for the same text.
fn cut(text: &str, seed: u64) -> Vec<&str> {
    let mut state = text.bytes().fold(seed, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut places = BTreeSet::from([0, text.len()]);
    for _ in 0..seed * 2 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let place = usize::try_from(state >> 33).unwrap_or(0) % (text.len() + 1);
        places.insert(text.floor_char_boundary(place));
    }
    let places: Vec<usize> = places.into_iter().collect();
    places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}
