//! Files are read again as one set when they change.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use configuration::Paths;
use configuration::files::Pass;
use service::health::Readiness;
use service::reload::{Look, Reload};

fn paths(dir: &Path, pass: &Pass) -> Paths {
    Paths::find_in(pass, Some(dir)).unwrap()
}

#[test]
fn file_changed_while_read_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let write = |dir: &Path, word: &str| {
        fs::write(dir.join("a.txt"), word).unwrap();
        fs::write(dir.join("b.txt"), word).unwrap();
    };
    write(dir.path(), "one");
    let (at, readings) = (dir.path().to_owned(), Arc::new(AtomicUsize::new(0)));
    let counted = readings.clone();
    let reload = Reload::start("pair", Readiness::new("pair"), move |pass, before: Option<&(String, String)>| {
        let reading = counted.fetch_add(1, Ordering::Relaxed);
        let paths = paths(&at, pass);
        let a = paths.read("a.txt")?.text;
        if reading == 1 {
            // Between the two files another version comes.
            write(&at, "three");
        }
        assert_eq!(before.is_some(), reading > 0, "what is in use is there to be kept");
        Ok((a, paths.read("b.txt")?.text))
    })
    .unwrap();
    write(dir.path(), "twice");
    assert_eq!(reload.refresh(), Look::Taken);
    assert_eq!(*reload.get(), ("three".to_owned(), "three".to_owned()), "never one of each");
    assert_eq!(readings.load(Ordering::Relaxed), 3);
    assert_eq!(reload.refresh(), Look::Unchanged);
}

#[test]
fn fixed_value_never_changes() {
    let reload = Reload::fixed("none", 7);
    assert_eq!((reload.refresh(), reload.settle(), *reload.get()), (Look::Unchanged, Look::Unchanged, 7));
}
