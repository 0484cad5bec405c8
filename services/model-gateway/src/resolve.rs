//! From the names of providers to addresses, without those that a name must not stand for.

use std::net::SocketAddr;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use service::network::is_public;

/// Resolves names to addresses of the internet at large alone: a name that turns private reaches nothing.
#[derive(Debug)]
pub struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = found.iter().filter(|address| is_public(address.ip())).copied().collect();
            match found.first() {
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

/// Whether an address says by itself that it is private: then its operator means it.
pub fn says_so(base_url: &str) -> bool {
    let Ok(url) = Url::parse(base_url) else { return false };
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let local = host == "localhost" || host.ends_with(".localhost");
    local || host.parse().is_ok_and(|address| !is_public(address))
}
