//! Storage of the keys and of the JWTs that they signed: a directory, or Kubernetes Secrets on stdin and stdout.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::AuthError;

/// A group of files: they have the same readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Files that nats-server includes.
    Server,
    /// Credentials files, `<role>.creds`. A process reads its own only.
    Users,
    /// Seeds of the keys that sign. No process reads them.
    Keys,
    /// The password of routes between nats-servers.
    Routes,
}

impl Group {
    const ALL: [Self; 4] = [Self::Server, Self::Users, Self::Keys, Self::Routes];
    /// The groups that later commands read.
    const READ: [Self; 3] = [Self::Server, Self::Users, Self::Keys];

    /// Name of the Secret.
    pub const fn secret(self) -> &'static str {
        match self {
            Self::Server => "ailoop-nats-server",
            Self::Users => "ailoop-nats-users",
            Self::Keys => "ailoop-nats-keys",
            Self::Routes => "ailoop-nats-routes",
        }
    }

    const fn directory(self) -> &'static str {
        match self {
            Self::Server => "",
            Self::Users => "users",
            Self::Keys => "keys",
            Self::Routes => "routes",
        }
    }
}

/// Files by group and name.
#[derive(Debug)]
pub enum Store {
    /// Files below a directory, readable by their owner only.
    Directory(PathBuf),
    /// Secrets in memory; [`Store::changed_manifests`] prints those that changed.
    Manifests(Manifests),
}

/// Kubernetes Secrets of one namespace.
#[derive(Debug, Default)]
pub struct Manifests {
    namespace: String,
    files: BTreeMap<Group, BTreeMap<String, String>>,
    changed: BTreeSet<Group>,
}

impl Manifests {
    /// A namespace without Secrets.
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Reads Secrets as `kubectl get secret … -o json` or `-o yaml` prints them, or as `nats-auth init --manifest` does.
    pub fn parse(text: &str) -> Result<Self, AuthError> {
        let malformed = |problem: String| AuthError::Malformed { what: "the Secrets".to_owned(), problem };
        let documents: Vec<Manifest> =
            serde_saphyr::from_multiple(text).map_err(|error| malformed(error.to_string()))?;
        let mut found = Self::default();
        for manifest in documents.into_iter().flat_map(Manifest::flatten) {
            let group = Group::ALL.into_iter().find(|group| group.secret() == manifest.metadata.name);
            let Some(group) = group.filter(|_| manifest.kind == "Secret") else { continue };
            found.namespace.clone_from(&manifest.metadata.namespace);
            let files = found.files.entry(group).or_default();
            for (name, value) in manifest.data {
                let value = STANDARD.decode(&value).map_err(|error| malformed(format!("{name}: {error}")))?;
                let value = String::from_utf8(value).map_err(|error| malformed(format!("{name}: {error}")))?;
                files.insert(name, value);
            }
            files.extend(manifest.string_data);
        }
        Ok(found)
    }

    fn missing(&self, group: Group) -> AuthError {
        let all = Group::READ.map(Group::secret).join(" ");
        let problem = format!(
            "{} is not among them; pipe all three into this command: `kubectl -n {} get secret {all} -o json`",
            group.secret(),
            if self.namespace.is_empty() { "NAMESPACE" } else { &self.namespace }
        );
        AuthError::Malformed { what: "the Secrets".to_owned(), problem }
    }
}

/// A manifest, as far as it matters here.
#[derive(Deserialize)]
struct Manifest {
    kind: String,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(rename = "stringData", default)]
    string_data: BTreeMap<String, String>,
    #[serde(default)]
    items: Vec<Manifest>,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

impl Manifest {
    /// The manifest, or those in a list.
    fn flatten(self) -> Vec<Self> {
        if self.items.is_empty() { vec![self] } else { self.items }
    }
}

impl Store {
    /// The files of a group by name.
    pub fn files(&self, group: Group) -> Result<BTreeMap<String, String>, AuthError> {
        match self {
            Self::Manifests(manifests) => manifests.files.get(&group).cloned().ok_or_else(|| manifests.missing(group)),
            Self::Directory(path) => read_directory(&path.join(group.directory())),
        }
    }

