//! The inputs of the corpus, with a stable toolchain.

#![allow(clippy::unwrap_used, reason = "tests may")]

use std::fs;
use std::path::Path;

/// Beyond this a corpus is no longer small; `make lab NAME=fuzz` says how to make it smaller.
const FILES_MAX: usize = 200;
const BYTES_MAX: u64 = 4 << 10;

#[test]
fn properties_hold_for_the_kept_corpus() {
    for (name, property) in properties::ALL {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let files: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!((1..=FILES_MAX).contains(&files.len()), "{name} has {} files", files.len());
        for file in files {
            assert!(file.metadata().unwrap().len() <= BYTES_MAX, "{} is large", file.display());
            property(&fs::read(&file).unwrap());
        }
    }
}
