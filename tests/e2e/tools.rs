//! `ailoop tools`: tools in three languages pass the verification, and each violation of the protocol is found.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ailoop_tests::cli::{CliOutput, WorkDir};
use ailoop_tests::examples::{Examples, Language};
use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::ModelServer;
use ailoop_tests::nats::NatsServer;
use ailoop_tests::wait::eventually;
use ailoop_tool::async_nats::{Client, HeaderMap, Message};
use ailoop_tool::{Call, Effect, Serving, Tool, ToolError, Tools, async_nats, wire};
use futures::StreamExt;
use serde_json::{Value, json};
use simulation::rng::Rng;
use tokio::task::JoinSet;

/// A fleet, and a directory whose commands find it.
struct ToolFleet {
    fleet: TestFleet,
    work_dir: WorkDir,
}

impl ToolFleet {
    async fn start() -> anyhow::Result<Self> {
        let model = ModelServer::with_replies(Vec::new()).await?;
        let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
        let work_dir = WorkDir::new()?.with("AILOOP_GRPC_URL", fleet.url()).with("AILOOP__NATS__URL", fleet.nats.url());
        Ok(Self { fleet, work_dir })
    }

    async fn tools(&self, line: &[&str]) -> anyhow::Result<CliOutput> {
        self.work_dir.run(["tools"].iter().chain(line)).await
    }

    /// Runs `verify`; returns its report.
    async fn verify(&self, tool: &str, more: &[&str]) -> anyhow::Result<Verdict> {
        let line = [&["verify", tool, "--yes", "--json"], more].concat();
        let outcome = self.tools(&line).await?;
        let report: Value = serde_json::from_str(&outcome.stdout)
            .map_err(|error| anyhow::anyhow!("{error}: {} {}", outcome.stdout, outcome.stderr))?;
        assert_eq!(outcome.code, i32::from(report["holds"] == false), "{report}");
        Ok(Verdict(report))
    }

    async fn serve(&self, tool: Tool) -> anyhow::Result<Serving> {
        let name = tool.name().to_owned();
        let serving = Tools::connect(&self.fleet.nats.url()).await?.tool(tool).serve().await?;
        self.fleet.wait_for_tools(&[&name]).await?;
        Ok(serving)
    }
}

#[derive(Debug)]
struct Verdict(Value);

impl Verdict {
    fn with(&self, mark: &str) -> BTreeSet<&str> {
        let checks = self.0["checks"].as_array().unwrap().iter();
        checks.filter(|check| check["mark"] == mark).map(|check| check["check"].as_str().unwrap()).collect()
    }

    fn detail(&self, name: &str) -> String {
        let checks = self.0["checks"].as_array().unwrap().iter().filter(|check| check["check"] == name);
        checks.map(ToString::to_string).collect()
    }
}