    /// Returns the place of a file of a group, for people.
    pub fn place(&self, group: Group, name: &str) -> String {
        match self {
            Self::Manifests(_) => format!("key {name} of Secret {}", group.secret()),
            Self::Directory(path) => path.join(group.directory()).join(name).display().to_string(),
        }
    }

    /// Writes a file of a group.
    pub fn put(&mut self, group: Group, name: &str, text: &str) -> Result<(), AuthError> {
        match self {
            Self::Manifests(manifests) => {
                manifests.files.entry(group).or_default().insert(name.to_owned(), text.to_owned());
                manifests.changed.insert(group);
                Ok(())
            }
            Self::Directory(path) => write_private(&path.join(group.directory()), name, text),
        }
    }

    /// The Secrets that changed, for `kubectl apply`; nothing where the files are in a directory.
    pub fn changed_manifests(&self) -> String {
        let Self::Manifests(manifests) = self else { return String::new() };
        let secrets = manifests.changed.iter().map(|group| {
            let files = manifests.files.get(group).cloned().unwrap_or_default();
            secret_manifest(&manifests.namespace, group.secret(), &files)
        });
        secrets.collect()
    }
}

/// Renders the manifest of a Secret.
pub fn secret_manifest(namespace: &str, name: &str, files: &BTreeMap<String, String>) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  namespace: {namespace}\ntype: Opaque\nstringData:\n"
    );
    for (name, value) in files {
        // With a line end only where the file has one: a password has none.
        let end = if value.ends_with('\n') { "" } else { "-" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name}: |{end}");
        for line in value.lines() {
            let indent = if line.is_empty() { "" } else { "    " };
            let _ = writeln!(text, "{indent}{line}");
        }
    }
    text
}

fn read_directory(path: &Path) -> Result<BTreeMap<String, String>, AuthError> {
    let failed = |path: &Path, error: &std::io::Error| AuthError::File {
        path: path.display().to_string(),
        problem: error.to_string(),
    };
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(path).map_err(|error| failed(path, &error))? {
        let path = entry.map_err(|error| failed(path, &error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_file() && !name.starts_with('.') {
            let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
            files.insert(name, text);
        }
    }
    Ok(files)
}

/// Writes a file that only its owner reads. A process that reads it sees the old text or the new one.
fn write_private(directory: &Path, name: &str, text: &str) -> Result<(), AuthError> {
    let (path, part) = (directory.join(name), directory.join(format!(".{name}.part")));
    let failed =
        |error: std::io::Error| AuthError::File { path: path.display().to_string(), problem: error.to_string() };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&part).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&part, &path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_printed_and_parsed_are_the_same() {
        let mut store = Store::Manifests(Manifests::new("ns"));
        store.put(Group::Keys, "operator.nk", "SO1\n").unwrap();
        store.put(Group::Users, "edge.creds", "-----BEGIN\n\nx: {y}\n").unwrap();
        store.put(Group::Routes, "password", "secret").unwrap();
        let printed = store.changed_manifests();
        let parsed = Store::Manifests(Manifests::parse(&printed).unwrap());
        assert_eq!(parsed.files(Group::Users).unwrap()["edge.creds"], "-----BEGIN\n\nx: {y}\n");
        assert_eq!(parsed.files(Group::Keys).unwrap()["operator.nk"], "SO1\n");
        assert_eq!(parsed.files(Group::Routes).unwrap()["password"], "secret");
        assert_eq!(parsed.changed_manifests(), "");
        let missing = parsed.files(Group::Server).unwrap_err().to_string();
        assert!(missing.contains("kubectl -n ns get secret ailoop-nats-server"), "{missing}");
    }

    #[test]
    fn secrets_as_kubectl_prints_them_are_read() {
        let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": "ns"}, "data": {"a": "!"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ailoop-nats-keys", "namespace": "ns"},
             "data": {"operator.nk": "U08xCg=="}}]}"#;
        let store = Store::Manifests(Manifests::parse(list).unwrap());
        assert_eq!(store.files(Group::Keys).unwrap()["operator.nk"], "SO1\n");
    }

    #[test]
    fn file_in_a_directory_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::Directory(dir.path().join("new"));
        store.put(Group::Keys, "operator.nk", "SO1\n").unwrap();
        assert_eq!(store.files(Group::Keys).unwrap()["operator.nk"], "SO1\n");
        let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("new/keys"), mode("new/keys/operator.nk")), (0o700, 0o600));
    }
}
