//! The keys that sign users. Who has one can make users.

use std::collections::BTreeMap;

use nats_permissions::{Account, Role};
use nkeys::{KeyPair, KeyPairType};

use crate::AuthError;

/// Name of the signing key of tools' users, whose permissions are in their JWTs.
pub(crate) const TOOLS: &str = "tools";

/// The keys of an installation.
pub struct Keys {
    pub(crate) operator: KeyPair,
    pub(crate) system: KeyPair,
    pub(crate) ailoop: KeyPair,
    /// Signing keys by role, and [`TOOLS`].
    pub(crate) signers: BTreeMap<String, KeyPair>,
}

impl Keys {
    /// Makes keys for an installation with these roles.
    pub fn generate(roles: &[Role]) -> Self {
        let mut keys = Self {
            operator: KeyPair::new_operator(),
            system: KeyPair::new_account(),
            ailoop: KeyPair::new_account(),
            signers: BTreeMap::new(),
        };
        keys.add_missing(roles);
        keys
    }

    /// Makes the signing keys that are missing, for roles of a newer version. Returns the names of their roles.
    pub fn add_missing(&mut self, roles: &[Role]) -> Vec<String> {
        let names = roles.iter().map(|role| role.name).chain([TOOLS]);
        let missing: Vec<String> = names.filter(|name| !self.signers.contains_key(*name)).map(str::to_owned).collect();
        self.signers.extend(missing.iter().map(|name| (name.clone(), KeyPair::new_account())));
        missing
    }

    /// Reads keys by the names of their files.
    pub fn from_files(files: &BTreeMap<String, String>) -> Result<Self, AuthError> {
        let read = |name: &str, kind: KeyPairType| {
            let problem = |problem: String| AuthError::Key { name: name.to_owned(), problem };
            let seed = files.get(name).ok_or_else(|| problem("is missing".to_owned()))?;
            let key = KeyPair::from_seed(seed.trim()).map_err(|_| problem("is not a seed".to_owned()))?;
            if key.key_pair_type() == kind { Ok(key) } else { Err(problem(format!("is not the seed of {kind:?}"))) }
        };
        let signers = files.keys().filter_map(|name| Some((name, signer_role(name)?)));
        Ok(Self {
            operator: read(OPERATOR, KeyPairType::Operator)?,
            system: read(SYSTEM, KeyPairType::Account)?,
            ailoop: read(AILOOP, KeyPairType::Account)?,
            signers: signers
                .map(|(name, role)| Ok((role.to_owned(), read(name, KeyPairType::Account)?)))
                .collect::<Result<_, AuthError>>()?,
        })
    }

    /// Returns the seeds by the names of their files.
    pub fn to_files(&self) -> Result<BTreeMap<String, String>, AuthError> {
        let named = [(OPERATOR, &self.operator), (SYSTEM, &self.system), (AILOOP, &self.ailoop)];
        let named = named.into_iter().map(|(name, key)| (name.to_owned(), key));
        let signers = self.signers.iter().map(|(role, key)| (format!("{SIGNER}{role}{SEED}"), key));
        let seeds = named.chain(signers).map(|(name, key)| match key.seed() {
            Ok(seed) => Ok((name, format!("{seed}\n"))),
            Err(error) => Err(AuthError::Key { name, problem: error.to_string() }),
        });
        seeds.collect()
    }

    pub(crate) fn account(&self, account: Account) -> &KeyPair {
        match account {
            Account::Ailoop => &self.ailoop,
            Account::System => &self.system,
        }
    }

    pub(crate) fn signer(&self, role: &str) -> Result<&KeyPair, AuthError> {
        self.signers.get(role).ok_or_else(|| AuthError::Key {
            name: format!("{SIGNER}{role}{SEED}"),
            problem: "is missing; `ailoop nats-auth update` makes it".to_owned(),
        })
    }
}

const SEED: &str = ".nk";
const SIGNER: &str = "signer-";
const OPERATOR: &str = "operator.nk";
const SYSTEM: &str = "account-SYS.nk";
const AILOOP: &str = "account-AILOOP.nk";

fn signer_role(file: &str) -> Option<&str> {
    file.strip_prefix(SIGNER)?.strip_suffix(SEED)
}

impl std::fmt::Debug for Keys {
    /// Shows public keys, never a seed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("operator", &self.operator.public_key()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_written_and_read_are_the_same() {
        let keys = Keys::generate(&nats_permissions::roles());
        let files = keys.to_files().unwrap();
        assert_eq!(files.len(), 3 + nats_permissions::roles().len() + 1);
        assert_eq!(Keys::from_files(&files).unwrap().to_files().unwrap(), files);
    }

    #[test]
    fn key_missing_or_of_another_kind_is_named() {
        let mut files = Keys::generate(&[]).to_files().unwrap();
        let operator = files.insert("operator.nk".to_owned(), files["account-SYS.nk"].clone());
        assert!(Keys::from_files(&files).unwrap_err().to_string().contains("operator.nk is not the seed of Operator"));
        files.insert("operator.nk".to_owned(), operator.unwrap());
        files.remove("account-AILOOP.nk");
        assert!(Keys::from_files(&files).unwrap_err().to_string().contains("account-AILOOP.nk is missing"));
    }
}
