//! What is read again when its files change: as one set, and with word of it in logs, metrics and readiness.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use service::ConfigError;
use service::files::Pass;
use service::health::Readiness;
use service::models::{self, ModelsFile};
use service::paths::Paths;
use service::reload::{Look, Reload};

fn paths(dir: &Path, pass: &Pass) -> Paths {
    Paths::find_in(pass, Some(dir)).unwrap()
}

#[test]
fn what_changes_while_it_is_read_is_read_again() {
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

/// What a subscriber writes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

#[test]
fn what_is_broken_is_told_in_log_metric_and_readiness_and_so_is_its_mending() {
    let _telemetry = telemetry::init("test", &telemetry::Config::default()).unwrap();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(models::FILE);
        let good = "providers: {p: {kind: scripted, script: s}}\n";
        fs::write(&file, good).unwrap();
        let (at, readiness) = (dir.path().to_owned(), Readiness::new("gateway"));
        let read = move |pass: &Pass, _: Option<&ModelsFile>| -> Result<ModelsFile, ConfigError> {
            models::load(&paths(&at, pass))
        };
        let reload = Reload::start("gateway", readiness.clone(), read).unwrap();
        readiness.set(true);

        let says = |expect: &[&str]| {
            let said = log.take();
            assert!(expect.iter().all(|word| said.contains(word)), "{expect:?}: {said}");
        };
        let counts = |metric: &str, row: &str| {
            let shown = telemetry::metric::render();
            let is = |line: &str| line.starts_with(&format!("{metric}{{")) && line.ends_with(row);
            assert!(shown.lines().any(is), "{metric} {row}: {shown}");
        };
        let broken = |value: u8| counts("ailoop_config_broken", &format!("part=\"gateway\"}} {value}"));
        let reloads = |outcome: &str, value: u8| {
            counts("ailoop_config_reloads_total", &format!("outcome=\"{outcome}\",part=\"gateway\"}} {value}"));
        };
        fs::write(&file, "providers:\n  p: {kind: scripted}\n").unwrap();
        assert!(matches!(reload.refresh(), Look::Broken(_)));
        let place = format!("{}:2:13: provider p needs a script", file.display());
        says(&["WARN", &place, "the last good configuration stays in use", "part=\"gateway\""]);
        broken(1);
        reloads("broken", 1);
        assert_eq!(reload.get().providers["p"].script.as_deref(), Some("s"));
        let (part, warning) = readiness.warnings().next().unwrap();
        assert!(part == "gateway" && warning.starts_with(&place), "{warning}");
        assert!(readiness.is_ready(), "a warning is no failure");

        fs::write(&file, "providers:\n  p: {kind: scripted, script: }\n").unwrap();
        assert!(matches!(reload.refresh(), Look::Broken(_)));
        says(&["WARN"]);
        broken(1);
        reloads("broken", 2);

        fs::write(&file, good).unwrap();
        assert_eq!(reload.refresh(), Look::Taken);
        says(&["INFO", "the configuration is good again, and in use"]);
        broken(0);
        reloads("taken", 1);
        assert_eq!(readiness.warnings().count(), 0);

        fs::write(&file, format!("# The same.\n{good}")).unwrap();
        assert_eq!(reload.refresh(), Look::Taken);
        says(&["INFO", "the configuration changed, and is in use"]);
    });
}

#[test]
fn what_is_in_no_file_never_changes() {
    let reload = Reload::fixed("none", 7);
    assert_eq!((reload.refresh(), reload.settle(), *reload.get()), (Look::Unchanged, Look::Unchanged, 7));
}
