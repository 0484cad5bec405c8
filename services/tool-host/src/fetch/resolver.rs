//! Resolves host names and filters the addresses, so that a connection uses exactly the addresses that were checked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::policy::{self, FetchPolicy};

const ADDRESSES_MAX: usize = 16;

/// Resolves host names to addresses.
pub trait HostResolver: Send + Sync {
    /// Resolves a name; called once for each connection.
    fn resolve_host(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl HostResolver for SystemResolver {
    fn resolve_host(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(
            async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.map(|address| address.ip()).collect()) },
        )
    }
}

/// Gives the HTTP client the permitted addresses only. The client resolves no name itself, so that a name cannot have
/// one address for the check and another one for the connection.
pub(super) struct FilteringResolver {
    pub(super) policy: Arc<FetchPolicy>,
    pub(super) resolver: Arc<dyn HostResolver>,
}

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, found) = (self.policy.clone(), self.resolver.resolve_host(name.as_str().to_owned()));
        Box::pin(async move {
            let host = policy::normalize_name(name.as_str());
            let found = found.await?;
            let permitted: Vec<SocketAddr> = found
                .iter()
                .filter(|address| policy.can_connect(&host, **address))
                .map(|address| SocketAddr::new(*address, 0))
                .take(ADDRESSES_MAX)
                .collect();
            match found.first() {
                Some(address) if permitted.is_empty() => {
                    Err(policy::private_address_error(&host, *address).message().into())
                }
                Some(_) => Ok(Box::new(permitted.into_iter()) as Addrs),
                None => Err(format!("{host} has no address").into()),
            }
        })
    }
}
