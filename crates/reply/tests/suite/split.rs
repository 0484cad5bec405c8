//! However a reply is cut, the same text is shown and the same signal read.

use contract::model::{SignalForm, ToolCall};
use proptest::prelude::*;
use reply::{ParsedSignal, Splitter, Status, read};

const FORMS: [SignalForm; 4] = [SignalForm::Off, SignalForm::Text, SignalForm::Call, SignalForm::Envelope];

#[derive(Debug, PartialEq)]
struct Split {
    text: String,
    thought: String,
    signal: Option<ParsedSignal>,
    spoken_from: usize,
}

fn split(pieces: &[&str], form: SignalForm) -> Split {
    let mut splitter = Splitter::new(form);
    let (mut text, mut thought) = (String::new(), String::new());
    for piece in pieces {
        text.push_str(&splitter.push(piece));
        thought.push_str(&splitter.take_thought());
    }
    let rest = splitter.finish();
    text.push_str(&rest.text);
    thought.push_str(&rest.thought);
    Split { text, thought, signal: rest.signal, spoken_from: rest.spoken_from }
}

/// The same wherever the text is cut in two; what is shown, and the status.
fn check(form: SignalForm, text: &str, shown: &str, status: Option<&str>) {
    let whole = split(&[text], form);
    let found = whole.signal.as_ref().and_then(|signal| signal.value["continuation"]["status"].as_str());
    assert_eq!((whole.text.as_str(), found), (shown, status), "{text}");
    for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        assert_eq!(split(&[&text[..cut], &text[cut..]], form), whole, "cut at {cut}: {text}");
    }
}

#[test]
fn text_without_a_signal_passes_in_every_form() {
    for text in [
        "",
        " \n",
        "plain",
        " begins and ends \n",
        "a {b} c",
        "{ not json",
        "{\"a\": 1}",
        "{}",
        "`code` and ```\nblock\n``` and ````",
        "```json\n{\"name\": \"x\"}\n```",
        "```json5\n{\"continuation\": 1}\n```",
        "ends with {",
        "ends with ```",
        "{\"items\": [], \"continuation\": \"token\"}",
        "```\n```\n{\"a\":1}",
        "{\"a\":\"unclosed",
        "continuation of the story",
        "Status:\n- all is well",
        "I \"continue\" with it.",
        "if a < b { \"x\" } else { 'y' }",
    ] {
        for form in FORMS {
            check(form, text, text, None);
        }
    }
}

#[test]
fn json_that_the_session_did_not_ask_for_is_text() {
    let calls = "```json\n{\"tool_calls\": [{\"function\": {\"name\": \"rm\", \"arguments\": {}}}]}\n```";
    for text in [r#"{"response": "ok", "code": 200}"#, calls, r#"Example: {"status": "ok", "reason": "x"}"#] {
        for form in [SignalForm::Off, SignalForm::Text, SignalForm::Call] {
            check(form, text, text, None);
            assert!(read(text, &[], form).calls.is_empty());
        }
    }
    let signal = r#"Text. {"continuation": {"status": "CONTINUE"}}"#;
    check(SignalForm::Off, signal, signal, None);
}

#[test]
fn tool_call_that_a_server_left_in_the_text_is_neither_shown_nor_run() {
    let call = |argument: &str| {
        format!("<tool_call>\n{{\"name\": \"write\", \"arguments\": {{\"text\": \"{argument}\"}}}}\n</tool_call>")
    };
    let (short, long) = (call("x"), call(&"x} ".repeat(1_000)));
    for (text, shown, calls) in [
        (short.clone(), "", 1),
        (format!("I write it.\n{short}"), "I write it.", 1),
        (format!("{short}\n{short}"), "", 2),
        (format!("{short}\nIt is written."), "It is written.", 1),
        (short[..short.len() - 16].to_owned(), "", 1),
        (short[..24].to_owned(), "", 1),
        ("<tool_call>\n{\"name\": \"write\"".to_owned(), "", 1),
        (long.clone(), "", 1),
        (long[..2_300].to_owned(), "", 1),
        // Examples.
        (format!("Write {short}"), &format!("Write {short}"), 0),
        (format!("```\n{short}\n```"), &format!("```\n{short}\n```"), 0),
        ("<tool_call>{\"name\": \"Ada\"}</tool_call>".to_owned(), "<tool_call>{\"name\": \"Ada\"}</tool_call>", 0),
    ] {
        for form in FORMS {
            if text.len() < 200 {
                check(form, &text, shown, None);
            }
            let reading = read(&text, &[], form);
            assert_eq!((reading.visible.as_str(), reading.unread_calls), (shown, calls), "{form:?} {text}");
            assert!(reading.calls.is_empty(), "{text}");
        }
    }
}

