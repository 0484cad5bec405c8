//! What goes wrong, and what the loop is told of it. No mishap passes for a reply.

use std::time::Duration;

use contract::model::FailureKind as K;
use model_gateway::adapter::Family;

use super::dialect::{FAMILIES, Script};
use super::server::{Answer, Piece};
use super::{call, failure, gzip};

async fn kind(family: Family, answer: Answer) -> K {
    failure(family, answer).await.kind
}

/// A stream up to the middle of the arguments of its last call.
fn half(family: Family) -> String {
    let stream = Script::full().stream(family);
    let at = stream.rfind('b').unwrap_or(stream.len() / 2);
    let within = stream[..at].rfind("data:").unwrap_or(at) + 20;
    stream[..within].to_owned()
}

#[tokio::test]
async fn a_stream_that_ends_early_is_truncated_wherever_that_is() {
    for family in FAMILIES {
        let events = Script::full().events(family);
        for count in 0..3 {
            let answer = Answer::body(events[..count].concat());
            assert_eq!(kind(family, answer).await, K::Truncated, "{family:?} after {count} events");
        }
        let (end, reset) = (Answer::body(half(family)), Answer::body(half(family)).and(Piece::Reset));
        assert_eq!((kind(family, end).await, kind(family, reset).await), (K::Truncated, K::Truncated), "{family:?}");
        let whole = Script::full().whole(family);
        let (_, ended) = call(family, false, Answer::body(&whole.as_bytes()[..whole.len() / 2])).await;
        assert_eq!(ended.unwrap_err().kind, K::Truncated, "{family:?}");
    }
}

#[tokio::test]
async fn an_error_within_a_stream_is_the_providers_word() {
    for family in FAMILIES {
        let mut events = Script::full().events(family);
        for at in [0, 1, 4] {
            events.truncate(at.max(1));
            let stream = if at == 0 { String::new() } else { events.concat() } + &Script::overloaded(family);
            assert_eq!(kind(family, Answer::body(stream)).await, K::Overloaded, "{family:?} at {at}");
            events = Script::full().events(family);
        }
    }
}

#[tokio::test]
async fn silence_is_not_waited_out() {
    let families = FAMILIES.map(|family| async move {
        let answers = [
            Answer::pieces(vec![Piece::Hang]),
            Answer::pieces(vec![Piece::Bytes(b": waiting\n\n".to_vec()), Piece::Hang]),
            Answer::body(half(family)).and(Piece::Hang),
        ];
        for answer in answers {
            assert_eq!(kind(family, answer).await, K::TimedOut, "{family:?}");
        }
    });
    futures::future::join_all(families).await;
}

#[tokio::test]
async fn what_is_no_reply_is_not_taken_for_one() {
    for family in FAMILIES {
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
            assert_eq!(kind(family, Answer::body(body)).await, kinds, "{family:?}: {body}");
        }
        let endless = Answer::pieces(vec![Piece::Bytes([b"data: ".as_slice(), &vec![b'x'; 1 << 20]].concat()); 18]);
        assert_eq!(kind(family, endless).await, K::ProtocolError, "{family:?}: an event without an end");
        let bomb =
            Answer::body(gzip(&format!("{{\"x\":\"{}", "0".repeat(64 << 20)))).header("content-encoding", "gzip");
        assert_eq!(kind(family, bomb).await, K::ProtocolError, "{family:?}: a body that unpacks to more than is read");
    }
}

#[tokio::test]
async fn how_long_a_provider_asks_to_wait_is_understood_in_every_spelling() {
    let later = |seconds: i64| {
        let at = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        at.format(&time::format_description::well_known::Rfc2822).unwrap().replace("+0000", "GMT")
    };
    let rows: [(&str, String, std::ops::RangeInclusive<u64>); 6] = [
        ("retry-after", "7".to_owned(), 7_000..=7_000),
        ("retry-after", "1.5".to_owned(), 1_500..=1_500),
        ("retry-after", later(30), 25_000..=31_000),
        ("retry-after-ms", "250".to_owned(), 250..=250),
        ("x-ms-retry-after-ms", "40".to_owned(), 40..=40),
        ("retry-after", "whenever".to_owned(), 0..=0),
    ];
    for family in FAMILIES {
        for (name, value, expected) in &rows {
            let failure = failure(family, Answer::status(429, "{}").header(name, value)).await;
            let told = failure.retry_after.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap());
            assert_eq!(failure.kind, K::RateLimited, "{family:?}");
            assert!(expected.contains(&told), "{family:?} {name}: {value}: {told} ms");
        }
    }
    // Some say it in words alone.
    for (words, ms) in [
        ("in 20s.", 20_000),
        ("in 6ms", 6),
        ("in 1m2.5s. Visit", 62_500),
        ("in a while", 0),
        ("in 7 parsecs", 0),
        ("in 9999999999999999999s9999999999999999999s", 86_400_000),
    ] {
        let body = format!("{{\"error\":{{\"message\":\"Rate limit reached. Please try again {words}\"}}}}");
        let wait = failure(Family::OpenaiChat, Answer::status(429, &body)).await.retry_after;
        assert_eq!(wait.unwrap_or_default(), Duration::from_millis(ms), "{words}");
    }
    // Google says it in the body.
    let body = r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow","details":[
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"12.5s"}]}}]"#;
    let failure = failure(Family::Gemini, Answer::status(429, body)).await;
    assert_eq!((failure.kind, failure.retry_after), (K::RateLimited, Some(Duration::from_millis(12_500))));
}

#[tokio::test]
async fn each_error_is_called_by_its_name() {
    let page = "<html><head><title>502 Bad Gateway</title></head></html>";
    for family in FAMILIES {
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
            assert_eq!(kind(family, Answer::status(status, body)).await, expected, "{family:?} {status} {body}");
        }
    }
    for (family, status, body, expected) in [
        (
            Family::OpenaiChat,
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
            K::ContextLength,
        ),
        (
            Family::OpenaiChat,
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens"}}"#,
            K::ContextLength,
        ),
        (Family::OpenaiChat, 429, r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#, K::Quota),
        (
            Family::OpenaiResponses,
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            K::ContextLength,
        ),
        (
            Family::Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 3 tokens"}}"#,
            K::ContextLength,
        ),
        (
            Family::Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
            K::Quota,
        ),
        (
            Family::Gemini,
            400,
            r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"API key not valid."}}"#,
            K::Auth,
        ),
        (
            Family::Gemini,
            400,
            r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}"#,
            K::ContextLength,
        ),
    ] {
        assert_eq!(kind(family, Answer::status(status, body)).await, expected, "{family:?} {body}");
    }
    // A page in another language is no message for people.
    let page = failure(Family::OpenaiChat, Answer::status(502, page)).await.message;
    assert!(!page.contains('<'), "{page}");
}
