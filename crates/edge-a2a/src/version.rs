//! The version of A2A that a request is of.

use axum::http::HeaderMap;
use contract::ErrorCode;

use super::errors::{A2aError, A2aErrorKind};

/// Header, and parameter of the query, that names the version.
const NAME: &str = "a2a-version";

/// Refuses a request of another major version. A request without a version is one of 0.3.
pub(super) fn check_version(headers: &HeaderMap, query: Option<&str>) -> Result<(), A2aError> {
    let header = headers.get(NAME).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let version = header.or_else(|| {
        let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        pairs.find(|(name, _)| name.eq_ignore_ascii_case(NAME)).map(|(_, value)| value.into_owned())
    });
    let version: String = version.unwrap_or_default().trim().chars().take(40).collect();
    if version.split('.').next() == Some("1") {
        return Ok(());
    }
    let version = if version.is_empty() { "0.3".to_owned() } else { version };
    let message = format!("version {version:?} of A2A is not served: send the header `A2A-Version: 1.0`");
    Err(A2aError::new(A2aErrorKind::VersionNotSupported, ErrorCode::BadRequest, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_the_header_first_and_none_is_an_old_one() {
        let check = |header: Option<&str>, query: Option<&str>| {
            let headers = header.map(|value| (axum::http::HeaderName::from_static(NAME), value.parse().unwrap()));
            check_version(&headers.into_iter().collect(), query)
        };
        for (header, query) in [(Some("1.0"), None), (Some("1"), None), (None, Some("A2A-Version=1.0"))] {
            assert!(check(header, query).is_ok(), "{header:?} {query:?}");
        }
        for (header, query) in [
            (None, None),
            (Some(""), None),
            (Some("0.3"), Some("a2a-version=1.0")),
            (Some("2.0"), None),
            (Some("10"), None),
        ] {
            assert_eq!(
                check(header, query).unwrap_err().kind,
                A2aErrorKind::VersionNotSupported,
                "{header:?} {query:?}"
            );
        }
        assert!(check(None, None).unwrap_err().error.message.contains("0.3"));
    }
}