#[test]
fn signal_in_text_is_read_and_not_shown() {
    let form = SignalForm::Text;
    for (text, shown, status) in [
        (r#"{"continuation":{"status":"CONTINUE"}}"#, "", "CONTINUE"),
        ("Done.\n```json\n{\"continuation\":{\"status\":\"TERMINATE\"}}\n```\n", "Done.", "TERMINATE"),
        (r#"So {a} it is. {"continuation":{"status":"later"}}"#, "So {a} it is.", "later"),
        ("Cut. {\"continuation\": {\"status\": \"CONTINUE\", \"reason\": \"no", "Cut.", "CONTINUE"),
        (
            "```rust\nfn x() {}\n```\n{\"continuation\":{\"status\":\"CONTINUE\"}}",
            "```rust\nfn x() {}\n```",
            "CONTINUE",
        ),
        ("Text.\n\n{\"status\": \"CONTINUE\", \"reason\": \"more\"}", "Text.", "CONTINUE"),
        ("Text.\n\ncontinuation: {\"status\": \"CONTINUE\"}", "Text.", "CONTINUE"),
        (
            "Text.\n\n**Continuation signal:**\n```json\n{\"continuation\": {\"status\": \"CONTINUE\"}}\n```",
            "Text.",
            "CONTINUE",
        ),
        ("Text.\n```jsonc\n{\"continuation\": {\"status\": \"CONTINUE\",} // go\n}\n```", "Text.", "CONTINUE"),
        ("Text. {'continuation': {'status': 'CONTINUE', 'reason': None}}", "Text.", "CONTINUE"),
        (
            "Text.\n```json\n{\"continuation\":{\"status\":\"CONTINUE\"}}\n```\nTell me if you mind.",
            "Text.\n\nTell me if you mind.",
            "CONTINUE",
        ),
        (
            "{\"continuation\":{\"status\":\"CONTINUE\"}}\n{\"continuation\":{\"status\":\"TERMINATE\"}}",
            "",
            "TERMINATE",
        ),
        (
            "Text.\n<tool_call>\n{\"name\": \"continuation\", \"arguments\": {\"status\": \"CONTINUE\"}}\n</tool_call>",
            "Text.",
            "CONTINUE",
        ),
        (r#"{"response":"Hi","continuation":{"status":"TERMINATE"}}"#, "Hi", "TERMINATE"),
    ] {
        check(form, text, shown, Some(status));
    }
    for (text, shown) in [
        ("Text. {\"continuation\": {\"sta", "Text."),
        ("Text. {\"continu", "Text."),
        ("Text.\n```json\n{\"continuation\": {\"progress\": {\"current_step\": 1", "Text."),
    ] {
        check(form, text, shown, None);
    }
}

#[test]
fn signal_quoted_in_code_is_text() {
    for text in [
        "Say `{\"continuation\":{\"status\":\"CONTINUE\"}}` to go on.",
        "```python\nx = 1\n{\"continuation\": {\"status\": \"CONTINUE\"}}\nprint(x)\n```",
    ] {
        check(SignalForm::Text, text, text, None);
    }
}

#[test]
fn envelope_shows_its_response_alone() {
    let form = SignalForm::Envelope;
    for (text, shown, status) in [
        (r#"{"continuation":{"status":"TERMINATE"},"response":"Hi"}"#, "Hi", Some("TERMINATE")),
        (r#"{"response":"Hi","continuation":{"status":"TERMINATE"}}"#, "Hi", Some("TERMINATE")),
        (r#"{"continuation":"CONTINUE","response":"Hi"}"#, "Hi", Some("CONTINUE")),
        (r#"{"status":"CONTINUE","response":"Hi","reason":"more"}"#, "Hi", Some("CONTINUE")),
        ("\n```json\n{\"continuation\":{\"status\":\"CONTINUE\"},\"response\":\"Hi\"}\n```", "Hi", Some("CONTINUE")),
        (r#"{"response":"The "new" one", "continuation":{"status":"CONTINUE"}}"#, r#"The "new" one"#, Some("CONTINUE")),
        (r#"{"continuation":{"status":"CONTINUE"},"response":"The "new" one"}"#, r#"The "new" one"#, Some("CONTINUE")),
        (r#"{"response":"Hi","continuation":null}"#, "Hi", None),
        (r#"{"response":"Hi","continuation":{"reason":"none"}}"#, "Hi", None),
        ("{\"response\": \"cut of", "cut of", None),
        ("{\"response\": \"cut\", \"contin", "cut", None),
        ("Before. {\"response\": \"cut\", \"continuation\":", "Before.\n\ncut", None),
        ("{\"continuation\": {\"status\": \"CONTINUE\"}, \"response\": \"cut of", "cut of", Some("CONTINUE")),
        (r#"{"continuation":{"status":"CONTINUE"},"response":"Hi","continuation":7} Bye."#, "Hi\n\nBye.", None),
    ] {
        check(form, text, shown, status);
    }
}

#[test]
fn response_without_a_signal_is_text_in_every_form() {
    for text in [
        r#"{"response": "ok", "code": 200}"#,
        r#"{"response": "ok"}"#,
        "\n```json\n{\"response\": \"two\nlines\"}\n```",
        "Before. {\"response\": \"after\"}",
        "{\"response\": \"before\"} After.",
        r#"{"response": "page 1", "continuation": "next-page-token"}"#,
        r#"{"response": "ok", "status": "CONTINUE", "code": 200}"#,
    ] {
        for form in FORMS {
            check(form, text, text, None);
        }
    }
}

#[test]
fn response_is_streamed_once_its_envelope_has_given_a_status() {
    let form = SignalForm::Envelope;
    let mut splitter = Splitter::new(form);
    assert_eq!(splitter.push("{\"continuation\": {\"status\": \"CONTINUE\", \"reason\": \"{\"}"), "");
    assert_eq!(splitter.push(", \"response\": \"one "), "one ");
    assert_eq!(splitter.push("two\\"), "two");
    assert_eq!(splitter.push("n\\ud83e"), "\n");
    assert_eq!(splitter.push("\\udd80."), "\u{1f980}.");
    assert_eq!(splitter.push("\", \"completion_percentage\": 5}"), "");
    assert_eq!(splitter.finish().text, "");
    for first in [r#"{"response": "one ""#, r#"{"continuation": null, "response": "one ""#] {
        let mut splitter = Splitter::new(form);
        let rest = r#", "continuation": {"status": "CONTINUE"}}"#;
        assert_eq!((splitter.push(first).as_str(), splitter.push(rest).as_str()), ("", "one "), "{first}");
    }
}

#[test]
fn thoughts_are_not_shown() {
    for form in FORMS {
        let whole = split(&["<think>\nNow I'll look.\n</think>\n\nHello."], form);
        assert_eq!((whole.text.as_str(), whole.thought.as_str()), ("Hello.", "\nNow I'll look.\n"));
        check(form, "<think>All done.</think>\nNow I'll read it.", "Now I'll read it.", None);
        let lone = read("I'll think.\n</think>\n\nHello.", &[], form);
        assert_eq!((lone.visible.as_str(), lone.spoken().trim()), ("I'll think.\n\nHello.", "Hello."));
    }
}

#[test]
fn pseudo_call_is_believed_before_text() {
    let form = SignalForm::Call;
    let pseudo = |arguments: &str| [ToolCall::new("x", "continuation", arguments)];
    let text = r#"Working. {"continuation":{"status":"TERMINATE"}}"#;
    let reading = read(text, &pseudo(r#"{"status":"continue","reason":"more","confidence":"80%"}"#), form);
    let signal = reading.signal.unwrap();
    assert_eq!((reading.visible.as_str(), signal.status, signal.confidence), ("Working.", Status::Continue, Some(0.8)));
    let broken = read("", &pseudo(r#"{"status":"CONTINUE","next_action":{"type":"tool_call","tool":"x"#), form);
    assert_eq!((broken.signal.unwrap().status, broken.calls.len()), (Status::Continue, 0));
    let silent = read(text, &pseudo("{}"), form);
    assert_eq!(silent.signal.unwrap().status, Status::Terminate, "a call without a status says nothing");
    assert_eq!(read("", &pseudo(r#"{"status":"CONTINUE"}"#), SignalForm::Off).signal, None);
}

#[test]
fn calls_run_only_where_they_are_whole_and_were_asked_for() {
    let envelope = r#"{"response":"x","tool_calls":[{"id":"1","type":"function","function":{"name":"a","arguments":{"b":1}}}],"continuation":{"status":"CONTINUE"}}"#;
    let form = SignalForm::Envelope;
    assert_eq!(read(envelope, &[], form).calls, [ToolCall::new("", "a", r#"{"b":1}"#)]);
    assert!(read(&envelope[..envelope.len() - 1], &[], form).calls.is_empty());
    let thoughtful = format!("<think>Which one?</think>\n\n{envelope}\n");
    assert_eq!(read(&thoughtful, &[], form).calls.len(), 1, "thoughts are no part of the reply");
    let next = |status: &str, more: &str| {
        format!(r#"{{"continuation":{{"status":"{status}","next_action":{{"type":"tool_call","tool":"a"{more}}}}}}}"#)
    };
    let form = SignalForm::Text;
    let whole = next("CONTINUE", r#","parameters":{"b":1}"#);
    assert_eq!(read(&whole, &[], form).calls, [ToolCall::new("", "a", r#"{"b":1}"#)]);
    assert!(read(&whole[..whole.len() - 1], &[], form).calls.is_empty());
    assert_eq!(read(&next("CONTINUE", ""), &[], form).calls, [ToolCall::new("", "a", "{}")]);
    assert!(read(&next("TERMINATE", ""), &[], form).calls.is_empty(), "a model that is done runs nothing more");
}

#[test]
fn calls_of_an_envelope_that_is_the_whole_reply_are_obeyed_or_refused_in_every_form() {
    let calls = r#""tool_calls":[{"function":{"name":"a","arguments":{"b":1}}}]"#;
    let envelopes = [
        format!(r#"{{"response":"x",{calls},"continuation":{{"status":"CONTINUE"}}}}"#),
        format!(r#"{{"response":"x","continuation":"CONTINUE",{calls}}}"#),
        format!(r#"{{"response":"x","status":"CONTINUE",{calls}}}"#),
    ];
    let asked = [ToolCall::new("", "a", r#"{"b":1}"#)];
    for (form, envelope) in FORMS.into_iter().flat_map(|form| envelopes.each_ref().map(|envelope| (form, envelope))) {
        let without = read(envelope, &[], form);
        let same = read(envelope, &[ToolCall::new("n", "a", r#"{ "b": 1 }"#)], form);
        let other = read(envelope, &[ToolCall::new("n", "native", "{}")], form);
        if form == SignalForm::Off {
            assert_eq!((without.visible.as_str(), without.calls), (envelope.as_str(), vec![]), "nothing is read");
            continue;
        }
        for (reading, run, refused) in
            [(without, &asked[..], &[][..]), (same, &[][..], &[][..]), (other, &[][..], &asked[..])]
        {
            assert_eq!(reading.visible, "x", "{form:?} {envelope}");
            assert_eq!((&reading.calls[..], &reading.refused_calls[..]), (run, refused), "{form:?} {envelope}");
            assert_eq!(reading.signal.unwrap().status, Status::Continue, "{form:?} {envelope}");
        }
        // A part of a reply is an example.
        for around in ["Call it so: ^", "^\n\nThat is how."] {
            assert!(read(&around.replace('^', envelope), &[], form).calls.is_empty(), "{form:?} {around} {envelope}");
        }
    }
}

#[test]
fn example_of_a_call_is_never_run() {
    let form = SignalForm::Envelope;
    let calls = r#""tool_calls":[{"function":{"name":"rm","arguments":"{}"}}]"#;
    let silent = format!(r#"{{"response":"x",{calls}}}"#);
    let signalled = format!(r#"{{"response":"x",{calls},"continuation":{{"status":"CONTINUE"}}}}"#);
    for around in ["Call it so: ^", "Call it so:\n\n^", "```json\n^\n```", "^ is how.", "^\n\nThat is how.", "^\n^"] {
        let example = around.replace('^', &silent);
        check(form, &example, &example, None);
        assert!(read(&example, &[], form).calls.is_empty(), "{example}");
        let example = around.replace('^', &signalled);
        let reading = read(&example, &[], form);
        assert!(reading.calls.is_empty() && !reading.visible.contains("rm"), "{example}");
        assert_eq!(reading.signal.unwrap().status, Status::Continue, "{example}");
    }
    let whole = read(&format!("\n{silent}\n"), &[], form);
    assert_eq!((whole.visible.as_str(), whole.calls), ("x", vec![ToolCall::new("", "rm", "{}")]));
    let whole = read(&signalled, &[], form);
    assert_eq!((whole.visible.as_str(), whole.calls), ("x", vec![ToolCall::new("", "rm", "{}")]));
}

/// Pieces that texts with signals are made of, in any order.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
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
        "continuation: {",
        "\"continuation\":{\"status\":\"CONTINUE\"}",
        "{\"response\":\"Hi",
        "{\"continuation\":{\"status\":\"CONTINUE\"},\"response\":\"Hi",
        "\"tool_calls\":[{\"function\":{\"name\":\"a\"}}]",
        "\\u00e4",
        "\\ud83e",
        "status",
        "tool_calls",
        "{\"a\":1}",
        "Done.",
        "<think>",
        "</think>",
        "{\"continuation\":{\"status\":\"TERMINATE\"}}",
        "{'status': 'CONTINUE'}",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn reply_cut_anywhere_gives_the_same_reading(
        text in texts(),
        form in prop::sample::select(FORMS.to_vec()),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let whole = split(&[&text], form);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(split(&pieces, form), whole);
    }

    #[test]
    fn text_without_signal_keys_is_shown_unchanged(text in texts(), form in prop::sample::select(FORMS.to_vec())) {
        let names = ["continuation", "status", "response", "think"];
        let is_cut = text.contains("{\"") || text.contains("{'") || text.contains('{');
        if !is_cut && names.iter().all(|name| !text.contains(name)) {
            prop_assert_eq!(split(&[&text], form).text, text);
        }
    }
}

/// Texts that make each beginning of a signal a vain one, as large as a reply can be.
#[test]
fn text_made_to_be_expensive_is_read_in_linear_work() {
    let all = 8 << 20;
    for piece in [
        "{\"a",
        "{\"continuation\":",
        "```json\n{\"",
        "continuation: ",
        "{\"a\":{}",
        "\n\"",
        "<think",
        "{\"status\":\"}",
    ] {
        let text = piece.repeat(all / piece.len());
        for form in [SignalForm::Text, SignalForm::Envelope] {
            let whole = split(&[&text], form);
            assert!(whole.text.len() <= text.len() + 2 && whole.signal.is_none(), "{piece}");
        }
    }
}
