//! Access control: credentials, the rights that they grant, and the check of each request.

mod authentication;
mod grant;
mod grants;
mod issuers;
mod keys;
mod metadata;
mod permission;
mod refusals;
mod tokens;

pub use authentication::{Authenticator, CredentialHeader, RequestCredentials, SUBPROTOCOL};
pub use grant::ApiCaller;
pub use grants::Grants;
pub use keys::{KeyEntry, KeysFile};
pub use metadata::{base_url, describe_issuers};
pub(crate) use permission::AllowedAgent;
pub use permission::authorize;
pub use permission::authorize_part;
pub use refusals::RefusalLog;
