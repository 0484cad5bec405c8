//! The protobuf file: the committed one is that of the table, and numbers of fields stay.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::path::Path;

use session_api::protobuf;

#[test]
#[allow(clippy::disallowed_methods, reason = "the variable that writes golden files in every package")]
fn committed_file_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/ailoop/v2/ailoop.proto");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let current = protobuf::file(&committed);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, current).unwrap();
        return;
    }
    assert!(current == committed, "run UPDATE_GOLDEN=1 cargo test -p session-api, then -p ailoop-proto");
}

#[test]
fn field_keeps_its_number_and_one_that_is_gone_reserves_it() {
    let committed = "message StatsList {\n  repeated AgentStats stats = 7;\n  string was = 9;\n}\n";
    let once = protobuf::file(committed);
    assert!(once.contains("  repeated AgentStats stats = 7;\n"));
    assert!(once.contains("  // was\n  reserved 9;\n") && once.contains(" = 10;\n"), "{once}");
    assert_eq!(protobuf::file(&once), once);
}
