//! Failures of providers, and the kinds that they are reported as.

use std::time::Duration;

use contract::model::FailureKind as K;
use model_gateway::adapter::ProviderProtocol;

use super::dialect::{PROTOCOLS, Script};
use super::server::{BodyPart, Response};
use super::{call, failure, gzip};

async fn failure_kind(protocol: ProviderProtocol, answer: Response) -> K {
    failure(protocol, answer).await.kind
}

/// A stream that ends in the arguments of its last call.
fn half(protocol: ProviderProtocol) -> String {
    let stream = Script::full().stream(protocol);
    let at = stream.rfind('b').unwrap_or(stream.len() / 2);
    let within = stream[..at].rfind("data:").unwrap_or(at) + 20;
    stream[..within].to_owned()
}

#[tokio::test]
async fn stream_ending_early_is_truncated() {
    for protocol in PROTOCOLS {
        let events = Script::full().events(protocol);
        for count in 0..3 {
            let answer = Response::body(events[..count].concat());
            assert_eq!(failure_kind(protocol, answer).await, K::Truncated, "{protocol:?} after {count} events");
        }
        let (end, reset) = (Response::body(half(protocol)), Response::body(half(protocol)).then(BodyPart::Reset));
        assert_eq!(
            (failure_kind(protocol, end).await, failure_kind(protocol, reset).await),
            (K::Truncated, K::Truncated),
            "{protocol:?}"
        );
        let whole = Script::full().whole(protocol);
        let (_, ended) = call(protocol, false, Response::body(&whole.as_bytes()[..whole.len() / 2])).await;
        assert_eq!(ended.unwrap_err().kind, K::Truncated, "{protocol:?}");
    }
}

#[tokio::test]
async fn error_within_a_stream_has_the_kind_of_the_provider() {
    for protocol in PROTOCOLS {
        let mut events = Script::full().events(protocol);
        for at in [0, 1, 4] {
            events.truncate(at.max(1));
            let stream = if at == 0 { String::new() } else { events.concat() } + &Script::overloaded(protocol);
            assert_eq!(failure_kind(protocol, Response::body(stream)).await, K::Overloaded, "{protocol:?} at {at}");
            events = Script::full().events(protocol);
        }
    }
}

#[tokio::test]
async fn silent_provider_times_out() {
    let protocols = PROTOCOLS.map(|protocol| async move {
        let answers = [
            Response::parts(vec![BodyPart::Hang]),
            Response::parts(vec![BodyPart::Bytes(b": waiting\n\n".to_vec()), BodyPart::Hang]),
            Response::body(half(protocol)).then(BodyPart::Hang),
        ];
        for answer in answers {
            assert_eq!(failure_kind(protocol, answer).await, K::TimedOut, "{protocol:?}");
        }
    });
    futures::future::join_all(protocols).await;
}

#[tokio::test]
async fn body_without_a_reply_is_a_protocol_error() {
    for protocol in PROTOCOLS {
        for (body, kinds) in [
            ("<html><body>login</body></html>", K::ProtocolError),
            ("", K::Truncated),
            ("OK", K::ProtocolError),
            ("data: {oops\n\n", K::ProtocolError),
            ("data: 7\n\n", K::ProtocolError),
            ("{}", K::ProtocolError),
            ("null", K::ProtocolError),
            ("{\"choices\":\"x\",\"output\":7,\"content\":false,\"candidates\":{}}", K::ProtocolError),
        ] {
            assert_eq!(failure_kind(protocol, Response::body(body)).await, kinds, "{protocol:?}: {body}");
        }
        let endless = Response::parts(vec![BodyPart::Bytes([b"data: ".as_slice(), &vec![b'x'; 1 << 20]].concat()); 18]);
        assert_eq!(failure_kind(protocol, endless).await, K::ProtocolError, "{protocol:?}: an event without an end");
        let bomb =
            Response::body(gzip(&format!("{{\"x\":\"{}", "0".repeat(64 << 20)))).header("content-encoding", "gzip");
        assert_eq!(
            failure_kind(protocol, bomb).await,
            K::ProtocolError,
            "{protocol:?}: a body that unpacks to more than is read"
        );
    }
}

