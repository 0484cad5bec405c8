//! Classifies errors of providers.

use std::time::Duration;

use contract::model::FailureKind;
use serde_json::Value;

use crate::failure::CallFailure;

/// Longest wait that is accepted from a provider.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);
/// Maximum characters of a plain-text error.
const PLAIN_CHARS_MAX: usize = 200;

/// Reads the wait from the headers of an error: `retry-after-ms`, `x-ms-retry-after-ms`, or `retry-after` in seconds or
/// as an HTTP date. `now` is in milliseconds since the epoch.
pub(crate) fn parse_retry_after<'a>(header: impl Fn(&str) -> Option<&'a str>, now: u64) -> Option<Duration> {
    let ms = ["retry-after-ms", "x-ms-retry-after-ms"].iter().find_map(|name| parse_seconds(header(name)?, 1e-3));
    let wait = ms.or_else(|| {
        let text = header("retry-after")?;
        parse_seconds(text, 1.0).or_else(|| parse_http_date(text, now))
    })?;
    Some(wait.min(RETRY_AFTER_MAX))
}

fn parse_seconds(text: &str, unit: f64) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

fn parse_http_date(date: &str, now: u64) -> Option<Duration> {
    let date = date.trim().replace("GMT", "+0000");
    let at = time::OffsetDateTime::parse(&date, &time::format_description::well_known::Rfc2822).ok()?;
    let at = u64::try_from(at.unix_timestamp()).ok()?.saturating_mul(1_000);
    Some(Duration::from_millis(at.saturating_sub(now)))
}

/// Classifies a response whose status is not 2xx.
pub(crate) fn classify_status(status: u16, retry_after: Option<Duration>, body: &str) -> CallFailure {
    let Ok(value) = serde_json::from_str::<Value>(body) else {
        let error = WireError { message: plain_text_message(body), ..WireError::default() };
        let failure = classify(status, &error);
        return CallFailure { retry_after: retry_after.or(failure.retry_after), ..failure };
    };
    // Google may wrap errors in a list, as it does with events.
    let value = value.get(0).unwrap_or(&value);
    let mut failure = classify(status, &find_error(value).unwrap_or_default());
    failure.retry_after = retry_after.or(failure.retry_after);
    failure
}

/// Message of a body that is no JSON: the first line of plain text, and nothing of HTML or of cut JSON.
fn plain_text_message(body: &str) -> String {
    let body = body.trim_start();
    if body.starts_with(['<', '{', '[']) {
        return String::new();
    }
    body.lines().next().unwrap_or_default().chars().take(PLAIN_CHARS_MAX).collect()
}

/// Finds an error in a response with status 2xx, in a stream or as its body.
pub(crate) fn find_in_band_error(value: &Value) -> Option<CallFailure> {
    let error = find_error(value)?;
    let status = error.status.unwrap_or(if value["object"] == "error" { 400 } else { 502 });
    Some(classify(status, &error))
}

#[derive(Debug, Default)]
struct WireError {
    status: Option<u16>,
    code: String,
    message: String,
    wait: Option<Duration>,
}

/// `{"error": {…}}`, `{"error": "…"}`, `{"object": "error", …}`, and `{"detail": …}` of servers built on `FastAPI`.
fn find_error(value: &Value) -> Option<WireError> {
    // In an event of a protocol, `detail` is no error.
    let is_answer = ["choices", "type", "candidates"].iter().any(|field| !value[*field].is_null());
    let error = match (&value["error"], &value["detail"]) {
        (error @ (Value::Object(_) | Value::String(_)), _) => error,
        (_, detail @ (Value::Object(_) | Value::String(_) | Value::Array(_))) if !is_answer => detail,
        _ if value["object"] == "error" => value,
        _ => return None,
    };
    Some(parse_error(error))
}

fn parse_error(error: &Value) -> WireError {
    let words = [&error["code"], &error["type"], &error["status"]];
    let code: Vec<&str> = words.iter().filter_map(|word| word.as_str()).collect();
    let status = ["code", "status", "status_code"].iter().find_map(|name| {
        let number = super::wire::read_count(&error[*name])?;
        u16::try_from(number).ok().filter(|status| (400..=599).contains(status))
    });
    let named = ERROR_TYPES.iter().find(|(name, _)| code.contains(name)).map(|(_, status)| *status);
    let message = match (error, &error["message"]) {
        (Value::String(text), _) | (_, Value::String(text)) => text.clone(),
        (Value::Array(_), _) => error.to_string(),
        _ => String::new(),
    };
    WireError { status: status.or(named), code: code.join(" "), message, wait: parse_retry_delay(&error["details"]) }
}

