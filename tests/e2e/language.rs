//! The language of the repository: words that nobody uses any more, names that stand for several things, lines that are
//! too long. What is known to break a rule is counted in `language.txt`, and only gets less.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, ensure};
use regex::Regex;

/// Words that no identifier has as a part, and what is written instead.
const BANNED: &[(&str, &str)] = &[
    ("bury", "write_dead_letter"),
    ("fades", "expires"),
    ("hear", "receive, match"),
    ("heard", "received, notification"),
    ("knock", "credentials"),
    ("lighten", "to_tombstone"),
    ("said", "description, answer"),
    ("told", "reported, notified"),
    ("trouble", "failure, health"),
    ("whoever", "the noun that is meant"),
];
/// Participles that are no names of types; a type is a noun.
const PARTICIPLES: &[&str] = &[
    "Asked", "Fed", "Given", "Gone", "Heard", "Kept", "Left", "Offered", "Posted", "Ran", "Said", "Seen", "Sent",
    "Shown", "Taken", "Told",
];
/// Packages in which a public type of one name may be defined.
const PACKAGES_PER_NAME: usize = 2;
/// Characters of a line of a page, outside tables and code.
const LINE_CHARS_MAX: usize = 120;
/// Words of a doc comment that only repeats a name.
const DOC_WORDS: usize = 3;
/// Words with which no doc comment begins: it begins with a noun or a verb.
const RELATIVES: &[&str] =
    &["How", "Of", "That of", "Those of", "What", "When", "Where", "Which", "Who", "Whom", "Whose", "Why"];
/// Nouns of the glossary.
const NOUNS_MAX: usize = 60;
/// Path of the file with the counts.
const COUNTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/language.txt");

static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    let strings = r###"(?s:r##".*?"##|r#".*?"#|r"[^"]*"|"(?:\\.|[^"\\])*")"###;
    let rest = r"(?P<comment>//[^\n]*)|'(?:\\[^u]|\\u\{[0-9a-fA-F]+\}|[^'\\])'|(?P<word>[A-Za-z_][A-Za-z0-9_]*)";
    Regex::new(&format!("{strings}|{rest}")).expect("a pattern of this file")
});
static TYPE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^\s*(?P<public>pub(?:\([a-z]+\))? )?(?:struct|enum|trait|type) (?P<name>[A-Z]\w*)")
        .expect("a pattern of this file")
});

/// Findings by rule, each with where it is.
type Findings = BTreeMap<String, Vec<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files below the directories of the repository whose names end so, by their paths.
fn files(extension: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut open: Vec<PathBuf> =
        ["crates", "services", "tests", "docs", "proto", "examples"].iter().map(|dir| root().join(dir)).collect();
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        found.insert(page.to_owned(), std::fs::read_to_string(root().join(page))?);
    }
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !matches!(name, "target" | "node_modules" | "golden") && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let relative = path.strip_prefix(root())?.display().to_string();
                found.insert(relative, std::fs::read_to_string(&path)?);
            }
        }
    }
    found.retain(|path, _| path.ends_with(extension) && !path.ends_with("/generated.rs"));
    Ok(found)
}

/// The parts of an identifier in lower case: `TellChild`, `tell_child`.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut begins = true;
    for c in identifier.chars() {
        if c == '_' {
            begins = true;
            continue;
        }
        if begins || c.is_uppercase() {
            parts.push(String::new());
        }
        begins = false;
        if let Some(last) = parts.last_mut() {
            last.extend(c.to_lowercase());
        }
    }
    parts
}

