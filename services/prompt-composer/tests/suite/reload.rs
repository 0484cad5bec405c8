//! What is changed on the disk is used without a restart, and what is broken is not. No test waits: each look is a call.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use contract::compose::{ComposeReply, ComposeRequest, Composed};
use contract::ids::TenantId;
use prompt_composer::{Book, Config};
use service::health::Readiness;
use service::reload::{Look, Reload};
use tempfile::TempDir;

const AGENTS: &str = "default_agent: x\nagents:\n  x: {name: Xaver, prompt_file: x.md}\n";
const MODELS: &str = "default: m\nproviders: {p: {kind: scripted, script: s}}\nmodels: {m: {provider: p}}\n";

struct World {
    dir: TempDir,
    readiness: Readiness,
    book: Arc<Reload<Book>>,
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
        let config = Config {
            config_dir: Some(dir.path().to_owned()),
            prompts_dir: Some(dir.path().join("mine")),
            follows: Some(dir.path().to_owned()),
            ..Config::default()
        };
        let readiness = Readiness::new("composer");
        let book = Book::follow(config, readiness.clone()).unwrap();
        Self { dir, readiness, book }
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
        // By its bytes, as the service is asked: an answer of the book before must not come back.
        let answer = self.book.get().answer_bytes(&serde_json::to_vec(&request).unwrap().into(), None).unwrap();
        match serde_json::from_slice(&answer).unwrap() {
            ComposeReply::Composed(composed) => *composed,
            ComposeReply::Refused { code, message } => panic!("{code}: {message}"),
        }
    }

    fn says(&self, begin: &str) {
        let prompt = self.composed().prompt;
        assert!(prompt.starts_with(begin), "{prompt}");
    }

    fn warning(&self) -> Option<String> {
        self.readiness.warnings().next().map(|(_, warning)| warning)
    }

    /// A change that is refused: what it says, and the last good set answers.
    fn broken(&self, expect: &str) {
        let before = self.composed();
        let Look::Broken(warning) = self.book.refresh() else { panic!("taken, though it is broken: {expect}") };
        assert!(warning.contains(expect), "got:    {warning}\nexpect: {expect}");
        assert!(warning.ends_with("the last good configuration stays in use"), "{warning}");
        assert_eq!(self.warning(), Some(warning));
        assert_eq!(self.book.refresh(), Look::Unchanged, "it is said once");
        assert_eq!(self.composed(), before);
    }

    fn taken(&self) {
        assert_eq!(self.book.refresh(), Look::Taken);
        assert_eq!(self.warning(), None);
        assert_eq!(self.book.refresh(), Look::Unchanged);
    }
}

fn write(dir: &TempDir, name: &str, text: &str) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn what_is_changed_comes_new_and_gone_is_used_by_the_next_session() {
    let world = World::new();
    assert_eq!(world.book.refresh(), Look::Unchanged);
    world.says("I am the first.");

    world.write("mine/agents/x.md", "I am the second.");
    world.says("I am the first.");
    world.taken();
    world.says("I am the second.");

    world.write("agents.yaml", &AGENTS.replace("Xaver", "Yves").replace("x.md", "y.md"));
    world.write("mine/agents/y.md", "I am {{{agent_name}}}.");
    world.taken();
    world.says("I am Yves.");

    world.write("models.yaml", &MODELS.replace("{provider: p}", "{provider: p, multi_tool: true}"));
    world.taken();
    assert!(world.composed().model.multi_tool);

    assert!(!world.composed().prompt.contains("The zoo."));
    world.write("ailoop.yaml", "composer: {features: [zoo]}\n");
    world.taken();
    assert!(world.composed().prompt.contains("## ZOO INSTRUCTIONS\n\nThe zoo."));

    fs::remove_file(world.path("mine/shared/zoo.md")).unwrap();
    world.taken();
    assert_eq!(world.composed().warnings, ["there is no feature \"zoo\""]);
}

