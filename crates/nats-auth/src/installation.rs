//! An installation: its authority, and the store of its keys, credentials and files for nats-server.

use std::collections::BTreeMap;

use nats_permissions::{Account, Role};
use nkeys::KeyPair;

use crate::server_files::{AUTH_FILE, ROUTES_FILE, ServerFiles, routes_file};
use crate::{AuthError, Authority, Group, IssuedUser, Keys, Lifetime, Store};

/// Name of the password of routes.
const PASSWORD: &str = "password";
/// Ending of a credentials file.
const CREDENTIALS: &str = ".creds";

/// Facts about the servers that `init` needs.
#[derive(Debug, Clone, Default)]
pub struct ServerLayout {
    /// Directory in which nats-server keeps the accounts.
    pub resolver: String,
    /// Hosts and ports of the routes of a cluster, for [`ROUTES_FILE`]; empty for one server.
    pub route_hosts: Vec<String>,
}

/// Keys, credentials and files for nats-server.
#[derive(Debug)]
pub struct Installation {
    authority: Authority,
    store: Store,
}

impl Installation {
    /// Makes new keys, files for nats-server, and a credential for each role without an end. Refuses a store that has
    /// keys already: users of the old keys could not connect any more.
    pub fn init(store: Store, roles: Vec<Role>, layout: &ServerLayout, now: i64) -> Result<Self, AuthError> {
        if let Ok(files) = store.files(Group::Keys)
            && let Some(name) = files.keys().next()
        {
            return Err(AuthError::Exists { path: store.place(Group::Keys, name) });
        }
        let authority = Authority::new(Keys::generate(&roles), roles);
        let mut installation = Self { authority, store };
        installation.save_keys()?;
        for role in installation.authority.roles.iter().map(|role| role.name).collect::<Vec<_>>() {
            let user = installation.authority.role_user(role, Lifetime { now, valid_for: None })?;
            installation.save_user(role, &user)?;
        }
        let files = ServerFiles::new(&installation.authority, now)?;
        installation.save_server_files(&files, &layout.resolver, now)?;
        // Only its randomness matters: the seed of a key that nobody uses.
        let problem =
            |error: nkeys::error::Error| AuthError::Key { name: "route".to_owned(), problem: error.to_string() };
        let password = KeyPair::new_user().seed().map_err(problem)?;
        installation.store.put(Group::Routes, PASSWORD, &password)?;
        if !layout.route_hosts.is_empty() {
            installation.store.put(Group::Server, ROUTES_FILE, &routes_file(&password, &layout.route_hosts))?;
        }
        Ok(installation)
    }

    /// Opens what [`Installation::init`] made.
    pub fn open(store: Store, roles: Vec<Role>) -> Result<Self, AuthError> {
        let keys = Keys::from_files(&store.files(Group::Keys)?)?;
        Ok(Self { authority: Authority::new(keys, roles), store })
    }

    /// Signs accounts and users.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the store of the files.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Makes signing keys and credentials for the roles that this version added. Returns their names.
    pub fn add_missing_roles(&mut self, now: i64) -> Result<Vec<String>, AuthError> {
        let added = self.authority.keys.add_missing(&self.authority.roles);
        if added.is_empty() {
            return Ok(added);
        }
        self.save_keys()?;
        let has_role = |name: &&String| self.authority.roles.iter().any(|role| role.name == name.as_str());
        for role in added.iter().filter(has_role).cloned().collect::<Vec<_>>() {
            let user = self.authority.role_user(&role, Lifetime { now, valid_for: None })?;
            self.save_user(&role, &user)?;
        }
        Ok(added)
    }

    /// The credentials files by the names of their users.
    pub fn users(&self) -> Result<BTreeMap<String, String>, AuthError> {
        let files = self.store.files(Group::Users)?.into_iter();
        Ok(files.filter_map(|(name, text)| Some((name.strip_suffix(CREDENTIALS)?.to_owned(), text))).collect())
    }

    /// Returns the place of a user's credentials file, for people.
    pub fn user_place(&self, name: &str) -> String {
        self.store.place(Group::Users, &format!("{name}{CREDENTIALS}"))
    }

    /// Writes the credentials file of a user.
    pub fn save_user(&mut self, name: &str, user: &IssuedUser) -> Result<(), AuthError> {
        self.store.put(Group::Users, &format!("{name}{CREDENTIALS}"), &user.credentials)
    }

    /// Replaces accounts in the file of nats-server, so that a server with an empty resolver begins with them.
    pub fn save_accounts(&mut self, signed: &[(Account, String)], now: i64) -> Result<(), AuthError> {
        let text = self.store.files(Group::Server)?.remove(AUTH_FILE);
        let missing =
            || AuthError::File { path: self.store.place(Group::Server, AUTH_FILE), problem: "is missing".to_owned() };
        let (mut files, resolver) = ServerFiles::from_auth_file(&text.ok_or_else(missing)?, &self.authority)?;
        for (account, jwt) in signed {
            match account {
                Account::Ailoop => files.ailoop.clone_from(jwt),
                Account::System => files.system.clone_from(jwt),
            }
        }
        self.save_server_files(&files, &resolver, now)
    }

