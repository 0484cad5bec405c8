//! However a reply is cut, the same text is shown and the same signal read.

use contract::model::ToolCall;
use proptest::prelude::*;
use reply::{Found, Splitter, Status, read};

fn split(pieces: &[&str]) -> (String, Option<Found>) {
    let mut splitter = Splitter::default();
    let mut shown: String = pieces.iter().map(|piece| splitter.push(piece)).collect();
    let (rest, found) = splitter.finish();
    shown.push_str(&rest);
    (shown, found)
}

/// The same however the text is cut in two, and by character.
fn check(text: &str, shown: &str, found: bool) {
    let whole = split(&[text]);
    assert_eq!((whole.0.as_str(), whole.1.is_some()), (shown, found), "{text}");
    for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        assert_eq!(split(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}: {text}");
    }
}

#[test]
fn text_passes() {
    for text in [
        "",
        " \n",
        "plain",
        " begins and ends \n",
        "a {b} c",
        "{ not json",
        "{\"a\": 1}",
        "{}",
        "{\"a\": {\"response\": \"x\"}} \n",
        "`code` and ```\nblock\n``` and ````",
        "```rust\nfn main() { {\"response\": \"no\"} }\n```",
        "```json\n{\"name\": \"x\"}\n```",
        "```json5\n{\"continuation\": 1}\n```",
        "ends with {",
        "ends with ```",
        "ends with ```json\n{\"cont",
        "{\"response\": 42}",
        "{\"tool_calls\": [], \"x\": \"y\"}",
        "{\"completion_percentage\": 5",
        "Say `{\"continuation\":{\"status\":\"CONTINUE\"}}` to go on.",
        "The envelope {\"continuation\":{\"status\":\"CONTINUE\"}} goes last.",
        "Like so:\n```json\n{\"response\":\"x\",\"continuation\":{\"status\":\"CONTINUE\"}}\n```\nand so on.",
        "```\n```\n{\"a\":1}",
        "{\"a\":\"unclosed",
    ] {
        check(text, text, false);
    }
}

