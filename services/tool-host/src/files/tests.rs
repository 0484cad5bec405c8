//! The file tools on temporary directories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::{FilesConfig, HostError, Workspace, list, read, search, write};
use crate::truncate;

/// A project with listed files, ignored files, and links to files outside it.
struct Project {
    dir: tempfile::TempDir,
    files: Workspace,
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
    Project { files: workspace(&at, None), dir }
}

fn workspace(root: &Path, out: Option<&Path>) -> Workspace {
    let config = FilesConfig { root: root.to_owned(), out: out.map(Path::to_owned), login: None };
    Workspace::open(&config).unwrap()
}

fn args<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl Project {
    fn list(&self, value: Value) -> Value {
        list::list(&self.files, &args(value)).unwrap()
    }

    fn read(&self, value: Value) -> Result<Value, String> {
        read::read(&self.files, &args(value)).map_err(|error| error.message().to_owned())
    }

    fn search(&self, value: Value) -> Result<Value, String> {
        search::search(&self.files, &args(value)).map_err(|error| error.message().to_owned())
    }
}

#[test]
fn listing_counts_all_files_without_hidden_and_ignored_ones() {
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
fn file_read_whole_or_in_parts_returns_the_lines() {
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
fn file_too_long_is_read_in_parts_that_fit() {
    let project = project();
    let text = "\"quoted\"\tä\n".repeat(20_000);
    fs::write(project.files.project.path.join("long.txt"), &text).unwrap();
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
    fs::write(project.files.project.path.join("line.txt"), "\u{1}".repeat(truncate::RESULT_BYTES_MAX * 2)).unwrap();
    let piece = project.read(json!({"path": "line.txt"})).unwrap();
    assert_eq!((&piece["truncated"], &piece["next_offset"]), (&json!(true), &json!(2)));
    assert!(piece.to_string().len() <= contract::limits::TOOL_OUTPUT_BYTES_MAX);
}

#[test]
fn search_returns_matching_lines_and_counts() {
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
    fs::write(project.files.project.path.join("big.txt"), "hello\n".repeat(400_000)).unwrap();
    assert_eq!(project.search(json!({"pattern": "hello", "path": "big.txt"})).unwrap()["total"], 0);
}

#[test]
fn path_outside_the_root_is_refused() {
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
        assert!(list::list(&project.files, &args(json!({"path": path}))).is_err(), "{path}");
    }
    assert_eq!(project.search(json!({"pattern": "secret"})).unwrap()["total"], 0);
}

#[test]
fn credentials_of_a_fleet_are_refused_also_through_a_link() {
    let project = project();
    let root = &project.files.project.path;
    fs::create_dir(root.join(".ailoop")).unwrap();
    fs::write(root.join(".ailoop/credentials.json"), "hello token").unwrap();
    symlink(".ailoop", root.join("open")).unwrap();
    for path in [".ailoop/credentials.json", "open/credentials.json", "./.ailoop/../.ailoop/credentials.json"] {
        assert!(project.read(json!({"path": path})).unwrap_err().contains("is refused"), "{path}");
        assert!(!project.search(json!({"pattern": "token", "path": path})).is_ok_and(|found| found["total"] != 0));
    }
}

fn write_to(files: &Workspace, path: &str, content: &str) -> Result<Value, String> {
    let arguments = args(json!({"path": path, "content": content}));
    write::write(files, &arguments).map_err(|error| error.message().to_owned())
}

#[test]
fn write_below_out_never_overwrites_foreign_files() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("made/out");
    let root = dir.path().join("project");
    fs::create_dir(&root).unwrap();
    let out = workspace(&root, Some(&at));
    assert_eq!(write_to(&out, "./plans/a.md", "one").unwrap(), json!({"path": "plans/a.md", "bytes": 3}));
    assert_eq!(fs::read_to_string(at.join("plans/a.md")).unwrap(), "one");
    write_to(&out, "plans/a.md", "two").unwrap();
    // The list outlives the process.
    let out = workspace(&root, Some(&at));
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
fn write_through_a_link_out_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (at, outside, root) = (dir.path().join("out"), dir.path().join("outside"), dir.path().join("project"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&root).unwrap();
    let out = workspace(&root, Some(&at));
    symlink(&outside, at.join("way")).unwrap();
    symlink(outside.join("file"), at.join("file")).unwrap();
    for path in ["way/x", "way/deep/x", "file"] {
        assert!(write_to(&out, path, "x").is_err(), "{path}");
    }
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}

#[test]
fn root_missing_error_names_it() {
    let config = FilesConfig { root: Path::new("/no/such/place").to_owned(), out: None, login: None };
    match Workspace::open(&config) {
        Err(error @ HostError::Directory { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with("tool_host.files.root \"/no/such/place\" cannot be used"), "{text}");
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
    let found = search::search(&project.files, &args(json!({"pattern": "secret"}))).unwrap();
    assert_eq!(found["total"], 0, "{found}");
    assert!(project.read(json!({"path": "docs/a.md"})).is_ok());
}

/// A project, an output directory, and the tools over both.
struct Both {
    project: Project,
    out: std::path::PathBuf,
}

fn both() -> Both {
    let project = project();
    let out = project.dir.path().join("out");
    let files = workspace(&project.dir.path().join("project"), Some(&out));
    Both { project: Project { files, ..project }, out }
}

#[test]
fn written_file_is_read_listed_and_found_by_the_path_of_the_result() {
    let Both { project, out } = both();
    let written = write_to(&project.files, "./plans/a.md", "# Hello, plan\n").unwrap();
    let path = written["path"].as_str().unwrap();
    let read = project.read(json!({"path": path})).unwrap();
    let expected = json!({"path": "plans/a.md", "lines": 1, "bytes": 14, "content": "# Hello, plan\n", "truncated": false,
        "written": true});
    assert_eq!(read, expected);
    let all = project.list(json!({}));
    let paths: Vec<&str> = all["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["Makefile", "docs/a.md", "image.png", "plans/a.md", "src/lib.rs", "src/main.rs"]);
    assert_eq!(all["files"][3], json!({"path": "plans/a.md", "bytes": 14, "written": true}));
    assert_eq!((&all["total"], &all["total_bytes"], &all["by_extension"]["md"]), (&json!(6), &json!(83), &json!(2)));
    // A directory that only the written files have.
    let part = project.list(json!({"path": "plans"}));
    assert_eq!((&part["total"], &part["files"][0]["path"]), (&json!(1), &json!("plans/a.md")));
    for path in [json!(null), json!("plans"), json!("plans/a.md")] {
        let found = project.search(json!({"pattern": "Hello, plan", "path": path})).unwrap();
        let expected = json!([{"path": "plans/a.md", "line": 1, "text": "# Hello, plan"}]);
        assert_eq!((&found["matches"], &found["files"]), (&expected, &json!(1)), "{path}");
    }
    // Another process, another session.
    let other = workspace(&project.files.project.path, Some(&out));
    let again = read::read(&other, &args(json!({"path": path}))).unwrap();
    assert_eq!(again["content"], "# Hello, plan\n");
}

#[test]
fn written_file_replaces_the_one_of_the_project() {
    let Both { project, out } = both();
    write_to(&project.files, "src/lib.rs", "// written\n").unwrap();
    assert_eq!(project.read(json!({"path": "src/lib.rs"})).unwrap()["content"], "// written\n");
    assert_eq!(project.read(json!({"path": "inside.rs"})).unwrap()["content"], "// written\n", "through a link");
    assert_eq!(fs::read_to_string(project.files.project.path.join("src/lib.rs")).unwrap(), "// hello\n");
    let listed = project.list(json!({"path": "src"}));
    assert_eq!(listed["files"][0], json!({"path": "src/lib.rs", "bytes": 11, "written": true}));
    assert_eq!(listed["total"], 2);
    assert_eq!(project.search(json!({"pattern": "// (hello|written)"})).unwrap()["total"], 1);
    // When it is removed, the project's file is there again.
    fs::remove_file(out.join("src/lib.rs")).unwrap();
    assert_eq!(project.read(json!({"path": "src/lib.rs"})).unwrap()["content"], "// hello\n");
    // A name that is a directory here and a file there would have two meanings.
    for path in ["src", "Makefile/x"] {
        assert!(write_to(&project.files, path, "x").unwrap_err().contains("of the project"), "{path}");
    }
}

#[test]
fn read_tools_see_only_written_files_of_the_output_directory() {
    let Both { project, out } = both();
    write_to(&project.files, "mine.md", "hello\n").unwrap();
    let secret = project.dir.path().join("secret.txt");
    fs::write(out.join("theirs.md"), "hello secret\n").unwrap();
    fs::create_dir(out.join("deep")).unwrap();
    symlink(&secret, out.join("link.md")).unwrap();
    symlink("/etc", out.join("etc")).unwrap();
    fs::hard_link(&secret, out.join("hard.md")).unwrap();
    // Lines that no write has made lead nowhere either.
    let lines = "mine.md\nlink.md\nhard.md\netc/passwd\n../secret.txt\n/etc/passwd\n.\n./mine.md\n\ndeep\n";
    fs::write(out.join(".ailoop-written"), lines).unwrap();
    for path in ["theirs.md", "link.md", "hard.md", "etc/passwd", "../out/mine.md", "../secret.txt", ".ailoop-written"]
    {
        let refused = project.read(json!({"path": path}));
        assert!(refused.is_err(), "{path}: {refused:?}");
    }
    let listed = project.list(json!({}));
    let written = listed["files"].as_array().unwrap().iter().filter(|file| file["written"] == true);
    let written: Vec<&str> = written.map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(written, ["hard.md", "mine.md"]);
    assert_eq!(project.search(json!({"pattern": "secret"})).unwrap()["total"], 0);
}

#[test]
fn output_directory_within_the_project_lists_each_file_once() {
    let project = project();
    let root = project.files.project.path.clone();
    for out in ["results/out", ""] {
        let files = workspace(&root, Some(&root.join(out)));
        let name = format!("new{}.md", out.len());
        write_to(&files, &name, "x").unwrap();
        let all = list::list(&files, &args(json!({}))).unwrap();
        let paths: Vec<&str> =
            all["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(paths.iter().filter(|path| path.ends_with(&name)).collect::<Vec<_>>(), [&name], "{paths:?}");
    }
    // Above the project: what else is there stays out of sight.
    let above = workspace(&root, Some(project.dir.path()));
    write_to(&above, "note.md", "x").unwrap();
    assert_eq!(read::read(&above, &args(json!({"path": "note.md"}))).unwrap()["content"], "x");
    assert!(read::read(&above, &args(json!({"path": "secret.txt"}))).is_err());
}

#[test]
fn hosts_that_share_a_directory_lose_no_file() {
    let Both { project, out } = both();
    let root = &project.files.project.path;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let out = &out;
            scope.spawn(move || {
                let files = workspace(root, Some(out));
                for n in 0..25 {
                    write_to(&files, &format!("notes/{writer}-{n}.md"), &format!("{writer} {n}")).unwrap();
                }
            });
        }
    });
    let listed = project.list(json!({"path": "notes"}));
    assert_eq!(listed["total"], 100);
    for writer in 0..4 {
        let read = project.read(json!({"path": format!("notes/{writer}-24.md")})).unwrap();
        assert_eq!(read["content"], format!("{writer} 24"));
    }
}
