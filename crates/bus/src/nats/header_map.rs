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
    let Some(map) = map else { return Headers::new() };
    let all = map.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    let mut headers: Headers = all.map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect();
    // The map's order is chance.
    headers.sort();
    headers
}