async fn keep_the_protocol(language: Language) -> anyhow::Result<()> {
    let tool_fleet = ToolFleet::start().await?;
    let url = tool_fleet.fleet.nats.url();
    let found = tokio::task::spawn_blocking(move || Examples::find(language, &url)).await??;
    let Some(examples) = found else { return tool_fleet.fleet.end().await };
    let ((pure, arguments), note, bell) = (language.pure(), language.note(), language.bell());
    let mut replicas = Vec::new();
    for tool in [pure, note, bell].repeat(2) {
        replicas.push(examples.start(tool)?);
    }
    tool_fleet.fleet.wait_for_tools(&[pure, note, bell]).await?;
    for tool in [pure, note, bell] {
        eventually("both replicas describe it", async || {
            let list = tool_fleet.tools(&["verify", tool, "--json"]).await;
            list.is_ok_and(|outcome| {
                outcome.stdout.contains("2, which say the same") || outcome.stderr.contains("--yes")
            })
        })
        .await?;
    }

    let verdict = tool_fleet.verify(pure, &["--args", arguments]).await?;
    assert!(verdict.with("fail").is_empty() && verdict.with("note").is_empty(), "{verdict:?}");
    assert!(verdict.with("pass").len() >= 12, "{verdict:?}");

    // It takes effect once per call id, by its own record. Of the four calls one comes too late; the SDK does not begin
    // it.
    let taken = if language == Language::Rust { 3 } else { 4 };
    let verdict = tool_fleet.verify(note, &[]).await?;
    assert!(verdict.with("fail").is_empty() && verdict.with("note").is_empty(), "{verdict:?}");
    let effects = examples.effects()?;
    let calls: BTreeSet<&str> = effects.iter().map(|effect| effect.call.as_str()).collect();
    assert_eq!((effects.len(), calls.len()), (taken, taken), "{effects:?}");
    assert!(examples.notes()?.keys().eq(calls.iter()), "{effects:?}");

    // It reports progress and stops on a cancel: of four calls two ring.
    let verdict = tool_fleet.verify(bell, &["--args", r#"{"seconds": 3}"#]).await?;
    assert!(verdict.with("fail").is_empty(), "{verdict:?}");
    assert!(verdict.with("pass").is_superset(&BTreeSet::from(["cancel", "deadline", "one reply"])), "{verdict:?}");
    assert!(verdict.detail("deadline").contains("nobody waits"), "{verdict:?}");
    assert_eq!(examples.effects()?.iter().filter(|effect| effect.tool == bell).count(), 2);
    drop(replicas);
    tool_fleet.fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_tools_pass_verification() -> anyhow::Result<()> {
    keep_the_protocol(Language::Python).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javascript_tools_pass_verification() -> anyhow::Result<()> {
    keep_the_protocol(Language::JavaScript).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_tools_pass_verification() -> anyhow::Result<()> {
    keep_the_protocol(Language::Rust).await
}

/// Kills a replica at random instants, and repeats each call with the same id until it is answered.
async fn outlive_kills(language: Language) -> anyhow::Result<()> {
    /// Calls; in the middle of each a replica is killed.
    const CALLS: usize = 12;
    let server = NatsServer::start().await?;
    let url = server.url();
    let found = tokio::task::spawn_blocking(move || Examples::find(language, &url)).await??;
    let Some(examples) = found else { return Ok(()) };
    let tool = language.note();
    let client = async_nats::connect(server.url()).await?;
    let mut rng = Rng::new(ailoop_tests::seed::of("AILOOP_TOOLS_SEED"));
    let mut replicas = VecDeque::from([examples.start(tool)?, examples.start(tool)?]);
    answered(&client, tool, "s-c1-1-0").await?;
    let mut calls = BTreeMap::from([("s-c1-1-0".to_owned(), text_of("s-c1-1-0"))]);
    for n in 1..=CALLS {
        let id = format!("s-c1-1-{n}");
        for _ in 0..=(n % 2) {
            let (subject, inbox) = (wire::call_subject("default", tool), client.new_inbox());
            let (headers, body) = call(&id);
            client.publish_with_reply_and_headers(subject, inbox, headers, body.into()).await?;
        }
        client.flush().await?;
        // The kill comes at any moment of the call.
        tokio::time::sleep(Duration::from_micros(rng.below(3_000))).await;
        if let Some(mut oldest) = replicas.pop_front() {
            oldest.kill().await?;
        }
        replicas.push_back(examples.start(tool)?);
        answered(&client, tool, &id).await?;
        calls.insert(id.clone(), text_of(&id));
    }
    assert_eq!(examples.notes()?, calls, "each note is there, whole");
    let effects = examples.effects()?;
    let lines = |id: &String| effects.iter().filter(|effect| effect.call == *id).count();
    assert!(calls.keys().all(|id| lines(id) <= 1), "{effects:?}");
    Ok(())
}

/// Repeats a call until it is answered; a killed replica does not answer.
async fn answered(client: &Client, tool: &str, id: &str) -> anyhow::Result<()> {
    eventually("the call is answered", async || {
        let (headers, body) = call(id);
        let request = async_nats::Request::new().headers(headers).payload(body.into());
        let request = request.timeout(Some(Duration::from_millis(500)));
        let reply = client.send_request(wire::call_subject("default", tool), request).await;
        reply.is_ok_and(|reply| {
            assert_eq!(serde_json::from_slice::<Value>(&reply.payload).ok(), Some(json!({"kept": true})), "{reply:?}");
            true
        })
    })
    .await
}

fn call(id: &str) -> (HeaderMap, String) {
    let mut headers = HeaderMap::new();
    headers.insert(wire::header::CALL, id);
    (headers, json!({"text": text_of(id)}).to_string())
}

/// Long enough to be written in more than one piece.
fn text_of(id: &str) -> String {
    format!("{id} ").repeat(5_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_tool_killed_during_calls_takes_effect_once() -> anyhow::Result<()> {
    outlive_kills(Language::Python).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javascript_tool_killed_during_calls_takes_effect_once() -> anyhow::Result<()> {
    outlive_kills(Language::JavaScript).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_tool_killed_during_calls_takes_effect_once() -> anyhow::Result<()> {
    outlive_kills(Language::Rust).await
}

/// The flaw of a planted tool.
#[derive(Debug, Clone, Copy)]
enum Flaw {
    Nothing,
    /// Does not answer invalid calls.
    Silent,
    /// Sends two final replies to each call.
    Twofold,
    /// Ends at a call that is no JSON.
    Fragile,
    /// Replies with more than the NATS limit.
    Huge,
    /// Gives another answer each time.
    Forgetful,
}

impl Flaw {
    /// The replies to a call; `None` ends it.
    fn act(self, call: &Message, client: &Client) -> Option<Vec<(HeaderMap, String)>> {
        let read = serde_json::from_slice::<Value>(&call.payload);
        let fits = read.as_ref().is_ok_and(|arguments| arguments["n"].is_i64());
        Some(match self {
            Self::Silent if !fits => Vec::new(),
            Self::Fragile if read.is_err() => return None,
            _ if !fits => vec![error()],
            Self::Twofold => vec![result("1"), result("done")],
            Self::Huge => vec![result(&"x".repeat(2 << 20))],
            Self::Forgetful => vec![result(&client.new_inbox())],
            Self::Nothing | Self::Silent | Self::Fragile => vec![result("1")],
        })
    }
}

/// A tool without SDK, which can violate the protocol.
struct Planted {
    name: &'static str,
    effect: &'static str,
    /// The announced queue group, and the one that it subscribes with.
    group: (&'static str, Option<&'static str>),
    schema: Value,
    flaw: Flaw,
}

impl Planted {
    fn new(name: &'static str, flaw: Flaw) -> Self {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        Self { name, effect: "idempotent", group: ("tools", Some("tools")), schema, flaw }
    }

    async fn serve(&self, tasks: &mut JoinSet<()>, url: &str) -> anyhow::Result<()> {
        let client = async_nats::connect(url).await?;
        let subject = wire::call_subject("default", self.name);
        let calls = match self.group.1 {
            Some(group) => client.queue_subscribe(subject.clone(), group.to_owned()).await?,
            None => client.subscribe(subject.clone()).await?,
        };
        let everybody = client.subscribe("$SRV.INFO").await?;
        let mut infos = futures::stream::select(everybody, client.subscribe(format!("$SRV.INFO.{}", self.name)).await?);
        let mut pings = client.subscribe("$SRV.PING").await?;
        let identity = json!({"name": self.name, "id": client.new_inbox().replace('.', "-"), "version": "1.0.0"});
        let mut info = identity.clone();
        info["endpoints"] = json!([{"subject": subject, "queue_group": self.group.0, "metadata": {
            "ailoop.tool": self.name, "ailoop.description": "Is bad.", "ailoop.effect": self.effect,
            "ailoop.parameters": self.schema.to_string()}}]);
        client.publish(wire::ANNOUNCE, "".into()).await?;
        let flaw = self.flaw;
        tasks.spawn(async move {
            let mut calls = Some(calls);
            loop {
                let next = async {
                    match calls.as_mut() {
                        Some(calls) => calls.next().await,
                        None => std::future::pending().await,
                    }
                };
                let (to, replies) = tokio::select! {
                    Some(ask) = infos.next() => (ask.reply, Some(vec![result(&info.to_string())])),
                    Some(ask) = pings.next() => (ask.reply, Some(vec![result(&identity.to_string())])),
                    Some(call) = next => (call.reply.clone(), flaw.act(&call, &client)),
                    else => break,
                };
                if replies.is_none() {
                    calls = None;
                }
                for (headers, body) in replies.unwrap_or_default() {
                    let Some(to) = to.clone() else { continue };
                    // A reply that is too large is what some of them are planted for.
                    drop(client.publish_with_headers(to, headers, body.into()).await);
                }
            }
        });
        Ok(())
    }
}

fn result(text: &str) -> (HeaderMap, String) {
    (HeaderMap::new(), text.to_owned())
}

fn error() -> (HeaderMap, String) {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Service-Error", "n is missing");
    (headers, String::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_breaking_the_protocol_fails_verification() -> anyhow::Result<()> {
    let tool_fleet = ToolFleet::start().await?;
    let url = tool_fleet.fleet.nats.url();
    let unread = json!({"type": "object", "properties": {"n": {"type": "thing"}}});
    let rows: Vec<(Planted, &[&str])> = vec![
        (Planted::new("good", Flaw::Nothing), &[]),
        (Planted::new("silent", Flaw::Silent), &["garbage", "wrong arguments"]),
        (Planted::new("twofold", Flaw::Twofold), &["one reply"]),
        (Planted::new("fragile", Flaw::Fragile), &["garbage", "still there"]),
        (Planted::new("huge", Flaw::Huge), &["fitting arguments"]),
        (Planted::new("forgetful", Flaw::Forgetful), &["repeated", "twice at once"]),
        (Planted { group: ("mine", Some("mine")), ..Planted::new("apart", Flaw::Nothing) }, &["described"]),
        (Planted { group: ("tools", None), ..Planted::new("crowd", Flaw::Nothing) }, &["one reply"]),
        (Planted { effect: "harmless", ..Planted::new("vague", Flaw::Nothing) }, &["described"]),
        (Planted { schema: unread, ..Planted::new("unread", Flaw::Nothing) }, &["schema"]),
    ];
    let mut tasks = JoinSet::new();
    for (planted, _) in &rows {
        planted.serve(&mut tasks, &url).await?;
        if planted.name == "crowd" {
            planted.serve(&mut tasks, &url).await?;
        }
    }
    tool_fleet.fleet.wait_for_tools(&["good", "silent", "twofold", "fragile", "huge", "forgetful", "crowd"]).await?;
    for (planted, wanted) in &rows {
        let verdict = tool_fleet.verify(planted.name, &["--timeout", "1"]).await?;
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        assert_eq!(verdict.with("fail"), wanted, "{}: {verdict:?}", planted.name);
    }
    tasks.shutdown().await;
    tool_fleet.fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_over_the_nats_limit_is_reported_as_error() -> anyhow::Result<()> {
    let tool_fleet = ToolFleet::start().await?;
    let huge = Tool::new("huge").effect(Effect::Pure).handler(async |_: Call| Ok("x".repeat(2 << 20)));
    let _serving = tool_fleet.serve(huge).await?;
    let verdict = tool_fleet.verify("huge", &[]).await?;
    assert_eq!(verdict.with("fail"), BTreeSet::from(["fitting arguments"]), "{verdict:?}");
    assert!(verdict.detail("fitting arguments").contains("more than NATS carries"), "{verdict:?}");
    tool_fleet.fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_tried_by_command_gets_the_call_of_the_fleet() -> anyhow::Result<()> {
    let tool_fleet = ToolFleet::start().await?;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let echo = Tool::new("echo").description("Echoes.").parameters(schema).max_output(100).instructions("Be brief.");
    let _serving = tool_fleet
        .serve(echo.handler(async |call: Call| {
            call.progress("half").await;
            let n = call.arguments::<Value>()?["n"].as_i64().ok_or_else(|| ToolError::new("n is missing"))?;
            let left = call.time_left().unwrap_or_default().as_secs();
            Ok(json!({"n": n, "agent": call.agent(), "attempt": call.attempt(), "session": call.session(),
                "call": call.id(), "left": left, "trace": call.traceparent().len()}))
        }))
        .await?;

    let tried = tool_fleet.tools(&["try", "echo", "--args", r#"{"n": 7}"#, "--agent", "e"]).await?;
    let report: Value = serde_json::from_str(&tried.stdout)?;
    assert_eq!((tried.code, tried.stderr.as_str()), (0, "  half\n"));
    let session = report["session"].as_str().unwrap();
    assert!(session.starts_with("try-"), "{report}");
    let expected = json!({"n": 7, "agent": "e", "attempt": "1.1", "session": session, "trace": 55,
        "call": format!("{session}-c1-1-1"), "left": report["left"]});
    assert_eq!(report, expected);
    assert!(report["left"].as_u64().is_some_and(|left| (50..=60).contains(&left)), "{report}");

    std::fs::write(tool_fleet.work_dir.path().join("n.json"), r#"{"n": 1}"#)?;
    for (line, code, error) in [
        (&["--args", "@n.json"][..], 0, None),
        (&["--args", r#"{"n": "x"}"#], 2, Some("invalid_arguments")),
        (&["--args", r#"{"n": "x"}"#, "--unchecked"], 1, Some("tool_error")),
        (&["--args", "{"], 2, Some("invalid_arguments")),
        (&["--args", "@missing"], 2, Some("bad_request")),
    ] {
        let tried = tool_fleet.tools(&[&["try", "echo"], line].concat()).await?;
        assert_eq!(tried.code, code, "{line:?} {}", tried.stderr);
        assert_eq!(tried.error().ok(), error, "{line:?} {}", tried.stderr);
    }
    let nobody = tool_fleet.tools(&["try", "nobody"]).await?;
    assert_eq!((nobody.code, nobody.error()?), (1, "no_tool_available"));

    let hangs = Tool::new("hangs").effect(Effect::Pure).handler(async |_: Call| {
        std::future::pending::<()>().await;
        Ok("never")
    });
    let _hanging = tool_fleet.serve(hangs).await?;
    let waited = tool_fleet.tools(&["try", "hangs", "--timeout", "1"]).await?;
    assert_eq!(waited.code, 124, "{}", waited.stderr);
    assert!(waited.stderr.contains("no answer within 1.0 s"), "{}", waited.stderr);

    // What it is, as the fleet knows it.
    let described = tool_fleet.tools(&["describe", "echo"]).await?;
    for part in
        ["at_most_once: it is never called again", "reads up to 100 bytes", "  Be brief.", r#""type": "integer""#]
    {
        assert!(described.stdout.contains(part), "{part:?} is not in {}", described.stdout);
    }
    assert_eq!(tool_fleet.tools(&["describe", "nobody"]).await?.error()?, "unknown_tool");
    assert_eq!(tool_fleet.tools(&["verify", "echo"]).await?.code, 2, "a tool with effects needs `--yes`");
    tool_fleet.fleet.end().await
}
