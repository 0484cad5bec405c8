//! Changes on the disk are used without a restart, and broken files are not. No test waits: each refresh is a call.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use contract::compose::{ComposeReply, ComposeRequest, Composed};
use contract::ids::TenantId;
use prompt_composer::{Catalog, ComposerConfig};
use service::health::Readiness;
use service::reload::{Look, Reload};
use tempfile::TempDir;

const AGENTS: &str = "default_agent: x\nagents:\n  x: {name: Xaver, prompt_file: x.md}\n";
const MODELS: &str = "default: m\nproviders: {p: {kind: scripted, script: s}}\nmodels: {m: {provider: p}}\n";

struct World {
    dir: TempDir,
    readiness: Readiness,
    catalog: Arc<Reload<Catalog>>,
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        for (name, text) in [
            ("agents.yaml", AGENTS),
            ("models.yaml", MODELS),
            ("ailoop.yaml", "composer: {features: []}\n"),
            ("mine/agents/x.md", "I am the first."),
            ("mine/shared/zoo.md", "The zoo."),
        ] {
            write(&dir, name, text);
        }
        Self::over(dir)
    }

    fn over(dir: TempDir) -> Self {
        let config = ComposerConfig {
            config_dir: Some(dir.path().to_owned()),
            prompts_dir: Some(dir.path().join("mine")),
            watched_config_dir: Some(dir.path().to_owned()),
            ..ComposerConfig::default()
        };
        let readiness = Readiness::new("composer");
        let catalog = Catalog::watch(config, readiness.clone()).unwrap();
        Self { dir, readiness, catalog }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        write(&self.dir, name, text);
    }

    fn composed(&self) -> Composed {
        let request = serde_json::json!({"tenant": TenantId::default()});
        let request: ComposeRequest = serde_json::from_value(request).unwrap();
        // Serialised, like a request to the service: a reply of the catalog before must not be returned.
        let answer = self.catalog.get().compose_bytes(&serde_json::to_vec(&request).unwrap().into(), None).unwrap();
        match serde_json::from_slice(&answer).unwrap() {
            ComposeReply::Composed(composed) => *composed,
            ComposeReply::Refused { code, message } => panic!("{code}: {message}"),
        }
    }

    fn expect_prompt(&self, begin: &str) {
        let prompt = self.composed().prompt;
        assert!(prompt.starts_with(begin), "{prompt}");
    }

    fn warning(&self) -> Option<String> {
        self.readiness.warnings().next().map(|(_, warning)| warning)
    }

    /// Expects a refused change with this warning, while the last good catalog stays in use.
    fn expect_broken(&self, expect: &str) {
        let before = self.composed();
        let Look::Broken(warning) = self.catalog.refresh() else { panic!("used, though it is broken: {expect}") };
        assert!(warning.contains(expect), "got:    {warning}\nexpect: {expect}");
        assert!(warning.ends_with("the last good configuration stays in use"), "{warning}");
        assert_eq!(self.warning(), Some(warning));
        assert_eq!(self.catalog.refresh(), Look::Unchanged, "the warning is logged once");
        assert_eq!(self.composed(), before);
    }

    fn expect_reloaded(&self) {
        assert_eq!(self.catalog.refresh(), Look::Taken);
        assert_eq!(self.warning(), None);
        assert_eq!(self.catalog.refresh(), Look::Unchanged);
    }
}

fn write(dir: &TempDir, name: &str, text: &str) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn file_changed_added_or_removed_is_used_by_the_next_session() {
    let world = World::new();
    assert_eq!(world.catalog.refresh(), Look::Unchanged);
    world.expect_prompt("I am the first.");

    world.write("mine/agents/x.md", "I am the second.");
    world.expect_prompt("I am the first.");
    world.expect_reloaded();
    world.expect_prompt("I am the second.");

    world.write("agents.yaml", &AGENTS.replace("Xaver", "Yves").replace("x.md", "y.md"));
    world.write("mine/agents/y.md", "I am {{{agent_name}}}.");
    world.expect_reloaded();
    world.expect_prompt("I am Yves.");

    world.write("models.yaml", &MODELS.replace("{provider: p}", "{provider: p, multi_tool: true}"));
    world.expect_reloaded();
    assert!(world.composed().model.multi_tool);

    assert!(!world.composed().prompt.contains("The zoo."));
    world.write("ailoop.yaml", "composer: {features: [zoo]}\n");
    world.expect_reloaded();
    assert!(world.composed().prompt.contains("## ZOO INSTRUCTIONS\n\nThe zoo."));

    fs::remove_file(world.path("mine/shared/zoo.md")).unwrap();
    world.expect_reloaded();
    assert_eq!(world.composed().warnings, ["there is no feature \"zoo\""]);
}

