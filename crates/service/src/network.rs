//! Tells addresses of the public internet from those of private and reserved networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the internet at large: neither this machine's, nor one of a private or otherwise
/// reserved network, whichever way it is written.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = match a {
        0 | 10 | 127 | 224.. => true,
        100 => b & 0xC0 == 64,
        169 => b == 254,
        172 => b & 0xF0 == 16,
        192 => b == 168 || (b == 0 && (c == 0 || c == 2)) || (b == 88 && c == 99),
        198 => b & 0xFE == 18 || (b == 51 && c == 100),
        203 => b == 0 && c == 113,
        _ => false,
    };
    !reserved
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // An IPv4 address in another dress: mapped, compatible, or through a translator (well-known, then 6to4).
        [0, 0, 0, 0, 0, 0 | 0xFFFF, high, low] | [0x64, 0xFF9B, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            inner(high, low)
        }
        // What is set aside for protocols (Teredo, benchmarks, ORCHID and others), documentation, discard, and the
        // local translator's prefix.
        [0x2001, ..=0x1FF | 0xDB8, ..] | [0x3FFF, ..=0xFFF, ..] | [0x100, 0, 0, 0, ..] | [0x64, 0xFF9B, 1, ..] => false,
        // What is routed at all begins with 001.
        [first, ..] => first & 0xE000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    #[test]
    fn address_not_routed_is_private() {
        for text in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "192.88.98.1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "3ffe::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2001:2::1",
            "2001:20::1",
            "2001:1ff:ffff::1",
            "3fff::1",
            "3fff:fff::1",
            "::ffff:0:7f00:1",
            "::ffff:a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2002:c0a8:1::1",
            "64:ff9b::a9fe:a9fe",
            "fec0::1",
            "ff0e::1",
            "5f00::1",
            "192.88.99.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "240.0.0.1",
            "100::1",
            "4000::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }
}
