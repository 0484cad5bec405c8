//! Resolves host names of providers, and refuses addresses of private networks.

use std::net::SocketAddr;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use service::network::is_public;

/// Resolves names to public addresses only, so that a name that changes to a private address reaches nothing.
#[derive(Debug)]
pub(crate) struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = addresses.iter().filter(|address| is_public(address.ip())).copied().collect();
            match addresses.first() {
                Some(private) if public.is_empty() => {
                    let (name, address) = (name.as_str(), private.ip());
                    Err(format!(
                        "{name} is {address}, an address of a private network; where that is meant, set \
                         private_network: true at the provider in models.yaml"
                    )
                    .into())
                }
                Some(_) | None => Ok(Box::new(public.into_iter()) as Addrs),
            }
        })
    }
}

/// Whether an address names a private host itself. Then the operator means it, and the check is off.
pub(crate) fn names_private_host(base_url: &str) -> bool {
    let Ok(url) = Url::parse(base_url) else { return false };
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let local = host == "localhost" || host.ends_with(".localhost");
    local || host.parse().is_ok_and(|address| !is_public(address))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    #[tokio::test]
    async fn name_resolved_to_a_private_address_is_refused() {
        let Err(error) = PublicResolver.resolve("localhost".parse().unwrap()).await else { unreachable!() };
        let message = error.to_string();
        assert!(message.starts_with("localhost is ") && message.contains("private_network: true"), "{message}");
    }

    #[test]
    fn base_url_checked_only_private_hosts_are_private() {
        for private in [
            "http://127.0.0.1:8080/v1",
            "http://localhost/v1",
            "http://[::1]:1/v1",
            "http://10.1.2.3",
            "http://a.localhost",
        ] {
            assert!(names_private_host(private), "{private}");
        }
        for name in [
            "https://api.openai.com/v1",
            "http://localhost.evil.example",
            "http://8.8.8.8",
            "http://vllm.models.svc:8000",
        ] {
            assert!(!names_private_host(name), "{name}");
        }
    }
}
