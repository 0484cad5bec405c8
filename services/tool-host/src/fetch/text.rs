//! From the bytes of an answer to text: whether they are text at all, and in which charset.

use std::sync::LazyLock;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use regex::bytes::Regex;

/// Bytes at whose beginning a page names its charset.
const META_BYTES_MAX: usize = 1_024;

/// What an answer holds, by the type that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    Text,
    /// No type, or one that says nothing: the bytes must tell.
    Unsaid,
    /// Pictures, archives and the like.
    Binary,
}

/// `text/html; charset=utf-8` without what stands after the semicolon.
pub(super) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(super) fn kind(content_type: &str) -> Kind {
    match essence(content_type).as_str() {
        "" | "application/octet-stream" | "binary/octet-stream" => Kind::Unsaid,
        "text/html" | "application/xhtml+xml" => Kind::Html,
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
        | "image/svg+xml" => Kind::Text,
        text if text.starts_with("text/") => Kind::Text,
        text if text.starts_with("application/") && (text.ends_with("+json") || text.ends_with("+xml")) => Kind::Text,
        _ => Kind::Binary,
    }
}

/// Bytes of an answer as text; none where they are none. `cut` says that there were more, so that the last character may
/// be half.
pub(super) fn decode(bytes: &[u8], content_type: &str, kind: Kind, cut: bool) -> Option<String> {
    match kind {
        Kind::Html => {
            Some(charset(content_type).or_else(|| meta(bytes)).unwrap_or_else(|| guess(bytes, cut)).decode(bytes).0)
        }
        Kind::Text => Some(charset(content_type).unwrap_or_else(|| guess(bytes, cut)).decode(bytes).0),
        Kind::Unsaid if bytes.contains(&0) => None,
        Kind::Unsaid => utf8(bytes, cut).map(Into::into),
        Kind::Binary => None,
    }
    .map(std::borrow::Cow::into_owned)
}

fn charset(content_type: &str) -> Option<&'static Encoding> {
    let parameters = content_type.split(';').skip(1).filter_map(|part| part.split_once('='));
    let mut named = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    named.find_map(|(_, label)| Encoding::for_label(label.trim().trim_matches(['"', '\'']).as_bytes()))
}

/// What a page says of itself at its beginning.
fn meta(bytes: &[u8]) -> Option<&'static Encoding> {
    static CHARSET: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?i-u)<meta[^>]*charset\s*=\s*["']?([a-z0-9_:-]+)"#).ok());
    let beginning = &bytes[..bytes.len().min(META_BYTES_MAX)];
    let named = Encoding::for_label(CHARSET.as_ref()?.captures(beginning)?.get(1)?.as_bytes())?;
    // What could be read so far is no UTF-16, whatever it says.
    Some(if named.is_ascii_compatible() { named } else { UTF_8 })
}

fn guess(bytes: &[u8], cut: bool) -> &'static Encoding {
    if utf8(bytes, cut).is_some() { UTF_8 } else { WINDOWS_1252 }
}

/// UTF-8, without a character that is cut.
fn utf8(bytes: &[u8], cut: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if cut && error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets() {
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
                decode(bytes, content_type, kind(content_type), false).as_deref(),
                text,
                "{content_type} {bytes:?}"
            );
        }
        assert_eq!(decode(b"\xc3\xa4 caf\xc3", "text/plain", Kind::Text, true).as_deref(), Some("ä caf\u{FFFD}"));
        assert_eq!(decode(b"caf\xc3", "", Kind::Unsaid, true).as_deref(), Some("caf"));
    }
}