#[test]
fn an_envelope_is_not_shown() {
    check(r#"{"continuation":{"status":"CONTINUE"}}"#, "", true);
    check("Done.\n```json\n{\"continuation\":{\"status\":\"Continue\"}}\n```\n", "Done.", true);
    check(r#"So {a} it is. {"continuation":{"status":"later"}}"#, "So {a} it is.", true);
    check("Cut off. {\"continuation\": {\"status\": \"CONTINUE\", \"reason\": \"no", "Cut off.", true);
    check("```\n{ \"continuation\": {\"status\":\"TERMINATE\"} }\n```", "", true);
    check("```rust\nfn x() {}\n```\n{\"continuation\":{\"status\":\"CONTINUE\"}}", "```rust\nfn x() {}\n```", true);
    check(r#"{"thought":"hm","continuation":{"status":"CONTINUE"}}"#, "", true);
}

#[test]
fn only_the_response_of_an_envelope_is_shown() {
    check(r#"{"response":"Hi","continuation":{"status":"TERMINATE"}}"#, "Hi", true);
    check(
        r#"{"continuation":{"status":"CONTINUE","response":"no"},"response":"a \"b\"\\ \n c"}"#,
        "a \"b\"\\ \n c",
        true,
    );
    check(r#"{"tool_calls":[{"response":"no"}],"response":"\u00e4 \ud83e\udd80 {x}"}"#, "\u{e4} \u{1f980} {x}", true);
    check("\n```json\n{\"response\": \"two\nlines\", \"continuation\": {}}\n```", "two\nlines", true);
    check("{\"response\": \"cut of", "cut of", true);
    check("Before. {\"response\": \"after\"}", "Before.\n\nafter", true);
    check("{\"response\": \"before\"} After.", "before\n\nAfter.", true);
    check(r#"{"continuation":{"status":"x"},"other":"response","response":"y"}"#, "y", true);
}

#[test]
fn nothing_is_lost_of_what_cannot_be_read() {
    check(r#"{"response":"The "new" one"}"#, r#"The "new" one"}"#, false);
    check(r#"Text. {"response":"a" "b"}"#, r#"Text. {"response":"a" "b"}"#, false);
    check("{'response': 'x'}", "{'response': 'x'}", false);
    check(r#"{"response":"x","continuation":{"status":"CONTINUE","reason":"#, "x", false);
    check(r#"{"response":"x","contin"#, "x", false);
    check(r#"{"response":"x","#, "x", false);
}

#[test]
fn the_response_is_shown_while_it_grows() {
    let mut splitter = Splitter::default();
    assert_eq!(splitter.push("{\"response\": \"one "), "one ");
    assert_eq!(splitter.push("two\\"), "two");
    assert_eq!(splitter.push("n\\ud83e"), "\n");
    assert_eq!(splitter.push("\\udd80."), "\u{1f980}.");
    assert_eq!(splitter.push("\", \"continuation\": {\"status\":"), "");
    assert_eq!(splitter.finish().0, "");
}

#[test]
fn the_pseudo_call_speaks_first() {
    let pseudo = |arguments: &str| [ToolCall::new("x", "continuation", arguments)];
    let text = r#"Working. {"continuation":{"status":"TERMINATE"}}"#;
    let reading = read(text, &pseudo(r#"{"status":"continue","reason":"more"}"#));
    let signal = reading.signal.unwrap();
    assert_eq!(
        (reading.visible.as_str(), signal.status, signal.reason.as_str()),
        ("Working.", Status::Continue, "more")
    );
    let broken = read("", &pseudo(r#"{"status":"CONTINUE","next_action":{"type":"tool_call","tool":"x"#));
    assert_eq!((broken.signal.unwrap().status, broken.calls.len()), (Status::Continue, 0));
    let silent = read(text, &pseudo("{}"));
    assert_eq!(silent.signal.unwrap().status, Status::Terminate, "a call without a status says nothing");
}

#[test]
fn calls_of_a_whole_envelope_are_run_and_of_a_broken_one_not() {
    let envelope = r#"{"response":"x","tool_calls":[{"id":"1","type":"function","function":{"name":"a","arguments":{"b":1}}}],"continuation":{"status":"CONTINUE"}}"#;
    let reading = read(envelope, &[]);
    assert_eq!(reading.calls, [ToolCall::new("", "a", r#"{"b":1}"#)]);
    assert!(read(&envelope[..envelope.len() - 1], &[]).calls.is_empty());
    assert!(read(envelope, &[ToolCall::new("n", "native", "{}")]).calls.is_empty(), "native calls are there");
    let next =
        r#"{"continuation":{"status":"CONTINUE","next_action":{"type":"tool_call","tool":"a","parameters":{"b":1}}}}"#;
    assert_eq!(read(next, &[]).calls, [ToolCall::new("", "a", r#"{"b":1}"#)]);
    assert!(read(&next[..next.len() - 1], &[]).calls.is_empty());
    let announced = r#"{"continuation":{"status":"CONTINUE","next_action":{"type":"tool_call","tool":"a"}}}"#;
    assert!(read(announced, &[]).calls.is_empty(), "it does not say with what");
}

/// Pieces that texts with envelopes are made of, in any order.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ":",
        ",",
        "`",
        "```",
        "```json\n",
        "\n",
        " ",
        "a",
        "\u{e4}",
        "\u{1f980}",
        "response",
        "\"response\":\"",
        "continuation",
        "\"continuation\":{\"status\":\"CONTINUE\"}",
        "{\"response\":\"Hi",
        "\\u00e4",
        "\\ud83e",
        "status",
        "tool_calls",
        "{\"a\":1}",
        "Done.",
        "{\"continuation\":{\"status\":\"TERMINATE\"}}",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_says_the_same(text in texts(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let whole = split(&[&text]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(split(&pieces), whole);
    }

    #[test]
    fn without_an_envelope_the_text_is_shown_as_it_is(text in texts()) {
        let (shown, found) = split(&[&text]);
        if found.is_none() && !text.contains("response") {
            prop_assert_eq!(shown, text);
        }
    }
}
