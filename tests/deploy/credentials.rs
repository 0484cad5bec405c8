//! Users by credentials: a tool's user without a restart, revocation, expiry, and files that cannot be used.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::nats::NatsServer;
use ailoop_tests::wait::{PATIENCE, eventually, soon};
use ailoop_tool::{Call, Effect, Serving, Tool, ToolError, Tools};
use anyhow::{Context, ensure};
use bus::{Bus, NatsConfig};
use contract::subject;
use contract::{Coded as _, ErrorCode, TenantId, ToolName};
use nats_credentials::CredentialsFile;
use serde_json::json;

use crate::deploy::probe::Probe;

/// `ailoop nats-auth` with the keys of a server.
pub(crate) struct NatsAuth {
    work_dir: WorkDir,
    keys: String,
    url: String,
}

impl NatsAuth {
    pub(crate) fn of(server: &NatsServer) -> anyhow::Result<Self> {
        let keys = server.auth_directory().display().to_string();
        Ok(Self { work_dir: WorkDir::new()?, keys, url: server.url() })
    }

    /// Runs `ailoop nats-auth user add`; returns the path of the credentials file.
    pub(crate) async fn add(&self, args: &[&str], file: &str) -> anyhow::Result<PathBuf> {
        let all = ["nats-auth", "user", "add", "--keys", &self.keys].into_iter().chain(args.iter().copied());
        let added = self.work_dir.run(all).await?;
        ensure!(added.code == 0, "{}", added.stderr);
        Ok(Path::new(&self.keys).join("users").join(file))
    }

    /// Runs a subcommand that asks the server; returns its exit code, stdout and stderr.
    pub(crate) async fn ask(&self, args: &[&str]) -> anyhow::Result<(i32, String, String)> {
        let server = ["--keys", self.keys.as_str(), "--nats", self.url.as_str()];
        let output = self.work_dir.run(["nats-auth"].iter().chain(args).chain(&server)).await?;
        Ok((output.code, output.stdout, output.stderr))
    }

    pub(crate) async fn revoke(&self, user: &str) -> anyhow::Result<()> {
        let (code, _, stderr) = self.ask(&["user", "revoke", user]).await?;
        ensure!(code == 0, "{stderr}");
        Ok(())
    }
}

fn counting(name: &str) -> Tool {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let tool = Tool::new(name).description("Counts.").parameters(schema).effect(Effect::Pure);
    tool.handler(async |call: Call| {
        let arguments: serde_json::Value = call.arguments()?;
        let text = arguments["text"].as_str().ok_or_else(|| ToolError::new("there is no text"))?;
        Ok(json!({"words": text.split_whitespace().count()}))
    })
}

async fn serve(server: &NatsServer, tenant: &str, tool: &str, file: &Path) -> anyhow::Result<Serving> {
    let tools = Tools::connect_with_credentials(&server.url(), file).await?;
    Ok(tools.tenant(tenant).tool(counting(tool)).serve().await?)
}

async fn call(executor: &Bus, tenant: &str, tool: &str) -> anyhow::Result<String> {
    let subject = subject::tool(&TenantId::new(tenant)?, &ToolName::new(tool)?);
    let body = json!({"text": "one two"}).to_string();
    let answer = executor.transport().request(&subject, Vec::new(), body.into(), PATIENCE).await?;
    Ok(String::from_utf8(answer.payload.to_vec())?)
}

fn refusal(error: &bus::BusError) -> (ErrorCode, String) {
    (error.code(), error.to_string())
}

