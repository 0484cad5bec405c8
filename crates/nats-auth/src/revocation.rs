//! Revokes users on running servers.

use std::collections::BTreeSet;
use std::time::Duration;

use nats_credentials::{Credentials, UserClaims};
use nats_permissions::Account;
use tokio::time::{Instant, sleep};

use crate::{AuthError, ConnectedUser, Installation, ServerAccount, SystemConnection};

/// Longest wait for the connections of revoked users to end.
const DISCONNECT_MAX: Duration = Duration::from_secs(5);
/// Pause between looks whether they have.
const DISCONNECT_PAUSE: Duration = Duration::from_millis(50);
const ACCOUNTS: [Account; 2] = [Account::System, Account::Ailoop];

/// Result of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revocation {
    /// Servers that refuse the users from now on.
    pub servers: usize,
    /// Connections of the users that are still there.
    pub connections_left: usize,
}

impl Installation {
    /// Reads an account from the servers, which must have it.
    pub async fn server_account(
        &self,
        connection: &SystemConnection,
        account: Account,
    ) -> Result<ServerAccount, AuthError> {
        let key = self.authority().account_key(account);
        connection.account(&key).await?.ok_or(AuthError::UnknownAccount { key })
    }

    /// Revokes users by their public keys in their accounts, and waits until the servers have disconnected them. The
    /// file of nats-server gets the revocations too.
    pub async fn revoke(
        &mut self,
        connection: &SystemConnection,
        users: &BTreeSet<String>,
        now: i64,
    ) -> Result<Revocation, AuthError> {
        let (mut signed, mut servers) = (Vec::new(), usize::MAX);
        // nats-server loses requests in the instant in which it replaces an account: no account without a need.
        for account in self.accounts_of(connection, users).await? {
            let connected = connection.connections(&self.authority().account_key(account)).await?;
            // Everything that was issued up to then, by the clock of the issuer.
            let issued = |user: &str| {
                let issued = connected.iter().filter(|connected| connected.claims.public_key == user);
                issued.map(|connected| connected.claims.issued_at).max().unwrap_or_default()
            };
            let revoked = users.iter().map(|user| (user.clone(), now.max(issued(user)))).collect();
            let there = self.server_account(connection, account).await?;
            let jwt = self.authority().account_jwt_with(account, Some(&there.claims), &revoked, now)?;
            servers = servers.min(connection.update(&jwt).await?);
            signed.push((account, jwt));
        }
        self.save_accounts(&signed, now)?;
        let end = Instant::now() + DISCONNECT_MAX;
        loop {
            let connected = self.connected_users(connection).await?;
            let is_revoked = |connected: &&ConnectedUser| users.contains(&connected.claims.public_key);
            let connections_left = connected.iter().filter(is_revoked).count();
            if connections_left == 0 || Instant::now() > end {
                return Ok(Revocation { servers, connections_left });
            }
            sleep(DISCONNECT_PAUSE).await;
        }
    }

    /// The accounts that the users belong to, as their credentials files or connections show it; both for a user that
    /// neither shows.
    async fn accounts_of(
        &self,
        connection: &SystemConnection,
        users: &BTreeSet<String>,
    ) -> Result<Vec<Account>, AuthError> {
        let files = self.users()?.into_values().filter_map(|text| Credentials::parse(&text).ok());
        let mut known: Vec<UserClaims> = files.map(|credentials| credentials.claims).collect();
        known.extend(self.connected_users(connection).await?.into_iter().map(|connected| connected.claims));
        let is_needed = |account: &Account| {
            let key = self.authority().account_key(*account);
            users.iter().any(|user| {
                let claims = known.iter().find(|claims| claims.public_key == *user);
                claims.is_none_or(|claims| claims.account() == key)
            })
        };
        Ok(ACCOUNTS.into_iter().filter(is_needed).collect())
    }

    /// The connected users of both accounts.
    async fn connected_users(&self, connection: &SystemConnection) -> Result<Vec<ConnectedUser>, AuthError> {
        let mut connected = Vec::new();
        for account in ACCOUNTS {
            connected.extend(connection.connections(&self.authority().account_key(account)).await?);
        }
        Ok(connected)
    }
}
