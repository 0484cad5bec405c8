//! Complete replies, however they are sent.

use contract::model::{FinishReason, ToolCall, Usage};
use model_gateway::adapter::ProviderProtocol;
use model_gateway::reply::ModelReply;

use super::dialect::{PROTOCOLS, Script};
use super::server::{BodyPart, Response};
use super::{call, gzip, reply};

/// Checks that a reply equals its script.
#[track_caller]
fn assert_matches_script(protocol: ProviderProtocol, script: &Script, reply: &ModelReply) {
    assert_eq!(
        (reply.text.as_str(), reply.reasoning.as_str()),
        (script.text.as_str(), script.reasoning.as_str()),
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
            .filter(|_| protocol != ProviderProtocol::Anthropic)
            .or(Some(Usage { input: 10, output: 7, cached: 4, reasoning: 0 })),
        "{protocol:?}"
    );
    assert_eq!(reply.model, "m-1", "{protocol:?}");
}

#[tokio::test]
async fn reply_streamed_whole_or_compressed_is_the_same() {
    for protocol in PROTOCOLS {
        let script = Script::full();
        let (stream, whole) = (script.stream(protocol), script.whole(protocol));
        assert_matches_script(protocol, &script, &reply(protocol, Response::body(stream.as_str())).await);
        let (streamed, ended) = call(protocol, false, Response::body(whole.as_str())).await;
        ended.unwrap();
        assert_matches_script(protocol, &script, &streamed);
        // A provider that sends a body although a stream was requested.
        assert_matches_script(protocol, &script, &reply(protocol, Response::body(whole.as_str())).await);
        for body in [stream, whole] {
            let packed = Response::body(gzip(&body)).header("content-encoding", "gzip");
            assert_matches_script(protocol, &script, &reply(protocol, packed).await);
        }
    }
}

#[tokio::test]
async fn stream_with_any_chunks_and_line_ends_is_the_same() {
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
async fn unknown_events_and_fields_are_ignored() {
    for protocol in PROTOCOLS {
        let script = Script::full();
        let unknown = Script::unknown_event(protocol);
        // Insert after the first event: the start of a stream decides how it is read.
        let mut events = script.events(protocol);
        let last = events.len() - usize::from(protocol == ProviderProtocol::OpenaiChat);
        for at in (1..last).rev() {
            events.insert(at, unknown.clone());
        }
        assert_matches_script(protocol, &script, &reply(protocol, Response::body(events.concat())).await);
    }
}

#[tokio::test]
async fn stream_with_a_huge_line_or_single_bytes_is_read() {
    for protocol in PROTOCOLS {
        // An event of one line, below the limit of a reply.
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
async fn reply_with_a_finish_reason_is_complete_whatever_follows() {
    for protocol in PROTOCOLS {
        let script = Script::full();
        let events = script.events(protocol);
        // Omit the end marker of some protocols.
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
