//! Matches of a pattern that count, in replies that patterns alone decide.

use contract::settings::ContinuationSettings;
use reply::{Evidence, Patterns, evidence};

/// Whether the text goes on by these patterns; none where they say nothing.
fn goes_on(continuation: &[&str], termination: &[&str], text: &str) -> Option<bool> {
    let owned = |list: &[&str]| list.iter().map(|pattern| (*pattern).to_owned()).collect();
    let settings = ContinuationSettings {
        require_explicit_signal: false,
        detect_intent: false,
        continuation_patterns: owned(continuation),
        termination_patterns: owned(termination),
        ..ContinuationSettings::default()
    };
    let patterns = Patterns::compile(&settings).unwrap();
    evidence(&patterns, text, settings.detect_intent).map(|evidence| match evidence {
        Evidence::Pattern(found) => found.continues,
        Evidence::Intent(intent) => panic!("{intent:?} where only patterns decide"),
    })
}

#[test]
fn negation_within_a_word_negates_nothing() {
    for (text, expected) in [
        ("The tests show that all is done.", Some(false)),
        ("The notes say it is all done.", Some(false)),
        ("A note shows how it is all done.", None),
        ("I check whether it is all done.", None),
        ("That is far from all done.", None),
        ("Afar from home, all is done.", Some(false)),
    ] {
        assert_eq!(goes_on(&[], &["all (?:is )?done"], text), expected, "{text}");
    }
}

#[test]
fn condition_within_a_word_makes_no_offer() {
    for (text, expected) in [
        ("Let me check whether it compiles.", Some(true)),
        ("Let me see what we can improve.", Some(true)),
        ("Let me look; I'm pleased with it.", Some(true)),
        ("Let me check whether I may do that.", None),
        ("If you like, let me check it.", None),
        ("If you'd like, let me check it.", None),
        ("Let me check it when you're back.", None),
    ] {
        assert_eq!(goes_on(&["let me"], &[], text), expected, "{text}");
    }
}

#[test]
fn idle_phrase_is_bound_to_words() {
    for (text, expected) in [
        ("Let me begin with the parser.", Some(true)),
        ("Let me be clear about the parser.", None),
        ("Let me breakfast first.", Some(true)),
        ("Let me break it down.", None),
        ("Let me summarize the parser.", None),
        ("Let me summarise the parser.", None),
        ("Let's begin.", Some(true)),
        ("Let's be careful.", None),
    ] {
        assert_eq!(goes_on(&["let me", "let's"], &[], text), expected, "{text}");
    }
}

#[test]
fn idle_phrase_that_goes_on_from_a_match_announces_nothing() {
    for (text, expected) in [
        ("Now I'll let you know.", None),
        ("Now I'll leave the rest to you.", None),
        ("Now I\u{2019}ll leave the rest to you.", None),
        ("Now I'll be here.", None),
        ("Next, I'll wait for the build.", None),
        ("Next: I'll wait for the build.", None),
        ("Next I'll needlessly test.", Some(true)),
        ("Next, I'll read the file.", Some(true)),
        ("Next, the file where I'll wait.", Some(true)),
        ("Now I'll check it. I'll wait for the result.", Some(true)),
        ("Now I'll check it\nI'll wait for the result.", Some(true)),
        ("Now I'll let you know. Now I'll check it.", Some(true)),
    ] {
        assert_eq!(goes_on(&["now I'll", "next,? I", "^next"], &[], text), expected, "{text}");
    }
    for text in ["I'll let you know.", "I'll be here.", "I'll be happy to help.", "I'll be able to help."] {
        assert_eq!(goes_on(&["I'll"], &[], text), None, "{text}");
    }
}

#[test]
fn done_phrase_within_an_announcement_is_not_done() {
    for (text, expected) in [
        ("I'll run the tests to make sure nothing else broke.", Some(true)),
        ("Now I'll mark the task as complete.", Some(true)),
        ("I'll run the tests. The task is complete.", Some(false)),
        ("The task is complete, so I'll leave it at that.", Some(false)),
        ("I'll leave it at that: the task is complete.", Some(false)),
    ] {
        let decided = goes_on(&["I'll run", "now I'll"], &["nothing else", "task.*complete"], text);
        assert_eq!(decided, expected, "{text}");
    }
    assert_eq!(goes_on(&[], &["I'll hand over"], "I'll hand over now."), Some(false), "a pattern may announce itself");
}

#[test]
fn condition_that_describes_a_thing_makes_no_offer() {
    for (text, expected) in [
        ("I'll fix the bug that appears when you resize.", Some(true)),
        ("I'll fix the window, which only crashes once you resize.", Some(true)),
        ("I'll fix it when you are ready.", None),
        ("I'll fix the bug that we found once you agree.", None),
        ("I'll fix the bug that appears when you resize, if you agree.", None),
    ] {
        assert_eq!(goes_on(&["I'll fix"], &[], text), expected, "{text}");
    }
}

#[test]
fn announcement_for_after_an_answer_waits_for_it() {
    for (text, expected) in [
        ("Please log in. After that I'll continue.", None),
        ("Please log in.\n\nThen I'll continue.", None),
        ("Which one do you mean? Then I'll continue.", None),
        ("The file is read. After that I'll continue.", Some(true)),
        ("Please note the warning. I'll continue.", Some(true)),
    ] {
        assert_eq!(goes_on(&["I'll continue"], &[], text), expected, "{text}");
    }
}

#[test]
fn wide_sentence_ends_need_no_space() {
    for (text, expected) in [
        ("次にファイルを読みます。問題はありますか？", Some(true)),
        ("次にファイルを読みましょうか？", None),
        ("確認しますか？次にファイルを読みます。", Some(true)),
        ("次にファイルを読みます！", Some(true)),
        ("Now I'll read it？", None),
        ("Now I'll read it。Do you agree?", Some(true)),
        ("It is not ready。All done", Some(false)),
        ("It is not ready！All done", Some(false)),
        ("It is not ready？All done", Some(false)),
        ("It is not ready, all done", None),
    ] {
        assert_eq!(goes_on(&["次に", "now I'll"], &["all done"], text), expected, "{text}");
    }
}
