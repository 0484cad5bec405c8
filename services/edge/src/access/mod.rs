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

pub(crate) use authentication::{Authenticator, CredentialHeader, Credentials, SUBPROTOCOL};
pub(crate) use grant::ApiCaller;
pub(crate) use grants::Grants;
pub use keys::{KeyEntry, KeysFile, generate_key};
pub(crate) use metadata::{base_url, describe_issuers};
pub(crate) use permission::{AllowedAgent, authorize, authorize_part};
pub(crate) use refusals::RefusalLog;
