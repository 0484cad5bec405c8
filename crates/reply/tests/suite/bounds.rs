//! Patterns come from clients: what one list costs, in bytes and in time, is bounded whatever it says.

use std::sync::Arc;
use std::time::Duration;

use contract::settings::ContinuationSettings;
use reply::{CACHE_BYTES_MAX, PATTERN_TEXTS_BYTES_MAX, PATTERNS_MAX, Patterns};
use rustix::time::{ClockId, clock_gettime};

/// CPU time on the slowest machine, and of an unoptimised build; without bounds these take half a minute.
const LONG: Duration = Duration::from_secs(3);

/// CPU time of this thread, which a machine that is busy with something else does not stretch.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn settings(continuation: &[String]) -> ContinuationSettings {
    ContinuationSettings {
        continuation_patterns: continuation.to_vec(),
        termination_patterns: Vec::new(),
        ..ContinuationSettings::default()
    }
}

/// Takes one pattern after another, as long as the whole list can be used.
fn fill(pattern: impl Fn(usize) -> String) -> (Vec<String>, Arc<Patterns>) {
    let mut taken: Vec<String> = Vec::new();
    let mut compiled = Patterns::compile(&settings(&taken)).unwrap();
    for next in (0..PATTERNS_MAX).map(pattern) {
        taken.push(next);
        match Patterns::compile(&settings(&taken)) {
            Ok(patterns) => compiled = patterns,
            Err(_) => drop(taken.pop()),
        }
    }
    (taken, compiled)
}

#[test]
fn patterns_that_search_to_the_end_from_each_match_take_linear_time() {
    let patterns =
        ["a.*y|a", "a[^y]*y|[a-b]", "(?s)a.*y|a", "a(?:.|\n)*y|a", "a+y|a", "(?:a|b)*y|.", "a{1,200}y|a", "a.*?y|a"];
    let patterns = Patterns::compile(&settings(&patterns.map(str::to_owned))).unwrap();
    let text = "a ".repeat(32 << 10);
    let began = cpu_time();
    assert!(patterns.match_text(&text).is_some_and(|found| found.continues));
    let took = cpu_time().saturating_sub(began);
    assert!(took < LONG, "took {took:?}");
}

#[test]
fn largest_list_that_is_taken_is_searched_in_bounded_time() {
    let full = |text: &str| text.repeat(64 << 10);
    for (name, (patterns, compiled), text) in [
        ("repetition", fill(|n| format!("a{{1,{}}}", 500 + n)), full("a")),
        ("optional", fill(|n| format!("(?:a?){{{}}}", 100 + n)), full("a")),
        ("classes", fill(|n| format!(r"(?:\w|\W){{{}}}", 1 + n)), full("\u{4e2d}")),
        ("any", fill(|n| format!("(?s:.){{1,{}}}", 20 + n)), full("a\u{e9}")),
        ("looks", fill(|n| format!(r"(?:\b|\B|^|$|a){{{}}}", 20 + n)), full("a\n")),
        ("needs", fill(|n| format!("aaa[ab]{{{n}}}(?:aaa|aaaa|aaaaa|aaaaaa).*aaaaaaaa.*aaaaaaa")), full("a")),
        ("questions", fill(|n| format!("[ab]{{1,{}}}", 1 + n)), full("a? ")),
        ("quotations", fill(|n| format!("[ab]{{1,{}}}", 1 + n)), full("a\" \u{2018}")),
    ] {
        let began = cpu_time();
        compiled.match_text(&text);
        let took = cpu_time().saturating_sub(began);
        assert!(took < LONG, "{name}: {} patterns took {took:?}", patterns.len());
    }
}

#[test]
fn distinct_lists_are_forgotten_before_they_exceed_the_cache() {
    for list in 0..100 {
        let patterns: Vec<String> = (0..7).map(|n| format!(r"(?:x{list}y{n}){{50}}\w{{3}}")).collect();
        Patterns::compile(&settings(&patterns)).unwrap();
        assert!(Patterns::cached_bytes() <= CACHE_BYTES_MAX, "{} bytes", Patterns::cached_bytes());
    }
    assert!(Patterns::cached_bytes() > CACHE_BYTES_MAX / 2, "the lists are not large enough to fill it");
}

#[test]
fn lists_beyond_their_limits_are_refused_with_field_and_remedy() {
    let many = |pattern: &str, count: usize| vec![pattern.to_owned(); count];
    for (patterns, expected) in [
        (many("a", PATTERNS_MAX + 1), "continuation_patterns cannot be used: 33 patterns in one list, at most 32"),
        (many(&"a".repeat(2 << 10), PATTERN_TEXTS_BYTES_MAX / (2 << 10) + 1), "both lists have 18432 bytes, at most"),
        (many(&"a".repeat((2 << 10) + 1), 1), "it has 2049 bytes, at most 2048 are taken; split it"),
        (many(r"\w{1,200}", 1), "it compiles to more than 262144 bytes; repeat less"),
        (many(r"\w{1,10}", 32), "with it both lists compile to more than 2097152 bytes; give fewer or simpler ones"),
        (vec!["fine".to_owned(), "done (".to_owned()], "continuation_patterns[1]: pattern \"done (\""),
        (many(&r"\d".repeat(65), 1), "it has 65 classes of characters, at most 64 are taken; split it"),
        (many(&format!("{}a{}", "(".repeat(100), ")".repeat(100)), 1), "exceed the maximum number of nested"),
    ] {
        let error = Patterns::compile(&settings(&patterns)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.starts_with("continuation_patterns"), "{error}");
    }
}

#[test]
fn list_that_is_refused_is_refused_soon() {
    for pattern in [r"\pL".repeat(680), r"[^\pL]".repeat(340), r"\W{9}".repeat(400), "(?:a{1,99}){1,99}".repeat(120)] {
        let began = cpu_time();
        let refused = Patterns::compile(&settings(&vec![pattern.clone(); 8])).is_err();
        let took = cpu_time().saturating_sub(began);
        assert!(refused && took < LONG, "{}: {took:?}", &pattern[..12]);
    }
}
