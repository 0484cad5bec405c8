//! The files that nats-server includes.

use nats_permissions::Account;

use crate::{AuthError, Authority};

/// File with the operator and the accounts. Every nats-server includes it.
pub const AUTH_FILE: &str = "auth.conf";
/// File for the block `cluster` of nats-servers that form a cluster.
pub const ROUTES_FILE: &str = "routes.conf";

const HEAD: &str = "\
# Who may connect to this nats-server. Written by `ailoop nats-auth`; the permissions are in the account's JWT.
# It has no secrets: a seed is needed to use what it says.
";
const ROUTES_HEAD: &str = "\
# The password of routes between the nats-servers of a cluster. Written by `ailoop nats-auth`: a secret.
# nats-server uses it for connections that it accepts, and needs it in the URLs of `routes` for those that it makes.
";

/// The two accounts as they are signed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// JWT of the system account.
    pub system: String,
    /// JWT of the account of the fleet.
    pub ailoop: String,
}

impl ServerFiles {
    /// Signs both accounts anew.
    pub fn new(authority: &Authority, now: i64) -> Result<Self, AuthError> {
        Ok(Self {
            system: authority.account_jwt(Account::System, None, now)?,
            ailoop: authority.account_jwt(Account::Ailoop, None, now)?,
        })
    }

    /// Renders [`AUTH_FILE`]. `resolver` is the directory in which nats-server keeps the accounts; it must survive
    /// restarts, since revocations are there.
    pub fn auth_file(&self, authority: &Authority, resolver: &str, now: i64) -> Result<String, AuthError> {
        let operator = authority.operator_jwt(now)?;
        let [system, ailoop] = [Account::System, Account::Ailoop].map(|account| authority.account_key(account));
        Ok(format!(
            "{HEAD}operator: {operator}\n\
             system_account: {system}\n\
             # A newer JWT in this directory takes precedence over those below.\n\
             resolver: {{type: full, dir: {resolver:?}, allow_delete: false, interval: \"30s\"}}\n\
             resolver_preload: {{\n  {system}: {}\n  {ailoop}: {}\n}}\n",
            self.system, self.ailoop
        ))
    }

    /// Reads the accounts and the directory of the resolver out of [`AUTH_FILE`].
    pub fn from_auth_file(text: &str, authority: &Authority) -> Result<(Self, String), AuthError> {
        let malformed = |problem: String| AuthError::Malformed { what: AUTH_FILE.to_owned(), problem };
        let account = |account: Account| {
            let key = authority.account_key(account);
            let line = text.lines().find_map(|line| line.trim().strip_prefix(&key)?.strip_prefix(": "));
            line.map(str::to_owned)
                .ok_or_else(|| malformed(format!("it does not have the account {key} of these keys")))
        };
        let dir = text.lines().find_map(|line| line.split_once("dir: \"")?.1.split_once('"').map(|(dir, _)| dir));
        let dir = dir.ok_or_else(|| malformed("it names no directory of the resolver".to_owned()))?;
        Ok((Self { system: account(Account::System)?, ailoop: account(Account::Ailoop)? }, dir.to_owned()))
    }
}

/// Renders [`ROUTES_FILE`] for these hosts, `host:port`.
pub(crate) fn routes_file(password: &str, hosts: &[String]) -> String {
    let routes: Vec<String> = hosts.iter().map(|host| format!("  \"nats://routes:{password}@{host}\"")).collect();
    let routes = routes.join("\n");
    format!("{ROUTES_HEAD}authorization: {{user: routes, password: {password:?}}}\nroutes: [\n{routes}\n]\n")
}
