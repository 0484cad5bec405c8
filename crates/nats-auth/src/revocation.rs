//! Revokes users on running servers.

use std::collections::BTreeSet;
use std::time::Duration;

use nats_permissions::Account;
use tokio::time::{Instant, sleep};

use crate::{AuthError, Installation, ServerAccount, SystemConnection};

/// How long the connections of revoked users may take to end.
const DISCONNECT_MAX: Duration = Duration::from_secs(5);
/// Pause between looks whether they have.
const DISCONNECT_PAUSE: Duration = Duration::from_millis(50);
const ACCOUNTS: [Account; 2] = [Account::System, Account::Ailoop];

/// What a revocation did.
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

    /// Revokes users by their public keys, in both accounts, and waits until the servers have disconnected them. The
    /// file of nats-server gets the revocations too.
    pub async fn revoke(
        &mut self,
        connection: &SystemConnection,
        users: &BTreeSet<String>,
        now: i64,
    ) -> Result<Revocation, AuthError> {
        let (mut signed, mut servers) = (Vec::new(), usize::MAX);
        for account in ACCOUNTS {
            let connected = connection.connections(&self.authority().account_key(account)).await?;
            // Everything that was issued up to then, by the clock of whoever issued it.
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
            let connections_left = self.count_connections(connection, users).await?;
            if connections_left == 0 || Instant::now() > end {
                return Ok(Revocation { servers, connections_left });
            }
            sleep(DISCONNECT_PAUSE).await;
        }
    }

    async fn count_connections(
        &self,
        connection: &SystemConnection,
        users: &BTreeSet<String>,
    ) -> Result<usize, AuthError> {
        let mut count = 0;
        for account in ACCOUNTS {
            let connected = connection.connections(&self.authority().account_key(account)).await?;
            count += connected.iter().filter(|connected| users.contains(&connected.claims.public_key)).count();
        }
        Ok(count)
    }
}