/// `retryDelay` of Google's `RetryInfo`: `"7s"`, `"0.5s"`.
fn parse_retry_delay(details: &Value) -> Option<Duration> {
    let mut delays = details.as_array().into_iter().flatten().filter_map(|detail| detail["retryDelay"].as_str());
    delays.find_map(|delay| parse_seconds(delay.strip_suffix('s')?, 1.0)).map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// Types of errors that come without a status, and their usual status.
const ERROR_TYPES: &[(&str, u16)] = &[
    ("invalid_request_error", 400),
    ("authentication_error", 401),
    ("permission_error", 403),
    ("not_found_error", 404),
    ("request_too_large", 413),
    ("rate_limit_error", 429),
    ("rate_limit_exceeded", 429),
    ("api_error", 500),
    ("server_error", 500),
    ("overloaded_error", 529),
];

/// Classifies an error in the field that the protocol has for it.
pub(crate) fn classify_error(value: &Value) -> CallFailure {
    let error = parse_error(value);
    classify(error.status.unwrap_or(502), &error)
}

/// Providers use statuses differently, so code and message are checked first.
fn classify(status: u16, error: &WireError) -> CallFailure {
    let mentions = |words: &[&str]| {
        let message = error.message.to_ascii_lowercase();
        words.iter().any(|word| error.code.contains(word) || message.contains(word))
    };
    let kind = if mentions(CONTEXT_WORDS) && !matches!(status, 401 | 403 | 429) {
        FailureKind::ContextLength
    } else if mentions(AUTH_WORDS) && status == 400 {
        FailureKind::Auth
    } else if mentions(QUOTA_WORDS) && matches!(status, 400 | 402 | 403 | 429 | 502) {
        FailureKind::Quota
    } else if mentions(REFUSED_WORDS) && matches!(status, 400 | 403 | 422 | 451 | 502) {
        FailureKind::Refused
    } else if mentions(RATE_WORDS) && matches!(status, 400 | 502) {
        FailureKind::RateLimited
    } else if mentions(OVERLOADED_WORDS) && status >= 500 {
        FailureKind::Overloaded
    } else {
        kind_of_status(status)
    };
    let mut failure =
        CallFailure::with_provider_message(kind, &format!("the provider answers with status {status}"), &error.message);
    failure.retry_after = error.wait.or_else(|| parse_retry_words(&error.message));
    failure
}

/// Parses "Please try again in 1m2.5s", which some providers only write in the message.
fn parse_retry_words(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("try again in ")?;
    let mut rest = rest.split_whitespace().next()?.trim_end_matches(['.', ',']);
    let mut wait = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let length = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let unit = match &unit[..length] {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        wait = wait.saturating_add(parse_seconds(number, unit)?);
        rest = &rest[end + length..];
    }
    Some(wait.min(RETRY_AFTER_MAX))
}

const CONTEXT_WORDS: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "maximum context length",
    "prompt is too long",
    "exceeds the available context size",
    "exceeds the context window",
    "input length and `max_tokens` exceed",
    "input is too long",
    "too many input tokens",
    "exceeds the maximum number of tokens",
];
const AUTH_WORDS: &[&str] = &["api key not valid", "api_key_invalid", "invalid api key", "incorrect api key"];
const QUOTA_WORDS: &[&str] =
    &["insufficient_quota", "billing_hard_limit_reached", "insufficient credits", "credit balance"];
const REFUSED_WORDS: &[&str] = &["content_filter", "content_policy", "moderation", "flagged"];
const RATE_WORDS: &[&str] = &["rate_limit", "rate limit"];
const OVERLOADED_WORDS: &[&str] = &["overloaded", "at capacity", "server_busy"];