/// Finds violations of the rules in a file of code.
fn in_code(path: &str, text: &str, findings: &mut Findings) {
    let mut find = |rule: String, at: usize| {
        let line = text[..at].matches('\n').count() + 1;
        findings.entry(rule).or_default().push(format!("{path}:{line}"));
    };
    for token in TOKEN.captures_iter(text) {
        if let Some(word) = token.name("word") {
            let parts = parts(word.as_str());
            for (banned, _) in BANNED.iter().filter(|(banned, _)| parts.iter().any(|part| part == banned)) {
                find(format!("identifier {banned}"), word.start());
            }
        } else if let Some(comment) = token.name("comment")
            && let Some(doc) = comment.as_str().strip_prefix("///").or_else(|| comment.as_str().strip_prefix("//!"))
        {
            let mark = &comment.as_str()[..3];
            let is_doc = |line: Option<&str>| line.is_some_and(|line| line.trim_start().starts_with(mark));
            let before = text[..comment.start()].trim_end_matches([' ', '\t']).trim_end_matches('\n');
            let (is_first, is_last) =
                (!is_doc(before.lines().next_back()), !is_doc(text[comment.end()..].lines().nth(1)));
            // A comment of several lines is no short one.
            if mark == "///" && is_first && is_last && doc.split_whitespace().count() <= DOC_WORDS {
                find("doc comment of three words or fewer".to_owned(), comment.start());
            }
            if is_first && RELATIVES.iter().any(|word| doc.trim_start().starts_with(&format!("{word} "))) {
                find("doc comment that begins with a relative".to_owned(), comment.start());
            }
        }
    }
    for (at, _) in text.match_indices("else if let Event::") {
        find("else if let Event".to_owned(), at);
    }
    for found in TYPE.captures_iter(text) {
        let name = &found["name"];
        if PARTICIPLES.contains(&name) {
            find(format!("type {name}"), found.get(0).map_or(0, |all| all.start()));
        }
    }
}

/// Finds violations of the rules in a page.
fn in_page(path: &str, text: &str, findings: &mut Findings) {
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_free = is_code || is_fence || line.trim_start().starts_with(['|', '#']);
        if !is_free && line.chars().count() > LINE_CHARS_MAX {
            findings.entry("line over 120 characters".to_owned()).or_default().push(format!("{path}:{}", number + 1));
        }
    }
}

/// Names of public types that are defined in too many packages.
fn shared_names(code: &BTreeMap<String, String>, findings: &mut Findings) {
    let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in code.iter().filter(|(path, _)| path.contains("/src/")) {
        let package = path.split("/src/").next().unwrap_or_default();
        for found in TYPE.captures_iter(text).filter(|found| found.name("public").is_some()) {
            packages.entry(found["name"].to_owned()).or_default().insert(package.to_owned());
        }
    }
    for (name, packages) in packages.into_iter().filter(|(_, packages)| packages.len() > PACKAGES_PER_NAME) {
        findings.insert(format!("public type {name} in several packages"), packages.into_iter().collect());
    }
}

/// Reads the known counts, by rule.
fn counts() -> anyhow::Result<BTreeMap<String, usize>> {
    let line = |line: &str| {
        let (count, rule) = line.split_once(' ').context("a line is a count and a rule")?;
        Ok((rule.to_owned(), count.parse()?))
    };
    std::fs::read_to_string(COUNTS)?.lines().filter(|text| !text.starts_with('#')).map(line).collect()
}

#[test]
fn language_has_no_more_exceptions_than_are_known() -> anyhow::Result<()> {
    let (code, pages) = (files("rs")?, files("md")?);
    let mut findings = Findings::new();
    for (path, text) in code.iter().filter(|(path, _)| !path.ends_with("e2e/language.rs")) {
        in_code(path, text, &mut findings);
    }
    for (path, text) in &pages {
        in_page(path, text, &mut findings);
    }
    shared_names(&code, &mut findings);
    if configuration::env("UPDATE_LANGUAGE").is_some() {
        let lines = findings.iter().map(|(rule, places)| format!("{} {rule}\n", places.len()));
        let head =
            "# How often each rule of language.rs is broken. A count only gets less; UPDATE_LANGUAGE=1 writes them.\n";
        std::fs::write(COUNTS, head.to_owned() + &lines.collect::<String>())?;
        return Ok(());
    }
    let known = counts()?;
    for (rule, places) in &findings {
        let allowed = known.get(rule).copied().unwrap_or_default();
        let instead = BANNED.iter().find(|(word, _)| rule.ends_with(word)).map_or("", |(_, instead)| instead);
        ensure!(
            places.len() <= allowed,
            "{rule}: {} places, {allowed} are known; {instead}\n{}",
            places.len(),
            places.join("\n")
        );
    }
    for (rule, allowed) in known {
        let found = findings.get(&rule).map_or(0, Vec::len);
        ensure!(found == allowed, "{rule}: only {found} places are left; run this test with UPDATE_LANGUAGE=1");
    }
    Ok(())
}

