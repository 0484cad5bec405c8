//! Whom a fetch may ask: judged for each hop, by its address as it is written and by what its name resolves to.

use std::net::IpAddr;

use ailoop_tool::ToolError;
use ipnet::IpNet;
use reqwest::Url;
use service::network::is_public;

use super::FetchConfig;
use crate::HostError;

/// Bytes of an address.
const URL_BYTES_MAX: usize = 8 << 10;

/// What the configuration allows.
#[derive(Debug)]
pub(super) struct Policy {
    /// Absent: every public host.
    allow: Option<Vec<Host>>,
    deny: Vec<Host>,
    private_hosts: Vec<Host>,
    private_nets: Vec<IpNet>,
    ports: Vec<u16>,
}

/// `example.org`, or `*.example.org` for everything below it.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    name: String,
    below: bool,
}

impl Host {
    /// As an address writes it, so that both are compared in one spelling.
    fn parse(text: &str) -> Option<Self> {
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        let bracketed = name.parse().is_ok_and(|address: IpAddr| address.is_ipv6());
        let url = Url::parse(&if bracketed { format!("http://[{name}]/") } else { format!("http://{name}/") }).ok()?;
        let plain = url.path() == "/" && url.port().is_none() && url.username().is_empty() && url.query().is_none();
        (plain && !name.contains('*') && (bracketed || !name.contains(':'))).then(|| Self { name: host(&url), below })
    }

    fn fits(&self, host: &str) -> bool {
        match host.strip_suffix(&self.name) {
            Some("") => !self.below,
            Some(rest) => self.below && rest.ends_with('.'),
            None => false,
        }
    }
}

impl Policy {
    pub(super) fn new(config: &FetchConfig) -> Result<Self, HostError> {
        let bad = |field: &str, text: &str| HostError::Setting {
            field: format!("fetch.{field}"),
            message: format!("{text:?} is neither a host such as example.org nor *.example.org"),
        };
        let hosts = |field: &'static str, texts: &[String]| -> Result<Vec<Host>, HostError> {
            texts.iter().map(|text| Host::parse(text).ok_or_else(|| bad(field, text))).collect()
        };
        let (nets, names): (Vec<_>, Vec<_>) =
            config.allow_private.iter().cloned().partition(|text| net(text).is_some());
        Ok(Self {
            allow: config.allow_hosts.as_deref().map(|texts| hosts("allow_hosts", texts)).transpose()?,
            deny: hosts("deny_hosts", &config.deny_hosts)?,
            private_hosts: hosts("allow_private", &names)?,
            private_nets: nets.iter().filter_map(|text| net(text)).collect(),
            ports: config.ports.clone(),
        })
    }

    /// An address as a model gives it, if it may be asked.
    pub(super) fn address(&self, text: &str) -> Result<Url, ToolError> {
        let url = Url::parse(text.trim())
            .map_err(|error| ToolError::new(format!("{text:?} is no address ({error}): give https://host/path")))?;
        self.judge(url)
    }

    /// Where a redirect leads, if it may be followed.
    pub(super) fn redirect(&self, from: &Url, location: &str) -> Result<Url, ToolError> {
        let refused = |why: &str| ToolError::new(format!("{from} redirects to {location:?}, which is refused: {why}"));
        let to = from.join(location).map_err(|error| refused(&error.to_string()))?;
        if from.scheme() == "https" && to.scheme() == "http" {
            return Err(refused("it leads from https to http"));
        }
        self.judge(to).map_err(|error| refused(error.message()))
    }

    fn judge(&self, mut url: Url) -> Result<Url, ToolError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ToolError::new(format!("{:?} is not fetched: only http and https are", url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ToolError::new("an address with a user or password in it is not fetched: leave them out"));
        }
        url.set_fragment(None);
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(ToolError::new(format!("the address has over {URL_BYTES_MAX} bytes")));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if !self.ports.contains(&port) {
            return Err(ToolError::new(format!("port {port} is not allowed; allowed are {:?}", self.ports)));
        }
        let host = host(&url);
        if host.is_empty() || any(&self.deny, &host) || self.allow.as_ref().is_some_and(|allow| !any(allow, &host)) {
            return Err(ToolError::new(format!("{host} is not among the hosts that may be fetched")));
        }
        match host.parse() {
            Ok(address) if !self.may_connect(&host, address) => Err(private(&host, address)),
            Ok(_) | Err(_) => Ok(url),
        }
    }

    /// Whether a connection may be made to an address that a host stands for.
    pub(super) fn may_connect(&self, host: &str, address: IpAddr) -> bool {
        let known = address.to_canonical();
        is_public(address)
            || any(&self.private_hosts, host)
            || self.private_nets.iter().any(|net| net.contains(&address) || net.contains(&known))
    }
}

/// What is said of an address that must not be reached.
pub(super) fn private(host: &str, address: IpAddr) -> ToolError {
    ToolError::new(format!(
        "{host} is {address}, an address of a private network, which is not fetched. The operator of the tool-host can open it \
         with tool_host.fetch.allow_private"
    ))
}

/// The host in one spelling: lower case, an IP address in its usual form and without brackets, no dot at the end.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    plain(host.trim_start_matches('[').trim_end_matches(']'))
}

/// A name without the dot at its end, which means the same.
pub(super) fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn any(hosts: &[Host], host: &str) -> bool {
    hosts.iter().any(|pattern| pattern.fits(host))
}

