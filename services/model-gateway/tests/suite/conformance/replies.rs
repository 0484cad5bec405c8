//! Whole replies, however they come.

use contract::model::{FinishReason, ToolCall, Usage};
use model_gateway::adapter::Protocol;
use model_gateway::reply::ModelReply;

use super::dialect::{PROTOCOLS, Script};
use super::server::{BodyPart, Response};
use super::{call, gzip, reply};

/// That a reply is what the script says, nothing more and nothing less.
#[track_caller]
fn assert_matches_script(protocol: Protocol, script: &Script, reply: &ModelReply) {
    assert_eq!(
        (reply.text.as_str(), reply.reasoning.as_str()),
        (script.text.as_str(), script.thoughts.as_str()),
        "{protocol:?}"
    );
    let calls = script.calls.iter().enumerate();
    let calls: Vec<ToolCall> = calls
        .map(|(number, (name, arguments))| ToolCall::new(&format!("call_{number}"), name, &arguments.to_string()))
        .collect();
    assert_eq!(reply.calls(), calls, "{protocol:?}");
    let reason = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    assert_eq!(reply.finish.as_ref().map(|finish| finish.0), Some(reason), "{protocol:?}");
    assert_eq!(
        reply.usage,
        Some(Usage { input: 10, output: 7, cached: 4, reasoning: 3 })
            .filter(|_| protocol != Protocol::Anthropic)
            .or(Some(Usage { input: 10, output: 7, cached: 4, reasoning: 0 })),
        "{protocol:?}"
    );
    assert_eq!(reply.model, "m-1", "{protocol:?}");
}

#[tokio::test]
async fn a_reply_is_the_same_streamed_whole_and_compressed() {
    for protocol in PROTOCOLS {
        let script = Script::full();
        let (stream, whole) = (script.stream(protocol), script.whole(protocol));
        assert_matches_script(protocol, &script, &reply(protocol, Response::body(stream.as_str())).await);
        let (streamed, ended) = call(protocol, false, Response::body(whole.as_str())).await;
        ended.unwrap();
        assert_matches_script(protocol, &script, &streamed);
        // A provider that does not care what it was asked for.
        assert_matches_script(protocol, &script, &reply(protocol, Response::body(whole.as_str())).await);
        for body in [stream, whole] {
            let packed = Response::body(gzip(&body)).header("content-encoding", "gzip");
            assert_matches_script(protocol, &script, &reply(protocol, packed).await);
        }
    }
}

#[tokio::test]
async fn a_stream_is_the_same_however_it_is_cut_and_its_lines_end() {
    for protocol in PROTOCOLS {
        let script = Script::full();
        let stream = script.stream(protocol);
        for ends in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', ends);
            for bytes in [1, 2, 7, 1_000] {
                assert_matches_script(protocol, &script, &reply(protocol, Response::cut(&stream, bytes)).await);
            }
        }
    }
}

#[tokio::test]
async fn what_nobody_has_heard_of_changes_nothing() {
    for protocol in PROTOCOLS {
        let script = Script::full();
        let unknown = Script::unknown_event(protocol);
        // Between the events, but for the very first: a stream begins as its protocol says.
        let mut events = script.events(protocol);
        let last = events.len() - usize::from(protocol == Protocol::OpenaiChat);
        for at in (1..last).rev() {
            events.insert(at, unknown.clone());
        }
        assert_matches_script(protocol, &script, &reply(protocol, Response::body(events.concat())).await);
    }
}

#[tokio::test]
async fn a_line_of_ten_megabytes_and_a_drip_of_bytes_are_streams_like_any_other() {
    for protocol in PROTOCOLS {
        // Below the limit of a whole reply, in one event of one line.
        let script = Script { chunk_chars: usize::MAX, ..Script::text(&"x".repeat(7 << 20)) };
        let long =
            script.stream(protocol).replacen("data: {", &format!("data: {{\"pad\":\"{}\",", "y".repeat(3 << 20)), 1);
        assert_matches_script(protocol, &script, &reply(protocol, Response::cut(&long, 60_000)).await);

        let script = Script::text("drip");
        let pause = || BodyPart::Pause(std::time::Duration::from_millis(2));
        let drops =
            script.stream(protocol).into_bytes().into_iter().flat_map(|byte| [BodyPart::Bytes(vec![byte]), pause()]);
        assert_matches_script(protocol, &script, &reply(protocol, Response::parts(drops.collect())).await);
    }
}

#[tokio::test]
async fn a_reply_is_over_when_its_provider_says_so_whatever_follows() {
    for protocol in PROTOCOLS {
        let script = Script::full();
        let events = script.events(protocol);
        // Without the mark that some send at the very end.
        let reason = |event: &String| {
            ["\"finish_reason\":\"tool_calls\"", "response.completed", "message_delta", "\"finishReason\""]
                .iter()
                .any(|mark| event.contains(mark))
        };
        let end = events.iter().position(reason).unwrap();
        let stream = events[..=end].concat();
        for answer in [
            Response::body(stream.as_str()),
            Response::body(stream.as_str()).then(BodyPart::Reset),
            Response::body(stream.as_str()).then(BodyPart::Hang),
            Response::body(stream.clone() + &Script::overloaded(protocol)),
        ] {
            let got = reply(protocol, answer).await;
            assert_eq!((got.text.as_str(), got.calls().len()), (script.text.as_str(), 2), "{protocol:?}");
        }
    }
}