#[test]
fn planted_example_of_each_rule_is_found() {
    let found = |text: &str| {
        let mut findings = Findings::new();
        in_code("a.rs", text, &mut findings);
        findings.into_keys().collect::<Vec<_>>()
    };
    for (banned, _) in BANNED {
        assert_eq!(found(&format!("fn {banned}_it() {{}}")), [format!("identifier {banned}")]);
    }
    assert_eq!(found("let x = WasToldOf;"), ["identifier told"]);
    assert!(found("// told\nlet retold = \"told\"; let c = 'x'; let r = r#\"told\"#;").is_empty());
    assert_eq!(found("/// Its id.\nid: u64,"), ["doc comment of three words or fewer"]);
    assert!(found("/// Its id.\n/// It is unique within its tenant.\nid: u64,").is_empty());
    assert_eq!(found("/// What the model has to read."), ["doc comment that begins with a relative"]);
    assert_eq!(found("//! Where everything is, and why."), ["doc comment that begins with a relative"]);
    assert!(found("/// Text for a model.\n/// What follows is cut.\n// Why not?\nx: u8,").is_empty());
    assert_eq!(found("if let A = b {} else if let Event::B(c) = d {}"), ["else if let Event"]);
    assert_eq!(found("pub struct Kept(u8);"), ["type Kept"]);

    let mut findings = Findings::new();
    let long = "x ".repeat(61);
    in_page("a.md", &format!("{long}\n| {long} |\n# {long}\n```\n{long}\n```\nshort\n"), &mut findings);
    assert_eq!(findings["line over 120 characters"], ["a.md:1"]);

    let mut findings = Findings::new();
    let code = ["crates/a", "crates/b", "services/c"]
        .map(|package| (format!("{package}/src/lib.rs"), "pub struct Line;\nstruct Own;".to_owned()));
    shared_names(&BTreeMap::from(code), &mut findings);
    assert_eq!(findings.into_keys().collect::<Vec<_>>(), ["public type Line in several packages"]);
}

#[test]
fn glossary_names_types_that_exist() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(root().join("docs/glossary.md"))?;
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'))
        .map(|row| row.split('|').map(str::trim).collect())
        .filter(|row: &Vec<&str>| row.first() != Some(&"word"))
        .collect();
    let words: BTreeSet<&str> = rows.iter().filter_map(|row| row.first().copied()).collect();
    ensure!(words.len() == rows.len(), "a word stands there twice");
    ensure!((30..=NOUNS_MAX).contains(&words.len()), "{} words", words.len());
    let code = files("rs")?;
    for row in &rows {
        let Some(path) = row.get(2).map(|cell| cell.trim_matches('`')).filter(|path| !path.is_empty()) else {
            continue;
        };
        let (package, name) =
            (path.split("::").next().unwrap_or_default(), path.rsplit("::").next().unwrap_or_default());
        let defines = Regex::new(&format!(r"(?:struct|enum|trait|type)\s+{name}\b|^\s*{name}[,:(]"))?;
        let within = format!("crates/{package}/src/");
        let is_there = code
            .iter()
            .any(|(file, text)| file.starts_with(&within) && text.lines().any(|line| defines.is_match(line)));
        ensure!(is_there, "{}: there is no type {path}", row[0]);
    }
    Ok(())
}
