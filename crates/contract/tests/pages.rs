//! The reference pages say what the code says: every limit with its value, every error code, every example of a
//! message, and every test that a page names. `UPDATE_PAGES=1` writes the examples anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::BTreeSet;

use contract::ErrorCode;
use contract::command::Verb;
use contract::event::Topic;
use contract::streams::{Bucket, Objects, Queue, Stream};
use support::{examples, limits, page, pages, rows};

#[test]
fn limits_page_has_every_limit_with_its_value() {
    let listed = rows(&page("docs/reference/limits.md"));
    let mut wanted = BTreeSet::new();
    for (name, value) in limits::all(&page("crates/contract/src/limits.rs")) {
        let name = format!("`{name}`");
        let row = listed.iter().find(|row| row[0] == name);
        let row = row.unwrap_or_else(|| panic!("{name} ({value}) is missing from docs/reference/limits.md"));
        assert_eq!(row[1], value, "{name}");
        wanted.insert(name);
    }
    // Rows of other crates' limits name their place in front: `edge_core::client_queue::CLIENT_BYTES_MAX`.
    let ours = |name: &str| name.starts_with('`') && name == name.to_uppercase();
    for row in listed.iter().filter(|row| ours(&row[0])) {
        assert!(wanted.contains(&row[0]), "{} is on the page and not in contract::limits", row[0]);
    }
}

#[test]
fn errors_page_has_exactly_the_error_codes() {
    let codes: BTreeSet<String> = ErrorCode::ALL.iter().map(|code| format!("`{code}`")).collect();
    let listed: BTreeSet<String> = rows(&page("docs/reference/errors.md"))
        .into_iter()
        .map(|row| row[0].clone())
        .filter(|cell| cell.starts_with('`'))
        .collect();
    assert_eq!(listed, codes);
}

#[test]
fn protocol_page_names_everything_on_the_bus() {
    let text = page("docs/reference/protocol.md");
    let streams = Stream::ALL.iter().flat_map(|stream| [stream.name()].into_iter().chain(stream.subjects().to_vec()));
    let names = streams
        .chain(Queue::ALL.iter().map(|queue| queue.durable()))
        .chain(Bucket::ALL.iter().map(|bucket| bucket.name()))
        .chain(Objects::ALL.iter().map(|store| store.name()))
        .chain(Topic::ALL.iter().map(|topic| topic.as_str()))
        .chain(Verb::ALL.iter().map(|verb| verb.as_str()));
    for name in names {
        assert!(text.contains(&format!("`{name}`")), "`{name}` is missing from docs/reference/protocol.md");
    }
}

#[test]
fn protocol_page_examples_match_the_code() {
    examples::check("docs/reference/protocol.md");
}

#[test]
fn pages_links_and_named_tests_exist() {
    let mut wrong = Vec::new();
    for (name, text) in pages() {
        for (label, target) in support::links(&text) {
            if target.starts_with("https://") || target.starts_with('#') {
                continue;
            }
            let file = target.split('#').next().unwrap_or_default();
            let path = support::root().join(&name).parent().unwrap().join(file);
            let Ok(source) =
                std::fs::read(&path).or_else(|error| if path.is_dir() { Ok(Vec::new()) } else { Err(error) })
            else {
                wrong.push(format!("{name}: {target} is not there"));
                continue;
            };
            // A link whose text is one word in backticks names a test or function of the file that it leads to.
            let item = label.trim_matches('`');
            let named = label.starts_with('`') && item.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if named && path.extension().is_some_and(|extension| extension == "rs") {
                let source = String::from_utf8_lossy(&source);
                let forms = [format!("fn {item}("), format!("fn {item}<"), format!("::{item},")];
                if !forms.iter().any(|form| source.contains(form)) {
                    wrong.push(format!("{name}: {file} has no {item}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