async fn refused(config: &NatsConfig) -> anyhow::Result<(ErrorCode, String)> {
    let error = Bus::connect(config).await.err().context("it is accepted")?;
    Ok(refusal(&error))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_user_added_while_the_server_runs_serves_its_tools_of_its_tenant_only() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let executor = Bus::connect(&server.config_of("executor")).await?;
    let auth = NatsAuth::of(&server)?;
    let weather = auth.add(&["--tool", "weather", "--tool", "tides"], "weather.creds").await?;
    let acme = auth.add(&["--tool", "weather", "--tenant", "acme"], "acme-weather.creds").await?;
    for (tenant, file) in [("default", &weather), ("acme", &acme)] {
        let serving = serve(&server, tenant, "weather", file).await?;
        eventually("the tool answers", async || {
            call(&executor, tenant, "weather").await.is_ok_and(|answer| answer == r#"{"words":2}"#)
        })
        .await?;
        serving.stop(PATIENCE).await;
    }
    // Its JWT is longer than the line that nats-server reads by default.
    let names: Vec<String> = (0..20).map(|n| format!("weather_forecast_{n}")).collect();
    let many: Vec<&str> = names.iter().flat_map(|name| ["--tool", name]).collect();
    let many = auth.add(&many, "weather_forecast_0.creds").await?;
    let mut probe = Probe::with_credentials(&server, "many", &many).await?;
    assert!(probe.may_subscribe("ai_tool.default.weather_forecast_19 tools").await?);

    let mut probe = Probe::with_credentials(&server, "weather", &weather).await?;
    for subject in [
        "ai_tool.default.weather tools",
        "ai_tool.default.tides tools",
        "ai_tool_cancel.default.tides",
        "$SRV.INFO.tides",
    ] {
        assert!(probe.may_subscribe(subject).await?, "{subject}");
    }
    for subject in [
        "ai_tool.default.weather",
        "ai_tool.default.weather another",
        "ai_tool.acme.weather tools",
        "ai_tool.default.read_file tools",
        "ai_tool.*.weather tools",
        "ai_tool.>",
        "ai_loop.session_started.default.s",
        "_INBOX_executor.>",
        "_INBOX_weather.>",
        ">",
    ] {
        assert!(!probe.may_subscribe(subject).await?, "{subject}");
    }
    for subject in ["ai_tool.default.weather", "ai_loop.log.default.s.0.0", "$JS.API.INFO", "$SYS.REQ.SERVER.PING"] {
        assert!(!probe.may_publish(subject).await?, "{subject}");
    }
    let mut probe = Probe::with_credentials(&server, "weather", &acme).await?;
    assert!(probe.may_subscribe("ai_tool.acme.weather tools").await?);
    assert!(!probe.may_subscribe("ai_tool.default.weather tools").await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_revoked_is_disconnected_at_once_and_refused_also_after_a_restart() -> anyhow::Result<()> {
    let mut server = NatsServer::start_guarded().await?;
    let auth = NatsAuth::of(&server)?;
    let file = auth.add(&["--tool", "weather"], "weather.creds").await?;
    let public_key = CredentialsFile::new(&file).read()?.claims.public_key;
    let tool = async_nats::ConnectOptions::with_credentials_file(&file).await?.connect(server.url()).await?;
    let (_, listed, _) = auth.ask(&["user", "list"]).await?;
    let line = listed.lines().find(|line| line.contains(&public_key)).context("it is listed")?;
    assert!(line.contains("weather") && line.contains("valid") && line.contains('1'), "{line}");

    auth.revoke(&public_key).await?;
    eventually("it is disconnected", async || tool.connection_state() != async_nats::connection::State::Connected)
        .await?;
    let config = NatsConfig { credentials: Some(file.clone()), ..server.config() };
    let (code, message) = refused(&config).await?;
    assert_eq!(code, ErrorCode::Unauthorized);
    for part in [&file.display().to_string(), &public_key, "revoked", "ailoop nats-auth user add"] {
        assert!(message.contains(part), "{message}");
    }
    let (_, listed, _) = auth.ask(&["user", "list", "--json"]).await?;
    let line = listed.lines().find(|line| line.contains(&public_key)).context("it is listed")?;
    assert!(line.contains(r#""revoked":true"#) && line.contains(r#""connections":[]"#), "{line}");

    // The server keeps it, and where its store of accounts is lost, the file that it includes has it.
    server.restart().await?;
    assert_eq!(refused(&NatsConfig { url: server.url(), ..config.clone() }).await?.0, ErrorCode::Unauthorized);
    server.kill();
    server.remove_accounts()?;
    server.resume().await?;
    assert_eq!(refused(&NatsConfig { url: server.url(), ..config }).await?.0, ErrorCode::Unauthorized);
    Bus::connect(&server.config_of("executor")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_in_flight_is_answered_while_another_user_is_revoked() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let executor = Bus::connect(&server.config_of("executor")).await?;
    let auth = NatsAuth::of(&server)?;
    let other = auth.add(&["--tool", "weather"], "weather.creds").await?;
    let tool = Probe::of(&server, "word_count").await?.client;
    let mut calls = tool.queue_subscribe("ai_tool.default.word_count", "tools".to_owned()).await?;
    tool.flush().await?;
    // A user was added just now: nats-server loses requests that arrive while it replaces the account.
    eventually("calls reach the tool", async || {
        use futures::StreamExt as _;
        let asked = call(&executor, "default", "word_count");
        let came = async {
            let call = calls.next().await?;
            tool.publish(call.reply?, "here".into()).await.ok()
        };
        tokio::time::timeout(Duration::from_secs(2), async { tokio::join!(asked, came) })
            .await
            .is_ok_and(|(_, came)| came.is_some())
    })
    .await?;
    let asking = call(&executor, "default", "word_count");
    let answering = async {
        use futures::StreamExt as _;
        let call = soon("the call", calls.next()).await?.context("no call came")?;
        auth.revoke(&CredentialsFile::new(&other).read()?.claims.public_key).await?;
        tool.publish(call.reply.context("a reply subject")?, "late".into()).await?;
        anyhow::Ok(())
    };
    let (answer, answered) = tokio::join!(asking, answering);
    answered?;
    assert_eq!(answer?, "late");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_file_that_cannot_be_used_is_named_with_a_remedy() -> anyhow::Result<()> {
    let (server, other) = (NatsServer::start_guarded().await?, NatsServer::start_guarded().await?);
    let dir = tempfile::tempdir()?;
    let auth = NatsAuth::of(&server)?;
    let good = std::fs::read_to_string(server.credentials_of("gateway"))?;
    let (jwt, seed) = good.split_once("The seed").context("two blocks")?;
    let strange = std::fs::read_to_string(server.credentials_of("edge"))?;
    let strange_seed = strange.split_once("The seed").context("two blocks")?.1;
    let expired = auth.add(&["--role", "viewer", "--expires", "1s", "--name", "short"], "short.creds").await?;
    let written = |name: &str, text: &str| -> anyhow::Result<PathBuf> {
        let path = dir.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    };
    let is_expired = async || CredentialsFile::new(&expired).explain_refusal().contains("expired");
    eventually("the credential expires", is_expired).await?;
    for (file, why) in [
        (dir.path().join("missing.creds"), "cannot be read"),
        (written("empty.creds", "")?, "BEGIN NATS USER JWT"),
        (written("cut.creds", jwt)?, "BEGIN USER NKEY SEED"),
        (written("mixed.creds", &format!("{jwt}The seed{strange_seed}"))?, "does not belong"),
        (written("short-seed.creds", &format!("{jwt}The seed{}", seed.replace("\nSU", "\nS")))?, "not the seed"),
        (written("key.creds", &format!("{}The seed{seed}", jwt.replace("eyJ", "abc")))?, "not the JWT"),
        (other.credentials_of("gateway"), "belongs to another `ailoop nats-auth init`"),
        (expired.clone(), "expired at 20"),
    ] {
        let config = NatsConfig { credentials: Some(file.clone()), ..server.config() };
        let (code, message) = refused(&config).await?;
        assert_eq!(code, ErrorCode::Unauthorized, "{message}");
        for part in [&file.display().to_string(), why, "ailoop nats-auth"] {
            assert!(message.contains(part), "{}: {message}", file.display());
        }
        let Err(error) = Tools::connect_with_credentials(&server.url(), &file).await else {
            anyhow::bail!("a tool connects with {}", file.display())
        };
        assert!(error.to_string().contains(why), "{error}");
    }
    let (_, message) = refused(&server.config()).await?;
    assert!(message.contains("AILOOP__NATS__CREDENTIALS"), "{message}");
    Ok(())
}

/// The wrong order, and a credential that expires: the process comes back once its file has a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_without_a_valid_credential_comes_back_with_the_next_one() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let auth = NatsAuth::of(&server)?;
    let renew = ["--role", "gateway", "--replace"];
    let file = auth.add(&["--role", "gateway", "--replace", "--expires", "5s"], "gateway.creds").await?;
    let gateway = Bus::connect(&server.config_of("gateway")).await?;
    eventually("the server ends the connection of an expired credential", async || gateway.ping().await.is_err())
        .await?;
    auth.add(&renew, "").await?;
    eventually("it is back", async || gateway.ping().await.is_ok()).await?;

    auth.revoke(&file.display().to_string()).await?;
    eventually("the server refuses it", async || gateway.ping().await.is_err()).await?;
    auth.add(&renew, "").await?;
    eventually("it is back", async || gateway.ping().await.is_ok()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_tool_with_a_credentials_file_answers_before_and_after_a_rotation() -> anyhow::Result<()> {
    let python = tokio::task::spawn_blocking(ailoop_tests::python::with_nats).await??;
    let server = NatsServer::start_guarded().await?;
    let executor = Bus::connect(&server.config_of("executor")).await?;
    let auth = NatsAuth::of(&server)?;
    let file = server.credentials_of("word_count");
    let _tool = tokio::process::Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tools/python/word_count.py"))
        .env("NATS_URL", server.url())
        .env("NATS_CREDENTIALS", &file)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let answers = async || {
        eventually("the tool answers", async || {
            call(&executor, "default", "word_count").await.is_ok_and(|answer| answer == r#"{"words": 2}"#)
        })
        .await
    };
    answers().await?;
    let old = CredentialsFile::new(&file).read()?.claims.public_key;
    auth.add(&["--role", "word_count", "--replace"], "").await?;
    auth.revoke(&old).await?;
    answers().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permissions_of_an_older_version_are_found_and_updated_without_a_restart() -> anyhow::Result<()> {
    const NEW: &str = "ai_rpc.prompt.compose";
    let mut older = nats_permissions::roles();
    let edge = older.iter_mut().find(|role| role.name == "edge").context("a role")?;
    edge.permissions.publish.retain(|subject| subject != NEW);
    older.retain(|role| role.name != "toolsmith");
    let server = NatsServer::start_guarded_for(older).await?;
    let auth = NatsAuth::of(&server)?;
    assert!(!Probe::of(&server, "edge").await?.may_publish(NEW).await?);
    let gateway = Bus::connect(&server.config_of("gateway")).await?;
    let generation = gateway.transport().generation();

    let (code, _, stderr) = auth.ask(&["check"]).await?;
    assert!(code == 1 && stderr.contains("nats-auth update"), "{stderr}");
    let (code, _, stderr) = auth.ask(&["update"]).await?;
    assert!(code == 0 && stderr.contains("edge") && stderr.contains("toolsmith"), "{stderr}");
    assert!(!stderr.contains("gateway"), "{stderr}");
    let (code, _, stderr) = auth.ask(&["check"]).await?;
    assert_eq!(code, 0, "{stderr}");

    assert!(Probe::of(&server, "edge").await?.may_publish(NEW).await?);
    assert!(Probe::of(&server, "toolsmith").await?.may_publish("ai_tool.default.x").await?);
    gateway.ping().await?;
    assert_eq!(gateway.transport().generation(), generation, "users of other roles stay connected");
    Ok(())
}

#[tokio::test]
async fn mistakes_on_the_command_line_are_named() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let foreign = NatsServer::start_guarded().await?;
    let keys = server.auth_directory().display().to_string();
    let work_dir = WorkDir::new()?;
    let url = foreign.url();
    let add = ["nats-auth", "user", "add", "--keys", &keys];
    let with = |args: &[&str]| -> Vec<String> { add.iter().chain(args).map(|arg| (*arg).to_owned()).collect() };
    let many: Vec<String> = (0..200).flat_map(|n| ["--tool".to_owned(), format!("weather_{n}")]).collect();
    let many = add.iter().map(|arg| (*arg).to_owned()).chain(many).collect();
    for (args, code, why) in [
        (many, 2, "make several users"),
        (with(&["--tool", "a.b"]), 2, "no name of a tool"),
        (with(&["--role", "gatway"]), 1, "the roles are"),
        (with(&["--role", "gateway"]), 1, "--replace"),
        (with(&["--tool", "t", "--max-call", "4000"]), 2, "3600"),
        (with(&["--tool", "t", "--role", "edge"]), 2, "cannot be used with"),
        (with(&[]), 2, "required"),
        (["nats-auth", "init", "--directory", &keys].map(str::to_owned).to_vec(), 1, "exists"),
        (["nats-auth", "check", "--keys", "none"].map(str::to_owned).to_vec(), 1, "ailoop nats-auth init"),
        (
            ["nats-auth", "check", "--keys", &keys, "--nats", &url].map(str::to_owned).to_vec(),
            1,
            "does not know these keys",
        ),
        (
            ["nats-auth", "check", "--keys", &keys, "--nats", "nats://127.0.0.1:1"].map(str::to_owned).to_vec(),
            3,
            "no nats-server answers",
        ),
        (["nats-auth", "user", "revoke", "x", "--keys", &keys].map(str::to_owned).to_vec(), 2, "neither a public key"),
    ] {
        let output = work_dir.run(&args).await?;
        assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(why), "{args:?}: {}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn secrets_of_kubernetes_are_printed_and_changed_whole() -> anyhow::Result<()> {
    let work_dir = WorkDir::new()?;
    let made = work_dir.run(["nats-auth", "init", "--manifest", "ns"]).await?;
    assert_eq!(made.code, 0, "{}", made.stderr);
    for part in [
        "name: ailoop-nats-server",
        "  auth.conf: |",
        "name: ailoop-nats-users",
        "  orchestrator.creds: |",
        "  operator.creds: |",
        "name: ailoop-nats-keys",
        "name: ailoop-nats-routes",
        "  password: |-",
        "namespace: ns",
        "dir: \"/data/jwt\"",
    ] {
        assert!(made.stdout.contains(part), "{part}");
    }
    let secrets = work_dir.path().join("secrets.yaml");
    std::fs::write(&secrets, &made.stdout)?;
    let stdin = || std::fs::File::open(&secrets);
    let add = ["nats-auth", "user", "add", "--keys", "-"];
    let rotated = work_dir.run_with(add.iter().chain(&["--role", "edge", "--replace"]), stdin()?).await?;
    assert_eq!(rotated.code, 0, "{}", rotated.stderr);
    assert!(rotated.stderr.contains("ailoop nats-auth user revoke U"), "{}", rotated.stderr);
    // The whole Secret, so that `kubectl apply` removes no other key of it.
    let roles = nats_permissions::roles().len();
    assert_eq!(rotated.stdout.matches(".creds: |").count(), roles);
    assert_eq!(rotated.stdout.matches("kind: Secret").count(), 1);
    let file = |text: &str, name: &str| {
        text.split_once(name).map(|(_, rest)| rest.lines().nth(2).unwrap_or_default().to_owned())
    };
    assert_ne!(file(&rotated.stdout, "edge.creds"), file(&made.stdout, "edge.creds"));
    assert_eq!(file(&rotated.stdout, "gateway.creds"), file(&made.stdout, "gateway.creds"));

    let tool = work_dir.run_with(add.iter().chain(&["--tool", "Word_x", "--manifest", "tools"]), stdin()?).await?;
    for part in ["name: ailoop-nats-user-word-x", "namespace: tools", "  Word_x.creds: |"] {
        assert!(tool.stdout.contains(part), "{} {}", tool.stdout, tool.stderr);
    }
    Ok(())
}
