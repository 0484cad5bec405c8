//! Replies of models.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use contract::model::{SignalForm, ToolCall};
use contract::settings::ContinuationSettings;
use reply::{ParsedSignal, Patterns, Reading, Splitter, Status, TEMPLATES, read, template};

/// Ways in which a text is cut, beside character by character.
const CUTS: u64 = 4;

const FORMS: [SignalForm; 4] = [SignalForm::Off, SignalForm::Text, SignalForm::Call, SignalForm::Envelope];

/// Every template, and what it compiles to.
static PATTERNS: LazyLock<Vec<(ContinuationSettings, Arc<Patterns>)>> = LazyLock::new(|| {
    let settings = TEMPLATES.iter().filter_map(|known| template(known.name)).chain([ContinuationSettings::default()]);
    settings.filter_map(|settings| Some((settings.clone(), Patterns::compile(&settings).ok()?))).collect()
});

/// However a text is cut, the shown text and the envelope are the same, and hardly any text is added.
pub fn splitter(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for form in FORMS {
        let whole = split([&*text], form);
        // Between texts a signal may take less room than the empty line that stands for it.
        assert!(whole.0.len() <= text.len() * 2 + 2, "{} bytes of {}", whole.0.len(), text.len());
        let mut buffer = [0; 4];
        let (mut shown, mut splitter) = (String::new(), Splitter::new(form));
        text.chars().for_each(|c| shown.push_str(&splitter.push(c.encode_utf8(&mut buffer))));
        let rest = splitter.finish();
        assert_eq!((shown + &rest.text, rest.signal), whole, "character by character");
        for seed in 1..=CUTS {
            let pieces = cut(&text, seed);
            assert_eq!(split(pieces.iter().copied(), form), whole, "{pieces:?}");
        }
        assert_eq!(read(&text, &[], form).visible, whole.0);
    }
}

/// Reading and pattern matching are total, and no truncated call is ever run. What follows a zero is what the
/// pseudo-call has for arguments; without one, it is the text.
pub fn signal(data: &[u8]) {
    let both = String::from_utf8_lossy(data);
    let (text, arguments) = both.split_once('\0').unwrap_or((&both, &both));
    let form = SignalForm::Envelope;
    let (visible, found) = split([text], form);
    let reading = read(text, &[], form);
    check(&reading);
    assert_eq!(reading.visible, visible);
    if found.as_ref().is_none_or(|found| found.is_damaged) {
        assert!(reading.calls.is_empty(), "{:?}", reading.calls);
    }
    let pseudo = ToolCall::new("1", "continuation", arguments);
    assert!(pseudo.is_signal());
    let signalled = read("", std::slice::from_ref(&pseudo), SignalForm::Call);
    check(&signalled);
    let broken = serde_json::Deserializer::from_str(arguments).into_iter::<serde_json::Value>().next();
    let broken = broken.is_none_or(|first| first.is_err());
    assert!(!broken || signalled.calls.is_empty(), "{:?}", signalled.calls);
    let native = ToolCall::new("2", "look", arguments);
    let beside = read(text, &[pseudo, native], form);
    check(&beside);
    assert!(beside.calls.is_empty(), "there is a native one");
    match_patterns(text);
    match_patterns(&visible);
}

fn check(reading: &Reading) {
    let Some(signal) = &reading.signal else { return };
    assert!(signal.is_known() || signal.status == Status::Terminate);
    assert!(signal.nudge().starts_with("Go on."));
}

/// A match is in the list that it names, and a second search finds it again.
fn match_patterns(text: &str) {
    for (settings, patterns) in PATTERNS.iter() {
        let Some(found) = patterns.match_text(text) else { continue };
        let list = if found.continues { &settings.continuation_patterns } else { &settings.termination_patterns };
        assert!(list.iter().any(|pattern| pattern == found.pattern), "{found:?}");
        assert_eq!(patterns.match_text(text), Some(found));
    }
}

fn split<'a>(pieces: impl IntoIterator<Item = &'a str>, form: SignalForm) -> (String, Option<ParsedSignal>) {
    let mut splitter = Splitter::new(form);
    let mut shown: String = pieces.into_iter().map(|piece| splitter.push(piece)).collect();
    let rest = splitter.finish();
    shown.push_str(&rest.text);
    (shown, rest.signal)
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
