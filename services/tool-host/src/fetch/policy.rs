//! Policy of the hosts that may be fetched: checked for each hop, by the URL and by the addresses of its host name.

use std::net::IpAddr;

use ailoop_tool::ToolError;
use ipnet::IpNet;
use reqwest::Url;
use service::network::is_public;

use super::config::FetchConfig;
use crate::error::HostError;

/// Bytes of a URL.
const URL_BYTES_MAX: usize = 8 << 10;

/// The rules of the configuration.
#[derive(Debug)]
pub(super) struct FetchPolicy {
    /// `None`: every public host.
    allow: Option<Vec<HostPattern>>,
    deny: Vec<HostPattern>,
    private_hosts: Vec<HostPattern>,
    private_networks: Vec<IpNet>,
    ports: Vec<u16>,
}

/// `example.org`, or `*.example.org` for everything below it.
#[derive(Debug, PartialEq, Eq)]
struct HostPattern {
    name: String,
    is_wildcard: bool,
}

impl HostPattern {
    /// Parses a pattern as a URL, so that both have one spelling.
    fn parse(text: &str) -> Option<Self> {
        let (is_wildcard, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        let bracketed = name.parse().is_ok_and(|address: IpAddr| address.is_ipv6());
        let url = Url::parse(&if bracketed { format!("http://[{name}]/") } else { format!("http://{name}/") }).ok()?;
        let is_plain = url.path() == "/" && url.port().is_none() && url.username().is_empty() && url.query().is_none();
        (is_plain && !name.contains('*') && (bracketed || !name.contains(':')))
            .then(|| Self { name: normalize_host(&url), is_wildcard })
    }

    fn is_match(&self, host: &str) -> bool {
        match host.strip_suffix(&self.name) {
            Some("") => !self.is_wildcard,
            Some(rest) => self.is_wildcard && rest.ends_with('.'),
            None => false,
        }
    }
}

impl FetchPolicy {
    pub(super) fn new(config: &FetchConfig) -> Result<Self, HostError> {
        let bad = |field: &str, text: &str| HostError::Setting {
            field: format!("fetch.{field}"),
            message: format!("{text:?} is neither a host such as example.org nor *.example.org"),
        };
        let hosts = |field: &'static str, texts: &[String]| -> Result<Vec<HostPattern>, HostError> {
            texts.iter().map(|text| HostPattern::parse(text).ok_or_else(|| bad(field, text))).collect()
        };
        let (networks, names): (Vec<_>, Vec<_>) =
            config.allow_private.iter().cloned().partition(|text| parse_network(text).is_some());
        Ok(Self {
            allow: config.allow_hosts.as_deref().map(|texts| hosts("allow_hosts", texts)).transpose()?,
            deny: hosts("deny_hosts", &config.deny_hosts)?,
            private_hosts: hosts("allow_private", &names)?,
            private_networks: networks.iter().filter_map(|text| parse_network(text)).collect(),
            ports: config.ports.clone(),
        })
    }

    /// Checks the URL that a model gave.
    pub(super) fn check_address(&self, text: &str) -> Result<Url, ToolError> {
        let url = Url::parse(text.trim())
            .map_err(|error| ToolError::new(format!("{text:?} is no address ({error}): give https://host/path")))?;
        self.check_url(url)
    }

    /// Checks the target of a redirect.
    pub(super) fn check_redirect(&self, from: &Url, location: &str) -> Result<Url, ToolError> {
        let refused = |why: &str| ToolError::new(format!("{from} redirects to {location:?}, which is refused: {why}"));
        let to = from.join(location).map_err(|error| refused(&error.to_string()))?;
        if from.scheme() == "https" && to.scheme() == "http" {
            return Err(refused("it leads from https to http"));
        }
        self.check_url(to).map_err(|error| refused(error.message()))
    }