#[test]
fn what_is_broken_leaves_the_last_good_set_in_use_until_it_is_mended() {
    let world = World::new();
    // Only the whole set counts: the good new prompt waits for the agents.
    world.write("mine/agents/x.md", "I am the second.");
    world.write("agents.yaml", &format!("{AGENTS}  y:\n    nmae: Y\n"));
    world.broken("agents.yaml:5:5: ");
    world.says("I am the first.");

    world.write("agents.yaml", "agents: [");
    world.broken("agents.yaml:");
    world.write("agents.yaml", AGENTS);
    world.taken();
    world.says("I am the second.");

    world.write("models.yaml", &MODELS.replace("provider: p", "provider: qq"));
    world.broken("models.yaml:3:24: model m names the provider \"qq\"");
    world.write("models.yaml", MODELS);
    world.taken();

    world.write("ailoop.yaml", "composer:\n  featurs: []\n");
    world.broken("ailoop.yaml:2:3: ");
    world.write("ailoop.yaml", "composer: {features: [zoo]}\n");
    world.taken();

    fs::write(world.path("mine/agents/x.md"), [0xff, 0xfe]).unwrap();
    world.broken("x.md\" cannot be read");
}

#[test]
fn a_directory_or_file_that_goes_away_is_no_change() {
    let world = World::new();
    let aside = world.path("aside");
    for (gone, says) in [
        ("mine", "mine\" does not exist"),
        ("mine/agents", "mine/agents/\" is gone: put it back, or restart to go on without it"),
        ("agents.yaml", "agents.yaml\" is gone: put it back, or restart to go on without it"),
        ("ailoop.yaml", "ailoop.yaml\" is gone"),
    ] {
        fs::rename(world.path(gone), &aside).unwrap();
        world.broken(says);
        fs::rename(&aside, world.path(gone)).unwrap();
        world.taken();
    }
    let (dir, away) = (world.dir.path().to_owned(), world.dir.path().with_extension("away"));
    fs::rename(&dir, &away).unwrap();
    world.broken(&format!("the configuration directory {dir:?} does not exist"));
    world.says("I am the first.");
    fs::rename(&away, &dir).unwrap();
    world.taken();
}

/// One version of a `ConfigMap`: every file as long as in any other version, and of the same time.
fn version(dir: &Path, name: &str, agents: &str, word: &str) {
    fs::create_dir(dir.join(name)).unwrap();
    for (file, text) in [("agents.yaml", agents), ("models.yaml", MODELS), ("x.md", &format!("I am the {word}."))] {
        let path = dir.join(name).join(file);
        fs::write(&path, text).unwrap();
        let written = fs::File::options().append(true).open(&path).unwrap();
        written.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }
}

/// As Kubernetes mounts a `ConfigMap`: each file is a link through `..data`, which is exchanged in one step.
#[test]
fn an_exchanged_link_is_seen_even_if_length_and_time_stay() {
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
    world.says("I am the first.");

    // The version before is deleted afterwards, as the kubelet does it.
    let exchange = |name: &str, before: &str| {
        symlink(name, world.path("..data_tmp")).unwrap();
        fs::rename(world.path("..data_tmp"), world.path("..data")).unwrap();
        fs::remove_dir_all(world.path(before)).unwrap();
    };
    version(world.dir.path(), "..2", AGENTS, "third");
    exchange("..2", "..1");
    world.taken();
    world.says("I am the third.");

    version(world.dir.path(), "..3", "agents: 3", "worst");
    exchange("..3", "..2");
    world.broken("agents.yaml:1:9: ");
    world.says("I am the third.");
}

#[test]
fn a_file_in_the_middle_of_being_written_is_not_read() {
    let world = World::new();
    let whole =
        "default_agent: y\nagents:\n  y: {name: Yves, prompt_file: x.md}\n  z: {name: Zoe, prompt_file: x.md}\n";
    // Each of these beginnings is a file that could be used, or a broken one.
    for end in [0, 17, 25, 60, 63, 80] {
        fs::write(world.path("agents.yaml"), &whole[..end]).unwrap();
        assert_eq!(world.book.settle(), Look::Unsettled, "{end}");
        assert_eq!(world.composed().agent.name, "Xaver");
        assert_eq!(world.warning(), None);
    }
    fs::write(world.path("agents.yaml"), whole).unwrap();
    assert_eq!(world.book.settle(), Look::Unsettled);
    assert_eq!(world.book.settle(), Look::Taken);
    assert_eq!(world.composed().agent.name, "Yves");
    assert_eq!(world.book.settle(), Look::Unchanged);
    assert_eq!(world.book.get().agents().all().count(), 2);
}

#[test]
fn what_never_stands_still_is_read_at_last() {
    let world = World::new();
    let mut looks = 0;
    while world.book.settle() != Look::Taken {
        looks += 1;
        assert!(looks < 30, "given up");
        world.write("mine/agents/x.md", &"I grow. ".repeat(looks));
    }
    world.says("I grow. I grow.");
}
