//! The file and plan tools as agents call them: a tool host on a real nats-server, over directories of the test's own.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ailoop_tool::async_nats::{self, Client, HeaderMap, Request};
use ailoop_tool::wire::header;
use bus::NatsConfig;
use serde_json::{Value, json};
use tool_host::{FilesConfig, PlansConfig, ToolHost, ToolHostConfig};

use crate::server::{self, Server};

const LONG: Duration = Duration::from_secs(30);

const HOUSE: &str = "\
# Build the house

A family can live in it.

1. Dig the pit
   - check: it is 2 m deep
2. Buy bricks
3. Lay the walls
   - depends on: 1, 2
";

struct World {
    client: Client,
    hosts: Vec<ToolHost>,
    dir: tempfile::TempDir,
    server: Server,
}

impl World {
    async fn new(hosts: usize) -> Self {
        let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
        fs::create_dir_all(dir.path().join("project/plans")).unwrap();
        fs::write(dir.path().join("project/plans/house.md"), HOUSE).unwrap();
        let mut world =
            Self { client: async_nats::connect(&server.url).await.unwrap(), hosts: Vec::new(), dir, server };
        for _ in 0..hosts {
            let files = FilesConfig { root: world.path("project"), out: Some(world.path("out")), login: None };
            let config =
                ToolHostConfig { files: Some(files), plans: Some(PlansConfig::default()), ..Default::default() };
            let nats = NatsConfig { url: world.server.url.clone(), ..NatsConfig::default() };
            world.hosts.push(ToolHost::start(&config, &nats).await.unwrap());
        }
        world
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// The result of a call, or the error that the model reads.
    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CALL, "s1-c1-1-1");
        headers.insert(header::SESSION, "s1");
        headers.insert(header::DEADLINE, "2126-01-15T10:30:45.123Z");
        let request =
            || Request::new().headers(headers.clone()).payload(arguments.to_string().into()).timeout(Some(LONG));
        let reply = server::ask(&self.client, &format!("ai_tool.default.{tool}"), request).await;
        match reply.headers.as_ref().and_then(|headers| headers.get(header::ERROR)) {
            Some(error) => Err(error.to_string()),
            None => Ok(serde_json::from_slice(&reply.payload).unwrap()),
        }
    }

    async fn refused(&self, tool: &str, arguments: Value, part: &str) {
        let refused = self.call(tool, arguments.clone()).await.unwrap_err();
        assert!(refused.contains(part), "{tool} {arguments}: {refused}");
    }

    async fn mark(&self, plan: &str, step: u32, revision: &Value) -> Result<Value, String> {
        self.call("mark_step_done", json!({"plan": plan, "step": step, "revision": revision})).await
    }

    async fn metadata(&self, tool: &str) -> Value {
        let info = server::ask(&self.client, &format!("$SRV.INFO.{tool}"), Request::new).await;
        serde_json::from_slice::<Value>(&info.payload).unwrap()["endpoints"][0]["metadata"].clone()
    }

    async fn end(self) {
        for host in self.hosts {
            host.drain(LONG).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_is_listed_read_decomposed_analyzed_and_marked_step_by_step() {
    let world = World::new(1).await;
    for (tool, effect) in [
        ("list_plans", "pure"),
        ("read_plan", "pure"),
        ("decompose_plan", "pure"),
        ("analyze_dependencies", "pure"),
        ("mark_step_done", "idempotent"),
    ] {
        let metadata = world.metadata(tool).await;
        assert_eq!(metadata["ailoop.effect"], effect, "{tool}");
        let schema: Value = serde_json::from_str(metadata["ailoop.parameters"].as_str().unwrap()).unwrap();
        assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)), "{tool}");
    }
    let listed = world.call("list_plans", json!({})).await.unwrap();
    let house = json!({"plan": "house", "path": "plans/house.md", "title": "Build the house",
        "goal": "A family can live in it.", "steps": 3, "done": 0});
    assert_eq!(listed, json!({"plans": [house], "total": 1, "truncated": false}));
    let read = world.call("read_plan", json!({"plan": "house"})).await.unwrap();
    assert_eq!((&read["content"], &read["steps"], &read["done"]), (&json!(HOUSE), &json!(3), &json!(0)));
    let revision = &read["revision"];
    let decomposed = world.call("decompose_plan", json!({"plan": "plans/house.md"})).await.unwrap();
    assert_eq!(
        decomposed["tasks"],
        json!([
            {"step": 1, "title": "Dig the pit", "check": "it is 2 m deep", "depends_on": [], "done": false},
            {"step": 2, "title": "Buy bricks", "depends_on": [], "done": false},
            {"step": 3, "title": "Lay the walls", "depends_on": [1, 2], "done": false},
        ])
    );
    let analyzed = world.call("analyze_dependencies", json!({"plan": "house"})).await.unwrap();
    assert_eq!(
        (&analyzed["order"], &analyzed["ready"], &analyzed["rounds"], &analyzed["cycles"], &analyzed["waiting"]),
        (
            &json!([1, 2, 3]),
            &json!([1, 2]),
            &json!([[1, 2], [3]]),
            &json!([]),
            &json!([{"step": 3, "waits_for": [1, 2]}])
        )
    );

    let early = world.mark("house", 3, revision).await.unwrap_err();
    assert_eq!(early, "step 3 of plan \"house\" depends on steps that are not done: 1, 2. Do them and mark them first");
    let unknown = world.mark("house", 7, revision).await.unwrap_err();
    assert_eq!(unknown, "plan \"house\" has no step 7; there are: 1, 2, 3");
    let first = world.mark("house", 1, revision).await.unwrap();
    assert_eq!(
        first,
        json!({"plan": "house", "path": "plans/house.md", "step": 1, "title": "Dig the pit", "done": true, "steps": 3,
            "steps_done": 1, "ready": [2]})
    );
    assert_eq!(world.mark("house", 1, revision).await.unwrap(), first, "a repeated call is answered alike");
    world.mark("house", 2, revision).await.unwrap();
    let last = world.mark("house", 3, revision).await.unwrap();
    assert_eq!((&last["steps_done"], &last["ready"]), (&json!(3), &json!([])));

    // The project is unchanged, and every tool sees the marked plan.
    assert_eq!(fs::read_to_string(world.path("project/plans/house.md")).unwrap(), HOUSE);
    let marked = HOUSE.replace("1. ", "1. [x] ").replace("2. ", "2. [x] ").replace("3. ", "3. [x] ");
    assert_eq!(fs::read_to_string(world.path("out/plans/house.md")).unwrap(), marked);
    assert_eq!(world.call("read_file", json!({"path": "plans/house.md"})).await.unwrap()["content"], json!(marked));
    let listed = world.call("list_plans", json!({})).await.unwrap();
    assert_eq!((&listed["plans"][0]["done"], &listed["plans"][0]["written"]), (&json!(3), &json!(true)));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_written_by_an_agent_is_found_and_changed_must_be_read_again() {
    let world = World::new(1).await;
    let text = "# Tea\n\nThere is tea.\n\n1. Boil water\n2. Pour it\n   - depends on: 1\n";
    let written = world.call("write_file", json!({"path": "plans/tea.md", "content": text})).await.unwrap();
    assert_eq!(world.call("read_file", json!({"path": written["path"]})).await.unwrap()["content"], json!(text));
    let listed = world.call("list_plans", json!({})).await.unwrap();
    assert_eq!((&listed["plans"][1]["plan"], &listed["total"]), (&json!("tea"), &json!(2)));
    let revision = world.call("read_plan", json!({"plan": "tea"})).await.unwrap()["revision"].clone();
    world.mark("tea", 1, &revision).await.unwrap();

    let changed = text.replace("Pour it", "Pour it slowly");
    world.call("write_file", json!({"path": "plans/tea.md", "content": changed})).await.unwrap();
    let refused = world.mark("tea", 1, &revision).await.unwrap_err();
    assert!(refused.contains("it was changed since you read it. Read it again with read_plan"), "{refused}");
    let revision = world.call("read_plan", json!({"plan": "tea.md"})).await.unwrap()["revision"].clone();
    assert_eq!(world.mark("tea", 1, &revision).await.unwrap()["done"], true);

    // A file that is no plan is listed with the reason.
    world.call("write_file", json!({"path": "plans/notes.md", "content": "Only notes.\n"})).await.unwrap();
    let listed = world.call("list_plans", json!({})).await.unwrap();
    let error = "\"plans/notes.md\" cannot be used as a plan: it has no title: begin it with a line `# <title>`";
    assert_eq!((&listed["plans"][1]["plan"], &listed["plans"][1]["error"]), (&json!("notes"), &json!(error)));
    world.refused("read_plan", json!({"plan": "notes"}), error).await;
    world
        .refused("read_plan", json!({"plan": "hous"}), "there is no plan \"hous\"; there are: house, notes, tea")
        .await;
    for name in ["", ".", "..", "../house", "/etc/passwd", "a/b", "plans/", "plans/../house", ".hidden", "a\nb"] {
        world.refused("read_plan", json!({"plan": name}), "is not the name of a plan").await;
    }
    fs::write(world.path("secret.md"), HOUSE).unwrap();
    std::os::unix::fs::symlink(world.path("secret.md"), world.path("project/plans/secret.md")).unwrap();
    world.refused("read_plan", json!({"plan": "secret"}), "leads out of the directory").await;
    fs::write(world.path("project/plans/long.md"), format!("# T\n1. {}\n", "x".repeat(20_000))).unwrap();
    world.refused("analyze_dependencies", json!({"plan": "long"}), "are the most").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn marks_of_two_hosts_at_once_are_all_stored() {
    let world = World::new(2).await;
    let steps = (1..=20).fold("# Many\n\n".to_owned(), |text, n| format!("{text}{n}. Do it\n"));
    world.call("write_file", json!({"path": "plans/many.md", "content": steps})).await.unwrap();
    let revision = world.call("read_plan", json!({"plan": "many"})).await.unwrap()["revision"].clone();
    let marks = (1..=20).map(|step| world.mark("many", step, &revision));
    for marked in futures::future::join_all(marks).await {
        marked.unwrap();
    }
    assert_eq!(world.call("read_plan", json!({"plan": "many"})).await.unwrap()["done"], 20);
    world.end().await;
}

#[tokio::test]
async fn plans_without_files_are_refused_at_the_start() {
    let config = ToolHostConfig { plans: Some(PlansConfig::default()), ..Default::default() };
    let error = ToolHost::start(&config, &NatsConfig::default()).await.unwrap_err();
    assert_eq!(contract::Coded::code(&error), contract::ErrorCode::BadConfig);
    assert!(error.to_string().contains("set tool_host.files too"), "{error}");
}