#[tokio::test]
async fn retry_after_in_each_spelling_is_understood() {
    let later = |seconds: i64| {
        let at = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        at.format(&time::format_description::well_known::Rfc2822).unwrap().replace("+0000", "GMT")
    };
    for protocol in PROTOCOLS {
        // Compute the date for each protocol: on a busy machine, earlier requests take seconds.
        let rows: [(&str, String, std::ops::RangeInclusive<u64>); 6] = [
            ("retry-after", "7".to_owned(), 7_000..=7_000),
            ("retry-after", "1.5".to_owned(), 1_500..=1_500),
            ("retry-after", later(30), 25_000..=31_000),
            ("retry-after-ms", "250".to_owned(), 250..=250),
            ("x-ms-retry-after-ms", "40".to_owned(), 40..=40),
            ("retry-after", "whenever".to_owned(), 0..=0),
        ];
        for (name, value, expected) in &rows {
            let failure = failure(protocol, Response::status(429, "{}").header(name, value)).await;
            let wait_ms = failure.retry_after.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap());
            assert_eq!(failure.kind, K::RateLimited, "{protocol:?}");
            assert!(expected.contains(&wait_ms), "{protocol:?} {name}: {value}: {wait_ms} ms");
        }
    }
    // Some providers give the wait only in the message.
    for (words, ms) in [
        ("in 20s.", 20_000),
        ("in 6ms", 6),
        ("in 1m2.5s. Visit", 62_500),
        ("in a while", 0),
        ("in 7 parsecs", 0),
        ("in 9999999999999999999s9999999999999999999s", 86_400_000),
    ] {
        let body = format!("{{\"error\":{{\"message\":\"Rate limit reached. Please try again {words}\"}}}}");
        let wait = failure(ProviderProtocol::OpenaiChat, Response::status(429, &body)).await.retry_after;
        assert_eq!(wait.unwrap_or_default(), Duration::from_millis(ms), "{words}");
    }
    // Google gives the wait in the body.
    let body = r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow","details":[
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"12.5s"}]}}]"#;
    let failure = failure(ProviderProtocol::Gemini, Response::status(429, body)).await;
    assert_eq!((failure.kind, failure.retry_after), (K::RateLimited, Some(Duration::from_millis(12_500))));
}

#[tokio::test]
async fn error_of_each_status_has_its_kind() {
    let page = "<html><head><title>502 Bad Gateway</title></head></html>";
    for protocol in PROTOCOLS {
        for (status, body, expected) in [
            (400, "{}", K::BadRequest),
            (401, "{}", K::Auth),
            (403, "{}", K::Auth),
            (404, page, K::BadRequest),
            (408, "", K::Unreachable),
            (413, "{}", K::ContextLength),
            (500, "", K::Unreachable),
            (502, page, K::Unreachable),
            (503, page, K::Overloaded),
            (504, page, K::Unreachable),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#, K::Overloaded),
        ] {
            assert_eq!(
                failure_kind(protocol, Response::status(status, body)).await,
                expected,
                "{protocol:?} {status} {body}"
            );
        }
    }
    for (protocol, status, body, expected) in [
        (
            ProviderProtocol::OpenaiChat,
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
            K::ContextLength,
        ),
        (
            ProviderProtocol::OpenaiChat,
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens"}}"#,
            K::ContextLength,
        ),
        (ProviderProtocol::OpenaiChat, 429, r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#, K::Quota),
        (
            ProviderProtocol::OpenaiResponses,
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            K::ContextLength,
        ),
        (
            ProviderProtocol::Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 3 tokens"}}"#,
            K::ContextLength,
        ),
        (
            ProviderProtocol::Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
            K::Quota,
        ),
        (
            ProviderProtocol::Gemini,
            400,
            r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"API key not valid."}}"#,
            K::Auth,
        ),
        (
            ProviderProtocol::Gemini,
            400,
            r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}"#,
            K::ContextLength,
        ),
    ] {
        assert_eq!(failure_kind(protocol, Response::status(status, body)).await, expected, "{protocol:?} {body}");
    }
    // HTML is no message for people.
    let page = failure(ProviderProtocol::OpenaiChat, Response::status(502, page)).await.message;
    assert!(!page.contains('<'), "{page}");
}