#[test]
fn file_broken_last_good_catalog_stays_in_use_until_it_is_fixed() {
    let world = World::new();
    // Files are used together: the good new prompt waits for the agents.
    world.write("mine/agents/x.md", "I am the second.");
    world.write("agents.yaml", &format!("{AGENTS}  y:\n    nmae: Y\n"));
    world.expect_broken("agents.yaml:5:5: ");
    world.expect_prompt("I am the first.");

    world.write("agents.yaml", "agents: [");
    world.expect_broken("agents.yaml:");
    world.write("agents.yaml", AGENTS);
    world.expect_reloaded();
    world.expect_prompt("I am the second.");

    world.write("models.yaml", &MODELS.replace("provider: p", "provider: qq"));
    world.expect_broken("models.yaml:3:24: model m names the provider \"qq\"");
    world.write("models.yaml", MODELS);
    world.expect_reloaded();

    world.write("ailoop.yaml", "composer:\n  featurs: []\n");
    world.expect_broken("ailoop.yaml:2:3: ");
    world.write("ailoop.yaml", "composer: {features: [zoo]}\n");
    world.expect_reloaded();

    fs::write(world.path("mine/agents/x.md"), [0xff, 0xfe]).unwrap();
    world.expect_broken("x.md\" cannot be read");
}

#[test]
fn directory_or_file_removed_is_no_change() {
    let world = World::new();
    let aside = world.path("aside");
    for (gone, expect_prompt) in [
        ("mine", "mine\" does not exist"),
        ("mine/agents", "mine/agents/\" is gone: put it back, or restart to go on without it"),
        ("agents.yaml", "agents.yaml\" is gone: put it back, or restart to go on without it"),
        ("ailoop.yaml", "ailoop.yaml\" is gone"),
    ] {
        fs::rename(world.path(gone), &aside).unwrap();
        world.expect_broken(expect_prompt);
        fs::rename(&aside, world.path(gone)).unwrap();
        world.expect_reloaded();
    }
    let (dir, away) = (world.dir.path().to_owned(), world.dir.path().with_extension("away"));
    fs::rename(&dir, &away).unwrap();
    world.expect_broken(&format!("the configuration directory {dir:?} does not exist"));
    world.expect_prompt("I am the first.");
    fs::rename(&away, &dir).unwrap();
    world.expect_reloaded();
}

/// One version of a `ConfigMap`. Each file has the same length and time as in every other version.
fn version(dir: &Path, name: &str, agents: &str, word: &str) {
    fs::create_dir(dir.join(name)).unwrap();
    for (file, text) in [("agents.yaml", agents), ("models.yaml", MODELS), ("x.md", &format!("I am the {word}."))] {
        let path = dir.join(name).join(file);
        fs::write(&path, text).unwrap();
        let written = fs::File::options().append(true).open(&path).unwrap();
        written.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }
}

/// Kubernetes mounts a `ConfigMap` so: each file is a link through `..data`, which is exchanged in one step.
#[test]
fn link_exchanged_with_same_length_and_time_is_detected() {
    let dir = TempDir::new().unwrap();
    version(dir.path(), "..1", AGENTS, "first");
    symlink("..1", dir.path().join("..data")).unwrap();
    write(&dir, "mine/agents/other.md", "");
    write(&dir, "ailoop.yaml", "");
    for file in ["agents.yaml", "models.yaml"] {
        symlink(format!("..data/{file}"), dir.path().join(file)).unwrap();
    }
    symlink("../../..data/x.md", dir.path().join("mine/agents/x.md")).unwrap();
    let world = World::over(dir);
    world.expect_prompt("I am the first.");

    // The version before is deleted afterwards, like by the kubelet.
    let exchange = |name: &str, before: &str| {
        symlink(name, world.path("..data_tmp")).unwrap();
        fs::rename(world.path("..data_tmp"), world.path("..data")).unwrap();
        fs::remove_dir_all(world.path(before)).unwrap();
    };
    version(world.dir.path(), "..2", AGENTS, "third");
    exchange("..2", "..1");
    world.expect_reloaded();
    world.expect_prompt("I am the third.");

    version(world.dir.path(), "..3", "agents: 3", "worst");
    exchange("..3", "..2");
    world.expect_broken("agents.yaml:1:9: ");
    world.expect_prompt("I am the third.");
}

#[test]
fn file_being_written_is_not_read() {
    let world = World::new();
    let whole =
        "default_agent: y\nagents:\n  y: {name: Yves, prompt_file: x.md}\n  z: {name: Zoe, prompt_file: x.md}\n";
    // Each of these prefixes is a valid file or a broken one.
    for end in [0, 17, 25, 60, 63, 80] {
        fs::write(world.path("agents.yaml"), &whole[..end]).unwrap();
        assert_eq!(world.catalog.settle(), Look::Unsettled, "{end}");
        assert_eq!(world.composed().agent.name, "Xaver");
        assert_eq!(world.warning(), None);
    }
    fs::write(world.path("agents.yaml"), whole).unwrap();
    assert_eq!(world.catalog.settle(), Look::Unsettled);
    assert_eq!(world.catalog.settle(), Look::Taken);
    assert_eq!(world.composed().agent.name, "Yves");
    assert_eq!(world.catalog.settle(), Look::Unchanged);
    assert_eq!(world.catalog.get().agents().all().count(), 2);
}

#[test]
fn file_that_changes_all_the_time_is_read_at_last() {
    let world = World::new();
    let mut looks = 0;
    while world.catalog.settle() != Look::Taken {
        looks += 1;
        assert!(looks < 30, "given up");
        world.write("mine/agents/x.md", &"I grow. ".repeat(looks));
    }
    world.expect_prompt("I grow. I grow.");
}
