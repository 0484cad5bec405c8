//! The address of a client: that of its connection, or the one that a trusted proxy says.

use std::net::IpAddr;

use axum::http::HeaderMap;
use ipnet::IpNet;
use service::connections::network_of;

/// Proxies append the address from which they got a request.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The networks of proxies whose word counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Parses the networks of `edge.trusted_proxies`; the message names the field.
    pub(crate) fn parse(networks: &[String]) -> Result<Self, String> {
        let parse = |text: &String| {
            let network =
                text.parse::<IpNet>().or_else(|error| text.parse::<IpAddr>().map(IpNet::from).map_err(|_| error));
            network.map_err(|error| {
                format!("edge.trusted_proxies has {text:?}: {error}; write a network such as 10.0.0.0/8")
            })
        };
        networks.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the address of the client behind `peer`: the last one that no trusted proxy has. A client may have
    /// written those before it.
    pub(crate) fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        let values = headers.get_all(FORWARDED_FOR).iter().rev();
        let words = values.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
        for word in words {
            if !self.contains(client) {
                break;
            }
            let Some(address) = std::str::from_utf8(word).ok().and_then(|word| parse_address(word.trim())) else {
                break;
            };
            client = address;
        }
        network_of(client)
    }

    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Parses an address, with or without a port.
fn parse_address(word: &str) -> Option<IpAddr> {
    let bare = word.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or(word);
    bare.parse().ok().or_else(|| word.parse::<std::net::SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn address_of_a_client_is_what_trusted_proxies_say() {
        let proxies = TrustedProxies::parse(&["10.0.0.0/8".to_owned(), "fd00::/64".to_owned()]).unwrap();
        let rows: [(&str, &[&str], &str); 10] = [
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7:4711"], "203.0.113.7"),
            ("10.0.0.1", &["1.1.1.1, 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &["1.1.1.1", "203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7, evil"], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.3"], "10.0.0.3"),
            ("203.0.113.9", &["1.1.1.1"], "203.0.113.9"),
            ("fd00::", &["[2001:db8:1:2:3::4]:443"], "2001:db8:1:2::"),
            ("::ffff:10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
        ];
        for (peer, forwarded, wanted) in rows {
            let mut headers = HeaderMap::new();
            for value in forwarded {
                headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
            }
            let found = proxies.client_address(peer.parse().unwrap(), &headers);
            assert_eq!(found.to_string(), wanted, "{peer} {forwarded:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_FOR, HeaderValue::from_static("1.1.1.1"));
        let nobody = TrustedProxies::default().client_address("10.0.0.1".parse().unwrap(), &headers);
        assert_eq!(nobody.to_string(), "10.0.0.1", "no proxy is trusted by itself");
    }

    #[test]
    fn network_that_is_none_is_refused_with_its_field() {
        let refused = TrustedProxies::parse(&["10.0.0.0/8".to_owned(), "proxy".to_owned()]).unwrap_err();
        assert!(refused.contains("edge.trusted_proxies") && refused.contains("proxy"), "{refused}");
        assert!(TrustedProxies::parse(&["10.1.2.3".to_owned()]).is_ok());
    }
}
