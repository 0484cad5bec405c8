//! Warnings are returned and logged. The test has its own process, since the subscribers of others affect what a thread
//! logs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::world::{World, features, request};
use contract::compose::ComposeRequest;

/// Collects what a subscriber writes.
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

#[test]
fn warnings_are_in_the_reply_and_in_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let compose_request = ComposeRequest {
            features: features(&["nothing"], &["core"]),
            parameters: BTreeMap::new(),
            ..request(Some("y"), Some("big"))
        };
        let world = World::new();
        world.write("mine/default.md", "I {{{what}}}.");
        let composed = world.composed(&compose_request);
        let expect = [
            "there is no prompt agents/missing.md; default.md takes its place",
            "there is no feature \"nothing\"",
            "the feature core cannot be switched off",
            "{{{what}}} has no value",
        ];
        assert_eq!(composed.warnings, expect);
        assert!(composed.prompt.starts_with("I {{{what}}}.\n\n## CORE INSTRUCTIONS"));
        let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        for warning in expect {
            let in_a_line = |line: &str| line.contains("WARN") && line.contains(&warning.replace('"', "\\\""));
            assert!(logged.lines().any(in_a_line), "{warning}: {logged}");
        }
    });
}