    fn check_url(&self, mut url: Url) -> Result<Url, ToolError> {
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
        let host = normalize_host(&url);
        if host.is_empty()
            || has_match(&self.deny, &host)
            || self.allow.as_ref().is_some_and(|allow| !has_match(allow, &host))
        {
            return Err(ToolError::new(format!("{host} is not among the hosts that may be fetched")));
        }
        match host.parse() {
            Ok(address) if !self.can_connect(&host, address) => Err(private_address_error(&host, address)),
            Ok(_) | Err(_) => Ok(url),
        }
    }

    /// Whether a connection may be made to this address of a host.
    pub(super) fn can_connect(&self, host: &str, address: IpAddr) -> bool {
        let canonical = address.to_canonical();
        is_public(address)
            || has_match(&self.private_hosts, host)
            || self.private_networks.iter().any(|network| network.contains(&address) || network.contains(&canonical))
    }
}

/// The error for an address that must not be reached.
pub(super) fn private_address_error(host: &str, address: IpAddr) -> ToolError {
    ToolError::new(format!(
        "{host} is {address}, an address of a private network, which is not fetched. The operator of the tool-host can open it \
         with tool_host.fetch.allow_private"
    ))
}

/// Returns the host of a URL in one spelling: lower case, an IP address in its usual form and without brackets, no dot
/// at the end.
pub(super) fn normalize_host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    normalize_name(host.trim_start_matches('[').trim_end_matches(']'))
}

/// Returns a name in lower case, without a dot at its end.
pub(super) fn normalize_name(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn has_match(hosts: &[HostPattern], host: &str) -> bool {
    hosts.iter().any(|pattern| pattern.is_match(host))
}

fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| address.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(config: &FetchConfig) -> FetchPolicy {
        FetchPolicy::new(config).unwrap()
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn check(policy: &FetchPolicy, url: &str) -> String {
        policy.check_address(url).map_or_else(|error| error.message().to_owned(), |url| url.to_string())
    }

    #[test]
    fn private_address_in_any_spelling_is_refused() {
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
            let outcome = check(&policy, &format!("http://{host}/x"));
            assert!(outcome.contains("an address of a private network"), "{host}: {outcome}");
        }
        for host in ["1.1.1.1", "16843009", "[2606:4700::1111]", "[::ffff:1.1.1.1]", "example.org", "localhost"] {
            assert!(policy.check_address(&format!("http://{host}/x")).is_ok(), "{host}");
        }
    }

    #[test]
    fn url_invalid_is_refused_with_the_reason() {
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
            let outcome = check(&policy, url);
            assert!(outcome.contains(part), "{url}: {outcome}");
        }
        assert_eq!(check(&policy, " https://EXAMPLE.org:443/a?b#c "), "https://example.org/a?b");
    }

    #[test]
    fn host_lists_permit_and_deny_by_name_and_wildcard() {
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
            assert_eq!(listed.check_address(&format!("https://{host}/")).is_ok(), expect, "{host}");
        }
        let none = policy(&FetchConfig { allow_hosts: Some(Vec::new()), ..FetchConfig::default() });
        assert!(none.check_address("https://example.org/").is_err(), "an empty list allows nothing");
        for bad in ["", "a/b", "*.*.org", "http://x", "a:80", "u@a", "*", "a b", "x?y"] {
            let config = FetchConfig { deny_hosts: texts(&[bad]), ..FetchConfig::default() };
            assert!(FetchPolicy::new(&config).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn private_network_permitted_is_reachable_and_no_other() {
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
            assert_eq!(policy.can_connect(host, address.parse().unwrap()), expect, "{host} {address}");
        }
    }

    #[test]
    fn redirect_target_is_checked_again() {
        let policy = policy(&FetchConfig { deny_hosts: texts(&["bad.example"]), ..FetchConfig::default() });
        let from = Url::parse("https://example.org/a/b").unwrap();
        let check = |location: &str| match policy.check_redirect(&from, location) {
            Ok(url) => url.to_string(),
            Err(error) => error.message().to_owned(),
        };
        assert_eq!(check("../c?d"), "https://example.org/c?d");
        assert_eq!(check("//other.example/x"), "https://other.example/x");
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
            let outcome = check(location);
            assert!(outcome.contains(part) && outcome.contains("redirects to"), "{location}: {outcome}");
        }
    }
}
