//! The command line and fleets elsewhere: contexts, tokens and TLS.

use ailoop_tests::cli::WorkDir;
use ailoop_tests::model::ModelServer;
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::tls::TlsFront;
use serde_json::Value;

const TOKEN: &str = "a-token-of-clients";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_reaches_an_edge_behind_tls_with_its_token() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(Vec::new()).await?;
    let fleet = ProcessFleet::with(&[("test", &model.base_url())], &[("AILOOP__EDGE__TOKEN", TOKEN)]).await?;
    let edge = fleet.edge().await?;
    let front = TlsFront::before(edge.addresses()?.1).await?;
    let (url, ca_file) = (front.url(), front.ca_file().display().to_string());
    let work_dir = WorkDir::new()?;
    let token_file = work_dir.path().join("token");
    std::fs::write(&token_file, format!("{TOKEN}\n"))?;
    let token_file = token_file.display().to_string();
    let ok = async |arguments: &[&str]| -> anyhow::Result<String> {
        let outcome = work_dir.run(arguments).await?;
        anyhow::ensure!(outcome.code == 0, "{arguments:?}: {}", outcome.stderr);
        Ok(outcome.stdout)
    };
    let refused = async |arguments: &[&str]| -> anyhow::Result<(String, i32)> {
        let outcome = work_dir.run(arguments).await?;
        Ok((outcome.error()?.to_owned(), outcome.code))
    };

    // A certificate of an unknown authority, and a token that is missing.
    assert_eq!(refused(&["sessions", "--url", &url, "--token", TOKEN]).await?, ("unavailable".to_owned(), 3));
    assert_eq!(refused(&["sessions", "--url", &url, "--ca-file", &ca_file]).await?, ("unauthorized".to_owned(), 1));
    ok(&["sessions", "--url", &url, "--ca-file", &ca_file, "--token", TOKEN]).await?;
    // The token goes to no other machine in clear; nothing listens there.
    let clear = ["sessions", "--url", "http://ailoop.invalid:7071", "--token", TOKEN];
    assert_eq!(refused(&clear).await?, ("unauthorized".to_owned(), 2));

    // The first context is the current one; another one is used by its name.
    ok(&["context", "set", "prod", "--url", &url, "--token-file", &token_file, "--ca-file", &ca_file]).await?;
    ok(&["sessions"]).await?;
    ok(&["context", "set", "plain", "--url", &edge.url(), "--token-file", &token_file]).await?;
    ok(&["sessions", "--context", "plain"]).await?;
    ok(&["context", "use", "plain"]).await?;
    let listed: Value = serde_json::from_str(&ok(&["context", "list", "--json"]).await?)?;
    assert_eq!((&listed["current"], &listed["contexts"]["prod"]["url"]), (&"plain".into(), &url.into()));
    assert!(!listed.to_string().contains(TOKEN), "{listed}");
    ok(&["sessions"]).await?;
    ok(&["context", "rm", "plain"]).await?;
    assert_eq!(refused(&["sessions"]).await?, ("unavailable".to_owned(), 3));
    assert_eq!(refused(&["sessions", "--context", "plain"]).await?, ("bad_request".to_owned(), 2));
    let missing = ["context", "set", "x", "--url", "https://ailoop.example.com", "--token-file", "/nowhere"];
    assert_eq!(refused(&missing).await?, ("unauthorized".to_owned(), 2));
    std::fs::write(work_dir.path().join(".config/ailoop/contexts.json"), "{")?;
    assert_eq!(refused(&["sessions"]).await?, ("bad_config".to_owned(), 1));
    Ok(())
}
