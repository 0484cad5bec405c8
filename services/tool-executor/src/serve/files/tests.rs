//! The file tools on temporary directories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::root::Root;
use super::write::Out;
use super::{FilesConfig, ServeError, list, read, search, tools, write};
use crate::serve::fit;

/// A project with what is listed, what is left out, and links that lead out.
struct Project {
    dir: tempfile::TempDir,
    root: Root,
}

fn project() -> Project {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("project");
    for (path, content) in [
        ("project/Makefile", "all:\n"),
        ("project/src/main.rs", "fn main() {\n    println!(\"Hello\");\n}\n"),
        ("project/src/lib.rs", "// hello\n"),
        ("project/docs/a.md", "# Hello\n"),
        ("project/.gitignore", "*.log\n/build\n"),
        ("project/debug.log", "hello\n"),
        ("project/build/out.rs", "hello\n"),
        ("project/.git/config", "hello\n"),
        ("project/target/x.rs", "hello\n"),
        ("project/docs/node_modules/x.js", "hello\n"),
        ("project/.env", "SECRET=hello\n"),
        ("secret.txt", "hello secret\n"),
        (".gitignore", "*\n"),
    ] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::write(at.join("image.png"), b"\x89PNG\0hello").unwrap();
    symlink(dir.path().join("secret.txt"), at.join("link.txt")).unwrap();
    symlink("../..", at.join("src/up")).unwrap();
    symlink("src/lib.rs", at.join("inside.rs")).unwrap();
    Project { root: Root::open(&at).unwrap(), dir }
}

fn args<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl Project {
    fn list(&self, value: Value) -> Value {
        list::list(&self.root, &args(value)).unwrap()
    }

    fn read(&self, value: Value) -> Result<Value, String> {
        read::read(&self.root, &args(value)).map_err(|error| error.message().to_owned())
    }

    fn search(&self, value: Value) -> Result<Value, String> {
        search::search(&self.root, &args(value)).map_err(|error| error.message().to_owned())
    }
}

#[test]
fn listing_counts_everything_and_leaves_out_what_nobody_wants() {
    let project = project();
    let all = project.list(json!({}));
    assert_eq!(
        all,
        json!({
            "root": "project",
            "files": [
                {"path": "Makefile", "bytes": 5}, {"path": "docs/a.md", "bytes": 8}, {"path": "image.png", "bytes": 10},
                {"path": "src/lib.rs", "bytes": 9}, {"path": "src/main.rs", "bytes": 37},
            ],
            "total": 5, "total_bytes": 69, "by_extension": {"(none)": 1, "md": 1, "png": 1, "rs": 2}, "truncated": false,
        })
    );
    let capped = project.list(json!({"max": 1}));
    assert_eq!(
        (capped["files"].as_array().unwrap().len(), &capped["total"], &capped["truncated"]),
        (1, &json!(5), &json!(true))
    );
    let part = project.list(json!({"path": "./src/"}));
    assert_eq!((&part["total"], &part["files"][0]["path"]), (&json!(2), &json!("src/lib.rs")));
}

#[test]
fn reading_whole_and_in_parts() {
    let project = project();
    let whole = project.read(json!({"path": "src/main.rs"})).unwrap();
    let text = "fn main() {\n    println!(\"Hello\");\n}\n";
    assert_eq!(whole, json!({"path": "src/main.rs", "lines": 3, "bytes": 37, "content": text, "truncated": false}));
    let part = project.read(json!({"path": "src/main.rs", "offset": 2, "limit": 1})).unwrap();
    assert_eq!((&part["content"], &part["truncated"]), (&json!("    println!(\"Hello\");\n"), &json!(false)));
    assert_eq!(project.read(json!({"path": "src/main.rs", "offset": 9})).unwrap()["content"], "");
    assert_eq!(project.read(json!({"path": "inside.rs"})).unwrap()["path"], "src/lib.rs");
    let binary = project.read(json!({"path": "image.png"})).unwrap();
    assert_eq!((&binary["binary"], &binary["bytes"], &binary["content"]), (&json!(true), &json!(10), &json!("")));
}

#[test]
fn a_long_file_is_read_in_pieces_that_fit() {
    let project = project();
    let text = "\"quoted\"\tä\n".repeat(20_000);
    fs::write(project.root.path.join("long.txt"), &text).unwrap();
    let (mut all, mut offset) = (String::new(), json!(1));
    loop {
        let piece = project.read(json!({"path": "long.txt", "offset": offset})).unwrap();
        assert!(piece.to_string().len() <= contract::limits::TOOL_OUTPUT_BYTES_MAX);
        all += piece["content"].as_str().unwrap();
        if piece["truncated"] == false {
            break;
        }
        offset = piece["next_offset"].clone();
    }
    assert_eq!(all, text);
    fs::write(project.root.path.join("line.txt"), "\u{1}".repeat(fit::ROOM * 2)).unwrap();
    let piece = project.read(json!({"path": "line.txt"})).unwrap();
    assert_eq!((&piece["truncated"], &piece["next_offset"]), (&json!(true), &json!(2)));
    assert!(piece.to_string().len() <= contract::limits::TOOL_OUTPUT_BYTES_MAX);
}