fn kind_of_status(status: u16) -> FailureKind {
    match status {
        401 | 403 => FailureKind::Auth,
        402 => FailureKind::Quota,
        429 => FailureKind::RateLimited,
        503 | 529 => FailureKind::Overloaded,
        408 | 409 | 425 | 500..=599 => FailureKind::Unreachable,
        413 => FailureKind::ContextLength,
        _ => FailureKind::BadRequest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_with_status_and_code_has_its_kind() {
        use FailureKind as K;
        let rows: &[(u16, &str, K)] = &[
            (400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, K::ContextLength),
            (400, r#"{"error":{"message":"This model's maximum context length is 8192 tokens"}}"#, K::ContextLength),
            (500, r#"{"error":{"message":"the request exceeds the available context size"}}"#, K::ContextLength),
            (400, r#"{"error":{"type":"exceed_context_size_error","code":400,"message":"x"}}"#, K::ContextLength),
            (413, "", K::ContextLength),
            (400, r#"{"error":{"code":"content_filter","message":"x"}}"#, K::Refused),
            (403, r#"{"error":{"code":403,"message":"Your input was flagged"}}"#, K::Refused),
            (400, r#"{"error":{"message":"unknown parameter"}}"#, K::BadRequest),
            (404, r#"{"error":"model 'x' not found"}"#, K::BadRequest),
            (422, r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#, K::BadRequest),
            (301, "<html>moved</html>", K::BadRequest),
            (401, r#"{"error":{"code":"invalid_api_key","message":"x"}}"#, K::Auth),
            (403, "", K::Auth),
            (402, r#"{"error":{"code":402,"message":"x"}}"#, K::Quota),
            (429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, K::Quota),
            (429, r#"{"error":{"type":"insufficient_quota","code":null}}"#, K::Quota),
            (429, r#"{"error":{"code":"rate_limit_exceeded","message":"maximum context length"}}"#, K::RateLimited),
            (429, "slow down", K::RateLimited),
            (503, "<html>busy</html>", K::Overloaded),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, K::Overloaded),
            (500, r#"{"error":{"message":"The engine is currently overloaded"}}"#, K::Overloaded),
            (500, "", K::Unreachable),
            (502, "<html>bad gateway</html>", K::Unreachable),
            (504, "", K::Unreachable),
            (408, "", K::Unreachable),
            (418, "", K::BadRequest),
        ];
        for (code, body, kind) in rows {
            assert_eq!(classify_status(*code, None, body).kind, *kind, "{code} {body}");
        }
    }

    #[test]
    fn error_message_is_short_and_without_html() {
        let page = classify_status(502, None, "<html><body>very long page</body></html>");
        assert_eq!(page.message, "the provider answers with status 502");
        let long = format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(5_000));
        assert_eq!(classify_status(400, None, &long).message.len(), crate::failure::MESSAGE_CHARS_MAX);
    }

    #[test]
    fn error_with_status_200_is_found() {
        let kind = |text: &str| find_in_band_error(&serde_json::from_str(text).unwrap()).map(|failure| failure.kind);
        assert_eq!(kind(r#"{"error":{"code":429,"message":"x"}}"#), Some(FailureKind::RateLimited));
        assert_eq!(kind(r#"{"error":{"code":"rate_limit_exceeded"}}"#), Some(FailureKind::RateLimited));
        assert_eq!(kind(r#"{"error":{"message":"x"}}"#), Some(FailureKind::Unreachable));
        assert_eq!(kind(r#"{"error":"broken"}"#), Some(FailureKind::Unreachable));
        assert_eq!(kind(r#"{"object":"error","message":"x","code":400}"#), Some(FailureKind::BadRequest));
        assert_eq!(kind(r#"{"error":{"type":"overloaded_error"}}"#), Some(FailureKind::Overloaded));
        assert_eq!(kind(r#"{"error":null,"choices":[]}"#), None);
        assert_eq!(kind(r#"{"choices":[],"detail":"x"}"#), None);
    }

    #[test]
    fn retry_after_in_each_format_is_parsed() {
        let now = 1_445_412_480_000; // Wed, 21 Oct 2015 07:28:00 GMT
        let wait = |name: &'static str, value: &'static str| parse_retry_after(|n| (n == name).then_some(value), now);
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after", " 0.5 "), Some(Duration::from_millis(500)));
        assert_eq!(wait("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(wait("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("retry-after-ms", "1500"), Some(Duration::from_millis(1_500)));
        assert_eq!(wait("x-ms-retry-after-ms", "20"), Some(Duration::from_millis(20)));
        assert_eq!(wait("retry-after", "99999999999"), Some(RETRY_AFTER_MAX));
        for bad in ["", "soon", "-1", "NaN", "inf"] {
            assert_eq!(wait("retry-after", bad), None, "{bad}");
        }
    }
}
