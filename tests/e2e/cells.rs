//! Two cells: two nats-servers with services of their own, and edges that know of both.

use std::time::Duration;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::client::{Control, TestClient};
use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::wait::{eventually, soon};
use anyhow::Context;
use bus::Read;
use contract::subject::SessionKey;
use contract::{CellName, SessionId, TenantId, cell};
use edge::config::ListenConfig;
use edge::{CellConfig, Edge, EdgeConfig};
use proto::SessionPage;
use serde_json::json;

/// Longest time that an edge may take to end.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Two cells, `a` and `b`, and an edge for each of two tenants.
struct TwoCells {
    a: TestFleet,
    b: TestFleet,
    edges: [(&'static str, Edge); 2],
}

fn reply(request: &RecordedRequest) -> ScriptedReply {
    ScriptedReply::text(&format!("Done with {}.", request.last_user()))
}

fn names() -> anyhow::Result<[CellName; 2]> {
    Ok([CellName::new("a")?, CellName::new("b")?])
}

fn key_of(tenant: &str, session: &str) -> anyhow::Result<SessionKey> {
    Ok(SessionKey { tenant: TenantId::new(tenant)?, session: SessionId::new(session)? })
}

/// Returns an id of a tenant whose home is a cell.
fn id_of(tenant: &str, cell: &str) -> anyhow::Result<String> {
    let cells = names()?;
    for number in 0..64 {
        let id = format!("in-{cell}-{number}");
        if cell::rank(&cells, &key_of(tenant, &id)?)[0].as_str() == cell {
            return Ok(id);
        }
    }
    anyhow::bail!("no id of {tenant} has its home in {cell}")
}

impl TwoCells {
    async fn start(model: &ModelServer) -> anyhow::Result<Self> {
        let url = model.base_url();
        let (a, b) = (TestFleet::start(&[("test", &url)]).await?, TestFleet::start(&[("test", &url)]).await?);
        let free = ListenConfig { listen: ([127, 0, 0, 1], 0).into() };
        let [name_a, name_b] = names()?;
        let table = vec![
            CellConfig { name: name_a, nats: a.nats.config() },
            CellConfig { name: name_b, nats: b.nats.config() },
        ];
        let mut edges = Vec::new();
        for tenant in ["one", "two"] {
            let config = EdgeConfig {
                ws: free,
                grpc: free,
                cells: table.clone(),
                tenant: TenantId::new(tenant)?,
                ..EdgeConfig::default()
            };
            edges.push((tenant, Edge::start_cells(config).await?));
        }
        let edges = edges.try_into().ok().context("two edges")?;
        Ok(Self { a, b, edges })
    }

    async fn client(&self, edge: &Edge) -> anyhow::Result<TestClient> {
        TestClient::connect(&format!("http://{}", edge.addresses().grpc)).await
    }

    /// A directory from which commands know of the cells.
    fn commands(&self) -> anyhow::Result<WorkDir> {
        let dir = WorkDir::new()?;
        let cell = |name: &str, fleet: &TestFleet| json!({"name": name, "nats": {"url": fleet.nats.url()}});
        let settings = json!({"edge": {"cells": [cell("a", &self.a), cell("b", &self.b)]}});
        let config = dir.path().join("config");
        std::fs::create_dir(&config)?;
        std::fs::write(config.join("ailoop.yaml"), settings.to_string())?;
        Ok(dir.with("AILOOP_CONFIG", "config"))
    }

    async fn end(self) -> anyhow::Result<()> {
        for (_, edge) in self.edges {
            edge.drain(DRAIN_MAX).await;
        }
        self.a.end().await?;
        self.b.end().await
    }
}

fn ids(listed: &SessionPage) -> Vec<&str> {
    let mut ids: Vec<&str> = listed.sessions.iter().map(|session| session.session_id.as_str()).collect();
    ids.sort_unstable();
    ids
}

/// Runs a turn to its end.
async fn say(client: &TestClient, session: &str, text: &str) -> anyhow::Result<()> {
    client.send(session, text, "queue").await?;
    let answer = format!("Done with {text}.");
    eventually("the turn ends", async || {
        let history = client.history(session).await.unwrap_or_default();
        history.last().is_some_and(|message| message["content"].as_str().unwrap_or_default().contains(&answer))
            && client.phase(session).await.is_ok_and(|phase| phase == "idle")
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_server_of_one_cell_killed_the_other_does_not_notice() -> anyhow::Result<()> {
    let model = ModelServer::start(reply).await?;
    let mut cells = Box::pin(TwoCells::start(&model)).await?;
    for (tenant, edge) in &cells.edges {
        let client = cells.client(edge).await?;
        for cell in ["a", "b"] {
            let id = id_of(tenant, cell)?;
            client.start_interactive(&id, "begin").await?;
            let fleet = if cell == "a" { &cells.a } else { &cells.b };
            assert!(fleet.bus.head(&key_of(tenant, &id)?, Read::Leader).await?.is_some(), "{id} is not in {cell}");
            say(&client, &id, "more").await?;
        }
        let expected = [id_of(tenant, "a")?, id_of(tenant, "b")?];
        eventually("both are listed", async || client.list().await.is_ok_and(|listed| ids(&listed) == expected))
            .await?;
    }

    cells.b.nats.kill();
    for (tenant, edge) in &cells.edges {
        let client = cells.client(edge).await?;
        let (in_a, in_b) = (id_of(tenant, "a")?, id_of(tenant, "b")?);
        // At once, and not only when the edge has noticed.
        soon("a turn in the other cell", say(&client, &in_a, "meanwhile")).await??;
        eventually("the list names the missing cell", async || {
            client.list().await.is_ok_and(|listed| listed.missing_cells == ["b"] && ids(&listed) == [in_a.as_str()])
        })
        .await?;
        let refused = client.phase(&in_b).await.err().context("its cell is gone")?.to_string();
        assert!(refused.contains("unavailable") && refused.contains("cell b"), "{refused}");
        assert!(edge.readiness().is_ready());
        client.start_interactive("", "a generated id has a home that is there").await?;
    }

    cells.b.nats.resume().await?;
    for (tenant, edge) in &cells.edges {
        let client = cells.client(edge).await?;
        let in_b = id_of(tenant, "b")?;
        eventually("the cell is back", async || client.phase(&in_b).await.is_ok_and(|phase| phase == "idle")).await?;
        say(&client, &in_b, "afterwards").await?;
        eventually("the list is whole", async || {
            client.list().await.is_ok_and(|listed| listed.missing_cells.is_empty() && ids(&listed).len() == 3)
        })
        .await?;
    }
    cells.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resting_session_is_moved_by_the_command_and_its_watch_goes_on() -> anyhow::Result<()> {
    let model = ModelServer::start(reply).await?;
    let cells = Box::pin(TwoCells::start(&model)).await?;
    let dir = cells.commands()?;
    let (tenant, edge) = &cells.edges[0];
    let (client, id) = (cells.client(edge).await?, id_of(tenant, "a")?);
    client.start_interactive(&id, "begin").await?;
    say(&client, &id, "here").await?;
    let mut watch = client.watch(&id).await?;

    let moved = dir.run(["move", &id, "--tenant", tenant, "--to", "b"]).await?;
    assert_eq!(
        (moved.code, moved.stdout.as_str()),
        (0, format!("{id}\tmoved from a to b\n").as_str()),
        "{}",
        moved.stderr
    );
    let again = dir.run(["move", &id, "--tenant", tenant, "--to", "b"]).await?;
    assert_eq!((again.code, again.stdout.as_str()), (0, format!("{id}\tis in b\n").as_str()), "{}", again.stderr);

    say(&client, &id, "there").await?;
    watch.until("message.ai_full_received", |data| data["text"] == "Done with there.").await?;
    let refused = client.start_interactive(&id, "a second session").await.err().context("the id is in use")?;
    assert!(refused.to_string().contains("session_exists"), "{refused}");
    let requests = model.requests();
    assert!(requests.last().is_some_and(|request| request.messages().len() >= 6), "it has forgotten what was before");

    let exported = dir.run(["export", &id, "--tenant", tenant]).await?;
    assert!(exported.code == 0 && exported.stdout.contains("session_imported"), "{}", exported.stderr);
    let elsewhere = dir.run(["export", &id, "--tenant", tenant, "--cell", "a"]).await?;
    assert_eq!(elsewhere.error()?, "session_moved");

    let back = dir.run(["move", &id, "--tenant", tenant, "--to", "a"]).await?;
    assert_eq!(back.code, 0, "{}", back.stderr);
    say(&client, &id, "back").await?;
    watch.until("message.ai_full_received", |data| data["text"] == "Done with back.").await?;
    client.control(&id, Control::Stop).await?;
    watch.until("session_ended", |_| true).await?;
    let erased = dir.run(["sessions", "rm", &id, "--tenant", tenant, "--yes"]).await?;
    assert_eq!(erased.code, 0, "{}", erased.stderr);
    for fleet in [&cells.a, &cells.b] {
        assert!(fleet.bus.head(&key_of(tenant, &id)?, Read::Leader).await?.is_none());
    }
    cells.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_works_is_not_moved() -> anyhow::Result<()> {
    let gate = ailoop_tests::model::Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |request| reply(request).before(&held)).await?;
    let cells = Box::pin(TwoCells::start(&model)).await?;
    let dir = cells.commands()?;
    let (tenant, edge) = &cells.edges[0];
    let (client, id) = (cells.client(edge).await?, id_of(tenant, "a")?);
    client.start_interactive(&id, "begin").await?;
    gate.reached().await;
    let refused = dir.run(["move", &id, "--tenant", tenant, "--to", "b"]).await?;
    assert_eq!((refused.code, refused.error()?), (1, "not_now"));
    let unknown = dir.run(["move", "nobody", "--tenant", tenant, "--to", "b"]).await?;
    assert_eq!(unknown.error()?, "unknown_session");
    let no_cell = dir.run(["move", &id, "--tenant", tenant, "--to", "c"]).await?;
    assert_eq!((no_cell.code, no_cell.error()?), (2, "bad_request"));
    gate.open();
    eventually("it rests", async || client.phase(&id).await.is_ok_and(|phase| phase == "idle")).await?;
    assert_eq!(dir.run(["move", &id, "--tenant", tenant, "--to", "b"]).await?.code, 0);
    cells.end().await
}
