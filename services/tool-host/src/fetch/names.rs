//! From names to addresses, judged between: what a connection is made to is what was judged.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::policy::{self, Policy};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Who knows the addresses of names.
pub trait Names: Send + Sync {
    /// The addresses of a name, asked anew for each connection.
    fn addresses(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The names that this machine knows.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn addresses(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(
            async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.map(|address| address.ip()).collect()) },
        )
    }
}

/// Gives the HTTP client the addresses that may be reached alone. It asks nobody else, so that a name cannot say one
/// thing to the judge and another one to the connection.
pub(super) struct Judged {
    pub(super) policy: Arc<Policy>,
    pub(super) names: Arc<dyn Names>,
}

impl Resolve for Judged {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, found) = (self.policy.clone(), self.names.addresses(name.as_str().to_owned()));
        Box::pin(async move {
            let host = policy::plain(name.as_str());
            let found = found.await?;
            let open: Vec<SocketAddr> = found
                .iter()
                .filter(|address| policy.may_connect(&host, **address))
                .map(|address| SocketAddr::new(*address, 0))
                .take(ADDRESSES_MAX)
                .collect();
            match found.first() {
                Some(address) if open.is_empty() => Err(policy::private(&host, *address).message().into()),
                Some(_) => Ok(Box::new(open.into_iter()) as Addrs),
                None => Err(format!("{host} has no address").into()),
            }
        })
    }
}