fn net(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| address.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(config: &FetchConfig) -> Policy {
        Policy::new(config).unwrap()
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn said(policy: &Policy, url: &str) -> String {
        policy.address(url).map_or_else(|error| error.message().to_owned(), |url| url.to_string())
    }

    #[test]
    fn private_addresses_are_refused_however_they_are_written() {
        let policy = policy(&FetchConfig::default());
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.01",
            "127.0.0.1.",
            "%31%32%37.0.0.1",
            "①②⑦.0.0.1",
            "127。0。0。1",
            "0",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.5.4",
            "192.168.1.1",
            "169.254.169.254",
            "2852039166",
            "0xA9FEA9FE",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.7",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:7f00:1::]",
            "[fe80::1]",
            "[fc00::1]",
            "[fd00:ec2::254]",
            "[ff02::1]",
            "[2001:db8::1]",
        ] {
            let said = said(&policy, &format!("http://{host}/x"));
            assert!(said.contains("an address of a private network"), "{host}: {said}");
        }
        for host in ["1.1.1.1", "16843009", "[2606:4700::1111]", "[::ffff:1.1.1.1]", "example.org", "localhost"] {
            assert!(policy.address(&format!("http://{host}/x")).is_ok(), "{host}");
        }
    }

    #[test]
    fn what_an_address_must_not_be() {
        let policy = policy(&FetchConfig::default());
        for (url, part) in [
            ("ftp://example.org/", "only http and https"),
            ("file:///etc/passwd", "only http and https"),
            ("gopher://example.org/", "only http and https"),
            ("example.org", "is no address"),
            ("http://", "is no address"),
            ("https://user@example.org/", "user or password"),
            ("https://user:secret@example.org/", "user or password"),
            ("https://:secret@example.org/", "user or password"),
            ("http://example.org:8080/", "port 8080 is not allowed"),
            ("https://example.org:22/", "port 22 is not allowed"),
            ("http://1.1.1.1@127.0.0.1/", "user or password"),
            ("http:\\\\127.0.0.1/", "private network"),
            ("http:/127.0.0.1/", "private network"),
            (&format!("https://example.org/{}", "x".repeat(9_000)), "over 8192 bytes"),
        ] {
            let said = said(&policy, url);
            assert!(said.contains(part), "{url}: {said}");
        }
        assert_eq!(said(&policy, " https://EXAMPLE.org:443/a?b#c "), "https://example.org/a?b");
    }

    #[test]
    fn lists_of_hosts() {
        let allow_hosts = Some(texts(&["example.org", "*.example.net", "bücher.example", "1.1.1.1"]));
        let deny_hosts = texts(&["bad.example.net", "*.worse.example.net"]);
        let listed = policy(&FetchConfig { allow_hosts, deny_hosts, ..FetchConfig::default() });
        for (host, expect) in [
            ("example.org", true),
            ("EXAMPLE.ORG.", true),
            ("www.example.org", false),
            ("notexample.org", false),
            ("a.example.net", true),
            ("a.b.example.net", true),
            ("example.net", false),
            ("evilexample.net", false),
            ("bad.example.net", false),
            ("bad.example.net.", false),
            ("BAD.example.net", false),
            ("x.bad.example.net", true),
            ("worse.example.net", true),
            ("x.worse.example.net", false),
            ("xn--bcher-kva.example", true),
            ("1.1.1.1", true),
            ("16843009", true),
            ("1.0.0.1", false),
        ] {
            assert_eq!(listed.address(&format!("https://{host}/")).is_ok(), expect, "{host}");
        }
        let none = policy(&FetchConfig { allow_hosts: Some(Vec::new()), ..FetchConfig::default() });
        assert!(none.address("https://example.org/").is_err(), "an empty list allows nothing");
        for bad in ["", "a/b", "*.*.org", "http://x", "a:80", "u@a", "*", "a b", "x?y"] {
            let config = FetchConfig { deny_hosts: texts(&[bad]), ..FetchConfig::default() };
            assert!(Policy::new(&config).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_opened_is_open_and_nothing_beside_it() {
        let allow_private = texts(&["10.1.0.0/16", "127.0.0.1", "wiki.intern", "fd12::/16", "localhost"]);
        let policy = policy(&FetchConfig { allow_private, ..FetchConfig::default() });
        for (host, address, expect) in [
            ("x", "10.1.2.3", true),
            ("x", "::ffff:10.1.2.3", true),
            ("x", "10.2.0.1", false),
            ("x", "127.0.0.1", true),
            ("x", "127.0.0.2", false),
            ("wiki.intern", "192.168.0.9", true),
            ("a.wiki.intern", "192.168.0.9", false),
            ("x", "fd12::7", true),
            ("x", "fd13::7", false),
            ("localhost", "::1", true),
        ] {
            assert_eq!(policy.may_connect(host, address.parse().unwrap()), expect, "{host} {address}");
        }
    }

    #[test]
    fn redirects_are_judged_anew() {
        let policy = policy(&FetchConfig { deny_hosts: texts(&["bad.example"]), ..FetchConfig::default() });
        let from = Url::parse("https://example.org/a/b").unwrap();
        let said = |location: &str| match policy.redirect(&from, location) {
            Ok(url) => url.to_string(),
            Err(error) => error.message().to_owned(),
        };
        assert_eq!(said("../c?d"), "https://example.org/c?d");
        assert_eq!(said("//other.example/x"), "https://other.example/x");
        for (location, part) in [
            ("http://example.org/", "from https to http"),
            ("https://127.0.0.1/", "private network"),
            ("https://0x7f.1/", "private network"),
            ("https://[::ffff:10.0.0.1]/", "private network"),
            ("https://bad.example./", "not among the hosts"),
            ("https://u:p@example.org/", "user or password"),
            ("https://example.org:8443/", "port 8443"),
            ("file:///etc/passwd", "only http and https"),
            ("javascript:alert(1)", "only http and https"),
            ("https://[", "refused"),
        ] {
            let said = said(location);
            assert!(said.contains(part) && said.contains("redirects to"), "{location}: {said}");
        }
    }
}