#[test]
fn searching_lines() {
    let project = project();
    let found = project.search(json!({"pattern": "(?i)hello"})).unwrap();
    assert_eq!(
        found,
        json!({
            "pattern": "(?i)hello",
            "matches": [
                {"path": "docs/a.md", "line": 1, "text": "# Hello"}, {"path": "src/lib.rs", "line": 1, "text": "// hello"},
                {"path": "src/main.rs", "line": 2, "text": "    println!(\"Hello\");"},
            ],
            "total": 3, "files": 3, "truncated": false,
        })
    );
    let capped = project.search(json!({"pattern": "e", "max": 1})).unwrap();
    assert_eq!((capped["matches"].as_array().unwrap().len(), &capped["truncated"]), (1, &json!(true)));
    let one = project.search(json!({"pattern": "hello", "path": "src/lib.rs"})).unwrap();
    assert_eq!((&one["total"], &one["files"]), (&json!(1), &json!(1)));
    assert!(project.search(json!({"pattern": "("})).unwrap_err().contains("cannot be used"));
    assert!(project.search(json!({"pattern": "(x{1000}){1000}"})).unwrap_err().contains("cannot be used"));
    fs::write(project.root.path.join("big.txt"), "hello\n".repeat(400_000)).unwrap();
    assert_eq!(project.search(json!({"pattern": "hello", "path": "big.txt"})).unwrap()["total"], 0);
}

#[test]
fn nothing_outside_is_reached() {
    let project = project();
    let secret = project.dir.path().join("secret.txt");
    for path in [
        "../secret.txt",
        "src/../../secret.txt",
        "link.txt",
        "src/up/secret.txt",
        "src/up",
        "/etc/passwd",
        secret.to_str().unwrap(),
        "nothing",
        "src",
        "\0",
    ] {
        let refused = project.read(json!({"path": path})).unwrap_err();
        assert!(!refused.contains("hello secret"), "{refused}");
    }
    assert!(project.read(json!({"path": "link.txt"})).unwrap_err().contains("is refused"));
    assert!(project.read(json!({"path": "../x"})).unwrap_err().contains("without .."));
    for path in ["..", "src/up", "link.txt", "/"] {
        assert!(project.search(json!({"pattern": "secret", "path": path})).is_err(), "{path}");
        assert!(list::list(&project.root, &args(json!({"path": path}))).is_err(), "{path}");
    }
    assert_eq!(project.search(json!({"pattern": "secret"})).unwrap()["total"], 0);
}

fn write_to(out: &Out, path: &str, content: &str) -> Result<Value, String> {
    let arguments = args(json!({"path": path, "content": content}));
    write::write(out, &arguments).map_err(|error| error.message().to_owned())
}

#[test]
fn writing_below_out_and_never_over_what_is_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("made/out");
    let out = Out::open(&at).unwrap();
    assert_eq!(write_to(&out, "./plans/a.md", "one").unwrap(), json!({"path": "plans/a.md", "bytes": 3}));
    assert_eq!(fs::read_to_string(at.join("plans/a.md")).unwrap(), "one");
    write_to(&out, "plans/a.md", "two").unwrap();
    // The list outlives the process.
    let out = Out::open(&at).unwrap();
    write_to(&out, "plans/a.md", "three").unwrap();
    assert_eq!(fs::read_to_string(at.join("plans/a.md")).unwrap(), "three");

    fs::write(at.join("theirs.md"), "theirs").unwrap();
    assert!(write_to(&out, "theirs.md", "mine").unwrap_err().contains("not written by this tool"));
    write_to(&out, "theirs.md", "theirs").unwrap();
    assert_eq!(fs::read_to_string(at.join("theirs.md")).unwrap(), "theirs");
    for path in
        ["", ".", "..", "../x", "/tmp/x", "plans", "plans/", ".ailoop-written", "a\nb", "x/.ailoop-y", "plans/a.md/b"]
    {
        assert!(write_to(&out, path, "x").is_err(), "{path:?}");
    }
}

#[test]
fn writing_follows_no_link_out() {
    let dir = tempfile::tempdir().unwrap();
    let (at, outside) = (dir.path().join("out"), dir.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    let out = Out::open(&at).unwrap();
    symlink(&outside, at.join("way")).unwrap();
    symlink(outside.join("file"), at.join("file")).unwrap();
    for path in ["way/x", "way/deep/x", "file"] {
        assert!(write_to(&out, path, "x").is_err(), "{path}");
    }
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}

#[test]
fn a_missing_root_is_said() {
    let config = FilesConfig { root: Path::new("/no/such/place").to_owned(), out: None, login: None };
    match tools(&config) {
        Err(error @ ServeError::Directory { .. }) => {
            let told = error.to_string();
            assert!(told.starts_with("executor.serve.files.root \"/no/such/place\" cannot be used"), "{told}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("served"),
    }
}

#[test]
fn hard_link_below_the_root_is_neither_read_nor_searched() {
    let project = project();
    let at = project.dir.path();
    fs::hard_link(at.join("secret.txt"), at.join("project/hard.txt")).unwrap();
    let error = project.read(json!({"path": "hard.txt"})).unwrap_err();
    assert!(error.contains("hard link"), "{error}");
    let found = search::search(&project.root, &args(json!({"pattern": "secret"}))).unwrap();
    assert_eq!(found["total"], 0, "{found}");
    assert!(project.read(json!({"path": "docs/a.md"})).is_ok());
}
