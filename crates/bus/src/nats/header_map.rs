//! Headers between our form and that of async-nats.

use async_nats::{HeaderMap, HeaderName, HeaderValue};

use crate::{BusError, Headers};

/// Our headers as async-nats wants them; one that could break out of its line is refused.
pub(super) fn header_map(headers: Headers) -> Result<HeaderMap, BusError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let malformed = || BusError::Malformed(format!("header {name:?} cannot be sent"));
        let value: HeaderValue = value.parse().map_err(|_| malformed())?;
        map.append(HeaderName::try_from(name.as_str()).map_err(|_| malformed())?, value);
    }
    Ok(map)
}

/// Headers as we keep them.
pub(super) fn headers_of(map: Option<&HeaderMap>) -> Headers {
    map.map_or_else(Headers::new, |map| headers_without(map, &[]))
}

/// As [`headers_of`], without the headers of these names.
pub(super) fn headers_without(map: &HeaderMap, names: &[&str]) -> Headers {
    let kept = map.iter().filter(|(name, _)| !names.contains(&name.as_ref()));
    let all = kept.flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    let mut headers: Headers = all.map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect();
    // The map's order is chance.
    headers.sort();
    headers
}
