//! The tokens of a directory: each of its files holds one.

use std::fs;
use std::path::Path;

use configuration::Secret;

/// Files of the directory.
const FILES_MAX: usize = 64;
/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 4 << 10;

/// The token of each file of a directory. Hidden files are left out: Kubernetes has links of its own there.
pub(super) fn read(directory: &Path) -> Result<Vec<Secret>, String> {
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

    #[test]
    fn every_file_of_the_directory_is_a_token() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("token"), "first\n").unwrap();
        fs::write(directory.path().join("previous"), "two").unwrap();
        fs::write(directory.path().join("..data"), "three").unwrap();
        let tokens = read(directory.path()).unwrap();
        assert_eq!(tokens, [Secret::new("two"), Secret::new("first")]);
        assert!(!format!("{tokens:?}").contains("first"), "tokens are not printed");
    }

    #[test]
    fn directory_without_a_usable_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).unwrap_err().contains("it holds no token"));
        for text in ["", " \n", "a b", "a\nb"] {
            fs::write(directory.path().join("token"), text).unwrap();
            assert!(read(directory.path()).unwrap_err().contains("one token"), "{text:?}");
        }
        fs::write(directory.path().join("token"), "x".repeat(5_000)).unwrap();
        assert!(read(directory.path()).unwrap_err().contains("5000 bytes"));
        assert!(read(&directory.path().join("gone")).is_err());
    }
}
