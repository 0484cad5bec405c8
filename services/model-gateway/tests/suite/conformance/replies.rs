//! Whole replies, however they come.

use contract::model::{FinishReason, ToolCall, Usage};
use model_gateway::adapter::Family;
use model_gateway::reply::Reply;

use super::dialect::{FAMILIES, Script};
use super::server::{Answer, Piece};
use super::{call, gzip, reply};

/// That a reply is what the script says, nothing more and nothing less.
#[track_caller]
fn assert_says(family: Family, script: &Script, reply: &Reply) {
    assert_eq!(
        (reply.text.as_str(), reply.reasoning.as_str()),
        (script.text.as_str(), script.thoughts.as_str()),
        "{family:?}"
    );
    let calls = script.calls.iter().enumerate();
    let calls: Vec<ToolCall> = calls
        .map(|(number, (name, arguments))| ToolCall::new(&format!("call_{number}"), name, &arguments.to_string()))
        .collect();
    assert_eq!(reply.calls(), calls, "{family:?}");
    let reason = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    assert_eq!(reply.finish.as_ref().map(|finish| finish.0), Some(reason), "{family:?}");
    assert_eq!(
        reply.usage,
        Some(Usage { input: 10, output: 7, cached: 4, reasoning: 3 })
            .filter(|_| family != Family::Anthropic)
            .or(Some(Usage { input: 10, output: 7, cached: 4, reasoning: 0 })),
        "{family:?}"
    );
    assert_eq!(reply.model, "m-1", "{family:?}");
}

#[tokio::test]
async fn a_reply_is_the_same_streamed_whole_and_compressed() {
    for family in FAMILIES {
        let script = Script::full();
        let (stream, whole) = (script.stream(family), script.whole(family));
        assert_says(family, &script, &reply(family, Answer::body(stream.as_str())).await);
        let (streamed, ended) = call(family, false, Answer::body(whole.as_str())).await;
        ended.unwrap();
        assert_says(family, &script, &streamed);
        // A provider that does not care what it was asked for.
        assert_says(family, &script, &reply(family, Answer::body(whole.as_str())).await);
        for body in [stream, whole] {
            let packed = Answer::body(gzip(&body)).header("content-encoding", "gzip");
            assert_says(family, &script, &reply(family, packed).await);
        }
    }
}

#[tokio::test]
async fn a_stream_is_the_same_however_it_is_cut_and_its_lines_end() {
    for family in FAMILIES {
        let script = Script::full();
        let stream = script.stream(family);
        for ends in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', ends);
            for bytes in [1, 2, 7, 1_000] {
                assert_says(family, &script, &reply(family, Answer::cut(&stream, bytes)).await);
            }
        }
    }
}

#[tokio::test]
async fn what_nobody_has_heard_of_changes_nothing() {
    for family in FAMILIES {
        let script = Script::full();
        let unheard = Script::unheard_of(family);
        // Between the events, but for the very first: a stream begins as its protocol says.
        let mut events = script.events(family);
        let last = events.len() - usize::from(family == Family::OpenaiChat);
        for at in (1..last).rev() {
            events.insert(at, unheard.clone());
        }
        assert_says(family, &script, &reply(family, Answer::body(events.concat())).await);
    }
}

#[tokio::test]
async fn a_line_of_ten_megabytes_and_a_drip_of_bytes_are_streams_like_any_other() {
    for family in FAMILIES {
        // Below the limit of a whole reply, in one event of one line.
        let script = Script { piece: usize::MAX, ..Script::text(&"x".repeat(7 << 20)) };
        let long =
            script.stream(family).replacen("data: {", &format!("data: {{\"pad\":\"{}\",", "y".repeat(3 << 20)), 1);
        assert_says(family, &script, &reply(family, Answer::cut(&long, 60_000)).await);

        let script = Script::text("drip");
        let pause = || Piece::Pause(std::time::Duration::from_millis(2));
        let drops = script.stream(family).into_bytes().into_iter().flat_map(|byte| [Piece::Bytes(vec![byte]), pause()]);
        assert_says(family, &script, &reply(family, Answer::pieces(drops.collect())).await);
    }
}

#[tokio::test]
async fn a_reply_is_over_when_its_provider_says_so_whatever_follows() {
    for family in FAMILIES {
        let script = Script::full();
        let events = script.events(family);
        // Without the mark that some send at the very end.
        let reason = |event: &String| {
            ["\"finish_reason\":\"tool_calls\"", "response.completed", "message_delta", "\"finishReason\""]
                .iter()
                .any(|mark| event.contains(mark))
        };
        let end = events.iter().position(reason).unwrap();
        let stream = events[..=end].concat();
        for answer in [
            Answer::body(stream.as_str()),
            Answer::body(stream.as_str()).and(Piece::Reset),
            Answer::body(stream.as_str()).and(Piece::Hang),
            Answer::body(stream.clone() + &Script::overloaded(family)),
        ] {
            let got = reply(family, answer).await;
            assert_eq!((got.text.as_str(), got.calls().len()), (script.text.as_str(), 2), "{family:?}");
        }
    }
}
