//! Configuration files.

use std::time::Duration;

use configuration::TextFile;
use configuration::continuation::{Layer, Layers, resolve};
use configuration::models;
use contract::{AgentId, limits};
use prompt_composer::agents;
use rustix::time::{ClockId, clock_gettime};

/// CPU time that no file of this size takes, not even when it is checked by sanitizers.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Reading agents never panics and ends in time; an accepted agent has settings that sessions can use.
pub fn agents(data: &[u8]) {
    let file = file(data, agents::FILE);
    let Ok(read) = in_time(|| agents::parse(&file)) else { return };
    let none = Layer::default();
    for agent in read.all() {
        let layers = Layers {
            model: &none,
            is_model_over_agent: false,
            agent: &agent.continuation,
            tenant: &none,
            session_template: None,
        };
        let settings = resolve(&layers.stack(read.templates()).unwrap_or_default());
        assert_eq!(read.find(Some(&agent.id)).ok(), Some(agent));
        assert!((1..=limits::ITERATIONS_MAX).contains(&settings.max_iterations));
        assert!(settings.timeout > 0);
        let lists = [&settings.continuation_patterns, &settings.termination_patterns];
        assert!(lists.iter().all(|list| list.len() <= reply::PATTERNS_MAX), "{settings:?}");
        assert!(!agent.prompt.contains(['/', '\\']), "{:?}", agent.prompt);
    }
    for name in [None, AgentId::new("e").ok(), AgentId::new("nobody").ok()] {
        if let Err(error) = read.find(name.as_ref()) {
            assert!(!error.is_empty());
        }
    }
}

/// Reading models never panics and ends in time; an accepted model has the provider that it names.
pub fn models(data: &[u8]) {
    let file = file(data, models::FILE);
    let Ok(read) = in_time(|| models::parse(&file)) else { return };
    let ids = read.models.keys().cloned().chain(["gpt-5".to_owned(), "local/any".to_owned(), String::new()]);
    for id in ids {
        match read.resolve(&id) {
            Ok(resolved) => {
                assert_eq!(read.providers.get(&resolved.provider), Some(&resolved.provider_entry));
                assert!(resolved.settings().max_parallel_tools >= 1);
            }
            Err(unknown) => assert!(!read.models.contains_key(&id), "{unknown}"),
        }
    }
}

fn file(data: &[u8], name: &str) -> TextFile {
    TextFile { origin: name.to_owned(), text: String::from_utf8_lossy(data).into_owned() }
}

/// Formatting the error is part of the measured time.
fn in_time<T, E: ToString>(read: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    let began = cpu_time();
    let read = read().map_err(|error| error.to_string());
    let took = cpu_time().saturating_sub(began);
    assert!(took < TIME_MAX, "it took {took:?}");
    read
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
