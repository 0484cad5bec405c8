//! The tokens that clients may show: one of the configuration, and those of a directory, which is read again and again,
//! so that a token is replaced without a restart.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use configuration::Secret;
use service::health::Readiness;
use subtle::{Choice, ConstantTimeEq};

use crate::config::{EdgeConfig, EdgeStartError};

/// Pause between two looks at the directory.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Files of the directory.
const FILES_MAX: usize = 64;
/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 4 << 10;

/// The tokens. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    fixed: Option<Secret>,
    directory: Option<PathBuf>,
    /// A lock since it is held for the copy of a pointer only.
    read: Arc<RwLock<Arc<Vec<Secret>>>>,
}

impl Tokens {
    /// Reads them for the first time. A directory without a token is an error: nobody could connect.
    pub(crate) fn new(config: &EdgeConfig) -> Result<Self, EdgeStartError> {
        let (fixed, directory) = (config.token.clone(), config.tokens_dir.clone());
        let found = match &directory {
            Some(directory) => read(directory).map_err(EdgeStartError::BadConfig)?,
            None => Vec::new(),
        };
        Ok(Self { fixed, directory, read: Arc::new(RwLock::new(Arc::new(found))) })
    }

    /// Whether clients must show a token.
    pub(crate) fn are_needed(&self) -> bool {
        self.fixed.is_some() || self.directory.is_some()
    }

    /// Whether a token is one of them. All are compared, in constant time, so that the time reveals nothing.
    pub(crate) fn contain(&self, presented: &str) -> bool {
        let found = self.read.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut is_known = Choice::from(0);
        for token in self.fixed.iter().chain(found.iter()) {
            is_known |= token.expose().as_bytes().ct_eq(presented.as_bytes());
        }
        is_known.into()
    }

    /// Reads the directory again and again, until the task ends. While it cannot be read, the last tokens stay valid.
    pub(crate) async fn follow(self, readiness: Readiness) {
        let Some(directory) = self.directory.clone() else { return };
        let mut seen = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let path = directory.clone();
            match tokio::task::spawn_blocking(move || read(&path)).await {
                // A change counts when the next look finds the same: a file may be in the middle of being written.
                Ok(Ok(found)) if seen.as_ref() == Some(&found) => {
                    readiness.warn(None);
                    self.replace(found);
                }
                Ok(Ok(found)) => seen = Some(found),
                Ok(Err(reason)) => readiness.warn(Some(&reason)),
                Err(error) => tracing::error!(%error, "the tokens could not be read"),
            }
        }
    }

    fn replace(&self, found: Vec<Secret>) {
        let mut read = self.read.write().unwrap_or_else(PoisonError::into_inner);
        if **read != found {
            tracing::info!(count = found.len(), "the tokens of clients have changed");
            *read = Arc::new(found);
        }
    }
}

/// The token of each file of a directory. Hidden files are left out: Kubernetes has links of its own there.
fn read(directory: &Path) -> Result<Vec<Secret>, String> {
    let failed = |what: &Path, why: &dyn std::fmt::Display| format!("edge.tokens_dir: {}: {why}", what.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| failed(directory, &error))? {
        let entry = entry.map_err(|error| failed(directory, &error))?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    if paths.len() > FILES_MAX {
        return Err(failed(directory, &format!("it has {} files, at most {FILES_MAX} are allowed", paths.len())));
    }
    paths.sort();
    let mut tokens = Vec::new();
    for path in paths {
        let size = fs::metadata(&path).map_err(|error| failed(&path, &error))?.len();
        if size > FILE_BYTES_MAX {
            return Err(failed(&path, &format!("it has {size} bytes, at most {FILE_BYTES_MAX} are allowed")));
        }
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let token = text.trim();
        // An empty token would let everybody in.
        if token.is_empty() || token.contains(char::is_whitespace) {
            return Err(failed(&path, &"a file must hold one token, without white space in it"));
        }
        tokens.push(Secret::new(token));
    }
    if tokens.is_empty() {
        return Err(failed(directory, &"it holds no token, so nobody could connect"));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens_in(directory: &Path) -> Result<Tokens, EdgeStartError> {
        Tokens::new(&EdgeConfig { tokens_dir: Some(directory.to_owned()), ..EdgeConfig::default() })
    }

    #[test]
    fn every_file_of_the_directory_is_a_token() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("token"), "first\n").unwrap();
        fs::write(directory.path().join("previous"), "two").unwrap();
        fs::write(directory.path().join("..data"), "three").unwrap();
        let tokens = tokens_in(directory.path()).unwrap();
        let known = ["first", "two", "three", "", "on"].map(|token| tokens.contain(token));
        assert_eq!((tokens.are_needed(), known), (true, [true, true, false, false, false]));
        assert!(!format!("{tokens:?}").contains("first"), "tokens are not printed");
    }

    #[test]
    fn directory_without_a_usable_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(tokens_in(directory.path()).unwrap_err().to_string().contains("it holds no token"));
        for text in ["", " \n", "a b", "a\nb"] {
            fs::write(directory.path().join("token"), text).unwrap();
            assert!(tokens_in(directory.path()).unwrap_err().to_string().contains("one token"), "{text:?}");
        }
        fs::write(directory.path().join("token"), "x".repeat(5_000)).unwrap();
        assert!(tokens_in(directory.path()).unwrap_err().to_string().contains("5000 bytes"));
        assert!(tokens_in(&directory.path().join("gone")).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn changed_directory_is_followed_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "old").unwrap();
        let (tokens, readiness) = (tokens_in(directory.path()).unwrap(), Readiness::new("edge"));
        let mut following = tokio::task::JoinSet::new();
        following.spawn(tokens.clone().follow(readiness.clone()));
        fs::write(directory.path().join("next"), "new").unwrap();
        while !tokens.contain("new") {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(tokens.contain("old"), "both are valid at the same time");
        fs::write(&file, "").unwrap();
        while readiness.warnings().next().is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(tokens.contain("old") && tokens.contain("new"));
        fs::remove_file(&file).unwrap();
        while tokens.contain("old") {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(tokens.contain("new") && readiness.warnings().next().is_none());
    }
}
