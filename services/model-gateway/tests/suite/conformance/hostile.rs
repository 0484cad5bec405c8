//! Numbers, depths, names and sizes that only a hostile server sends. Each ends in a harmless reply or in a failure
//! with a code.

use contract::model::FailureKind as K;
use model_gateway::adapter::ProviderProtocol;
use model_gateway::reply::ModelReply;
use serde_json::{Value, json};

use super::dialect::{PROTOCOLS, Script};
use super::server::{BodyPart, Response};
use super::{call, failure, reply};

/// Fields whose numbers are replaced: token counts, and indices within a reply.
const COUNTS: &[&str] = &[
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "promptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
];
const INDICES: &[&str] = &["index", "output_index"];
/// An invalid name of a tool.
const ODD_NAME: &str = "a\u{7}\u{1b}[31m\nb\u{202e}";

/// A stream in which these fields have this value.
fn with(protocol: ProviderProtocol, fields: &[&str], value: &str) -> String {
    let mut stream = Script::full().stream(protocol);
    for field in fields {
        let name = format!("\"{field}\":");
        let parts: Vec<String> = stream.split(&name).map(str::to_owned).collect();
        let rest = parts[1..].iter().map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let value = if digits == 0 { "" } else { value };
            format!("{name}{value}{}", &part[digits..])
        });
        stream = std::iter::once(parts[0].clone()).chain(rest).collect();
    }
    stream
}

fn content(reply: &ModelReply) -> (String, Vec<String>) {
    (reply.text.clone(), reply.calls().into_iter().map(|call| call.function.arguments).collect())
}

#[tokio::test]
async fn impossible_usage_changes_no_reply() {
    for protocol in PROTOCOLS {
        let clean = content(&reply(protocol, Response::body(Script::full().stream(protocol))).await);
        for value in ["-1", "0.5", "1e308", "18446744073709551615", "\"9\"", "\"x\"", "null", "[1]", "{}", "true"] {
            let taken = reply(protocol, Response::body(with(protocol, COUNTS, value))).await;
            assert_eq!(content(&taken), clean, "{protocol:?} {value}");
        }
        // A number that no type can represent cannot be parsed as JSON.
        let stream = with(protocol, COUNTS, "1e400");
        assert_eq!(failure(protocol, Response::body(stream)).await.kind, K::ProtocolError, "{protocol:?}");
    }
}

#[tokio::test]
async fn impossible_index_is_a_reply_or_a_protocol_error() {
    for protocol in PROTOCOLS {
        for value in ["-1", "4294967296", "18446744073709551615", "1e308", "\"x\"", "null", "[1]"] {
            let (taken, ended) = call(protocol, true, Response::body(with(protocol, INDICES, value))).await;
            let kind = ended.map_err(|failure| failure.kind);
            assert!(matches!(kind, Ok(()) | Err(K::ProtocolError | K::Truncated)), "{protocol:?} {value}: {kind:?}");
            assert!(taken.calls().len() <= 16, "{protocol:?} {value}");
        }
    }
}

#[tokio::test]
async fn deep_arguments_are_complete_or_a_protocol_error() {
    for protocol in PROTOCOLS {
        for depth in [100, 125, 1_000] {
            let mut deep = json!(1);
            for _ in 0..depth {
                deep = json!({ "a": deep });
            }
            let script = Script { calls: vec![("f".to_owned(), deep.clone())], chunk_chars: 64, ..Script::full() };
            for streamed in [true, false] {
                let body = if streamed { script.stream(protocol) } else { script.whole(protocol) };
                let (taken, ended) = call(protocol, streamed, Response::body(body)).await;
                match ended {
                    Ok(()) => assert_eq!(content(&taken).1, [deep.to_string()], "{protocol:?} {depth} {streamed}"),
                    Err(failure) => assert_eq!(failure.kind, K::ProtocolError, "{protocol:?} {depth} {streamed}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn names_in_a_reply_are_bounded_and_without_control_characters() {
    let long = "x".repeat(1 << 20);
    for protocol in PROTOCOLS {
        for name in [ODD_NAME, long.as_str()] {
            let script = Script { calls: vec![(name.to_owned(), json!({}))], ..Script::full() };
            let stream = script.stream(protocol).replace("\"m-1\"", &json!(name).to_string());
            let taken = reply(protocol, Response::body(stream)).await;
            let call = taken.calls().remove(0);
            for word in [&taken.model, &call.function.name, &call.id] {
                assert!(word.len() <= 1 << 10 && !word.contains(char::is_control), "{protocol:?}: {word:?}");
            }
            assert!(contract::ToolName::new(&call.function.name).is_err(), "it becomes no other tool's name");
        }
    }
}

#[tokio::test]
async fn body_over_its_limit_is_a_protocol_error_and_an_error_body_is_cut() {
    let megabyte = vec![b'0'; 1 << 20];
    let long = |begin: &str, megabytes: usize| {
        let begin = BodyPart::Bytes(begin.as_bytes().to_vec());
        let more = std::iter::repeat_n(BodyPart::Bytes(megabyte.clone()), megabytes);
        Response::parts(std::iter::once(begin).chain(more).collect())
    };
    for protocol in PROTOCOLS {
        // Each is larger than its limit: 24 MiB, 16 MiB and 64 KiB.
        assert_eq!(failure(protocol, long("{\"x\":\"", 26)).await.kind, K::ProtocolError, "{protocol:?}");
        assert_eq!(failure(protocol, long("data: {\"x\":\"", 18)).await.kind, K::ProtocolError, "{protocol:?}");
        let refused = failure(protocol, long("{\"error\":\"", 1).and_status(500)).await;
        assert_eq!(refused.kind, K::Unreachable, "{protocol:?}");
        assert!(refused.message.len() < 600, "{}", refused.message);
    }
}

#[tokio::test]
async fn error_message_is_bounded_and_printable() {
    let words = format!("a\u{1b}[2J\r\n{}", "y".repeat(100_000));
    for protocol in PROTOCOLS {
        for body in [json!({"error": {"message": words}}).to_string(), words.clone()] {
            let failure = failure(protocol, Response::status(500, &body)).await;
            assert_eq!(failure.kind, K::Unreachable, "{protocol:?}");
            let message = &failure.message;
            assert!(message.chars().count() < 600 && !message.contains(char::is_control), "{protocol:?}: {message:?}");
        }
    }
}

#[tokio::test]
async fn calls_over_the_limit_are_a_protocol_error() {
    let calls: Vec<(String, Value)> = (0..300).map(|n| (format!("f{n}"), json!({}))).collect();
    for protocol in PROTOCOLS {
        let script = Script { calls: calls.clone(), chunk_chars: 64, ..Script::full() };
        assert_eq!(
            failure(protocol, Response::body(script.stream(protocol))).await.kind,
            K::ProtocolError,
            "{protocol:?}"
        );
    }
}