    fn save_server_files(&mut self, files: &ServerFiles, resolver: &str, now: i64) -> Result<(), AuthError> {
        let text = files.auth_file(&self.authority, resolver, now)?;
        self.store.put(Group::Server, AUTH_FILE, &text)
    }

    fn save_keys(&mut self) -> Result<(), AuthError> {
        for (name, seed) in self.authority.keys.to_files()? {
            self.store.put(Group::Keys, &name, &seed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountClaims, Manifests, decode};

    fn installation() -> Installation {
        let layout = ServerLayout { resolver: "/data/jwt".to_owned(), route_hosts: vec!["n-0.n:6222".to_owned()] };
        Installation::init(Store::Manifests(Manifests::new("ns")), nats_permissions::roles(), &layout, 100).unwrap()
    }

    #[test]
    fn init_twice_is_refused() {
        let Installation { store, .. } = installation();
        let error = Installation::init(store, nats_permissions::roles(), &ServerLayout::default(), 100).unwrap_err();
        assert!(error.to_string().contains("exists"), "{error}");
    }

    #[test]
    fn account_revoked_user_is_kept_by_the_next_signature() {
        let mut installation = installation();
        let authority = installation.authority();
        let first = authority.account_jwt(Account::Ailoop, None, 100).unwrap();
        let first = decode::<AccountClaims>(&first).unwrap();
        let revoked = BTreeMap::from([("UX".to_owned(), 100)]);
        let second = authority.account_jwt_with(Account::Ailoop, Some(&first), &revoked, 100).unwrap();
        let claims = decode::<AccountClaims>(&second).unwrap();
        assert_eq!((claims.issued_at, claims.nats.revocations["UX"]), (101, 100), "newer than the first");
        let third = authority.account_jwt(Account::Ailoop, Some(&claims), 200).unwrap();
        assert_eq!(decode::<AccountClaims>(&third).unwrap().nats.revocations["UX"], 100);
        installation.save_accounts(&[(Account::Ailoop, third.clone())], 200).unwrap();
        let text = installation.store.files(Group::Server).unwrap()[AUTH_FILE].clone();
        let (files, resolver) = ServerFiles::from_auth_file(&text, installation.authority()).unwrap();
        assert_eq!((files.ailoop, resolver.as_str()), (third, "/data/jwt"));
    }

    #[test]
    fn role_keeps_old_permissions_until_it_is_signed_without_them() {
        let mut roles = nats_permissions::roles();
        let edge = roles.iter_mut().find(|role| role.name == "edge").unwrap();
        let shipped = edge.permissions.publish.clone();
        edge.permissions.publish = vec!["old".to_owned(), shipped[0].clone()];
        let Installation { store, .. } = installation();
        let old = Installation::open(store, roles).unwrap();
        let claims = old.authority().account_jwt(Account::Ailoop, None, 100).unwrap();
        let claims = decode::<AccountClaims>(&claims).unwrap();
        let newer = Installation::open(old.store, nats_permissions::roles()).unwrap();
        let permitted = |jwt: &str| {
            let claims = serde_json::to_value(decode::<AccountClaims>(jwt).unwrap().nats).unwrap();
            let keys = claims["signing_keys"].as_array().unwrap();
            let edge = keys.iter().find(|key| key["role"] == "edge").unwrap();
            serde_json::from_value::<Vec<String>>(edge["template"]["pub"]["allow"].clone()).unwrap()
        };
        let both = newer.authority().account_jwt_keeping_old(Account::Ailoop, &claims, 200).unwrap();
        assert_eq!(permitted(&both), [shipped.as_slice(), &["old".to_owned()]].concat());
        let both = decode::<AccountClaims>(&both).unwrap();
        assert_eq!(newer.authority().outdated_roles(Account::Ailoop, &both.nats).unwrap(), ["edge"]);
        let last = newer.authority().account_jwt(Account::Ailoop, Some(&both), 300).unwrap();
        assert_eq!(permitted(&last), shipped);
    }

    #[test]
    fn role_with_other_permissions_is_outdated() {
        let mut roles = nats_permissions::roles();
        let installation = installation();
        let claims = installation.authority().account_jwt(Account::Ailoop, None, 100).unwrap();
        let claims = decode::<AccountClaims>(&claims).unwrap().nats;
        let outdated = |authority: &Authority| authority.outdated_roles(Account::Ailoop, &claims).unwrap();
        assert!(outdated(installation.authority()).is_empty());
        let edge = roles.iter_mut().find(|role| role.name == "edge").unwrap();
        edge.permissions.publish.push("new".to_owned());
        let mut newer = Installation::open(installation.store, roles).unwrap();
        assert_eq!(outdated(newer.authority()), ["edge"]);
        assert!(newer.add_missing_roles(200).unwrap().is_empty());
    }
}
