//! Word of configuration that cannot be used. Alone in its process, since what a thread logs depends on what others
//! listen to.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use configuration::ConfigError;
use configuration::Paths;
use configuration::files::Pass;
use configuration::models::{self, ModelsFile};
use service::health::Readiness;
use service::reload::{Look, Reload};

fn paths(dir: &Path, pass: &Pass) -> Paths {
    Paths::find_in(pass, Some(dir)).unwrap()
}

/// Text that a subscriber writes.
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
fn broken_file_is_reported_in_log_metric_and_readiness_until_repaired() {
    if !crate::own_process::is_alone(
        "reload_warnings::broken_file_is_reported_in_log_metric_and_readiness_until_repaired",
    ) {
        return;
    }
    let _telemetry = telemetry::init("test", &telemetry::TelemetryConfig::default()).unwrap();
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
            let logged = log.take();
            assert!(expect.iter().all(|word| logged.contains(word)), "{expect:?}: {logged}");
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
