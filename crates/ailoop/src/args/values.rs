//! Values of options that are more than a text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use contract::Timestamp;

/// Returns the name of a value, which the client API has too.
pub(crate) fn api_name(value: &impl ValueEnum) -> Option<String> {
    Some(value.to_possible_value()?.get_name().to_owned())
}

/// Parses `90`, `90s`, `5m` or `1h`; zero is refused.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 90, 90s, 5m or 1h");
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3_600),
        _ => None,
    };
    seconds.filter(|s| (1..=31_536_000).contains(s)).map(Duration::from_secs).ok_or_else(wrong)
}

/// Parses a time as [`parse_duration`], or days such as `90d`.
pub(super) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 90d, 12h or 30m");
    let Some(days) = text.strip_suffix('d') else { return parse_duration(text).map_err(|_| wrong()) };
    let days: u64 = days.parse().map_err(|_| wrong())?;
    (1..=3_650).contains(&days).then(|| Duration::from_hours(24 * days)).ok_or_else(wrong)
}

/// Parses a time as [`parse_lifetime`], which counts back from now, or an instant. Returns the instant, RFC 3339.
pub(super) fn parse_since(text: &str) -> Result<String, String> {
    if let Some(instant) = Timestamp::parse(text) {
        return Ok(instant.to_string());
    }
    let wrong =
        |_| format!("{text:?} is neither a time such as 30m, 2h or 7d nor an instant such as 2026-01-15T10:30:45Z");
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let back = parse_lifetime(text).map_err(wrong)?;
    Ok(Timestamp::default().after(since_1970.saturating_sub(back)).to_string())
}

/// Parses a name and a value.
pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        Some(_) | None => Err("write it as NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, seconds) in
            [("90", Some(90)), ("90s", Some(90)), ("5m", Some(300)), ("1h", Some(3_600)), ("0", None), ("", None)]
        {
            assert_eq!(parse_duration(text).ok(), seconds.map(Duration::from_secs), "{text}");
        }
        for wrong in ["m", "5 m", "-1", "1.5s", "5d", "99999999999999999999s", "9999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_lifetime("90d").ok(), Some(Duration::from_hours(90 * 24)));
        assert_eq!(parse_lifetime("12h").ok(), Some(Duration::from_hours(12)));
        assert_eq!(parse_since("2026-01-15T10:30:45Z").as_deref(), Ok("2026-01-15T10:30:45.000Z"));
        assert!(parse_since("2h") < parse_since("1h") && parse_since("yesterday").is_err());
        for wrong in ["0d", "d", "99999d", "-1d", "soon"] {
            assert!(parse_lifetime(wrong).is_err(), "{wrong}");
        }
    }
}
