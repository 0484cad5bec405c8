//! Decodes a body: whether it is text at all, and in which charset.

use std::sync::LazyLock;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use regex::bytes::Regex;

/// Bytes from the beginning in which a page names its charset.
const META_CHARSET_BYTES_MAX: usize = 1_024;

/// Kind of a body, by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentKind {
    Html,
    Text,
    /// No media type, or a meaningless one: the bytes decide.
    Unknown,
    Binary,
}

/// `text/html; parse_charset=utf-8` without what stands after the semicolon.
pub(super) fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(super) fn classify(content_type: &str) -> ContentKind {
    match media_type(content_type).as_str() {
        "" | "application/octet-stream" | "binary/octet-stream" => ContentKind::Unknown,
        "text/html" | "application/xhtml+xml" => ContentKind::Html,
        "application/json"
        | "application/xml"
        | "application/javascript"
        | "application/x-javascript"
        | "application/ecmascript"
        | "application/x-ndjson"
        | "application/jsonl"
        | "application/yaml"
        | "application/x-yaml"
        | "application/toml"
        | "application/sql"
        | "application/graphql"
        | "application/x-sh"
        | "application/x-www-form-urlencoded"
        | "application/rtf"
        | "application/x-tex"
        | "image/svg+xml" => ContentKind::Text,
        text if text.starts_with("text/") => ContentKind::Text,
        text if text.starts_with("application/") && (text.ends_with("+json") || text.ends_with("+xml")) => {
            ContentKind::Text
        }
        _ => ContentKind::Binary,
    }
}

/// Decodes a body; `None` where it is not text. `is_truncated`: it had more bytes, so the last character may be
/// incomplete.
pub(super) fn decode(bytes: &[u8], content_type: &str, kind: ContentKind, is_truncated: bool) -> Option<String> {
    match kind {
        ContentKind::Html | ContentKind::Text => {
            let in_page = || (kind == ContentKind::Html).then(|| find_meta_charset(bytes)).flatten();
            let named = parse_charset(content_type).or_else(in_page);
            Some(named.unwrap_or_else(|| guess_charset(bytes, is_truncated)).decode(bytes).0)
        }
        ContentKind::Unknown if bytes.contains(&0) => None,
        ContentKind::Unknown => parse_utf8(bytes, is_truncated).map(Into::into),
        ContentKind::Binary => None,
    }
    .map(std::borrow::Cow::into_owned)
}

fn parse_charset(content_type: &str) -> Option<&'static Encoding> {
    let parameters = content_type.split(';').skip(1).filter_map(|part| part.split_once('='));
    let mut named = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    named.find_map(|(_, label)| Encoding::for_label(label.trim().trim_matches(['"', '\'']).as_bytes()))
}

/// Finds the charset that a page names in a `meta` element.
fn find_meta_charset(bytes: &[u8]) -> Option<&'static Encoding> {
    static CHARSET_PATTERN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?i-u)<meta[^>]*charset\s*=\s*["']?([a-z0-9_:-]+)"#).ok());
    let beginning = &bytes[..bytes.len().min(META_CHARSET_BYTES_MAX)];
    let named = Encoding::for_label(CHARSET_PATTERN.as_ref()?.captures(beginning)?.get(1)?.as_bytes())?;
    // A page whose `meta` element is readable is not UTF-16, whatever it says.
    Some(if named.is_ascii_compatible() { named } else { UTF_8 })
}

fn guess_charset(bytes: &[u8], is_truncated: bool) -> &'static Encoding {
    if parse_utf8(bytes, is_truncated).is_some() { UTF_8 } else { WINDOWS_1252 }
}

/// Parses UTF-8, without an incomplete character at the end.
fn parse_utf8(bytes: &[u8], is_truncated: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if is_truncated && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_any_charset_is_decoded_or_refused() {
        for (content_type, bytes, text) in [
            ("text/html", "ä€".as_bytes(), Some("ä€")),
            ("text/html; charset=ISO-8859-1", b"\xe4", Some("ä")),
            ("text/plain;charset=\"utf-8\"", "ä".as_bytes(), Some("ä")),
            ("text/plain", b"caf\xe9", Some("café")),
            ("text/plain; charset=utf-8", b"caf\xe9", Some("caf\u{FFFD}")),
            ("text/plain; charset=nonsense", b"caf\xe9", Some("café")),
            ("text/html", b"<meta charset=windows-1251>\xcf", Some("<meta charset=windows-1251>П")),
            (
                "text/html",
                b"<META http-equiv=x content='text/html; charset=latin1'>\xe4",
                Some("<META http-equiv=x content='text/html; charset=latin1'>ä"),
            ),
            ("text/html", b"<meta charset=utf-16>a", Some("<meta charset=utf-16>a")),
            ("text/plain", b"\xff\xfea\0b\0", Some("ab")),
            ("text/html; charset=shift_jis", b"\x82\xa0", Some("あ")),
            ("", b"plain", Some("plain")),
            ("application/octet-stream", b"pl\0in", None),
            ("application/octet-stream", b"\xff\xd8\xff", None),
            ("image/png", b"plain", None),
            ("application/pdf", b"%PDF", None),
            ("application/problem+json", b"{}", Some("{}")),
            ("Application/JSON ; x=y", b"{}", Some("{}")),
        ] {
            assert_eq!(
                decode(bytes, content_type, classify(content_type), false).as_deref(),
                text,
                "{content_type} {bytes:?}"
            );
        }
        assert_eq!(
            decode(b"\xc3\xa4 caf\xc3", "text/plain", ContentKind::Text, true).as_deref(),
            Some("ä caf\u{FFFD}")
        );
        assert_eq!(decode(b"caf\xc3", "", ContentKind::Unknown, true).as_deref(), Some("caf"));
    }
}
